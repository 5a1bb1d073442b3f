"""One opinion about every label: what is probably wrong, what to propose, and in which order to look."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata  # type: ignore[import-untyped]

from bomd.clean.calibrate import Doubles, calibrate
from bomd.clean.one_label import judge_single, move
from bomd.clean.order import how_urgent
from bomd.clean.posterior import Posterior, judge
from bomd.clean.rates import Known, Rates, explain, likeliest, possible_rates
from bomd.errors import InputError
from bomd.tables import NO_FINDING, LabelTable, Opinion

FEWEST = 10  # positives and negatives that a class needs before anything is proposed for it
WORTH_PROPOSING = 0.6  # probability of being wrong: rates are estimates, so a bare majority is not enough
TOLD_ON = 0.9  # probability that an image is affected, from which its other labels judge classes that nobody learnt
ONE_LABEL_RATES = "Rates of misses and false alarms are for several labels per image: leave them out for one."
UNLEARNT = "too few labels, or evidence near chance"
ERRORS = 2.0  # standard errors by which the evidence must beat chance


def form_opinion(
    scores: NDArray[Any],
    labels: LabelTable,
    *,
    known: Known | None = None,
    at_least: float = WORTH_PROPOSING,
) -> tuple[Opinion, Posterior, Rates]:
    """Judge labels by evidence: probabilities, rates, posterior and what follows for a person who reviews.

    Where an image has one label (`labels.exclusive`), a change moves it to another class.

    Args:
        scores: (N, C) of any scale, higher where a class fits better; best from models that never saw the image.
        labels: As given; those that people confirmed are never wrong and never proposed to change.
        known: Rates of false alarms and misses that somebody measured; see `estimate_rates`.
        at_least: Probability above which a change is proposed.

    Examples:
        >>> import numpy as np
        >>> has = np.arange(600) % 3 == 0
        >>> given = has.copy()
        >>> given[:12:3] = False  # four findings were missed
        >>> scores = np.where(has, 4.0, -4.0)[:, None] + np.random.default_rng(0).normal(size=(600, 1))
        >>> table = LabelTable(np.arange(600).astype(str), ("Mass",), given[:, None].astype(float))
        >>> opinion, _, _ = form_opinion(scores, table)
        >>> sorted(opinion.rank.argsort()[:4].tolist())
        [0, 3, 6, 9]
    """
    if labels.exclusive:
        return _form_single(scores, labels, known, at_least)
    evidence = calibrate(scores, labels.values)
    possible = possible_rates(evidence, labels.values, known, labels.findings)
    rates = likeliest(possible, evidence, labels.values)
    posterior = judge(evidence, labels.values, rates, labels.confirmed)
    learnt, _ = is_learnt(evidence, labels.values)
    # Where errors sit in whole images, the other labels of an image tell on it, whatever the picture says.
    told_on = posterior.suspect >= TOLD_ON if rates.affected < 1 else np.zeros(len(labels), dtype=np.bool_)
    urgency, because = how_urgent(evidence, labels, rates, possible)
    reasons = [*explain(rates, labels.classes), because]
    unsaid = [name for name, told in zip(labels.classes, learnt, strict=True) if not told and name != NO_FINDING]
    if unsaid:
        but = " but in the most suspect images" if told_on.any() else ""
        reasons.append(f"Nothing is proposed for {', '.join(unsaid)}{but}: {UNLEARNT}.")
    judged = learnt[None] | told_on[:, None]
    if labels.confirmed is not None:
        judged = judged & ~labels.confirmed
    return decide(posterior, labels, learnt, judged, at_least, tuple(reasons), urgency), posterior, rates


def _form_single(
    scores: NDArray[Any], labels: LabelTable, known: Known | None, at_least: float
) -> tuple[Opinion, Posterior, Rates]:
    """The same for images with one label each."""
    if known is not None:
        raise InputError(ONE_LABEL_RATES)
    posterior, rates, evidence, reasons = judge_single(scores, labels)
    learnt = is_learnt(evidence, labels.values)[0] & (rates.gain > 0)
    unsaid = [name for name, told in zip(labels.classes, learnt, strict=True) if not told]
    if unsaid and rates.gain > 0:
        reasons.append(f"No label is moved to {', '.join(unsaid)}: {UNLEARNT}.")
    return move(posterior, labels, learnt, at_least, tuple(reasons), rank_by(posterior.suspect)), posterior, rates


def decide(
    posterior: Posterior,
    labels: LabelTable,
    learnt: NDArray[np.bool_],
    judged: NDArray[np.bool_],
    at_least: float,
    reasons: tuple[str, ...],
    urgency: NDArray[Any],
) -> Opinion:
    """What follows from the probability that each label is wrong.

    A label is proposed to change where that exceeds `at_least`. "No Finding" follows from the others: an image that
    is left without any finding gets it, and one that gains a finding loses it; how likely it is wrong follows from how
    likely they are there.

    Args:
        posterior: What is believed about every label.
        learnt: (C) classes that the evidence tells apart.
        judged: (N, C) labels for which a change may be proposed.
        urgency: (N) images are looked at from the highest on; see `how_urgent`.
    """
    given = np.where(np.isnan(labels.values), np.nan, labels.values >= 0.5).astype(np.float32)
    findings, wrong = labels.findings, posterior.wrong.copy()
    change = np.zeros(given.shape, dtype=np.bool_)
    change[:, findings] = (np.nan_to_num(wrong[:, findings]) > at_least) & judged[:, findings]
    proposed = np.where(change, 1 - given, given).astype(np.float32)
    if NO_FINDING in labels.classes:
        nothing = labels.classes.index(NO_FINDING)
        moved = change.any(axis=1) & ~np.isnan(given[:, nothing])
        if labels.confirmed is not None:
            moved &= ~labels.confirmed[:, nothing]
        proposed[moved, nothing] = ~(proposed[moved][:, findings] == 1).any(axis=1)
        healthy = np.prod(1 - np.nan_to_num(posterior.truth[:, findings].astype(np.float64)), axis=1)
        doubted = ~np.isnan(given[:, nothing])
        if labels.confirmed is not None:
            doubted &= ~labels.confirmed[:, nothing]
        wrong[doubted, nothing] = np.where(given[:, nothing] >= 0.5, 1 - healthy, healthy)[doubted]
    expected = np.nansum(wrong[:, findings], axis=1).astype(np.float32)
    return Opinion(labels.ids, wrong, proposed, expected, rank_by(urgency), learnt, reasons)


def rank_by(expected: NDArray[Any]) -> NDArray[np.int64]:
    """(N) places from 1, the highest number first; equal ones keep their order."""
    rank = np.empty(len(expected), dtype=np.int64)
    rank[np.argsort(-expected, kind="stable")] = np.arange(1, len(expected) + 1)
    return rank


def is_learnt(evidence: NDArray[Any], labels: NDArray[Any]) -> tuple[NDArray[np.bool_], Doubles]:
    """(C) whether the evidence tells positives of a class from its negatives better than chance, and its AUC.

    The standard error is Hanley and McNeil's. NaN is the AUC of a class with labels of one kind.
    """
    learnt, strength = np.zeros(labels.shape[1], dtype=np.bool_), np.full(labels.shape[1], np.nan)
    for column in range(labels.shape[1]):
        known = ~np.isnan(labels[:, column])
        positive = labels[known, column] >= 0.5
        ill, well = int(positive.sum()), int((~positive).sum())
        if not ill or not well:
            continue
        ranks = rankdata(evidence[known, column])
        auc = (ranks[positive].sum() - ill * (ill + 1) / 2) / (ill * well)
        both, same = auc / (2 - auc), 2 * auc**2 / (1 + auc)
        spread = auc * (1 - auc) + (ill - 1) * (both - auc**2) + (well - 1) * (same - auc**2)
        strength[column] = auc
        learnt[column] = min(ill, well) >= FEWEST and auc - ERRORS * np.sqrt(max(spread, 0) / (ill * well)) > 0.5
    return learnt, strength
