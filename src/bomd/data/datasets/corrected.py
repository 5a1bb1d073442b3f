"""Labels that people decided on, in place of those that a dataset came with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bomd.data.cells import numbers_of, original
from bomd.data.label_files import read_cells, read_table
from bomd.errors import InputError
from bomd.files import reading, unpacked
from bomd.progress import say
from bomd.tables import NO_FINDING, Floats, LabelTable, Text, rows_of

# One line for each label of an image that people judged; `bomd decisions` writes it beside the table.
DETAILS = ("id", "class", "given", "decided", "reviewers", "time", "unresolved")


def details_beside(path: Path) -> Path:
    """Where the details of a table of reviewed labels are: who decided what, and when."""
    return path.with_name(f"{unpacked(path).stem}-details.csv")


def digest_of(path: Path) -> str:
    """Changes with the content of the file and of its details, so that a run's settings say what it learnt from."""
    files = [file for file in (path, details_beside(path)) if file == path or file.is_file()]
    with reading(path):
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


@dataclass(frozen=True, eq=False)
class Corrections:
    """What a file says about the labels of a dataset, whose N ids and C classes it has."""

    file: Path
    ids: Text
    classes: tuple[str, ...]
    values: Floats  # (N, C) labels of the file
    named: NDArray[np.bool_]  # (N, C) whether the file says anything about the label
    confirmed: NDArray[np.bool_]  # (N, C) whether people decided on it
    detailed: bool  # whether the file says which labels people decided on; else those are that differ

    def over(self, table: LabelTable, *, decided_only: bool = False) -> LabelTable:
        """The labels of a table with those of the file in their place, and which of them are confirmed.

        Args:
            table: Images of the dataset, all or some.
            decided_only: Take nothing but what people decided on. Noise that was added on purpose stays elsewhere;
                the file's other labels are from before it or from another draw of it.
        """
        rows = rows_of(self.ids, table.ids)
        chosen, confirmed = (self.confirmed if decided_only else self.named)[rows], self.confirmed[rows]
        return replace(table, values=np.where(chosen, self.values[rows], table.values), confirmed=confirmed)


def read_corrections(
    table: LabelTable, path: Path, digest: str | None = None, own: Callable[[Path], LabelTable] | None = None
) -> Corrections:
    """Read reviewed labels.

    Args:
        table: As the dataset came.
        path: What `bomd decisions` wrote, either file of it; or any table with a column `id` and a column for each
            class that is corrected, with 0, 1, a probability, or blank for unknown. Other columns do not matter.
        digest: What `digest_of` said of the file when the run was planned.
        own: Reads a table that has the form of the dataset's own.
    """
    if digest is not None and digest_of(path) != digest:
        raise InputError(f"{path} has changed since this run was set up: name it again with --labels.")
    frame = read_table(path)
    if set(DETAILS) <= set(frame.columns):
        values, decided = _from_details(frame, table, path)
        if not decided.any():
            raise InputError(f"{path} holds no decision on an image and class of the dataset.")
        return Corrections(path, table.ids, table.classes, values, decided, decided, True)
    if "id" in frame.columns and any(_heading(name, frame) for name in table.classes):
        values, named = _from_columns(frame, table, path)
    elif own is not None:
        values, named = _from_table(own(path), table, path)
    elif "id" not in frame.columns:
        raise InputError(f"{path} has no column 'id' to match images by.")
    else:
        raise InputError(f"{path} has no column named as a class of the dataset, such as {table.classes[0]!r}.")
    confirmed = _confirmed(table.replace(values), path)
    detailed = confirmed is not None
    if confirmed is None:
        confirmed = ~np.isnan(values) & (values != table.values)
    return Corrections(path, table.ids, table.classes, values, named, named & confirmed, detailed)


def mark_confirmed(table: LabelTable, path: Path) -> LabelTable:
    """A table that was read from a file, with what the details beside that file confirm."""
    confirmed = _confirmed(table, path)
    return table if confirmed is None or not confirmed.any() else replace(table, confirmed=confirmed)


