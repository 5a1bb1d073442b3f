"""Tables: one set of cells, written as CSV with every digit, as Markdown, and as LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bomd.files import write_text
from bomd.measure.significance import UNDEFINED, Sample
from bomd.measure.significance import show as show_sample

MISSING = "missing"
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    **{character: f"{{{character}}}" for character in "[*"},  # else read as an argument of the row's end before them
    "±": r"$\pm$",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "−": "$-$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    **{character: "\\" + character for character in "&%$#_{}"},
}


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
        bare = Sample(self.sample.mean, self.sample.std, self.sample.count)  # an interval is no spread over seeds
        return show_sample(bare, digits=self.digits) + few


Cell = str | int | float | Mean | None
Place = tuple[int, int]  # row and column of a cell


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


def write_forms(path: Path, rows: str, markdown: str, latex: str) -> list[Path]:
    """Write a table as CSV and, beside it, as Markdown and LaTeX; return the files."""
    texts = {path.with_suffix(ending): text for ending, text in ((".csv", rows), (".md", markdown), (".tex", latex))}
    for place, text in texts.items():
        write_text(place, text)
    return list(texts)


def best(rows: Sequence[Sequence[Cell]], kinds: Sequence[Any] | None = None) -> set[Place]:
    """Where the highest mean of each column is, as far as its digits tell and not all are the same.

    Args:
        kinds: (N) rows of the same kind are compared with one another; by default all are.
    """
    found: dict[tuple[int, Any], list[tuple[str, Place]]] = {}
    for row, cells in enumerate(rows):
        for column, cell in enumerate(cells):
            if isinstance(cell, Mean) and cell.sample is not None:
                shown = f"{cell.sample.mean:.{cell.digits}f}"
                found.setdefault((column, kinds and kinds[row]), []).append((shown, (row, column)))
    places = set()
    for compared in found.values():
        highest = max((shown for shown, _ in compared), key=float)
        if any(shown != highest for shown, _ in compared):
            places |= {place for shown, place in compared if shown == highest}
    return places


def markdown_table(
    heads: Sequence[str], rows: Iterable[Sequence[Cell]], marked_up: bool = False, bold: Collection[Place] = ()
) -> str:
    """A table alone; `marked_up` where cells are Markdown already, with bold numbers or links."""
    spell = str if marked_up else escape
    body = _spelled(rows, spell, bold, "**{}**")
    lines = [f"| {' | '.join(cells)} |" for cells in ([spell(head) for head in heads], *body)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]]) + "\n"


def latex_table(heads: Sequence[str], rows: Sequence[Sequence[Cell]], bold: Collection[Place] = ()) -> str:
    """A `tabular` for the package booktabs, with text at the left and numbers at the right."""
    texts = [all(isinstance(row[column], str) for row in rows) for column in range(len(heads))]
    body = [[latex(head) for head in heads], *_spelled(rows, latex, bold, r"\textbf{{{}}}")]
    first, *others = [" & ".join(cells) + r" \\" for cells in body]
    lines = [r"\toprule", first, r"\midrule", *others, r"\bottomrule"]
    sides = "".join("l" if text else "r" for text in texts)
    return "\n".join([rf"\begin{{tabular}}{{{sides}}}", *(f"  {line}" for line in lines), r"\end{tabular}", ""])


def _spelled(
    rows: Iterable[Sequence[Cell]], spell: Callable[[str], str], bold: Collection[Place], marked: str
) -> list[list[str]]:
    """Cells as a language for documents has them, some of them marked."""
    body = [[spell(show(cell)) for cell in row] for row in rows]
    for row, column in bold:
        body[row][column] = marked.format(body[row][column])
    return body


def latex(text: str) -> str:
    """Text that LaTeX shows as it is."""
    return "".join(LATEX.get(character, character) for character in text)


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
