"""Do the neighbours of an image know its labels? Precision and recall of their votes, for every number of votes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bomd.clean.neighbours import Neighbours
from bomd.measure.quality import share
from bomd.measure.result import Averages, Rates, Threshold, Votes
from bomd.tables import LabelTable

JUDGED = 5_000  # images at most; more would cost a search on a large set and change the third digit

Voters = Callable[[NDArray[np.int64]], Neighbours]
Mask = NDArray[np.bool_]


def judge_votes(voters: Voters, given: LabelTable, clean: LabelTable, exposed: Mask, seed: int) -> Votes | None:
    """Ask the neighbours of images whose true labels are known, which vote with the given ones.

    Args:
        exposed: (N) rows where the truth is known.
        seed: of the sample, where there are many.
    """
    rows = np.flatnonzero(exposed)
    if not len(rows):
        return None
    if len(rows) > JUDGED:
        rows = np.sort(np.random.default_rng(seed).choice(rows, JUDGED, replace=False))
    findings = given.findings
    labels = given.values[:, findings]
    found = voters(rows).indices
    counts = count_votes(labels, found)
    lines = vote_quality(counts, labels[rows], clean.values[rows][:, findings], found.shape[1])
    return Votes(lines, len(rows), found.shape[1])


def count_votes(labels: NDArray[np.float32], neighbours: NDArray[np.int64]) -> NDArray[np.int64]:
    """(Q, C) how many of (Q, K) neighbours have each label; -1 stands for nobody, NaN votes for nothing."""
    positive = np.concatenate([labels >= 0.5, np.zeros((1, labels.shape[1]), dtype=np.bool_)])
    counts = np.zeros((len(neighbours), labels.shape[1]), dtype=np.int64)
    for column in neighbours.T:
        counts += positive[column]
    return counts


def vote_quality(
    counts: NDArray[np.int64], given: NDArray[np.float32], clean: NDArray[np.float32], most: int
) -> tuple[Threshold, ...]:
    """Precision and recall if a label is set from t votes on, for t from 1 to `most`.

    "positive" compares the labels so set with the true ones. "entry" takes a given label for wrong where it differs
    from the label so set; truly wrong is where it differs from the true one. Where nothing is flagged, precision is
    NaN, not 0. Everything is (Q, C); where labels are NaN nothing is judged.
    """
    known = ~(np.isnan(given) | np.isnan(clean))
    held, true = given >= 0.5, clean >= 0.5
    return tuple(
        Threshold(votes, _both(counts >= votes, true, known), _both((counts >= votes) != held, held != true, known))
        for votes in range(1, most + 1)
    )


def _both(flagged: Mask, wrong: Mask, known: Mask) -> Averages:
    """Over all labels together, and the mean over classes where it is defined."""
    columns = [_pair(flagged[rows, i], wrong[rows, i]) for i, rows in enumerate(known.T)]
    macro = [[pair[place] for pair in columns if not math.isnan(pair[place])] for place in (0, 1)]
    means = (float(np.mean(values)) if values else math.nan for values in macro)
    return Averages(Rates(*_pair(flagged[known], wrong[known])), Rates(*means))


def _pair(flagged: Mask, wrong: Mask) -> tuple[float, float]:
    """Precision and recall."""
    return share(wrong[flagged]), share(flagged[wrong])
