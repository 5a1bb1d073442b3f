"""Is one classifier really better than another on the same patients? A paired bootstrap says how sure."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.tables import LabelTable

Floats = NDArray[np.float64]


def difference(
    truth: LabelTable, scores: LabelTable, others: LabelTable, draws: int = 500, seed: int = 0
) -> tuple[float, float, float] | None:
    """Mean AUC of `scores` minus that of `others`, with the ends of its 95 % interval.

    Whole patients are drawn with replacement and both classifiers are judged on the same draw, so that what
    makes a patient hard for both cancels out.

    Args:
        truth: (N, C) labels; NaN is left out.
        scores: (N, C) predictions of the first classifier for the same rows.
        others: (N, C) predictions of the second.

    Returns:
        None when no finding has both positives and negatives.
    """
    _, patient = np.unique(truth.groups, return_inverse=True)
    patients = int(patient.max()) + 1
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(patients, np.full(patients, 1 / patients), size=draws)
    weights = np.concatenate([np.ones((1, len(truth))), drawn[:, patient].astype(np.float64)])
    gaps = []
    for column in truth.findings:
        known = ~np.isnan(truth.values[:, column])
        positive = truth.values[known, column] >= 0.5
        if not positive.any() or positive.all():
            continue
        seen = weights[:, known]
        gaps.append(
            weighted_auc(positive, scores.values[known, column], seen)
            - weighted_auc(positive, others.values[known, column], seen)
        )
    if not gaps:
        return None
    counted = np.isfinite(gaps).sum(axis=0)  # a draw may miss all positives of a rare finding
    mean = np.divide(np.nansum(gaps, axis=0), counted, out=np.full(draws + 1, np.nan), where=counted > 0)
    low, high = np.nanpercentile(mean[1:], [2.5, 97.5])
    return float(mean[0]), float(low), float(high)


def weighted_auc(positive: NDArray[np.bool_], scores: NDArray[Any], weights: Floats) -> Floats:
    """Area under the ROC curve for many weightings of the same images at once.

    Args:
        positive: (N) truth.
        scores: (N) predictions; ties count half.
        weights: (W, N) how often each image counts.

    Returns:
        (W) areas; NaN where a weighting leaves no positives or no negatives.
    """
    order = np.argsort(scores, kind="stable")
    ranked = scores[order]
    starts = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    ordered = weights[:, order]
    above = np.add.reduceat(ordered * positive[order], starts, axis=1)
    below = np.add.reduceat(ordered * ~positive[order], starts, axis=1)
    wins = (above * (np.cumsum(below, axis=1) - below / 2)).sum(axis=1)
    pairs = above.sum(axis=1) * below.sum(axis=1)
    return np.divide(wins, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
