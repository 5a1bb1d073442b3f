"""What a reviewer's decisions say about labels that are still open: how often labels are wrong, and so which ones.

A review is also a measurement. Every decision is compared with what was expected of that very label, which gives rates
of false alarms and misses for each class (`bomd.clean.reviewed`); with them the evidence is judged anew. What comes out
moves the run's own probabilities by as much as the rates move them, so that without a decision nothing changes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.clean.calibrate import Doubles, calibrate, logistic, sigmoid
from bomd.clean.opinion import ONE_LABEL_RATES, decide
from bomd.clean.posterior import judge
from bomd.clean.rates import Rates, estimate_rates
from bomd.clean.reviewed import rates_from_decisions
from bomd.data.cells import csv_text
from bomd.errors import InputError
from bomd.experiments.records import LabelRecord, load_record
from bomd.review.decisions import Event
from bomd.review.evidence import Evidence, most_doubtful
from bomd.review.export import Reviewed
from bomd.review.outputs import Output
from bomd.tables import Floats

FIRST = 10  # judged images before anything is learnt from them: fewer say little about any class
EVERY = 5  # decisions between two updates: an order that moves with every key confuses more than it helps
RATES = ("class", "miss", "false_alarm")  # columns of the file for `audit --rates`
_LEAST = 1e-6  # no probability is moved from nearer to 0 or 1 than this


@dataclass(frozen=True, eq=False)
class Learnt:
    """What one reviewer's decisions have taught so far."""

    rates: Rates
    judged: int  # images, at the time
    events: int  # decisions that had been made or taken back
    time: str
    factor: Floats  # (N) of the number of labels expected to be wrong; 1 for images that are not queued
    teacher: Teacher
    _doubts: dict[int | None, Floats] = field(default_factory=dict)

    def wrong(self, row: int) -> Floats:
        """(C) probability that each given label of an image is wrong."""
        return np.asarray(self.teacher.wrong(np.asarray([row]), self.rates)[0])

    def doubts(self, column: int | None) -> Floats:
        """(Q) probability that the most doubtful finding of a queued image is wrong, or that of one class."""
        if column not in self._doubts:
            evidence = self.teacher.evidence
            wrong = self.teacher.wrong(evidence.rows, self.rates)
            self._doubts[column] = most_doubtful(wrong, evidence.record.given, column)
        return self._doubts[column]


class Teacher:
    """The evidence of a run, which can be judged with any rates; all reviewers share it."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        scores = _scores(evidence.record)
        # Whether the run holds any scores that decisions can be compared with, label by label.
        self.possible = scores is not None and bool(np.isfinite(scores).all()) and not evidence.record.given.exclusive

    def learn(self, decisions: Mapping[int, Event], events: int) -> Learnt:
        """Rates that explain the decisions on these rows, and what they change; skipped images say nothing."""
        judged = {row: event.labels for row, event in decisions.items() if event.labels is not None}
        rows, said = np.asarray([*judged], dtype=np.intp), np.asarray([*judged.values()], dtype=np.float64)
        probabilities, rates = self._judged_by
        found = rates_from_decisions(probabilities[rows], self.evidence.record.given.values[rows], said, rates)
        learnt = Rates(*found, rates.affected, rates.gain)
        record, queued = self.evidence.record, self.evidence.rows
        before, after = (
            np.nansum(wrong[:, record.given.findings].astype(np.float64), axis=1) + _LEAST
            for wrong in (record.opinion.wrong[queued], self.wrong(queued, learnt))
        )
        factor = np.ones(len(self.evidence), np.float32)
        factor[queued] = after / before
        return Learnt(learnt, len(rows), events, datetime.now(UTC).isoformat(timespec="seconds"), factor, self)

    @property
    def rates(self) -> Rates:
        """As estimated before anybody decided anything."""
        return self._judged_by[1]

    def wrong(self, rows: NDArray[np.intp], rates: Rates) -> Floats:
        """(R, C) the run's probabilities that given labels are wrong, moved by what other rates change.

        The odds are multiplied by the ratio of the odds under these rates and under those that were estimated. Where
        the run's opinion comes from the same scores and rates, this is the posterior with the new rates itself.
        """
        own = self.evidence.record.opinion.wrong[rows]
        before = self._queue_before if rows is self.evidence.rows else self._posterior(rows, self.rates)
        moved = sigmoid(_odds(own) + _odds(self._posterior(rows, rates)) - _odds(before))
        return np.where(own > 0, moved, own).astype(np.float32)  # NaN stays, and so does what people confirmed

    @functools.cached_property
    def _judged_by(self) -> tuple[Doubles, Rates]:
        return _expected(self.evidence.record)

    @functools.cached_property
    def _queue_before(self) -> Floats:
        return self._posterior(self.evidence.rows, self.rates)

    def _posterior(self, rows: NDArray[np.intp], rates: Rates) -> Floats:
        """(R, C) probability that given labels are wrong; that of "No Finding" follows from the others."""
        labels, learnt = self.evidence.record.given.take(rows), self.evidence.record.opinion.learnt
        posterior = judge(self._judged_by[0][rows], labels.values, rates, labels.confirmed)
        judged = np.ones(labels.values.shape, dtype=np.bool_)
        return decide(posterior, labels, learnt, judged, 1.0, (), posterior.suspect).wrong


def rates_file(run: Path, reviewed: Reviewed, file: Path) -> Output:
    """`class,miss,false_alarm` of every finding that somebody decided on, for `bomd audit --rates`."""
    record, fixed = load_record(run), reviewed.labels.confirmed
    given = record.given
    if given.exclusive:
        raise InputError(ONE_LABEL_RATES)
    if _scores(record) is None:
        raise InputError(f"{run} holds no scores of its labels, so that decisions cannot be compared with them.")
    if fixed is None or not fixed.any():
        raise InputError("Nobody has decided on a label yet, so there are no rates to learn.")
    evidence, rates = _expected(record)
    alarm, miss = rates_from_decisions(evidence, given.values, np.where(fixed, reviewed.labels.values, np.nan), rates)
    decided = [column for column in given.findings if fixed[:, column].any()]
    lines = [(given.classes[column], f"{miss[column]:.5f}", f"{alarm[column]:.5f}") for column in decided]
    return Output("--rates", file, csv_text([RATES, *lines]), ",".join(RATES))


def _scores(record: LabelRecord) -> Floats | None:
    return record.scores if record.scores is not None else record.classifier


def _expected(record: LabelRecord) -> tuple[Doubles, Rates]:
    """(N, C) probabilities by the scores of a run, and rates as estimated before anybody decided anything."""
    scores, given = _scores(record), record.given
    assert scores is not None
    probabilities = calibrate(scores, given.values)
    return probabilities, estimate_rates(probabilities, given.values, None, given.findings)


def _odds(chances: NDArray[Any]) -> Doubles:
    return logistic(np.clip(chances.astype(np.float64), _LEAST, 1 - _LEAST))
