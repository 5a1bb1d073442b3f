"""The user's own table: read as it is, kept to the last character, and written again with columns beside it."""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bomd.audits.columns import names
from bomd.data.cells import csv_line, harmless
from bomd.data.datasets import folder
from bomd.data.datasets.corrected import details_beside, mark_confirmed
from bomd.data.datasets.folder import Layout
from bomd.data.label_files import UTF_8, kind_of, read_text, separator_of
from bomd.errors import InputError
from bomd.files import write_text
from bomd.tables import NO_FINDING, LabelTable

_ID, _PATIENT = "id", "patient"


@dataclass(frozen=True, eq=False)
class Records:
    """A separated file as text: nothing is parsed that need not be.

    Attributes:
        header: The first record as it stands in the file, without its line end.
        rows: All other records that are not blank, likewise.
        width: Cells of the header.
        widths: Cells of each row.
        separator: Between cells.
        newline: Between records.
        mark: The byte order mark, or nothing.
    """

    header: str
    rows: tuple[str, ...] = field(repr=False)
    width: int
    widths: tuple[int, ...] = field(repr=False)
    separator: str
    newline: str
    mark: str

    def text(self, rows: Sequence[int] | None = None) -> str:
        """The file with these rows only."""
        chosen = self.rows if rows is None else [self.rows[row] for row in rows]
        return self.mark + "".join(f"{line}{self.newline}" for line in (self.header, *chosen))

    def beside(self, header: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
        """The file with more columns at the right; every given character stays what and where it was.

        Only a row with a cell that a spreadsheet would run as a formula is written anew, with an apostrophe before it.
        """
        lines = [self._guarded(self.header) + self.separator + self._line(header)]
        for row, width, added in zip(self.rows, self.widths, cells, strict=True):
            lines.append(self._guarded(row) + self.separator * (1 + self.width - width) + self._line(added))
        return self.mark + "".join(f"{line}{self.newline}" for line in lines)

    def _guarded(self, record: str) -> str:
        cells = next(csv.reader(io.StringIO(record, newline=""), delimiter=self.separator))
        return record if all(harmless(cell) == cell for cell in cells) else self._line(cells)

    def _line(self, cells: Sequence[str]) -> str:
        return csv_line(map(harmless, cells), self.separator)


@dataclass(frozen=True, eq=False)
class Given:
    """What is audited.

    Attributes:
        name: The file, or a word for a table in memory.
        records: The table as text.
        labels: Its labels with image files, of the rows that have one.
        rows: (N) the record of each label.
        folder: Where the images are.
        missing: Ids without an image, which are left out.
        repeated: Rows that repeat an id, which are left out.
        layout: What the columns of the table are.
        details: Who decided on which of the labels, where a file beside the table says so.
    """

    name: str
    records: Records
    labels: LabelTable
    rows: tuple[int, ...]
    folder: Path
    missing: tuple[str, ...]
    layout: Layout
    repeated: int = 0
    details: Path | None = None


def read_given(
    table: LabelTable | pd.DataFrame | str | Path,
    images: str | Path | None,
    workplace: Path,
    *,
    skip_missing: bool = False,
    drop_duplicates: bool = False,
    **columns: Any,
) -> Given:
    """Read labels and find their images.

    Args:
        table: A CSV, TSV, Parquet or Excel file, a data frame with the same columns, or labels.
        images: The folder of the images, at any depth; by default as for the dataset `folder`, or where the paths
            of the labels lead.
        workplace: Where a table that is no text file is put down as one.
        skip_missing: Leave out rows whose image is not there, instead of refusing them.
        drop_duplicates: Keep the first row of an id that occurs again, instead of refusing the table.
        columns: What the columns are, as for the dataset `folder`.
    """
    confirmed: LabelTable | None = None
    if isinstance(table, LabelTable):
        confirmed = table
        if images is None and table.paths is not None and len(table):
            images = os.path.commonpath([str(Path(str(path)).absolute().parent) for path in table.paths])
        columns = {"id_column": _ID, "patient_column": _PATIENT, "classes": list(table.classes)} | columns
        table = _as_frame(table)
    if isinstance(table, pd.DataFrame):
        if images is None:
            raise InputError("A table in memory does not say where its images are: pass images, a folder.")
        file, name = workplace / "table.csv", "the table"
        write_text(file, _as_text(table))
    else:
        file, name = Path(table).expanduser().absolute(), str(table)
        if not file.is_file():
            raise InputError(f"No label file {table}.")
    original = file
    place = Path(images).expanduser().absolute() if images is not None else _usual_images(file)
    if kind_of(file) in ("Parquet file", "Excel workbook"):
        frame = folder.describe(file.parent, Path(file.name), place, **columns).frame
        file = workplace / "table.csv"
        write_text(file, _as_text(frame))
    layout = folder.describe(file.parent, Path(file.name), place, **columns)
    records = read_records(file)
    if len(records.rows) != len(layout.frame):
        raise InputError(f"{name}: rows cannot be told apart; look for a quotation mark that is never closed.")
    doubled = [column for column in names([*layout.classes, NO_FINDING]) if column in layout.frame.columns]
    if doubled:
        raise InputError(f"{name} has a column {doubled[0]!r}, which an audit adds: audit the original, or rename it.")
    ids = layout.frame[layout.id_column].str.strip().tolist()
    first = set(folder.first_rows(np.asarray(ids, dtype=np.str_)).tolist())
    if len(first) < len(ids) and not drop_duplicates:
        raise InputError(
            f"{folder.duplicates(layout, np.asarray(ids))}; keep the first row of each with --drop-duplicates."
        )
    there = [row for row in sorted(first) if not ids[row] or layout.images.find(ids[row]) is not None]
    missing = tuple(ids[row] for row in sorted(first - set(there)))
    if missing and (not skip_missing or not there):
        shown = ", ".join(map(repr, missing[:5])) + (" ..." if len(missing) > 5 else "")
        remedy = "is the folder or the id column wrong?" if not there else "or leave them out with --skip-missing."
        case = layout.images.hint(missing)
        remedy = f"{case}{', ' + remedy if there else '.'}" if case else remedy
        raise InputError(
            f"{len(missing)} of {len(ids)} rows have no image in {layout.images.folder}: {shown}; {remedy}"
        )
    if len(there) < len(ids):
        file = workplace / "found.csv"
        write_text(file, records.text(there))
        columns = {"id_column": layout.id_column} | columns
    labels = folder.read(file.parent, labels=Path(file.name), images=place, **columns)
    labels = mark_confirmed(labels, original)
    if confirmed is not None and confirmed.confirmed is not None:
        labels = replace(labels, confirmed=confirmed.select(labels.ids).confirmed)
    beside = details_beside(original)
    details = beside if beside.is_file() else None
    repeated = len(ids) - len(first)
    return Given(name, records, labels, tuple(there), layout.images.folder, missing, layout, repeated, details)


def read_records(file: Path) -> Records:
    """Cut a separated file into its records without touching what is in them.

    What is made of a file that is not UTF-8 gets a byte order mark, by which the program that wrote it knows UTF-8.
    """
    text, encoding = read_text(file)
    mark = "" if encoding == UTF_8 and not file.read_bytes().startswith(codecs.BOM_UTF8) else "\ufeff"
    separator = separator_of(file, encoding)
    newline = "\r\n" if "\r\n" in text else "\r" if "\n" not in text and "\r" in text else "\n"
    pending: list[str] = []

    def lines() -> Any:
        for line in io.StringIO(text, newline=""):
            pending.append(line)
            yield line

    found: list[str] = []
    widths: list[int] = []
    try:
        for cells in csv.reader(lines(), delimiter=separator):
            raw = "".join(pending).rstrip("\r\n")
            pending.clear()
            if raw.strip():
                found.append(raw)
                widths.append(len(cells))
    except csv.Error as error:
        raise InputError(f"Cannot read {file}: {error}.") from error
    return Records(found[0], tuple(found[1:]), widths[0], tuple(widths[1:]), separator, newline, mark)


def _as_frame(labels: LabelTable) -> pd.DataFrame:
    values = [["" if np.isnan(value) else f"{value:g}" for value in column] for column in labels.values.T]
    columns = {_ID: labels.ids.tolist(), _PATIENT: labels.groups.tolist()}
    return pd.DataFrame(columns | dict(zip(labels.classes, values, strict=True)))


def _as_text(frame: pd.DataFrame) -> str:
    if not len(frame):
        raise InputError("The data frame has no rows.")
    return str(frame.to_csv(index=False, lineterminator="\n"))


def _usual_images(file: Path) -> Path:
    """The dataset `folder` looks beside the table, wherever that is put down as text."""
    beside = file.parent / "images"
    return beside if beside.is_dir() else file.parent
