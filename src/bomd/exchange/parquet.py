"""The table of `bomd.exchange.table` as Parquet: the same columns, with their types and with null for unknown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from bomd import outside
from bomd.data.datasets.folder import CLASSES
from bomd.errors import InputError
from bomd.exchange.documents import listed, read_bytes
from bomd.exchange.judgement import Judgement
from bomd.exchange.table import from_frame, to_frame
from bomd.files import replacing

KEY = b"bomd"  # where the names of the classes stand in the file's own description


def write(judgement: Judgement, path: Path) -> None:
    """Write one Parquet file."""
    table = arrow_package().Table.from_pandas(to_frame(judgement), preserve_index=False)
    save(table, path, {KEY: json.dumps({"classes": judgement.given.classes}).encode()})


def read(path: Path, classes: Sequence[str] | None = None) -> Judgement:
    """Read one Parquet file; its classes are by default those that it names, or all columns that are nothing else."""
    table = load(path)
    own = (table.schema.metadata or {}).get(KEY)
    if classes is None and own is not None:
        try:
            classes = listed(json.loads(own)["classes"], f"{path}, classes")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{path} does not name its classes as expected: {CLASSES}.") from error
    try:
        frame: pd.DataFrame = table.to_pandas()
    except Exception as error:  # types that pandas has no place for raise many kinds
        raise InputError(f"{path} has columns that are no labels: {_one_line(error)}") from error
    return from_frame(frame, str(path), classes)


def save(table: Any, path: Path, description: Mapping[bytes, bytes]) -> None:
    """Write an Arrow table with something said about it."""
    described = table.replace_schema_metadata({**(table.schema.metadata or {}), **description})
    with replacing(path) as temporary:
        import_module("pyarrow.parquet").write_table(described, temporary)


def load(path: Path) -> Any:
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
