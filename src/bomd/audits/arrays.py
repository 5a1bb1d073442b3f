"""Files of a user's own that stand in for training: features, probabilities, and rates of wrong labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.clean.features import blocks
from bomd.clean.rates import known_rates
from bomd.data.cells import meaning
from bomd.data.label_files import read_table
from bomd.errors import InputError
from bomd.files import reading
from bomd.tables import NO_FINDING, Floats, Text, rows_of

COLUMNS = ("class", "miss", "false_alarm")  # of a table of rates


@dataclass(frozen=True, eq=False)
class Rows:
    """(N) rows of (R, D) numbers, which may be a file larger than memory: only those that are asked for are read."""

    values: NDArray[Any]
    rows: NDArray[np.intp]

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.rows), self.values.shape[1]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, places: Any) -> Floats:
        return np.asarray(self.values[self.rows[places]], dtype=np.float32)

    def take(self, places: NDArray[np.intp]) -> Rows:
        """Fewer of them, or in another order."""
        return Rows(self.values, self.rows[places])


def read_features(file: Path, ids: Text, rows: Sequence[int], records: int) -> Rows:
    """(N, D) embeddings of the images with these ids.

    The file is `.npy` with one row for each record of the label file, which stays on disk, or `.npz` with "ids" and
    "features".
    """
    return _rows(file, "features", ids, rows, records)[0]


def read_probabilities(
    file: Path, ids: Text, rows: Sequence[int], records: int, given: Sequence[str], judged: Sequence[str]
) -> Floats:
    """(N, C) any model's probabilities that each class is labelled, best by a model that never saw the image.

    Args:
        file: `.npy` with one row for each record of the label file and one column for each class, in their order; or
            `.npz` with "ids", "probabilities" and maybe "classes", the names of its columns.
        judged: The C classes that are judged: the same, and maybe "No Finding", which follows from the others.
    """
    found, named = _rows(file, "probabilities", ids, rows, records)
    values = found[:]
    names = [str(name) for name in named["classes"]] if "classes" in named else list(given)
    if values.shape[1] != len(names):
        raise InputError(f"{file} has {values.shape[1]} columns of probabilities for {len(names)} classes.")
    if not ((values >= 0) & (values <= 1)).all():
        raise InputError(f"Probabilities in {file} must lie from 0 to 1, not {values.min():g} to {values.max():g}.")
    missing = [name for name in given if name not in names]
    if missing:
        known = ", ".join(map(repr, names))
        raise InputError(f"{file} has no probabilities of {missing[0]!r}: its classes are {known}.")
    columns = {name: values[:, names.index(name)] for name in given}
    if NO_FINDING not in columns:
        columns[NO_FINDING] = np.prod(1 - np.stack(list(columns.values()), axis=1), axis=1)
    return np.stack([columns[name] for name in judged], axis=1)


def read_rates(file: Path, classes: Sequence[str]) -> dict[str, dict[str, float]]:
    """Rates of wrong labels that somebody measured, by class.

    Args:
        file: CSV with the columns `class`, `miss` (share of the present findings that are not labelled) and
            `false_alarm` (share of the absent ones that are labelled); a blank is not known.
    """
    frame = read_table(file)
    if set(frame.columns) != set(COLUMNS):
        headings = ", ".join(map(repr, frame.columns)) or "none"
        raise InputError(f"{file} has the columns {headings}: it needs {', '.join(COLUMNS)}.")
    found: dict[str, dict[str, float]] = {}
    for name, *cells in frame[list(COLUMNS)].astype(str).itertuples(index=False, name=None):
        if name.strip() in found:
            raise InputError(f"{file} has two rows for {name.strip()!r}.")
        rates = {kind: meaning(cell) for kind, cell in zip(COLUMNS[1:], cells, strict=True) if cell.strip()}
        if None in rates.values():
            raise InputError(f"{file}: a rate of {name.strip()!r} is not a number.")
        found[name.strip()] = {kind: rate for kind, rate in rates.items() if rate is not None}
    if not any(found.values()):
        raise InputError(f"{file} holds no rates.")
    known_rates(found, classes)
    return {name: kinds for name, kinds in found.items() if kinds}


def _rows(file: Path, what: str, ids: Text, rows: Sequence[int], records: int) -> tuple[Rows, dict[str, NDArray[Any]]]:
    """(N, D) numbers of the audited images, and whatever else the file names."""
    with reading(f"{what} from {file}", Exception):  # numpy and zipfile raise many kinds for a damaged file
        loaded = np.load(file, mmap_mode="r", allow_pickle=False)
        named = dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else None
    values, names = loaded, None
    if named is not None:
        if not {"ids", what} <= set(named):
            raise InputError(f"{file} holds {', '.join(named) or 'nothing'}: it needs 'ids' and {what!r}.")
        values, names = named[what], named["ids"].astype(np.str_)
        if names.ndim != 1 or len(names) != len(values):
            raise InputError(f"{file}: {names.shape} ids for {len(values)} rows of {what}.")
    if values.ndim != 2 or not values.size or not np.issubdtype(values.dtype, np.number):
        shape = f"{values.dtype} of shape {values.shape}"
        raise InputError(f"{what.capitalize()} in {file} are {shape}; expected numbers (N, D).")
    if names is None and len(values) != records:
        raise InputError(f"{file} has {len(values)} rows of {what} for {records} rows of labels; use .npz with ids.")
    chosen = Rows(values, np.asarray(rows, dtype=np.intp) if names is None else rows_of(names, ids))
    for block in blocks(len(chosen), chosen):
        finite = np.isfinite(chosen[block]).all(axis=1)
        if not finite.all():
            first = str(ids[block][np.argmin(finite)])
            raise InputError(f"{what.capitalize()} of image {first!r} in {file} are not finite.")
    return chosen, named or {}
