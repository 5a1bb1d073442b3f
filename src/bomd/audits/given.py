"""The user's own table, read once: its labels with their images, and its text to be written again."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bomd.audits.columns import names
from bomd.data.datasets import folder
from bomd.data.datasets.corrected import details_beside, mark_confirmed
from bomd.data.datasets.folder import Layout
from bomd.data.label_files import as_text, named, read_verbatim, understood
from bomd.data.records import Records, as_records
from bomd.errors import InputError
from bomd.files import checksum
from bomd.progress import say
from bomd.tables import NO_FINDING, LabelTable


@dataclass(frozen=True)
class Source:
    """The user's own file, as it was when its labels were read: it may be edited while an audit trains."""

    file: str  # where it was
    digest: str  # its SHA-256


@dataclass(frozen=True, eq=False)
class Given:
    """What is audited."""

    name: str  # the file, or a word for a table in memory
    records: Records
    labels: LabelTable  # of the rows that have an image
    rows: tuple[int, ...]  # (N) the record of each label
    folder: Path
    missing: tuple[str, ...]  # ids without an image, which are left out
    layout: Layout
    repeated: int = 0  # rows that repeat an id, which are left out
    details: bytes | None = None  # who decided on which of the labels, where a file beside the table says so
    source: Source | None = None  # what was read, where it was a file
    blank: tuple[str, ...] = ()  # columns with nothing in them, which may be classes that nobody looked for


def read_given(
    table: LabelTable | pd.DataFrame | str | Path,
    images: str | Path | None,
    *,
    skip_missing: bool = False,
    drop_duplicates: bool = False,
    **columns: Any,
) -> Given:
    """Read labels and find their images; arguments as for `audit`."""
    confirmed, source = table if isinstance(table, LabelTable) else None, None
    if isinstance(table, LabelTable):
        if images is None and table.paths is not None and len(table):
            try:
                images = os.path.commonpath([str(Path(str(path)).absolute().parent) for path in table.paths])
            except ValueError as error:  # of Windows
                raise InputError("The images lie on several drives: put them below one folder.") from error
        columns = {"id_column": "id", "patient_column": "patient", "classes": list(table.classes)} | columns
        values = [["" if np.isnan(value) else f"{value:g}" for value in column] for column in table.values.T]
        named_by = {"id": table.ids.tolist(), "patient": table.groups.tolist()}
        table = pd.DataFrame(named_by | dict(zip(table.classes, values, strict=True)))
    if isinstance(table, pd.DataFrame):
        if images is None:
            raise InputError("A table in memory does not say where its images are: pass images, a folder.")
        name, text = "the table", as_text(table)
        frame, records, file = named(understood(text, name)), as_records(text), Path(name)
    else:
        file, name = Path(table).expanduser().absolute(), str(table)
        if not file.is_file():
            raise InputError(f"No label file {table}.")
        (frame, records), source = read_verbatim(file), Source(str(file), checksum(file))
    place = None if images is None else Path(images).expanduser().absolute()
    elsewhere = "if they lie elsewhere, name their folder with --images"
    try:
        index = folder.index_of(file.parent, place)
    except InputError as error:
        if place is None:
            raise InputError(f"{error.args[0].removesuffix('.')}; {elsewhere}.") from error
        raise
    layout = folder.understand(frame, file, index, folder.Columns(**columns))
    added = names([*layout.classes, NO_FINDING], exclusive=True)
    doubled = [column for column in added if column in layout.frame.columns]
    if doubled:
        raise InputError(f"{name} has a column {doubled[0]!r}, which an audit adds: audit the original, or rename it.")
    ids = folder.texts_of(layout, layout.id_column).tolist()
    first = set(folder.first_rows(np.asarray(ids, dtype=np.str_)).tolist())
    if len(first) < len(ids) and not drop_duplicates:
        doubles = folder.duplicates(layout, np.asarray(ids))
        raise InputError(f"{doubles}; keep the first row of each with --drop-duplicates.")
    there = [row for row in sorted(first) if layout.images.find(ids[row]) is not None]
    missing = tuple(ids[row] for row in sorted(first - set(there)))
    if missing and (not skip_missing or not there):
        shown = ", ".join(map(repr, missing[:5])) + (" ..." if len(missing) > 5 else "")
        wrong = "is the folder or the id column wrong?" if place is not None else f"{elsewhere}."
        remedy = wrong if not there else "leave them out with --skip-missing."
        case = layout.images.hint(missing)
        remedy = f"{case}{', or ' + remedy if there else '.'}" if case else remedy
        where = f"{len(missing)} of {len(ids)} rows have no image in {layout.images.folder}"
        raise InputError(f"{where}: {shown}; {remedy}")
    found = layout
    if len(there) < len(ids):  # a class that none of the others has is none of theirs
        chosen = folder.Columns(**({"id_column": layout.id_column} | columns))
        found = folder.understand(frame.iloc[there].reset_index(drop=True), file, layout.images, chosen)
    for line in found.summary():
        say(line)
    labels, details = folder.labels_of(found), None
    if source is not None and details_beside(file).is_file():
        labels, details = mark_confirmed(labels, file), details_beside(file).read_bytes()
    if confirmed is not None and confirmed.confirmed is not None:
        labels = replace(labels, confirmed=confirmed.select(labels.ids).confirmed)
    repeated = len(ids) - len(first)
    each = found.unused if found.label_column is None else ()
    blank = tuple(column for column in each if not found.frame[column].str.strip().any())
    images = layout.images.folder
    return Given(name, records, labels, tuple(there), images, missing, layout, repeated, details, source, blank)
