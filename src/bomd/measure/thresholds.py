"""From which probability on a finding is called, chosen on held-out patients by Youden's J.

J is sensitivity + specificity - 1. It does not depend on how common a finding is, and labels that are wrong at one
rate among those with the finding and at another among those without only shrink it: its maximum stays at the same
threshold, on average over the draws of the noise. The best F1 moves with both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError
from bomd.tables import LabelTable

MINIMUM = 10  # images with the finding, and images without; fewer say little about where to cut


def choose_thresholds(truth: LabelTable, predicted: LabelTable) -> dict[str, float | None]:
    """A threshold for each predicted class, None where the labels do not allow one, or an image has one class.

    Rows are matched by id and classes by name.
    """
    if truth.exclusive:  # the likeliest class is called, whatever its probability
        return dict.fromkeys(predicted.classes)
    labels = truth.align(predicted.classes).values
    scores = predicted.select(truth.ids).values
    soft = ~(np.isnan(labels) | np.isin(labels, (0, 1)))
    if soft.any():
        row, column = np.argwhere(soft)[0]
        raise InputError(
            f"Image {str(truth.ids[row])!r} has a label of {labels[row, column]:g} for {predicted.classes[column]!r}: "
            "a threshold needs labels of 0 or 1."
        )
    return dict(zip(predicted.classes, map(youden_threshold, labels.T, scores.T), strict=True))


def youden_threshold(labels: NDArray[Any], scores: NDArray[Any], minimum: int = MINIMUM) -> float | None:
    """The threshold with the highest sensitivity + specificity, where a score that reaches it counts as positive.

    It lies halfway between two neighbouring scores. Of several equally good ones it is the highest, which raises
    fewest false alarms. None with fewer than `minimum` images on either side, or if the scores rank them no better
    than a coin would: some cut looks good by accident even then. NaN counts as missing.
    """
    known = ~(np.isnan(labels) | np.isnan(scores))
    positive = np.sort(scores[known & (labels == 1)].astype(np.float64))
    negative = np.sort(scores[known & (labels == 0)].astype(np.float64))
    if min(len(positive), len(negative)) < max(1, minimum):
        return None
    below, not_above = (np.searchsorted(negative, positive, side=side).sum() for side in ("left", "right"))
    if below + not_above <= len(positive) * len(negative):  # twice the AUC in pairs, against twice a half of them
        return None
    levels = np.unique(np.concatenate([positive, negative]))
    missed = np.searchsorted(positive, levels, side="left")
    rejected = np.searchsorted(negative, levels, side="left")
    gain = rejected * len(positive) - missed * len(negative)  # J times both counts, exact in whole numbers
    best = len(levels) - 1 - int(np.argmax(gain[::-1]))
    return float(levels[best - 1] + levels[best]) / 2  # the lowest level gains nothing, so it is never the best
