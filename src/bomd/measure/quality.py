"""How good flags and new labels are, where the clean labels are known."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError
from bomd.measure.metrics import ap_of, auc_of
from bomd.saved import Saved
from bomd.tables import Flags, LabelTable


@dataclass(frozen=True)
class Detection(Saved):
    """How well flags find the images with a changed label."""

    images: int = 0
    base_rate: float = math.nan  # share of changed images, which is the precision of flagging everything
    flagged: float = math.nan  # share of flagged images
    precision: float = math.nan  # share of changed images among the flagged; NaN if nothing is flagged
    recall: float = math.nan  # share of flagged images among the changed; NaN if nothing is changed
    auroc: float = math.nan  # of the margin; an image without a margin counts as least suspect
    auroc_by_count: float = math.nan  # of the number of positive labels alone, the baseline to beat: noise adds labels
    entry_base_rate: float = math.nan  # share of changed labels
    entry_auroc: float = math.nan  # of the score of each single label
    entry_ap: float = math.nan  # average precision of the same


@dataclass(frozen=True)
class LabelAuc(Saved):
    """How well the labels of one class rank its true positives above the others, before and after."""

    name: str
    positives: int = 0
    before: float = math.nan  # AUC of the given labels against the clean ones; for 0/1 labels this is balanced accuracy
    after: float = math.nan
    before_changed: float = math.nan  # the same on images with a changed label only; NaN where it is not defined
    after_changed: float = math.nan


@dataclass(frozen=True)
class LabelQuality(Saved):
    """Label AUC of every finding and the means over those where it is defined."""

    classes: tuple[LabelAuc, ...] = ()
    before: float = math.nan
    after: float = math.nan
    before_changed: float = math.nan
    after_changed: float = math.nan
    left_out: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Kept(Saved):
    """Positive labels of one class: how many were given, and how many are on images judged clean."""

    name: str
    given: int
    kept: int
    share: float = math.nan


def detection(
    flags: Flags, changed: NDArray[np.bool_], given: LabelTable, *, rows: NDArray[np.bool_] | None = None
) -> Detection:
    """Score flags against the labels that are known to be wrong.

    Args:
        changed: (N, C) labels that differ from the clean ones, in the order of `flags`.
        given: the labels that were judged, in the order of `flags`.
        rows: (N) images to judge, where the truth is known for some only.
    """
    changed = np.asarray(changed)
    if not np.array_equal(flags.ids, given.ids):
        raise InputError("Flags and labels are not of the same images in the same order; select by flags.ids.")
    if changed.dtype != np.bool_ or changed.shape != given.values.shape:
        raise InputError(f"changed must be {given.values.shape} booleans, got {changed.dtype} {changed.shape}.")
    judged = np.ones(len(flags), dtype=np.bool_) if rows is None else np.asarray(rows)
    if judged.dtype != np.bool_ or judged.shape != (len(flags),):
        raise InputError(f"rows must be {len(flags)} booleans, got {judged.dtype} {judged.shape}.")
    noisy, labels, changed = flags.noisy[judged], given.values[judged], changed[judged]
    wrong = np.asarray(changed.any(axis=1))
    known = ~np.isnan(labels)
    suspicion = _suspicion(flags.entry[judged][known])
    return Detection(
        images=len(wrong),
        base_rate=share(wrong),
        flagged=share(noisy),
        precision=share(wrong[noisy]),
        recall=share(noisy[wrong]),
        auroc=auc_of(wrong, _suspicion(flags.margin[judged])),
        auroc_by_count=auc_of(wrong, (labels >= 0.5).sum(axis=1)),
        entry_base_rate=share(changed[known]),
        entry_auroc=auc_of(changed[known], suspicion),
        entry_ap=ap_of(changed[known], suspicion),
    )


def label_auc(clean: LabelTable, before: LabelTable, after: LabelTable) -> LabelQuality:
    """Compare given and new labels with the clean ones, finding by finding, all matched by id and name.

    Labels that are NaN in any of the three do not count.
    """
    findings = [clean.classes[column] for column in clean.findings]
    truth, given, new = (table.select(clean.ids).align(findings).values for table in (clean, before, after))
    known = ~(np.isnan(truth) | np.isnan(given) | np.isnan(new))
    changed = (known & (truth != given)).any(axis=1)
    classes, left_out = [], {}
    for column, name in enumerate(findings):
        everyone, some = known[:, column], known[:, column] & changed
        columns = [values[:, column] for values in (truth, given, new)]
        if not np.isin(columns[0][everyone], (0, 1)).all():
            raise InputError(f"The clean labels of {name!r} are not all 0 or 1.")
        scores = [auc_of(columns[0][part], values[part]) for part in (everyone, some) for values in columns[1:]]
        classes.append(LabelAuc(name, int(columns[0][everyone].sum()), *scores))
        if math.isnan(scores[0]):
            left_out[name] = "no negatives" if columns[0][everyone].any() else "no positives"
    means = {
        key: _mean_of([getattr(row, key) for row in classes])
        for key in ("before", "after", "before_changed", "after_changed")
    }
    return LabelQuality(classes=tuple(classes), left_out=left_out, **means)


def found_by_looking(wrong: NDArray[np.bool_], suspicion: NDArray[Any]) -> NDArray[np.float64]:
    """(N + 1) how many wrong images there are among the first 0 to N, the most suspect first.

    Images of the same suspicion come in random order, so that what is expected of them is counted: everything alike
    is looking at random, and `suspicion=wrong` is perfect.
    """
    _, place, sizes = np.unique(-np.asarray(suspicion, dtype=np.float64), return_inverse=True, return_counts=True)
    found = np.bincount(place, weights=wrong, minlength=len(sizes)).cumsum()
    return np.asarray(np.interp(np.arange(len(wrong) + 1), [0, *sizes.cumsum()], [0, *found]))


def label_histogram(table: LabelTable, threshold: float | None = None) -> NDArray[np.float64]:
    """(C) total of each class's labels, or with a threshold the number of labels that reach it."""
    values = table.values if threshold is None else table.values >= threshold
    return np.asarray(np.nansum(values, axis=0, dtype=np.float64))


def histogram_distance(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Half the total difference of two (C) histograms, each scaled to one: 0 if equal, 1 if disjoint."""
    first, second = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1 or (first < 0).any() or (second < 0).any():
        raise InputError("Histograms must be two lists of as many non-negative numbers.")
    if not first.sum() or not second.sum():
        return math.nan
    return float(np.abs(first / first.sum() - second / second.sum()).sum() / 2)


def clean_set_composition(flags: Flags, labels: LabelTable) -> tuple[Kept, ...]:
    """Per class, how many of the positive labels are left on images judged clean."""
    given = labels.select(flags.ids).values >= 0.5
    return tuple(
        Kept(name, int(column.sum()), int(column[~flags.noisy].sum()), share(~flags.noisy[column]))
        for name, column in zip(labels.classes, given.T, strict=True)
    )


def _suspicion(scores: NDArray[Any]) -> NDArray[np.float64]:
    """Higher for more suspect; NaN, which cannot be judged, below everything else."""
    suspicion = -scores.astype(np.float64)
    known = suspicion[~np.isnan(suspicion)]
    return np.where(np.isnan(suspicion), known.min(initial=0.0) - 1, suspicion)


def share(members: NDArray[np.bool_]) -> float:
    """The part that is true; NaN of nothing."""
    return float(members.mean()) if members.size else math.nan


def _mean_of(values: list[float]) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return sum(defined) / len(defined) if defined else math.nan
