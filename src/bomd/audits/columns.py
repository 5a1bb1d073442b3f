"""The columns that an audit adds to a table, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bomd.experiments.records import LabelRecord
from bomd.tables import LabelTable

ONCE = ("flagged", "rank", "expected wrong")
MOVED = "proposed label"  # the one class of an image, where it has one
OF_CLASS = ("proposed", "wrong", "target")  # what to accept, how probably the given one is wrong, what to train on
LAST = "neighbours"


def names(classes: Sequence[str], exclusive: bool = False) -> list[str]:
    """The added columns in order; one more where an image has one class."""
    return [*ONCE, *([MOVED] if exclusive else []), *(f"{name} {what}" for name in classes for what in OF_CLASS), LAST]


def cells(record: LabelRecord, rows: Iterable[int | None]) -> Iterator[list[str]]:
    """For each of these images, its cells in the order of `names`; what is not known is blank."""
    opinion, flagged = record.opinion, record.flagged
    blank = [""] * len(names(record.given.classes, record.given.exclusive))
    for row in rows:
        if row is None:
            yield blank
            continue
        line = [str(int(flagged[row])), str(opinion.rank[row]), number(opinion.expected[row])]
        if record.given.exclusive:
            line.append("|".join(chosen(record.given, opinion.proposed[row])))
        of_classes = (values[row].tolist() for values in (opinion.proposed, opinion.wrong, record.targets.values))
        line += [number(value) for of_class in zip(*of_classes, strict=True) for value in of_class]
        yield [*line, joined(voters(record, row))]


def voters(record: LabelRecord, row: int) -> list[str]:
    """Ids of the images nearest to this one, the nearest first."""
    rows = [] if record.neighbours is None else record.neighbours[row]
    return [str(record.given.ids[voter]) for voter in rows if voter >= 0]


def joined(ids: Sequence[str]) -> str:
    """Ids in one cell with | between them; a | or backslash inside an id has a backslash before it."""
    return "|".join(name.replace("\\", "\\\\").replace("|", "\\|") for name in ids)


def number(value: float | np.floating) -> str:
    """A short number; nothing where it is not known."""
    return "" if value != value else f"{value:.4f}".rstrip("0").rstrip(".")


def chosen(table: LabelTable, values: NDArray[np.float32]) -> list[str]:
    """The positive classes of one row."""
    return [name for name, value in zip(table.classes, values, strict=True) if value >= 0.5]


def positive(table: LabelTable, values: NDArray[np.float32]) -> str:
    """The same in words."""
    return ", ".join(chosen(table, values)) or "nothing"
