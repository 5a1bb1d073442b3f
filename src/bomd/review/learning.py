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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.clean.calibrate import Doubles, calibrate, logistic, sigmoid
from bomd.clean.opinion import decide
from bomd.clean.posterior import judge
from bomd.clean.rates import Rates, estimate_rates
from bomd.clean.reviewed import rates_from_decisions
from bomd.review.decisions import Event
from bomd.review.evidence import Evidence

FIRST = 10  # judged images before anything is learnt from them: fewer say little about any class
EVERY = 5  # decisions between two updates: an order that moves with every key confuses more than it helps
_LEAST = 1e-6  # no probability is moved from nearer to 0 or 1 than this

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Learnt:
    """What one reviewer's decisions have taught so far.

    Attributes:
        rates: How often labels of each class are wrong.
        judged: How many images had been judged.
        events: How many decisions had been made or taken back.
        factor: (N) by which the number of labels expected to be wrong changes; 1 for images that are not queued.
    """

    rates: Rates
    judged: int
    events: int
    time: str
    factor: Floats
    teacher: Teacher
    _doubts: dict[int | None, Floats] = field(default_factory=dict)

    def wrong(self, row: int) -> Floats:
        """(C) probability that each given label of an image is wrong."""
        return np.asarray(self.teacher.wrong(np.asarray([row]), self.rates)[0])

    def doubts(self, column: int | None) -> Floats:
        """(Q) probability that the most doubtful finding of a queued image is wrong, or that of one class."""
        if column not in self._doubts:
            given = self.teacher.evidence.record.given
            columns = given.findings if column is None else [column]
            wrong = self.teacher.wrong(self.teacher.evidence.rows, self.rates)[:, columns]
            self._doubts[column] = np.nan_to_num(wrong).max(axis=1, initial=0)
        return self._doubts[column]


class Teacher:
    """The evidence of a run, which can be judged with any rates; all reviewers share it."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        record = evidence.record
        scores = record.scores if record.scores is not None else record.classifier
        usable = scores is not None and np.isfinite(scores).all() and not record.given.exclusive
        self._scores = scores if usable else None

    @property
    def possible(self) -> bool:
        """Whether the run holds any scores that decisions can be compared with, label by label."""
        return self._scores is not None

    def learn(self, decisions: Mapping[int, Event], events: int) -> Learnt:
        """Rates that explain the decisions on these rows, and what they change; skipped images say nothing."""
        rows = np.asarray([row for row, event in decisions.items() if event.labels is not None], dtype=np.intp)
        said = [[np.nan if value is None else value for value in decisions[int(row)].labels or ()] for row in rows]
        probabilities, rates = self._judged_by
        given = self.evidence.record.given.values[rows]
        found = rates_from_decisions(probabilities[rows], given, np.asarray(said, dtype=np.float64), rates)
        learnt = Rates(*found, rates.affected, rates.gain)
        factor = np.ones(len(self.evidence), np.float32)
        factor[self.evidence.rows] = self._factor(learnt)
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
        moved = sigmoid(_odds(own) + _odds(self._posterior(rows, rates)) - _odds(self._before(rows)))
        return np.where(own > 0, moved, own).astype(np.float32)  # NaN stays, and so does what people confirmed

    def _factor(self, rates: Rates) -> Doubles:
        record, rows = self.evidence.record, self.evidence.rows
        findings = record.given.findings
        before, after = (
            np.nansum(wrong[:, findings].astype(np.float64), axis=1) + _LEAST
            for wrong in (record.opinion.wrong[rows], self.wrong(rows, rates))
        )
        return np.asarray(after / before)

    @functools.cached_property
    def _judged_by(self) -> tuple[Doubles, Rates]:
        assert self._scores is not None
        given = self.evidence.record.given
        probabilities = calibrate(self._scores, given.values)
        return probabilities, estimate_rates(probabilities, given.values, None, given.findings)

    @functools.cached_property
    def _queue_before(self) -> Floats:
        return self._posterior(self.evidence.rows, self.rates)

    def _before(self, rows: NDArray[np.intp]) -> Floats:
        return self._queue_before if rows is self.evidence.rows else self._posterior(rows, self.rates)

    def _posterior(self, rows: NDArray[np.intp], rates: Rates) -> Floats:
        """(R, C) probability that given labels are wrong; that of "No Finding" follows from the others."""
        labels, learnt = self.evidence.record.given.take(rows), self.evidence.record.opinion.learnt
        posterior = judge(self._judged_by[0][rows], labels.values, rates, labels.confirmed)
        judged = np.ones(labels.values.shape, dtype=np.bool_)
        return decide(posterior, labels, learnt, judged, 1.0, (), posterior.suspect).wrong


def _odds(chances: NDArray[Any]) -> Doubles:
    return logistic(np.clip(chances.astype(np.float64), _LEAST, 1 - _LEAST))
