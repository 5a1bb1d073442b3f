"""Confident learning by the cleanlab package, on probabilities of images that were not trained on."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bomd import outside, progress
from bomd.methods.base import Context, Method, Prepared, refuse_soft
from bomd.methods.crossfit import all_images, check_folds, cross_fit
from bomd.methods.settings import within
from bomd.tables import NO_FINDING, Flags, Floats, LabelTable

LEAST = 1e-6  # of a probability whose logarithm is taken


class Cleanlab(Method):
    """Let cleanlab flag labels by cross-validated probabilities, leave them out or flip them, and train as usual.

    Paper: Northcutt et al., Confident Learning, JAIR 2021, and Thyagarajan et al. 2022 for several labels per image:
    the package `cleanlab` itself, which counts for each class how many labels contradict confident predictions and
    flags as many of the most contradictory ones.
    Differs: nothing known in what is flagged; unknown labels are left out of the counts, and a class with labels of
    one kind only is not judged. Where an image has one label, the package's functions for that are used, and turning
    it round means to move it to the likeliest class.
    Cost: 5.

    Args:
        folds: Parts that the patients are split into; each is predicted by a network trained on all others.
        action: What happens to flagged labels: they no longer count, or they are turned round.
    """

    one_label = True

    def __init__(self, folds: int = 5, action: Literal["prune", "flip"] = "prune") -> None:
        within("[2, inf)", "cleanlab", folds=folds)
        self.folds, self.action = folds, action

    def check(self, train: LabelTable) -> None:
        _package("filter")
        refuse_soft(train, "cleanlab judges labels that are")
        check_folds("cleanlab", train, self.folds)

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.check(train)
        parts, fold_of, history = cross_fit(train, context, self.folds)
        probabilities = all_images(parts, fold_of)
        find, rate = (find_wrong_single, quality_single) if train.exclusive else (find_wrong, quality)
        wrong, notes = find(train, probabilities)
        flags = Flags(train.ids, np.asarray(wrong.any(axis=1)), *rate(train.values, probabilities))
        progress.say(f"cleanlab flags {int(wrong.sum())} labels of {int(flags.noisy.sum())} images")
        pruned = self.action == "prune"
        targets = np.where(wrong, np.float32(np.nan), train.values) if pruned else flip(train, wrong, probabilities)
        scores = np.log(np.maximum(probabilities, LEAST)) if train.exclusive else probabilities
        return Prepared(targets, flags, scores=scores, history=history, notes=notes)


def find_wrong(table: LabelTable, probabilities: Floats) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """(N, C) labels that cleanlab finds wrong by (N, C) held-out probabilities, and what it could not judge."""
    wrong = np.zeros(table.values.shape, dtype=np.bool_)
    notes = []
    for column, name in enumerate(table.classes):
        known = ~np.isnan(table.values[:, column])
        labels = table.values[known, column].astype(np.int64)
        if len(np.unique(labels)) < 2:
            notes.append(f"cleanlab: {name} has labels of one kind only and was not judged.")
            continue
        positive = probabilities[known, column].astype(np.float64)
        wrong[known, column], said = _find(labels, np.stack([1 - positive, positive], axis=1))
        notes += [f"cleanlab: {name}: {text}" for text in said]
    return wrong, tuple(notes)


def find_wrong_single(table: LabelTable, probabilities: Floats) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """(N, C) all labels of the images whose one label cleanlab finds wrong: where one class is, another is missing."""
    known, labels, own = _single(table.values, probabilities)
    wrong = np.zeros(table.values.shape, dtype=np.bool_)
    found, said = _find(labels, own)
    wrong[known] = found[:, None]
    return wrong, tuple(f"cleanlab: {text}" for text in said)


def _find(labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> tuple[NDArray[np.bool_], list[str]]:
    """(N) labels that contradict (N, K) probabilities of the classes, and what the package warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = _package("filter").find_label_issues(labels, probabilities, n_jobs=1)
    return found, [str(warning.message) for warning in caught]


def quality_single(values: Floats, probabilities: Floats) -> tuple[Floats, Floats]:
    """(N) cleanlab's score of each image's one label, and (N, C) the same of each class; lower is more suspect."""
    known, labels, own = _single(values, probabilities)
    image = np.full(len(values), np.nan, dtype=np.float32)
    image[known] = _package("rank").get_label_quality_scores(labels, own)
    entry = np.where(values >= 0.5, probabilities, 1 - probabilities)
    return image, np.where(known[:, None], entry, np.nan).astype(np.float32)


def _single(values: Floats, probabilities: Floats) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.float64]]:
    """(N) labelled images, the number of the class of each of them, and its probabilities, which add up to 1."""
    known = np.asarray((values >= 0.5).any(axis=1))
    labels = values[known].argmax(axis=1).astype(np.int64)
    own = np.maximum(probabilities[known].astype(np.float64), LEAST)
    return known, labels, own / own.sum(axis=1, keepdims=True)


def quality(values: Floats, probabilities: Floats) -> tuple[Floats, Floats]:
    """(N) cleanlab's score of each image's labels, and (N, C) of each label; lower is more suspect, NaN unknown."""
    known = ~np.isnan(values)
    entry = np.where(values == 1, probabilities, np.where(known, 1 - probabilities, np.nan)).astype(np.float32)
    judged = known.any(axis=1)
    image = np.full(len(values), np.nan, dtype=np.float32)
    # The score weighs a row's labels from best to worst, so that one more of the best changes nothing.
    best = np.nanmax(entry, axis=1, where=known, initial=0)[:, None]
    filled = np.where(known, entry, best)[judged].astype(np.float64)
    if filled.shape[1] < 2 or not len(filled):
        image[judged] = filled.mean(axis=1)
        return image, entry
    # It looks at nothing but these, so any labels will do that the package accepts: the first class, no other.
    as_asked = np.concatenate([filled[:, :1], 1 - filled[:, 1:]], axis=1)
    image[judged] = _package("multilabel_classification").get_label_quality_scores([[0]] * len(filled), as_asked)
    return image, entry


def flip(table: LabelTable, wrong: NDArray[np.bool_], probabilities: Floats) -> NDArray[np.float32]:
    """(N, C) labels with the wrong ones turned round, and "No Finding" made to agree in the rows that changed.

    Where an image has one label, it moves to the likeliest class.
    """
    if table.exclusive:
        likeliest = np.eye(len(table.classes), dtype=np.float32)[probabilities.argmax(axis=1)]
        return np.where(wrong, likeliest, table.values)
    values = np.where(wrong, 1 - table.values, table.values)
    if NO_FINDING in table.classes:
        nothing = table.classes.index(NO_FINDING)
        changed = wrong.any(axis=1) & ~np.isnan(values[:, nothing])
        values[changed, nothing] = ~(values[changed][:, table.findings] == 1).any(axis=1)
    return values


def _package(module: str) -> Any:
    """Takes seconds to import, and is an extra."""
    return outside.package(f"cleanlab.{module}", "Method cleanlab needs an extra: pip install 'bomd[cleanlab]'.")
