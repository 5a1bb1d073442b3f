"""One row per image: the plain CSV that spreadsheets, scripts and `bomd` itself read.

    id, path, patient, view, origin    what is known about the image
    Mass, Edema, ...                   given labels; blank where unknown
    proposed: Mass, ...                proposed labels
    flag, expected, wrong: Mass, ...   as `bomd.exchange.judgement.Doubts` has them

A file without proposals and doubts is an ordinary label file, as the dataset `folder` reads it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bomd import outside
from bomd.data.cells import csv_line, harmless, numbers_of
from bomd.data.datasets import folder
from bomd.data.label_files import read_table
from bomd.errors import InputError
from bomd.exchange.documents import listed, read_bytes, short
from bomd.exchange.judgement import Doubts, Judgement
from bomd.files import replacing, spare, unpacked, write_pieces
from bomd.review.export import label_cells
from bomd.tables import Floats, LabelTable, Text
from bomd.typed import nearest

PROPOSED, WRONG = "proposed: ", "wrong: "
ASIDE = (PROPOSED, WRONG, "margin: ")  # begin columns that are no class; the last were written by earlier versions
EXTRAS = {"path": "paths", "patient": "patients", "view": "views", "origin": "origins"}  # column: attribute
NAMES = ("id", "image", "image_id", "file_name", "filename", "file", "Image Index")  # of the id column, likeliest first

KEY = b"bomd"  # where the names of the classes stand in a Parquet file's own description


def write(judgement: Judgement, path: Path, keep: Literal["all", "given", "proposed"] = "all") -> None:
    """Write a CSV, or with the suffix `.tsv` one with tabs; with `.gz` after it, compressed.

    Args:
        keep: `given` or `proposed` for an ordinary label file with these alone; a label for which nothing is
            proposed is then the given one.
    """
    if keep == "given":
        judgement = Judgement(judgement.given)
    elif keep == "proposed":
        best = judgement.best.values
        judgement = Judgement(judgement.given.replace(np.where(np.isnan(best), judgement.given.values, best)))
    save(to_frame(judgement), path)


def save(frame: pd.DataFrame, path: Path, *, for_spreadsheets: bool = True) -> None:
    """Write the columns as text; an apostrophe keeps spreadsheets from running a cell, and `read` takes it away."""
    labels = frame.select_dtypes("float32").columns
    text = frame.assign(**{str(name): label_cells(frame[name].to_numpy()) for name in labels})
    if for_spreadsheets:
        words = [name for name in text if name not in labels and text[name].dtype != np.bool_]
        text = text.assign(**{str(name): [harmless(str(cell)) for cell in text[name]] for name in words})
        text.columns = pd.Index([harmless(str(name)) for name in text.columns])
    separator = "\t" if unpacked(path).suffix.lower() == ".tsv" else ","
    header = list(text.columns)
    spare(path, re.escape(f"{csv_line(header, separator)}\n"))
    records = chain([header], text.itertuples(index=False, name=None))
    write_pieces(path, (f"{csv_line(record, separator)}\n" for record in records))


def read(path: Path, images: Path | None = None, classes: Sequence[str] | None = None) -> Judgement:
    """Read a CSV or TSV, compressed or not, Parquet or Excel file.

    Args:
        images: The folder of the images. The columns may then be any that the dataset `folder` understands, and
            every row must have an image.
        classes: The columns with labels; by default all that are nothing else.
    """
    if images is not None:
        return Judgement(folder.read(path.parent, labels=path.absolute(), images=images.absolute(), classes=classes))
    if not path.is_file():
        raise InputError(f"No label file {path}.")
    return from_frame(read_table(path), str(path), classes)


def to_frame(judgement: Judgement) -> pd.DataFrame:
    """The same as a data frame: text, float32 with NaN for unknown, and bool."""
    given, proposed, doubts = judgement.given, judgement.proposed, judgement.doubts
    columns: dict[str, NDArray[Any]] = {"id": given.ids.astype(object)}
    extras = given.extras()
    columns |= {name: extras[kind].astype(object) for name, kind in EXTRAS.items() if kind in extras}
    columns |= _labels("", given.classes, given.values)
    if proposed is not None:
        columns |= _labels(PROPOSED, given.classes, proposed.values)
    if doubts is not None:
        columns |= {"flag": doubts.flagged, "expected": doubts.expected.astype(np.float32)}
        columns |= _labels(WRONG, given.classes, doubts.wrong)
    for name in given.classes:
        if name in ("id", "flag", "expected", "margin", *EXTRAS) or name.startswith(ASIDE) or name != name.strip():
            raise InputError(f"Class {name!r} is called like another column, or has spaces around it; rename it.")
    return pd.DataFrame(columns)


def from_frame(frame: pd.DataFrame, where: str, classes: Sequence[str] | None = None) -> Judgement:
    """Labels, proposals and doubts of a data frame with these columns, as text or as numbers."""
    names = [str(name) for name in frame.columns]
    id_column = next((name for name in NAMES if name in names), None)
    if id_column is None:
        raise InputError(f"{where} has no column 'id'.{nearest('id', names)}")
    for name in classes or ():
        if name not in names:
            raise InputError(f"{where} has no column {name!r}.{nearest(name, names)}")
    fixed = (*NAMES, "flag", "expected", "margin", *EXTRAS)
    chosen = tuple(classes or [name for name in names if name not in fixed and not name.startswith(ASIDE)])
    if not chosen:
        raise InputError(f"{where} has no column with labels beside {', '.join(names)}.")
    ids = _texts(frame, id_column)
    if (ids == "").any():
        raise InputError(f"{where}: column {id_column!r} is blank in row {int(np.argmax(ids == '')) + 1}.")
    extras: dict[str, Any] = {kind: _texts(frame, name) for name, kind in EXTRAS.items() if name in names}
    given = LabelTable(ids, chosen, _beside(frame, "", chosen, where), **extras)
    proposed, doubts = None, None
    if any(name.startswith(PROPOSED) for name in names):
        proposed = given.replace(_beside(frame, PROPOSED, chosen, where))
    if "flag" in names:
        expected = _beside(frame, "", ("expected",), where)[:, 0]
        doubts = Doubts(ids, truths(frame["flag"], where), expected, _beside(frame, WRONG, chosen, where))
    return Judgement(given, proposed, doubts)


def _labels(prefix: str, classes: Sequence[str], values: Floats) -> dict[str, NDArray[Any]]:
    return {f"{prefix}{name}": column.astype(np.float32) for name, column in zip(classes, values.T, strict=True)}


def _beside(frame: pd.DataFrame, prefix: str, classes: Sequence[str], where: str) -> Floats:
    """(N, C) columns with a prefix; a class that has none is unknown."""
    unknown = np.full(len(frame), np.nan, dtype=np.float32)
    columns = [f"{prefix}{name}" for name in classes]
    return np.stack([_numbers(frame, name, where) if name in frame else unknown for name in columns], axis=1)


def _texts(frame: pd.DataFrame, column: str) -> Text:
    """(N) cells as text; a missing one is blank."""
    return np.asarray(["" if pd.isna(cell) else str(cell).strip() for cell in frame[column]], dtype=np.str_)


def _numbers(frame: pd.DataFrame, column: str, where: str) -> Floats:
    """(N) numbers of one column; a blank is NaN, and anything else an error that says where."""
    values, no_number = numbers_of(frame[column])
    wrong = no_number | np.isinf(values)
    if wrong.any():
        hint = f"if it is not a class, {folder.CLASSES}, or the folder of the images (--set images=DIR)"
        raise InputError(f"{where}: {_first(frame[column], wrong)} is no label; {hint}.")
    return values


def truths(cells: pd.Series[Any], where: str) -> NDArray[np.bool_]:
    """(N) what a column of yes and no says."""
    values, _ = numbers_of(cells)
    unclear = ~np.isin(values, (0, 1))
    if unclear.any():
        raise InputError(f"{where}: {_first(cells, unclear)} is neither true nor false.")
    return np.asarray(values == 1)


def _first(cells: pd.Series[Any], wrong: NDArray[np.bool_]) -> str:
    row = int(np.argmax(wrong))
    return f"{short(str(cells.iloc[row]))} in column {cells.name!r}, row {row + 1}"


def write_parquet(judgement: Judgement, path: Path) -> None:
    """Write the same columns as Parquet, with their types and with null for unknown."""
    table = arrow_package().Table.from_pandas(to_frame(judgement), preserve_index=False)
    save_parquet(table, path, {KEY: json.dumps({"classes": judgement.given.classes}).encode()})


def read_parquet(path: Path, classes: Sequence[str] | None = None) -> Judgement:
    """Read one Parquet file; its classes are by default those that it names, or all columns that are nothing else."""
    table = load_parquet(path)
    own = (table.schema.metadata or {}).get(KEY)
    if classes is None and own is not None:
        try:
            classes = listed(json.loads(own)["classes"], f"{path}, classes")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{path} does not name its classes as expected: {folder.CLASSES}.") from error
    try:
        frame: pd.DataFrame = table.to_pandas()
    except Exception as error:  # types that pandas has no place for raise many kinds
        raise InputError(f"{path} has columns that are no labels: {_one_line(error)}") from error
    return from_frame(frame, str(path), classes)


def save_parquet(table: Any, path: Path, description: Mapping[bytes, bytes]) -> None:
    """Write an Arrow table with something said about it."""
    described = table.replace_schema_metadata({**(table.schema.metadata or {}), **description})
    spare(path, lambda there: _has_columns(there, described.column_names))
    with replacing(path) as temporary:
        import_module("pyarrow.parquet").write_table(described, temporary)


def _has_columns(path: Path, names: Sequence[str]) -> bool:
    with suppress(InputError):
        return list(load_parquet(path).column_names) == list(names)
    return False


def load_parquet(path: Path) -> Any:
    """The Arrow table in a Parquet file."""
    arrow = arrow_package()
    content = read_bytes(path)
    try:
        return import_module("pyarrow.parquet").read_table(arrow.BufferReader(content))
    except Exception as error:  # damaged files raise ArrowInvalid, OSError and others
        raise InputError(f"{path} is not Parquet, or it is damaged: {_one_line(error)}") from error


def arrow_package() -> Any:
    """pyarrow, which is optional."""
    return outside.package("pyarrow", "Parquet needs pyarrow: pip install 'bomd[parquet]'.")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
