"""The change log as a page to print, check and sign: who decided what about the labels of which run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bomd.errors import InputError
from bomd.experiments.records import load_record
from bomd.files import is_stream, read_json, write_text
from bomd.review.change_log import KINDS, Entry, as_log, change_log
from bomd.review.decisions import FILE as DECISIONS
from bomd.review.decisions import JUDGEMENTS, Event, current, read_events
from bomd.review.export import Reviewed
from bomd.version import VERSION

TEMPLATES = Path(__file__).parent / "pages"
PAGE = ".html"  # the page lies beside the table under the same name


def write_log(run: Path, reviewed: Reviewed, file: Path) -> tuple[list[Entry], Path]:
    """Write the change log as a table, and beside it the same as a page that names the table's checksum.

    Returns:
        The lines, and where the page is.
    """
    page = file.with_suffix(PAGE)
    if is_stream(file) or page == file:
        raise InputError(f"--log takes a table such as changes.csv, not {file}: the page to sign goes beside it.")
    standing = current(read_events(run / DECISIONS, reviewed.labels.classes))
    entries = change_log(load_record(run), reviewed, standing)
    table = as_log(entries)
    write_text(file, table)
    write_text(page, as_page(run, reviewed, standing, entries, file.name, hashlib.sha256(table.encode()).hexdigest()))
    return entries, page


def as_page(
    run: Path,
    reviewed: Reviewed,
    standing: Mapping[str, Mapping[str, Event]],
    entries: Sequence[Entry],
    table: str,
    checksum: str,
) -> str:
    """One page without any script or file beside it."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,  # ids, names and classes are anybody's text
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["thousands"] = "{:,}".format
    people = {
        name: [event for event in events.values() if event.action in JUDGEMENTS] for name, events in standing.items()
    }
    facts = {
        "run": "/".join(run.resolve().parts[-3:]),
        "identity": identity(run),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "images": len(reviewed.labels),
        "judged": int((reviewed.reviewers > 0).sum()),
        "people": [
            {"name": name, "images": len(events), "last": max(event.time for event in events)}
            for name, events in sorted(people.items())
            if events
        ],
        "totals": {kind: sum(entry.kind == kind for entry in entries) for kind in KINDS},
        "findings": _by_finding(entries, reviewed.labels.classes),
        "entries": entries,
        "table": table,
        "checksum": checksum,
    }
    return environment.get_template("changes.html.j2").render(**facts)


def identity(run: Path) -> list[tuple[str, str]]:
    """What tells this run and its model from all others; a run that does not say something leaves it out."""
    found = [("Run", str(run.resolve()))]
    if (run / "result.json").is_file():
        facts = _table(run / "result.json")
        found.append(("Method", f"{facts.get('method', 'not known')}, seed {facts.get('seed', 'not known')}"))
    if (run / "environment.json").is_file():
        made = _table(run / "environment.json")
        version, commit = (made.get("versions") or {}).get("bomd"), made.get("commit")
        words = [f"bomd {version}"] if version else []
        words += [f"commit {str(commit)[:12]}{' with changes' if made.get('uncommitted') else ''}"] if commit else []
        if words:
            found.append(("Made with", ", ".join(words)))
    found.append(("Labels and evidence", f"labels.npz, SHA-256 {_digest(run / 'labels.npz')}"))
    if (run / "model" / "model.json").is_file():
        weights = _table(run / "model" / "model.json").get("checksums") or {}
        found += [("Model", f"{name}, SHA-256 {digest}") for name, digest in sorted(weights.items())]
    found.append(("Log written with", f"bomd {VERSION}"))
    return found


def _by_finding(entries: Sequence[Entry], classes: Sequence[str]) -> list[dict[str, Any]]:
    """Counts of each class that has a line."""
    found = []
    for name in classes:
        own = [entry for entry in entries if entry.finding == name]
        changed = [entry for entry in own if entry.kind == "changed"]
        counts = {
            "added": sum(entry.after == "1" for entry in changed),
            "removed": sum(entry.after == "0" for entry in changed),
            "unknown": sum(entry.after == "" for entry in changed),
            "confirmed": sum(entry.kind == "confirmed" for entry in own),
            "unresolved": sum(entry.kind == "unresolved" for entry in own),
        }
        if own:
            found.append({"name": name, **counts})
    return found


def _table(path: Path) -> dict[str, Any]:
    found = read_json(path)
    return found if isinstance(found, dict) else {}


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
