"""How often are labels wrong? Rates of false alarms and misses, and whether errors sit in whole images.

Evidence about an image tells how probable a *given* label is. How probable the *true* label is cannot be read off
labels and evidence alone, so two facts that any set has are used:

- A finding cannot be a false alarm more often than it is given at all where it is least likely. The rarest class, in
  the third of the images that look least like it, bounds what false alarms are to be expected, and bounds it closely.
- If errors sit in some images and leave the others alone, labels of one image are surprising together. The share of
  such images is the one under which the given labels are most likely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.clean.calibrate import Doubles
from bomd.errors import InputError

LEAST_LIKELY = 1 / 3  # the part of the images in which a class is least expected
MISSES = 0.25  # as many missed labels as false alarms, at most; both rates rest on it only where nobody knows better
FEWEST_MISSES, MOST_MISSES = 0.02, 0.4  # of the true positives
MOST_ANYWHERE = 0.05  # false alarms that are believed to fall on any image; more are believed only of whole images
SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SAMPLE = 20_000  # images on which the share is chosen
ENOUGH = 0.01  # nats an image by which affected images must explain labels better than errors that fall anywhere
ROOM = 0.9  # an affected image still has some right labels: its rates stay below this

MOST = 0.49  # of either rate, unless somebody measured more
MOST_TOGETHER = 0.95  # above that, labels would say nothing about the truth

Known = tuple[NDArray[np.float64], NDArray[np.float64]]  # (C) false alarms and (C) misses; NaN where nobody knows

_LEAST = 1e-3  # of a true label's probability, against evidence that is too sure of itself


@dataclass(frozen=True, eq=False)
class Rates:
    """How labels go wrong."""

    false_alarm: Doubles  # (C) share of the absent findings that are labelled as there, over all images
    miss: Doubles  # (C) share of the present findings that are not labelled
    affected: float = 1.0  # share of the images on which all of these errors fall; 1 where they fall anywhere
    gain: float = 0.0  # nats an image by which that share explains labels better than errors that fall anywhere

    def __post_init__(self) -> None:
        for name in ("false_alarm", "miss"):
            values = np.asarray(getattr(self, name), dtype=np.float64)
            object.__setattr__(self, name, values)
            if values.ndim != 1 or not ((values >= 0) & (values < 1)).all():
                raise InputError(f"Rates of {name} must be one number from 0 to below 1 for each class.")
        if len(self.false_alarm) != len(self.miss) or not 0 < self.affected <= 1:
            raise InputError("Rates need as many misses as false alarms, and a share above 0 and at most 1.")


def estimate_rates(
    probabilities: NDArray[Any],
    labels: NDArray[Any],
    known: Known | None = None,
    findings: NDArray[np.intp] | None = None,
) -> Rates:
    """Rates of false alarms and misses that labels and evidence allow.

    Args:
        probabilities: (N, C) of the given labels, from evidence that did not see them; see `calibrate`.
        labels: (N, C) in [0, 1] or NaN; positive from 0.5 on.
        known: (C) false alarms and (C) misses where somebody measured them; NaN where not.
        findings: Columns that bound the false alarms of all; by default every class. "No Finding" is none of them: it
            follows from the others, so that it is false where they are missed.

    Examples:
        >>> import numpy as np
        >>> likely = np.linspace(0.0, 0.5, 100)[:, None]
        >>> labels = (np.arange(100) % 10 == 0).astype(float)[:, None]  # given to 12 % of the least likely third
        >>> bool(0 < estimate_rates(likely, labels).false_alarm[0] <= 0.12)
        True
    """
    return likeliest(possible_rates(probabilities, labels, known, findings), probabilities, labels)


def possible_rates(
    probabilities: NDArray[Any],
    labels: NDArray[Any],
    known: Known | None = None,
    findings: NDArray[np.intp] | None = None,
) -> list[Rates]:
    """The rates for each share of affected images, the last for errors that fall anywhere; see `estimate_rates`."""
    if probabilities.shape != labels.shape or labels.ndim != 2:
        raise InputError(f"Probabilities of shape {probabilities.shape} do not fit labels {labels.shape}.")
    bound, frequency = least_likely(probabilities, labels), _frequency(labels)
    present = np.isfinite(bound) & (labels >= 0.5).any(axis=0)  # a class that nobody has was perhaps never looked for
    if findings is not None:
        present &= np.isin(np.arange(labels.shape[1]), findings)
    shared = float(bound[present].min()) if present.any() else 0.0
    found = []
    for share in SHARES:
        limit = min(shared, MOST_ANYWHERE) if share == 1 else min(shared, ROOM * share)
        alarm = np.minimum(np.nan_to_num(bound, nan=0.0), limit)
        miss = np.clip(alarm * (1 - frequency) / frequency * MISSES, FEWEST_MISSES, MOST_MISSES)
        found.append(Rates(*_with_known(np.minimum(alarm, MOST), np.minimum(miss, MOST), known), share))
    return found


def likeliest(
    possible: Sequence[Rates],
    probabilities: NDArray[Any],
    labels: NDArray[Any],
    groups: NDArray[np.intp] | None = None,
) -> Rates:
    """Those of some rates under which the given labels are most likely, if that is clearer than chance.

    Args:
        possible: See `possible_rates`.
        probabilities: (N, C), as for `estimate_rates`; the labels as well.
        groups: (N) numbers from 0, the same for images that are affected together, such as those of one patient; by
            default each image is affected on its own.
    """
    step = -(-len(labels) // SAMPLE) if len(labels) else 1
    rows = np.arange(0, len(labels), step) if groups is None else np.flatnonzero(groups % step == 0)
    evidence, given = np.asarray(probabilities)[rows], np.asarray(labels)[rows]
    together = np.arange(len(rows)) if groups is None else groups[rows]
    likely = [_likelihood(evidence, given, rates, together) for rates in possible]
    best, anywhere = int(np.argmax(likely)), len(possible) - 1
    gain = likely[best] - likely[anywhere]
    # Findings that come together in nature make labels of one image surprising together, too, but only a little.
    rates = possible[best if gain >= ENOUGH else anywhere]
    return Rates(rates.false_alarm, rates.miss, rates.affected, gain=gain)


def least_likely(probabilities: NDArray[Any], labels: NDArray[Any]) -> Doubles:
    """(C) frequency of each class in the third of the images that look least like it; NaN where it has no label."""
    bound = np.full(labels.shape[1], np.nan)
    for column in range(labels.shape[1]):
        rows = np.flatnonzero(~np.isnan(labels[:, column]))
        if len(rows):
            order = np.argsort(probabilities[rows, column], kind="stable")
            part = rows[order[: max(1, int(LEAST_LIKELY * len(rows)))]]
            bound[column] = ((labels[part, column] >= 0.5).sum() + 0.5) / (len(part) + 1)
    return bound


def true_probability(probabilities: NDArray[Any], rates: Rates) -> Doubles:
    """(N, C) of the true label, from that of the given one: (p - f) / (1 - f - m)."""
    kept = 1 - rates.false_alarm - rates.miss
    return np.clip((np.asarray(probabilities, dtype=np.float64) - rates.false_alarm) / kept, _LEAST, 1 - _LEAST)


def compare(truth: Doubles, labels: NDArray[Any], rates: Rates) -> tuple[Doubles, Doubles, Doubles]:
    """What labels (N, C) say for and against their images being affected, by the (N, C) probability of the true label.

    Returns:
        (N, C) likelihood of the label if labels are right, the same if the image is affected, and of that the part in
        which this very label is wrong; an unknown label says nothing.
    """
    alarm = np.minimum(rates.false_alarm / rates.affected, ROOM)
    miss = np.minimum(rates.miss / rates.affected, ROOM)
    positive, known = labels >= 0.5, ~np.isnan(labels)
    right = np.where(positive, truth, 1 - truth)
    wrong = np.where(positive, (1 - truth) * alarm, truth * miss)
    affected = np.where(positive, truth * (1 - miss), (1 - truth) * (1 - alarm)) + wrong
    return np.where(known, right, 1.0), np.where(known, affected, 1.0), np.where(known, wrong, 0.0)


def known_rates(measured: Mapping[str, Mapping[str, float]], classes: Sequence[str]) -> Known | None:
    """Rates "false_alarm", "miss" or both that somebody measured, in the order of the classes; None without any.

    Examples:
        >>> alarm, miss = known_rates({"Mass": {"miss": 0.3}}, ["Edema", "Mass"])
        >>> alarm.tolist(), miss.tolist()
        ([nan, nan], [nan, 0.3])
    """
    if not measured:
        return None
    found = {name: np.full(len(classes), np.nan) for name in ("false_alarm", "miss")}
    for name, given in measured.items():
        if name not in classes:
            raise InputError(f"Rates are given for {name!r}; the classes are {', '.join(map(repr, classes))}.")
        for kind, value in given.items():
            if kind not in found:
                raise InputError(f"Rates of {name!r}: {kind!r} is neither 'miss' nor 'false_alarm'.")
            if not 0 <= value < MOST_TOGETHER:
                raise InputError(f"Rates of {name!r}: {kind} is {value:g}, but must lie from 0 to {MOST_TOGETHER:g}.")
            found[kind][list(classes).index(name)] = value
    both = np.nan_to_num(found["false_alarm"]) + np.nan_to_num(found["miss"])
    if (both > MOST_TOGETHER).any():
        name = classes[int(np.argmax(both))]
        raise InputError(f"Rates of {name!r}: miss and false_alarm together are above {MOST_TOGETHER:g}.")
    return found["false_alarm"], found["miss"]


def _with_known(alarm: Doubles, miss: Doubles, known: Known | None) -> tuple[Doubles, Doubles]:
    """Estimates give way to what was measured, and to what that leaves room for."""
    if known is None:
        return alarm, miss
    alarm = np.where(np.isnan(known[0]), np.minimum(alarm, MOST_TOGETHER - np.nan_to_num(known[1])), known[0])
    return alarm, np.where(np.isnan(known[1]), np.minimum(miss, MOST_TOGETHER - np.nan_to_num(known[0])), known[1])


def _likelihood(probabilities: NDArray[Any], labels: NDArray[Any], rates: Rates, together: NDArray[np.intp]) -> float:
    """Mean logarithm of the probability of an image's labels, where images of one number are affected together."""
    if not len(labels):
        return 0.0
    right, affected, _ = compare(true_probability(probabilities, rates), labels, rates)
    ratio = np.bincount(together, np.log(affected / right).sum(axis=1))
    if rates.affected < 1:
        ratio = np.logaddexp(np.log1p(-rates.affected), np.log(rates.affected) + ratio)
    return float((np.log(right).sum() + ratio.sum()) / len(labels))


def _frequency(labels: NDArray[Any]) -> Doubles:
    """(C) share of positives among the known labels, never 0."""
    known = (~np.isnan(labels)).sum(axis=0)
    return np.asarray(((labels >= 0.5).sum(axis=0) + 0.5) / (known + 1))


def explain(rates: Rates, classes: Sequence[str]) -> list[str]:
    """What was found, in sentences."""
    alarms = np.median(rates.false_alarm)
    if rates.affected == 1:
        where = "Errors seem to fall on any image: every image counts in full, and single labels are judged."
    else:
        where = (
            f"Errors seem to sit in about {rates.affected:.0%} of the images: labels of one image are surprising "
            f"together ({rates.gain:.3f} nats an image better explained so)."
        )
    often = f"About {alarms:.1%} of the absent findings are taken to be labelled as there"
    return [where, f"{often} (median of {len(classes)} classes)."]
