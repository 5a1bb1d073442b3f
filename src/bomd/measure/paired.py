"""Is one classifier really better than another on the same patients? A paired bootstrap says how sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bomd.measure.metrics import bounds, mean_of_known, patient_draws, weighted_scores
from bomd.tables import LabelTable


@dataclass(frozen=True)
class Paired:
    """What a paired bootstrap says of two methods."""

    difference: float  # mean AUC of the first minus that of the second; `low` and `high` are its 95 % interval
    low: float
    high: float
    p: float  # share of the draws in which the first is no better, counted so that it is never 0


def over_seeds(
    truth: LabelTable,
    ones: Sequence[LabelTable],
    others: Sequence[LabelTable],
    draws: int = 2000,
    seed: int = 0,
    minimum_positives: int = 1,
) -> Paired | None:
    """Compare two methods on the same test patients, each by the mean over its runs.

    Whole patients are drawn with replacement and all runs are judged on the same draw, so that what makes a patient
    hard for all cancels out. What other seeds would give is not in the interval: Welch's test looks at that.

    Args:
        ones: (N, C) predictions of the first method for the rows of `truth`, a table per run; likewise `others`.
        minimum_positives: findings with fewer do not count; None comes back when none has enough.
    """
    drawn = [weights for _, weights in patient_draws(truth.groups, draws, seed)]
    weights = np.concatenate([np.ones((1, len(truth)), np.float32), *drawn])
    gaps = []
    for column in truth.findings:
        known = ~np.isnan(truth.values[:, column])
        positive = truth.values[known, column] >= 0.5
        if positive.sum() < minimum_positives or not positive.any() or positive.all():
            continue
        seen = weights[:, known]
        sides = [
            np.mean([weighted_scores(positive, table.values[known, column], seen)[0] for table in side], axis=0)
            for side in (ones, others)
        ]
        gaps.append(sides[0] - sides[1])
    if not gaps:
        return None
    mean = mean_of_known(gaps)  # a draw may miss all positives of a rare finding
    known = mean[1:][np.isfinite(mean[1:])]
    return Paired(float(mean[0]), *bounds(known), float(((known <= 0).sum() + 1) / (len(known) + 1)))
