"""The columns that an audit adds to a table, as text, and the table of the labels that are most probably wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bomd.experiments.records import LabelRecord
from bomd.tables import LabelTable

ONCE = ("flagged", "rank", "expected wrong")
OF_CLASS = ("proposed", "wrong", "target")  # what to accept, how probably the given one is wrong, what to train on
LAST = "neighbours"
LEAST = 0.2  # probability of being wrong below which a label is not listed
MOST = 100_000  # rows, so that the file opens anywhere


def names(classes: Sequence[str]) -> list[str]:
    """The added columns in order."""
    return [*ONCE, *(f"{name} {what}" for name in classes for what in OF_CLASS), LAST]


def cells(record: LabelRecord) -> list[list[str]]:
    """For each image, its cells in the order of `names`; what is not known is blank."""
    opinion, flagged, found = record.opinion, record.flagged, []
    for row in range(len(record.given)):
        line = [str(int(flagged[row])), str(opinion.rank[row]), number(opinion.expected[row])]
        for column in range(len(record.given.classes)):
            line += [number(value[row, column]) for value in (opinion.proposed, opinion.wrong, record.targets.values)]
        found.append([*line, joined(voters(record, row))])
    return found


def voters(record: LabelRecord, row: int) -> list[str]:
    """Ids of the images nearest to this one, the nearest first."""
    rows = [] if record.neighbours is None else record.neighbours[row]
    return [str(record.given.ids[voter]) for voter in rows if voter >= 0]


def joined(ids: Sequence[str]) -> str:
    """Ids in one cell with | between them; a | or backslash inside an id has a backslash before it."""
    return "|".join(name.replace("\\", "\\\\").replace("|", "\\|") for name in ids)


def number(value: float | np.floating) -> str:
    """A short number; nothing where it is not known."""
    return "" if np.isnan(value) else f"{value:.4f}".rstrip("0").rstrip(".")


def positive(table: LabelTable, values: NDArray[np.float32]) -> str:
    """The positive classes of one row in words."""
    chosen = [name for name, value in zip(table.classes, values, strict=True) if value >= 0.5]
    return ", ".join(chosen) or "nothing"


def doubtful_labels(record: LabelRecord) -> pd.DataFrame:
    """Labels of findings by falling probability of being wrong; "No Finding" follows from them.

    Returns:
        One row per label: image, patient (where patients are known), class, given and proposed label, the probability
        that the given one is wrong, and the places of label and image in their orders.
    """
    opinion, given = record.opinion, record.given
    findings = given.findings
    wrong = np.nan_to_num(opinion.wrong[:, findings], nan=-1.0)
    order = np.argsort(-wrong, axis=None, kind="stable")
    order = order[: min(MOST, int((wrong >= LEAST).sum()))]
    rows, columns = np.unravel_index(order, wrong.shape)
    places = findings[columns]
    table = pd.DataFrame(
        {
            "image": given.ids[rows].astype(object),
            "class": np.asarray(given.classes, dtype=object)[places],
            "given": given.values[rows, places],
            "proposed": opinion.proposed[rows, places].astype(np.int64),
            "wrong": opinion.wrong[rows, places],
            "label rank": np.arange(1, len(rows) + 1),
            "image rank": opinion.rank[rows],
        }
    )
    if given.patients is not None and not np.array_equal(given.patients, given.ids):
        table.insert(1, "patient", given.patients[rows].astype(object))
    return table