def _confirmed(table: LabelTable, path: Path) -> NDArray[np.bool_] | None:
    """(N, C) labels on which people decided so; what was edited by hand afterwards nobody confirmed."""
    beside = details_beside(path)
    if not beside.is_file():
        return None
    said, decided = _from_details(read_details(beside), table, beside)
    return np.asarray(decided & (table.values == said))


def read_details(path: Path) -> pd.DataFrame:
    """A file of details as text; it may have no lines."""
    frame = read_cells(path, least=0)
    absent = [name for name in DETAILS if name not in frame.columns]
    if absent:
        remedy = "write it anew with `bomd decisions`, or call it something else if it is no details of a review"
        raise InputError(f"{path} has no column {absent[0]!r}: {remedy}.")
    return frame


def _from_columns(frame: pd.DataFrame, table: LabelTable, path: Path) -> tuple[Floats, NDArray[np.bool_]]:
    """(N, C) labels of a table with a column for each class, and which of them it names."""
    repeated = frame["id"][frame["id"].duplicated()]
    if len(repeated):
        raise InputError(f"{path} names image {repeated.iloc[0]!r} more than once.")
    rows = _places(table.ids.tolist())
    known = frame[frame["id"].isin(rows.keys())]
    if not len(known):
        raise InputError(f"{path} names no image of the dataset; its first is {frame['id'].iloc[0]!r}.")
    places = [rows[name] for name in known["id"]]
    values, named = _nothing(table)
    for column, heading in enumerate(_heading(name, frame) for name in table.classes):
        if heading is not None:
            values[places, column] = _numbers(known[heading], path, heading)
            named[places, column] = True
    return values, named


def _from_table(own: LabelTable, table: LabelTable, path: Path) -> tuple[Floats, NDArray[np.bool_]]:
    here = np.isin(table.ids, own.ids)
    if not here.any():
        raise InputError(f"{path} names no image of the dataset; its first is {str(own.ids[0])!r}.")
    values, named = _nothing(table)
    values[here] = own.select(table.ids[here]).align(table.classes).values
    named[np.ix_(here, np.isin(table.classes, own.classes))] = True
    return values, named


def _from_details(frame: pd.DataFrame, table: LabelTable, path: Path) -> tuple[Floats, NDArray[np.bool_]]:
    """(N, C) labels that people decided on, and where: not where they were evenly split or did not know."""
    rows = _places(table.ids.tolist())
    columns = _places(table.classes)
    settled = frame[(frame["unresolved"].str.strip() != "1") & (frame["decided"].str.strip() != "")]
    strange = settled["class"][~settled["class"].isin([*columns, NO_FINDING])]  # which an audit may have added
    if len(strange):
        say(f"{path} holds decisions on classes that are not there, such as {strange.iloc[0]!r}.")
    settled = settled[settled["id"].isin(rows.keys()) & settled["class"].isin(columns.keys())]
    values, decided = _nothing(table)
    places = ([rows[name] for name in settled["id"]], [columns[name] for name in settled["class"]])
    values[places] = _numbers(settled["decided"], path, "decided")
    decided[places] = True
    return values, decided


def _nothing(table: LabelTable) -> tuple[Floats, NDArray[np.bool_]]:
    shape = table.values.shape
    return np.full(shape, np.nan, dtype=np.float32), np.zeros(shape, dtype=np.bool_)


def _places(names: Sequence[str]) -> dict[str, int]:
    """The place of each name, also of what a reader makes of it, which takes apostrophes before a formula away."""
    own = {name: place for place, name in enumerate(names)}
    return {original(name): place for name, place in own.items()} | own


def _heading(name: str, frame: pd.DataFrame) -> str | None:
    """The column of a class; a reader takes an apostrophe before a formula away."""
    return next((heading for heading in (name, original(name)) if heading in frame.columns), None)


def _numbers(cells: pd.Series[str], path: Path, name: str) -> Floats:
    numbers, no_number = numbers_of(cells)
    wrong = no_number | (numbers < 0) | (numbers > 1)
    if wrong.any():
        raise InputError(f"{path}: {cells.to_numpy()[wrong][0]!r} in column {name!r} is no label from 0 to 1.")
    return numbers
