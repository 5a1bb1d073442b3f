"""Labels, proposals and flags in the forms of other tools. To add one, write its file and add a line here."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bomd.data.label_files import TEXTS, WORKBOOK
from bomd.errors import InputError
from bomd.exchange import cleanlab, cvat, fiftyone, hugging_face, image_folder, label_studio, table, torchxrayvision
from bomd.exchange.documents import short
from bomd.exchange.judgement import Judgement, read_run
from bomd.files import is_stream, reading, status
from bomd.typed import arguments, nearest


@dataclass(frozen=True)
class Exchange:
    """One form: `read(path, ...)` and `write(judgement, path, ...)`, whose other arguments are settings."""

    read: Callable[..., Judgement]
    write: Callable[..., None] | None = None  # nothing writes a run but a run
    suffixes: tuple[str, ...] = ()  # names that end so are of this form unless another is asked for


def read_cleanlab(
    path: Path, labels: Path | None = None, classes: Sequence[str] | None = None, images: Path | None = None
) -> Judgement:
    """See `cleanlab.read`; the labels that cleanlab was given may be a file of any form, or a run.

    Args:
        images: The folder of the images, where `labels` is a table that has to be understood by them.
    """
    if images is not None and labels is None:
        raise InputError(f"{path}: images say how to read labels, and no labels are given (--set labels=FILE).")
    of_labels: dict[str, Any] = {} if images is None else {"images": images}
    return cleanlab.read(path, None if labels is None else read(labels, **of_labels).given, classes)


EXCHANGES: dict[str, Exchange] = {
    "run": Exchange(read_run),
    "table": Exchange(table.read, table.write, TEXTS),
    "parquet": Exchange(table.read_parquet, table.write_parquet, (".parquet",)),
    "cleanlab": Exchange(read_cleanlab, cleanlab.write),
    "fiftyone": Exchange(fiftyone.read, fiftyone.write),
    "torchxrayvision": Exchange(torchxrayvision.read, torchxrayvision.write),
    "label-studio": Exchange(label_studio.read, label_studio.write),
    "cvat": Exchange(cvat.read, cvat.write, (".xml",)),
    "hugging-face": Exchange(hugging_face.read, hugging_face.write),
    "image-folder": Exchange(image_folder.read, image_folder.write, (".jsonl",)),
}


def convert(
    source: Path,
    target: Path,
    read_as: str | None = None,
    write_as: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Judgement:
    """Read one form and write another.

    Args:
        target: The file to write, or for FiftyOne the folder; over nothing but what was written so before.
        read_as: A key of `EXCHANGES`, as `write_as`; by default a folder is a run unless FiftyOne has written it, and
            a file what its suffix says.
        options: Settings of either form, by name: what the one that reads does not know is for the one that writes.
    """
    given = dict(options or {})
    reader = _form(read_as, source, "read").read
    own = {name: given.pop(name) for name in list(given) if name in inspect.signature(reader).parameters}
    _writer(write_as, target)  # before anything is read, which may take a while
    _check_is_other(target, source, own)
    judgement = read(source, read_as, **own)
    write(judgement, target, write_as, **given)
    return judgement


def _check_is_other(target: Path, source: Path, options: Mapping[str, Any]) -> None:
    """Refuse to write over what is read, which may say more than the form that is written."""
    there = None if is_stream(target) else status(str(target))
    for place in (source, *options.values()):
        found = status(str(place))
        same = found is not None and there is not None and os.path.samestat(found, there)
        if same and (place == source or target.is_file()):  # files may go into the folder of the images
            raise InputError(f"{target} is what is read, and would be lost: name another file as --output.")


def read(source: Path, form: str | None = None, **options: Any) -> Judgement:
    """Labels, with proposals and flags where there are some; arguments as for `convert`."""
    reader = partial(_form(form, source, "read").read, path=source)
    return reader(**arguments(reader, options, f"Settings to read {source}"))


def write(judgement: Judgement, target: Path, form: str | None = None, **options: Any) -> None:
    """Write them in another form; arguments as for `convert`."""
    writer = partial(_writer(form, target), judgement=judgement, path=target)
    writer(**arguments(writer, options, f"Settings to write {target}"))


def _form(name: str | None, place: Path, purpose: str) -> Exchange:
    with reading(short(str(place))):  # a name may be longer than any file's
        if purpose == "read" and not place.exists():
            raise InputError(f"No file or folder {place}.")
    if name is None and place.is_dir():
        theirs = fiftyone.is_export(place) if purpose == "read" else not (place / "labels.npz").exists()
        name = "fiftyone" if theirs else "run"
    if name is None and purpose == "read" and place.suffix.lower() == WORKBOOK:
        name = "table"  # which can be read and not written
    if name is None:
        name = next((name for name, form in EXCHANGES.items() if place.name.lower().endswith(form.suffixes)), None)
    if name is None:
        known = [name for name, form in EXCHANGES.items() if purpose == "read" or form.write is not None]
        raise InputError(f"The name {place.name!r} does not say how to {purpose} it: pass one of {', '.join(known)}.")
    if name not in EXCHANGES:
        raise InputError(f"Unknown form {name!r}.{nearest(name, EXCHANGES)}")
    return EXCHANGES[name]


def _writer(name: str | None, target: Path) -> Callable[..., None]:
    writer = _form(name, target, "write").write
    if writer is None:
        raise InputError("A run is only read; write another form.")
    return writer
