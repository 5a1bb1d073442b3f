"""How good a classifier is: AUC and average precision per class, with intervals over patients."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bomd.errors import InputError
from bomd.saved import Saved
from bomd.tables import NO_FINDING, Floats, LabelTable, Text

Numbers = NDArray[np.float64]

OF_ONE_LABEL = ("accuracy", "accuracy_low", "accuracy_high", "confusion")  # measured where an image has one class
INTERVAL = (2.5, 97.5)  # percentiles of the bootstrap draws


@dataclass(frozen=True)
class ClassScore(Saved):
    """One class: how many images, how well ranked, and within which bounds."""

    name: str
    positives: int = 0
    negatives: int = 0
    auc: float = math.nan  # area under the ROC curve; NaN without positives or negatives
    auc_low: float = math.nan
    auc_high: float = math.nan
    ap: float = math.nan  # average precision, which a coin toss brings to positives / (positives + negatives)
    ap_low: float = math.nan
    ap_high: float = math.nan
    draws: int = 0  # bootstrap draws in which the class had both positives and negatives; the bounds are theirs


@dataclass(frozen=True)
class Classification(Saved):
    """Scores of all classes and their mean over the findings, that is without "No Finding"."""

    classes: tuple[ClassScore, ...] = ()  # one entry per class that both tables have
    averaged: tuple[str, ...] = ()  # names of the findings in the mean
    left_out: dict[str, str] = field(default_factory=dict)  # why each other finding is not in the mean
    bootstrap: int = 0  # draws of patients behind the bounds
    mean_auc: float = math.nan
    mean_auc_low: float = math.nan
    mean_auc_high: float = math.nan
    mean_ap: float = math.nan
    mean_ap_low: float = math.nan
    mean_ap_high: float = math.nan
    accuracy: float = math.nan  # share of images whose likeliest class is the true one; NaN where one may have several
    accuracy_low: float = math.nan
    accuracy_high: float = math.nan
    confusion: tuple[tuple[int, ...], ...] = ()  # images by true class (rows) and likeliest (columns), as `classes`

    def to_dict(self) -> dict[str, Any]:
        """As `result.json` has it: a list says why findings are left out, and what was not measured is not there."""
        reasons = [{"name": name, "reason": reason} for name, reason in self.left_out.items()]
        whole = super().to_dict() | {"left_out": reasons}
        return whole if self.confusion else {name: whole[name] for name in whole if name not in OF_ONE_LABEL}

    def brief(self) -> dict[str, Any]:
        """What goes with a model: `mean_auc` with `low` and `high`, `findings` in the mean, and `auc` of each class."""
        means = {"mean_auc": self.mean_auc, "low": self.mean_auc_low, "high": self.mean_auc_high}
        return {
            **{name: _rounded(value) for name, value in means.items()},
            "findings": len(self.averaged),
            "auc": {row.name: _rounded(row.auc) for row in self.classes},
            **({"accuracy": _rounded(self.accuracy)} if self.confusion else {}),
        }


def classification(
    truth: LabelTable,
    predicted: LabelTable,
    *,
    bootstrap: int = 1000,
    seed: int = 0,
    minimum_positives: int = 1,
) -> Classification:
    """Score predictions against the truth, class by class.

    Rows are matched by id and classes by name; images whose truth is NaN do not count for that class. Bounds
    are 95 % percentiles over draws of whole patients, as many as `bootstrap` says. In each draw the mean is over
    the classes that can be scored in it; findings with fewer than `minimum_positives` are never in it.
    """
    if bootstrap < 0 or minimum_positives < 1:
        raise InputError("bootstrap must be at least 0 and minimum_positives at least 1.")
    if not len(truth):
        raise InputError("There is no image to score.")
    predicted = predicted.select(truth.ids)
    shared = [name for name in truth.classes if name in predicted.classes]
    if not shared:
        raise InputError("Truth and predictions have no class in common.")
    labels, scores = truth.align(shared).values, predicted.align(shared).values
    _check(truth, shared, labels, scores)

    draws = np.full((2, len(shared), bootstrap), np.nan)
    known = truth.exclusive & (labels == 1).any(axis=1)
    true, likeliest = (np.nan_to_num(values[known]).argmax(axis=1) for values in (labels, scores))
    hits = np.full(bootstrap, np.nan)
    for part, weights in patient_draws(truth.groups, bootstrap, seed):
        if known.any():
            drawn = weights[:, known]
            hits[part] = drawn @ (true == likeliest) / np.where(drawn.any(axis=1), drawn.sum(axis=1), np.nan)
        for column in range(len(shared)):
            draws[:, column, part] = weighted_scores(labels[:, column], scores[:, column], weights)
    rows = [
        _score_class(name, labels[:, column], scores[:, column], draws[:, column]) for column, name in enumerate(shared)
    ]

    left_out = {name: "not predicted" for name in truth.classes if name not in shared and name != NO_FINDING}
    averaged = []
    for row in rows:
        if row.name == NO_FINDING:
            continue
        if row.positives < minimum_positives:
            few = f"{row.positives} positive{'' if row.positives == 1 else 's'}, fewer than {minimum_positives}"
            left_out[row.name] = few if row.positives else "no positives"
        elif not row.negatives:
            left_out[row.name] = "no negatives"
        else:
            averaged.append(row.name)
    chosen = [column for column, name in enumerate(shared) if name in averaged]
    auc, ap = (float(mean_of_known([getattr(rows[column], key) for column in chosen])) for key in ("auc", "ap"))
    means = [mean_of_known(values[chosen]) for values in draws]
    confusion = np.zeros((len(shared), len(shared)), dtype=np.int64)
    np.add.at(confusion, (true, likeliest), 1)
    return Classification(
        tuple(rows),
        tuple(averaged),
        left_out,
        bootstrap,
        auc,
        *bounds(means[0]),
        ap,
        *bounds(means[1]),
        float(mean_of_known(true == likeliest)),
        *bounds(hits),
        tuple(tuple(row) for row in confusion.tolist()) if truth.exclusive else (),
    )


def mean_auc(truth: LabelTable, predicted: LabelTable) -> float:
    """Mean AUC over the findings that have positives and negatives; NaN if there is none."""
    return classification(truth, predicted, bootstrap=0).mean_auc


def auc_of(labels: NDArray[Any], scores: NDArray[Any]) -> float:
    """Area under the ROC curve of one class; NaN without positives or negatives."""
    from sklearn.metrics import roc_auc_score  # seconds to import, which most commands can do without

    return float(roc_auc_score(labels, scores)) if 0 < np.sum(labels) < len(labels) else math.nan


def ap_of(labels: NDArray[Any], scores: NDArray[Any]) -> float:
    """Average precision of one class; NaN without positives or negatives."""
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(labels, scores)) if 0 < np.sum(labels) < len(labels) else math.nan


def _score_class(name: str, labels: NDArray[Any], scores: NDArray[Any], draws: Numbers) -> ClassScore:
    known = ~np.isnan(labels)
    labels, scores = labels[known], scores[known]
    positives = int(labels.sum())
    auc, ap = auc_of(labels, scores), ap_of(labels, scores)
    scored = int((~np.isnan(draws[0])).sum())
    return ClassScore(name, positives, len(labels) - positives, auc, *bounds(draws[0]), ap, *bounds(draws[1]), scored)


def patient_draws(groups: Text, bootstrap: int, seed: int) -> Iterator[tuple[slice, Floats]]:
    """Yield some draws and, as (B, N) weights, how often each image is in them when patients are drawn."""
    generator = np.random.default_rng(seed)
    patients, owner = np.unique(groups, return_inverse=True)
    step = max(1, 10_000_000 // max(1, len(owner)))
    for start in range(0, bootstrap, step):
        size = min(step, bootstrap - start)
        counts = generator.multinomial(len(patients), np.full(len(patients), 1 / len(patients)), size=size)
        yield slice(start, start + size), counts[:, owner].astype(np.float32)


def weighted_scores(labels: NDArray[Any], scores: NDArray[Any], weights: NDArray[Any]) -> Numbers:
    """(2, B) AUC and average precision of one class, each image counted as often as its (B, N) weight says.

    Both need only how much weight scores above, at or below each positive, which sums along the sorted scores
    give for all draws at once. NaN where a draw has no positive or no negative.
    """
    positive, negative = np.flatnonzero(labels == 1), np.flatnonzero(labels == 0)
    positive = positive[np.argsort(scores[positive], kind="stable")]
    negative = negative[np.argsort(scores[negative], kind="stable")]
    result = np.full((2, len(weights)), np.nan)
    if not len(positive) or not len(negative):
        return result
    here = weights[:, positive].astype(np.float64)
    hits, misses = _running_sum(weights[:, positive]), _running_sum(weights[:, negative])
    below = np.searchsorted(scores[negative], scores[positive], side="left")
    not_above = np.searchsorted(scores[negative], scores[positive], side="right")
    first_equal = np.searchsorted(scores[positive], scores[positive], side="left")
    all_hits, all_misses = hits[:, -1], misses[:, -1]
    usable = (all_hits > 0) & (all_misses > 0)

    beaten = (here * (misses[:, below] + misses[:, not_above])).sum(axis=1) / 2
    np.divide(beaten, all_hits * all_misses, out=result[0], where=usable)
    found = all_hits[:, None] - hits[:, first_equal]
    wrong = all_misses[:, None] - misses[:, below]
    precision = np.divide(found, found + wrong, out=np.zeros_like(found), where=found + wrong > 0)
    np.divide((here * precision).sum(axis=1), all_hits, out=result[1], where=usable)
    return result


def _running_sum(weights: NDArray[Any]) -> Numbers:
    """(B, n + 1): total weight before each place, and of all at the end."""
    total = np.zeros((len(weights), weights.shape[1] + 1))
    np.cumsum(weights, axis=1, out=total[:, 1:])
    return total


def bounds(draws: Numbers) -> tuple[float, float]:
    """The ends of the interval over draws, as far as these are known."""
    draws = draws[~np.isnan(draws)]
    if not len(draws):
        return math.nan, math.nan
    low, high = np.percentile(draws, INTERVAL)
    return float(low), float(high)


def mean_of_known(values: ArrayLike) -> Numbers:
    """Means over the first axis of what is not NaN; NaN of nothing, without numpy's warning."""
    known = np.asarray(values, dtype=np.float64)
    count = (~np.isnan(known)).sum(axis=0)
    return np.where(count > 0, np.nansum(known, axis=0) / np.maximum(count, 1), np.nan)


def _check(truth: LabelTable, classes: list[str], labels: NDArray[Any], scores: NDArray[Any]) -> None:
    soft = ~(np.isnan(labels) | np.isin(labels, (0, 1)))
    missing = ~np.isnan(labels) & np.isnan(scores)
    for wrong, problem in ((soft, "has a truth that is neither 0, 1 nor NaN"), (missing, "has no prediction")):
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise InputError(
                f"Image {str(truth.ids[row])!r} {problem} for {classes[column]!r} ({int(wrong.sum())} such)."
            )


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)
