"""Cells of tables: what a label in one means, and how text is kept from being run as a formula by a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

# What a spreadsheet takes for the start of a formula, also in East Asian width, or skips before one.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
WORDS = {"": np.nan, "na": np.nan, "nan": np.nan, "true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}


def meaning(cell: str) -> float | None:
    """The number that a cell of a label column stands for: NaN for unknown, None for text that is no number."""
    word = cell.strip().lower()
    try:
        return WORDS[word] if word in WORDS else float(word)
    except ValueError:
        return None


def numbers_of(column: pd.Series[Any]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """(N) numbers of a column, and (N) which cells are none; each different cell is understood once."""
    codes, cells = pd.factorize(column, use_na_sentinel=False)
    found = ["" if pd.isna(cell) else str(cell) for cell in cells]
    meant = [meaning(cell) for cell in found]
    with np.errstate(over="ignore"):
        values = np.asarray([np.nan if number is None else number for number in meant]).astype(np.float32)
    return values[codes], np.asarray([number is None for number in meant], dtype=np.bool_)[codes]


def harmless(cell: str) -> str:
    """A cell that no spreadsheet runs as a formula; numbers, and signs by themselves, stay as they are."""
    return f"'{cell}" if _is_formula(cell.lstrip("'")) else cell


def original(cell: str) -> str:
    """The text of which `harmless` made this cell: the two lose nothing together."""
    return cell[1:] if cell.startswith("'") and _is_formula(cell.lstrip("'")) else cell


def csv_line(cells: Iterable[object], separator: str = ",") -> str:
    """Cells as one record of a separated file, without the end of the line."""
    stream = io.StringIO()  # Python quotes a cell with a line break only if it is part of the terminator
    csv.writer(stream, delimiter=separator, lineterminator="\r\n").writerow(cells)
    return stream.getvalue().removesuffix("\r\n")


def csv_text(records: Iterable[Iterable[str]], separator: str = ",") -> str:
    """A separated file of these records, in which a spreadsheet runs nothing as a formula."""
    return "".join(f"{csv_line(map(harmless, record), separator)}\n" for record in records)


def _is_formula(text: str) -> bool:
    return text.startswith(_FORMULA) and any(map(str.isalnum, text)) and not _NUMBER.fullmatch(text)
