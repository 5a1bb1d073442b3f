"""What people decided tells how often labels are wrong, although nobody looks at images drawn at random.

Reviewers see the most doubtful labels first, so the share of wrong ones among them is no rate. But how doubtful a label
was is known, so each decision can be compared with what was expected of it: if more labels turned out wrong than
expected, labels are wrong more often than was thought, by the factor that makes the decisions most likely. Decisions on
labels that are nearly all wrong say little: any high rate explains them. A review that goes on to where labels are
mostly right, or a small sample drawn at random, says most.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.clean.calibrate import Doubles
from bomd.clean.rates import MOST, Known, Rates, compare, true_probability
from bomd.errors import InputError

FACTORS = np.exp2(np.linspace(-4, 4, 65))  # by which a rate may be off
LOOSE, CLOSE = 1.5, 0.5  # deviation of the logarithm of a factor: of all classes together, and of one from all
SURE = 0.01  # no decision is held to be more improbable than this: people err, too


def rates_from_decisions(
    probabilities: NDArray[Any], given: NDArray[Any], decided: NDArray[Any], rates: Rates
) -> Known:
    """(C) false alarms and (C) misses that explain what people decided, starting from rates that were estimated.

    One factor for all classes is found first, then one for each class that may differ from it as far as its decisions
    ask for. A class without decisions gets the factor of all. Without any decision the rates stay as they are.

    Args:
        probabilities: (N, C) of the given labels, from evidence that did not see them; see `calibrate`.
        given: (N, C) labels before the review; positive from 0.5 on, NaN where unknown.
        decided: (N, C) 0 or 1 where somebody decided, else NaN.
    """
    if not np.shape(probabilities) == np.shape(given) == np.shape(decided):
        raise InputError("Probabilities, given and decided labels must have the same shape.")
    looked, positive = ~(np.isnan(given) | np.isnan(decided)), given >= 0.5
    wrong, anywhere, steps = positive != (decided >= 0.5), Rates(rates.false_alarm, rates.miss), np.log(FACTORS)

    def multiplied(kind: str, which: NDArray[np.bool_]) -> Doubles:
        """(C) one rate of each class, times the factor that explains the decisions `which` (N, C)."""
        rows = np.flatnonzero(which.any(axis=1))
        fits = np.zeros((len(FACTORS), which.shape[1]))
        for place, factor in enumerate(FACTORS):
            trial = replace(anywhere, **{kind: np.minimum(getattr(rates, kind) * factor, MOST)})
            truth = true_probability(np.asarray(probabilities)[rows], trial)
            _, likely, mistaken = compare(truth, np.asarray(given, dtype=np.float64)[rows], trial)
            chance = np.clip(mistaken / likely, SURE, 1 - SURE)
            logs = np.where(wrong[rows], np.log(chance), np.log1p(-chance))
            fits[place] = np.where(which[rows], logs, 0).sum(axis=0)
        common = FACTORS[np.argmax(fits.sum(axis=1) - steps**2 / (2 * LOOSE**2))]
        apart = (steps - np.log(common)) ** 2 / (2 * CLOSE**2)
        own = FACTORS[np.argmax(fits - apart[:, None], axis=0)]
        return np.asarray(np.minimum(getattr(rates, kind) * own, MOST))

    return multiplied("false_alarm", looked & positive), multiplied("miss", looked & ~positive)
