"""One opinion about every image that has one label: is it wrong, and which class should it be moved to?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax  # type: ignore[import-untyped]

from bomd.clean.posterior import Posterior
from bomd.clean.rates import Rates
from bomd.clean.transition import Transition, fit_transition
from bomd.tables import LabelTable, Opinion

FREQUENT, BEYOND = 0.03, 4  # of a class's images, and times the usual: what is given for it that often is said
NAMED = 3  # of such pairs, at most
# Of what is unknown of a class, the part that evidence must tell: else classes that look alike pass for wrong labels.
TOLD = 0.5  # which digits pass under any noise, and phantoms that most networks call wrong do not


def judge_single(scores: NDArray[Any], labels: LabelTable) -> tuple[Posterior, Rates, NDArray[np.float64], list[str]]:
    """What is believed about labels that exclude each other.

    Returns:
        The posterior; rates as of labels that stand alone; (N, C) how probable each given label is by the evidence
        alone, for whoever asks which classes it tells apart; and sentences.
    """
    found = fit_transition(scores, labels.values)
    truth = found.truth(scores, labels.values, labels.confirmed)
    labelled = np.asarray((labels.values >= 0.5).any(axis=1))
    given = np.where(labelled[:, None], labels.values >= 0.5, np.nan)
    wrong = np.abs(given - truth).astype(np.float32)
    own = np.where(labelled, np.nansum(given * (1 - truth), axis=1), 0.0)
    share = float(np.clip(found.wrong, 1e-3, 0.99))
    weight = np.minimum(1, (1 - own) / (1 - share)).astype(np.float32)
    known = np.where(labelled[:, None], truth, np.nan).astype(np.float32)
    posterior = Posterior(wrong, known, own.astype(np.float32), weight)
    rates, reasons, told = _rates(found, share), explain(found, labels.classes), found.told(scores)
    if told < TOLD:
        rates = replace(rates, gain=0.0)
        little = "too little to move any; believe the order more than the probabilities"
        reasons = [f"Every image has one label; evidence tells {told:.0%} of its class, {little}."]
    return posterior, rates, softmax(scores, axis=1), reasons


def move(
    posterior: Posterior,
    labels: LabelTable,
    learnt: NDArray[np.bool_],
    at_least: float,
    reasons: tuple[str, ...],
    rank: NDArray[np.int64],
) -> Opinion:
    """What follows: a label is moved to the likeliest class where that is likely enough, and learnt (C)."""
    labelled = np.asarray((labels.values >= 0.5).any(axis=1))
    given = np.where(labelled[:, None], labels.values >= 0.5, np.nan).astype(np.float32)
    truth = np.nan_to_num(posterior.truth)
    best = truth.argmax(axis=1)
    change = labelled & (truth.max(axis=1) > at_least) & learnt[best] & (given[np.arange(len(best)), best] == 0)
    if labels.confirmed is not None:
        change &= ~(labels.confirmed & (labels.values >= 0.5)).any(axis=1)
    proposed = given.copy()
    proposed[change] = np.eye(len(labels.classes), dtype=np.float32)[best[change]]
    return Opinion(labels.ids, posterior.wrong, proposed, posterior.suspect, rank, learnt, reasons)


def explain(found: Transition, classes: Sequence[str]) -> list[str]:
    """What was estimated, in sentences."""
    lines = [f"Every image has one label; about {100 * found.wrong:.2g} % of the labels seem to be wrong."]
    rates = found.matrix * ~np.eye(len(classes), dtype=np.bool_)
    order = np.argsort(-rates, axis=None, kind="stable")[:NAMED]
    pairs = zip(*np.unravel_index(order, rates.shape), strict=True)
    usual = BEYOND * float(np.median(found.matrix[~np.eye(len(classes), dtype=np.bool_)]))
    said = [
        f"{classes[true]} as {classes[given]} ({100 * rates[true, given]:.0f} %)"
        for true, given in pairs
        if rates[true, given] >= max(FREQUENT, usual)
    ]
    return [*lines, *([f"Most often given: {', '.join(said)}."] if said else [])]


def _rates(found: Transition, share: float) -> Rates:
    """False alarms and misses of each class, as if it stood alone."""
    right = np.diag(found.matrix)
    others = np.maximum(1 - found.frequency, 1e-9)
    alarm = (found.frequency @ found.matrix - found.frequency * right) / others
    return Rates(np.clip(alarm, 0, 0.99), np.clip(1 - right, 0, 0.99), share, found.gain)
