"""The way from a report to the review of its run: a page in the run directory that a report's links lead to.

While a review is running, the page leads on to it, to the image that the link names. Else it says which command starts
one. It then holds the token of the review, so that its owner alone may read it.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from bomd.files import writing

PAGE = "review.html"
TEMPLATES = Path(__file__).parent / "templates"


def link_to_review(run: Path, page: Path) -> dict[str, Any] | None:
    """Where links from this page to the review of a run lead, which gets its gate, and the command that starts it.

    None where the run directory cannot be written to, so that no review can take place either.
    """
    try:
        if not (run / PAGE).exists():
            _write(run, "")
        way = os.path.relpath(run.resolve() / PAGE, page.resolve().parent)
    except (OSError, ValueError):  # read only; or on another drive
        return None
    return {"href": quote(Path(way).as_posix()), "command": f"bomd review {shlex.quote(str(run))} --open"}


@contextmanager
def opened(run: Path, address: str) -> Iterator[Path]:
    """Lead whoever opens the gate of a run to this address, token included, until the review ends."""
    with writing(run / PAGE):
        _write(run, address)
    try:
        yield run / PAGE
    finally:
        _write(run, "")


def rendered(template: Path, filters: Mapping[str, Any] | None = None, /, **values: Any) -> str:
    """A page from its template; names, ids and settings are anybody's text, and become no markup."""
    folder = FileSystemLoader(template.parent)
    whole = Environment(loader=folder, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    whole.filters |= filters or {}
    return whole.get_template(template.name).render(**values)


def script(name: str) -> dict[str, Any]:
    """A script of the templates' folder and its hash, by which alone a page lets it run."""
    text = (TEMPLATES / name).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return {"text": Markup(text), "hash": f"sha256-{digest}"}  # noqa: S704 - our own file


def _write(run: Path, address: str) -> None:
    """Put the page in its place at once, readable by its owner alone; a link there is replaced, not followed."""
    text = rendered(TEMPLATES / "gate.html.j2", address=address, script=script("gate.js"))
    handle, name = tempfile.mkstemp(dir=run, prefix=f".{PAGE}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(name).replace(run / PAGE)
    finally:
        Path(name).unlink(missing_ok=True)
