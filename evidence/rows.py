"""The rows of a CSV of results."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bomd.files import locked, write_text
from bomd.reports.sheet import rows_to_csv


def read_rows(path: Path) -> list[dict[str, str]]:
    """What was measured; nothing where there is no file yet."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def add_row(path: Path, row: Mapping[str, Any]) -> None:
    """Add a row to a file that other processes may be adding to; earlier rows may lack columns that it has."""
    with locked(path):
        before = [{**dict.fromkeys(row, ""), **old} for old in read_rows(path)]
        write_text(path, rows_to_csv([*before, row]))
