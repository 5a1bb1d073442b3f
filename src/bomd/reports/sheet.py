"""Tables: one set of cells, written as CSV with every digit, and as Markdown."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bomd.measure.significance import UNDEFINED, Sample
from bomd.measure.significance import show as show_sample

MISSING = "missing"


@dataclass(frozen=True)
class Mean:
    """One cell of a table: a measurement over the seeds of one entry, which reads 0.873 ± 0.004."""

    sample: Sample | None  # None where no run has the measurement
    done: int
    wanted: int
    digits: int = 3

    def __str__(self) -> str:
        if self.sample is None:
            return UNDEFINED if self.done else MISSING
        few = f" ({self.sample.count} of {self.wanted} runs)" if self.sample.count < self.wanted else ""
        return show_sample(self.sample, digits=self.digits) + few


Cell = str | int | float | Mean | None


def to_csv(heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Numbers as they are, nothing for those that are unknown."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([_known(cell) for cell in row] for row in rows)
    return stream.getvalue()


def rows_to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The same of rows by head, all with the same heads."""
    return to_csv(list(rows[0]), [list(row.values()) for row in rows])


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[Cell]], marked_up: bool = False) -> str:
    """A table alone; `marked_up` where cells are Markdown already, with bold numbers or links."""
    spell = str if marked_up else escape
    body = [[spell(show(cell)) for cell in row] for row in rows]
    lines = [f"| {' | '.join(cells)} |" for cells in ([spell(head) for head in heads], *body)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]]) + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is: class names have underscores, and may have worse."""
    for character in "\\|*_`":
        text = text.replace(character, "\\" + character)
    return text.replace("<", "&lt;")


def show(cell: Cell) -> str:
    """A cell for people."""
    if _known(cell) is None:
        return UNDEFINED
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _known(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and math.isnan(cell) else cell
