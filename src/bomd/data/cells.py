"""Cells of tables that spreadsheets open: text that one would run as a formula gets an apostrophe before it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable

# What a spreadsheet takes for the start of a formula, also in East Asian width, or skips before one.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


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


def _is_formula(text: str) -> bool:
    return text.startswith(_FORMULA) and any(map(str.isalnum, text)) and not _NUMBER.fullmatch(text)
