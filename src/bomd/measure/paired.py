"""Is one classifier really better than another on the same patients? A paired bootstrap says how sure."""

from __future__ import annotations

import numpy as np

from bomd.measure.metrics import weighted_scores
from bomd.tables import LabelTable


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
            weighted_scores(positive, scores.values[known, column], seen)[0]
            - weighted_scores(positive, others.values[known, column], seen)[0]
        )
    if not gaps:
        return None
    counted = np.isfinite(gaps).sum(axis=0)  # a draw may miss all positives of a rare finding
    mean = np.divide(np.nansum(gaps, axis=0), counted, out=np.full(draws + 1, np.nan), where=counted > 0)
    low, high = np.nanpercentile(mean[1:], [2.5, 97.5])
    return float(mean[0]), float(low), float(high)
