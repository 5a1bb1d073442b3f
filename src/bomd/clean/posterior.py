"""How likely is each label to be wrong, given what the picture, the label and the other labels of the image say?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.clean.calibrate import logistic, sigmoid
from bomd.clean.rates import Rates, compare, true_probability

TEMPER = 0.5  # labels of one image depend on each other, so that together they say less than one by one
CHUNK = 65_536  # images at a time: a million images of five hundred classes do not fit into memory at once

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is believed about every label and image.

    Attributes:
        wrong: (N, C) probability that the given label is wrong; NaN where there is none.
        truth: (N, C) probability that the class is there; NaN where it is not labelled.
        suspect: (N) probability that the image is one of those in which labels go wrong.
        weight: (N) how much the image should count, from 0 to 1: how much less suspect it is than an average one.
    """

    wrong: Floats
    truth: Floats
    suspect: Floats
    weight: Floats


def judge(
    probabilities: NDArray[Any], labels: NDArray[Any], rates: Rates, fixed: NDArray[np.bool_] | None = None
) -> Posterior:
    """Weigh evidence and labels against each other by Bayes' rule.

    With rates of 0 nothing is wrong: the truth is the labels, to the bit, and every image counts in full.

    Args:
        probabilities: (N, C) of the given labels, from evidence that did not see them; see `calibrate`.
        labels: (N, C) in [0, 1] or NaN; positive from 0.5 on.
        rates: How labels go wrong; see `estimate_rates`.
        fixed: (N, C) labels that people have confirmed: never wrong, and they say nothing about their image.

    Examples:
        >>> import numpy as np
        >>> rates = Rates(np.array([0.1]), np.array([0.1]))
        >>> found = judge(np.array([[0.9], [0.1]]), np.array([[1.0], [1.0]]), rates)
        >>> (found.wrong[:, 0] > 0.5).tolist()  # the second label is against the evidence
        [False, True]
    """
    shape = labels.shape
    wrong, truth = (np.full(shape, np.nan, np.float32) for _ in range(2))
    suspect, weight = np.zeros(shape[0], np.float32), np.ones(shape[0], np.float32)
    silent = not rates.false_alarm.any() and not rates.miss.any()
    for rows in chunks(shape[0]):
        given = np.asarray(labels[rows], dtype=np.float64)
        open_ = given if fixed is None else np.where(fixed[rows], np.nan, given)
        likely = true_probability(probabilities[rows], rates)
        right, affected, mistaken = compare(likely, open_, rates)
        share = rates.affected
        if silent:
            own = np.full(len(given), share if share < 1 else 1.0)
        elif share < 1:
            own = sigmoid(TEMPER * np.log(affected / right).sum(axis=1) + logistic(np.asarray(share)))
            weight[rows] = np.minimum(1, (1 - own) / (1 - share))
        else:
            own = np.ones(len(given))
        chance = own[:, None] * mistaken / affected
        known = ~np.isnan(given)
        hard = given >= 0.5
        wrong[rows] = np.where(known, chance, np.nan)
        truth[rows] = np.where(known, given + chance * (~hard - given), np.nan)
        suspect[rows] = own
    return Posterior(wrong, truth, suspect, weight)


def chunks(count: int) -> list[slice]:
    """Rows that are looked at together: all at once would not fit into memory."""
    return [slice(start, start + CHUNK) for start in range(0, count, CHUNK)]
