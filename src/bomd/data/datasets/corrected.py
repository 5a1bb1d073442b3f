"""Labels that people decided on, in place of those that a dataset came with."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd

from bomd.data.cells import original
from bomd.data.label_files import read_table
from bomd.errors import InputError
from bomd.tables import LabelTable


def digest_of(path: Path) -> str:
    """Changes with the content of the file, so that a run's settings say which labels it learnt from."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from error


def correct(table: LabelTable, path: Path, digest: str | None = None) -> LabelTable:
    """Take the labels of a CSV file for the images and classes that it names; all others stay as they are.

    Args:
        table: As the dataset came.
        path: A column `id`, and a column for each class that is corrected, with 0, 1, a probability, or blank for
            unknown. Other columns do not matter: `bomd decisions` writes such a file.
        digest: What `digest_of` said of the file when the run was planned.
    """
    if digest is not None and digest_of(path) != digest:
        raise InputError(f"{path} has changed since this run was set up: name it again with --labels.")
    frame = read_table(path)
    if "id" not in frame.columns:
        raise InputError(f"{path} has no column 'id' to match images by.")
    # A reader takes an apostrophe before a formula away, which is right unless the name itself has one.
    classes = {name: name if name in frame.columns else original(name) for name in table.classes}
    classes = {name: heading for name, heading in classes.items() if heading in frame.columns}
    if not classes:
        raise InputError(f"{path} has no column named as a class of the dataset, such as {table.classes[0]!r}.")
    repeated = frame["id"][frame["id"].duplicated()]
    if len(repeated):
        raise InputError(f"{path} names image {repeated.iloc[0]!r} more than once.")
    own = {name: row for row, name in enumerate(table.ids.tolist())}
    rows = {original(name): row for name, row in own.items()} | own
    known = frame["id"].isin(rows.keys())
    if not known.any():
        raise InputError(f"{path} names no image of the dataset; its first is {frame['id'].iloc[0]!r}.")
    places = [rows[name] for name in frame["id"][known]]
    values = table.values.copy()
    for name, heading in classes.items():
        values[places, table.classes.index(name)] = _numbers(frame[heading][known], path, heading)
    return table.replace(values)


def _numbers(cells: pd.Series[str], path: Path, name: str) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    stripped = cells.str.strip()
    numbers = pd.to_numeric(stripped.mask(stripped == ""), errors="coerce").to_numpy(dtype=np.float32)
    wrong = (stripped != "").to_numpy() & ~((numbers >= 0) & (numbers <= 1))
    if wrong.any():
        raise InputError(f"{path}: {stripped.to_numpy()[wrong][0]!r} in column {name!r} is no label from 0 to 1.")
    return numbers
