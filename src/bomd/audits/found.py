"""What an audit found: flags, proposals and order, as tables and pictures, and where its files are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from bomd.audits import show
from bomd.audits.columns import LAST, MOVED, cells, names
from bomd.audits.doubtful import doubtful_labels
from bomd.data.store import Store
from bomd.experiments.records import LabelRecord, store_of
from bomd.runs import Run
from bomd.tables import Flags, LabelTable, Opinion

FACTS, TABLE, LONG, PAGE = "audit.json", "labels_clean.csv", "doubtful_labels.csv", "report.html"


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
