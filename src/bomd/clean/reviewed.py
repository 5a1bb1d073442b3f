"""What people decided tells how often labels are wrong, although nobody looks at images drawn at random.

Reviewers see the most doubtful labels first, so the share of wrong ones among them is no rate. But how doubtful a label
was is known, so each decision can be compared with what was expected of it: if more labels turned out wrong than
expected, labels are wrong more often than was thought, by the factor that makes the decisions most likely. Decisions on
labels that are nearly all wrong say little: any high rate explains them. A review that goes on to where labels are
mostly right, or a small sample drawn at random, says most.
"""

from __future__ import annotations

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
    looked = ~(np.isnan(given) | np.isnan(decided))
    positive = given >= 0.5
    alarm = _factors(probabilities, given, decided, looked & positive, rates, "false_alarm")
    miss = _factors(probabilities, given, decided, looked & ~positive, rates, "miss")
    return np.minimum(rates.false_alarm * alarm, MOST), np.minimum(rates.miss * miss, MOST)


def _factors(
    probabilities: NDArray[Any],
    given: NDArray[Any],
    decided: NDArray[Any],
    which: NDArray[np.bool_],
    rates: Rates,
    kind: str,
) -> Doubles:
    """(C) what one rate of each class is to be multiplied by."""
    rows = np.flatnonzero(which.any(axis=1))
    fits = np.zeros((len(FACTORS), which.shape[1]))
    wrong = (given[rows] >= 0.5) != (decided[rows] >= 0.5)
    for place, factor in enumerate(FACTORS):
        changed = np.minimum(getattr(rates, kind) * factor, MOST)
        trial = Rates(*((changed, rates.miss) if kind == "false_alarm" else (rates.false_alarm, changed)))
        truth = true_probability(np.asarray(probabilities)[rows], trial)
        _, likely, mistaken = compare(truth, np.asarray(given, dtype=np.float64)[rows], trial)
        chance = np.clip(mistaken / likely, SURE, 1 - SURE)
        logs = np.where(wrong, np.log(chance), np.log1p(-chance))
        fits[place] = np.where(which[rows], logs, 0).sum(axis=0)
    steps = np.log(FACTORS)
    common = FACTORS[np.argmax(fits.sum(axis=1) - steps**2 / (2 * LOOSE**2))]
    apart = (steps - np.log(common)) ** 2 / (2 * CLOSE**2)
    return np.asarray(FACTORS[np.argmax(fits - apart[:, None], axis=0)])
