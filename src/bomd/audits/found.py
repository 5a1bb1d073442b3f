"""What an audit found: flags, proposals and order, as tables and pictures, and where its files are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from bomd.audits import show
from bomd.audits.columns import LAST, MOVED, cells, names
from bomd.data.store import Store
from bomd.experiments.records import LabelRecord, store_of
from bomd.runs import Run
from bomd.tables import Flags, LabelTable, Opinion

FACTS, TABLE, LONG, PAGE = "audit.json", "labels_clean.csv", "doubtful_labels.csv", "report.html"
LEAST = 0.2  # probability of being wrong below which a label is not listed
MOST = 100_000  # rows, so that the file opens anywhere


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found.

    Attributes:
        directory: Where `labels_clean.csv`, `doubtful_labels.csv` and `report.html` are.
        run: The run directory, for `bomd review` and `bomd report`.
        record: Given labels, opinion, flags and neighbours of every image that could be read.
        left_out: Why an image could not be judged, by id.
    """

    directory: Path
    run: Run
    record: LabelRecord
    left_out: dict[str, str]
    notes: tuple[str, ...]

    @property
    def flags(self) -> Flags:
        """Which images look wrong."""
        assert self.record.flags is not None
        return self.record.flags

    @property
    def opinion(self) -> Opinion:
        """What is probably wrong, what is proposed, and in which order to look."""
        return self.record.opinion

    @property
    def labels(self) -> LabelTable:
        """(N, C) proposed labels, 0 or 1; the given ones are in `record.given`."""
        return self.record.given.replace(self.record.opinion.proposed)

    def table(self) -> pd.DataFrame:
        """One row for each judged image, the most suspect first, with the columns of `labels_clean.csv`."""
        headings = names(self.record.given.classes, self.record.given.exclusive)
        frame = pd.DataFrame(cells(self.record, range(len(self.record.given))), columns=headings)
        numbers = [name for name in headings if name not in (LAST, MOVED)]
        frame[numbers] = frame[numbers].apply(pd.to_numeric)
        frame.insert(0, "id", self.record.given.ids)
        return frame.iloc[np.argsort(self.record.opinion.rank)].reset_index(drop=True)

    def doubtful(self) -> pd.DataFrame:
        """One row for each doubtful label, the most doubtful first, with the columns of `doubtful_labels.csv`."""
        return doubtful_labels(self.record)

    def store(self) -> Store:
        """The packed images."""
        return store_of(self.run.directory)

    def show(self, count: int = 10) -> show.Suspects:
        """The most suspect images: pictures in a notebook, lines elsewhere."""
        return show.Suspects(self, count)

    def __repr__(self) -> str:
        return show.brief(self)

    def _repr_html_(self) -> str:
        return show.page(self, 10)


def doubtful_labels(record: LabelRecord) -> pd.DataFrame:
    """Labels of findings by falling probability of being wrong; "No Finding" follows from them.

    Returns:
        One row per label: image, patient (where patients are known), class, given and proposed label, the probability
        that the given one is wrong, and the places of label and image in their orders. Where an image has one label,
        one row at most, with the class that is proposed.
    """
    opinion, given = record.opinion, record.given
    findings = np.arange(len(given.classes)) if given.exclusive else given.findings
    wrong = np.nan_to_num(opinion.wrong[:, findings], nan=-1.0)
    if given.exclusive:  # where one class is wrong another is missing, so that the given one stands for both
        wrong[given.values < 0.5] = -1
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
    if given.exclusive:
        table.insert(4, MOVED, np.asarray(given.classes, dtype=object)[opinion.proposed[rows].argmax(axis=1)])
    if given.patients is not None and not np.array_equal(given.patients, given.ids):
        table.insert(1, "patient", given.patients[rows].astype(object))
    return table
