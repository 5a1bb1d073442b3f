"""Evidence about every image from networks that never saw its patient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bomd.config import FitSettings
from bomd.data.split import split_by_patient
from bomd.describe.written import write_all
from bomd.errors import InputError
from bomd.files import read_array, read_json, write_json
from bomd.learn.engine import History, Learner, Score
from bomd.methods.base import Context, Method
from bomd.seeds import derive
from bomd.tables import Floats, LabelTable


def cross_fit(
    train: LabelTable,
    context: Context,
    folds: int,
    *,
    settings: FitSettings | None = None,
    targets: Floats | None = None,
    weights: Floats | None = None,
    learner: Learner | None = None,
    outputs: int | None = None,
    score: Score | None = None,
    depends: Sequence[object] = (),
) -> tuple[list[Floats], NDArray[np.intp], History]:
    """Train one network per fold of the patients on all others, and let it score that fold.

    Every fold is a stage of its own, so an interrupted run repeats none that is finished. What it scores is written
    as it is found, and stays on disk.

    Args:
        settings: How a network is trained; by default as the classifier.
        targets: (N, C) what is learnt in place of the given labels.
        weights: (N, 1) or (N, C) how much each counts; by default all alike. Not with a learner of one's own.
        learner: What is learnt; by default the labels, by cross-entropy.
        outputs: Numbers that a network returns; by default one for each class.
        score: What is kept of each image; by default the learner's predictions.
        depends: What learner and score depend on beside the settings, for the names of the stages.

    Returns:
        The scores of each fold's images, as memory maps; (N) the fold that each image is in; and one record per epoch.
    """
    fold_of = split_into_folds(train, folds, derive(context.seed, "folds"))
    settings = replace(settings or context.fit, select="last")
    values = train.values if targets is None else targets
    by = [type(learner or Method()).__module__, *([score.__module__] if score is not None else [])]
    parts: list[Floats] = []
    history: History = []
    for number in range(folds):
        held_out = fold_of == number
        inputs = (context.images.fingerprint, values, held_out, settings, context.seed, context.fabric.key)
        weighed = [] if weights is None else [weights]
        with context.stages.enter("fold", *inputs, *train.marks(), *weighed, *depends, by=(__name__, *by)) as stage:
            path = stage.directory / "scores.npy"
            if not stage.finished:
                learnt = learner or Weighted(train, context, None if weights is None else weights[~held_out])
                count, fold = outputs or len(train.classes), f"fold {number + 1} of {folds}"
                others, seed, what = context.images.take(~held_out), ("fold", number), f"train without {fold}"
                networks, course = context.train(learnt, values[~held_out], settings, count, stage, what, seed, others)
                ask = partial(score or learnt.predict, networks)
                write_all(path, context.images.take(held_out), networks, ask, what=f"judge {fold}")
                write_json(stage.directory / "history.json", course)
                stage.finish(images=int((~held_out).sum()))
            parts.append(read_array(path, mapped=True))
            history += read_json(stage.directory / "history.json")
    return parts, fold_of, history


def all_images(parts: Sequence[Floats], fold_of: NDArray[np.intp]) -> Floats:
    """(N, ...) what was said of the images of each fold, in memory."""
    found = np.empty((len(fold_of), *parts[0].shape[1:]), dtype=np.float32)
    for number, part in enumerate(parts):
        found[fold_of == number] = part
    return found


def check_folds(method: str, train: LabelTable, folds: int) -> None:
    """Refuse to split the patients into more parts than they can fill."""
    patients = len(np.unique(train.groups))
    if patients < 2 * folds:
        raise InputError(f"{method}.folds is {folds}: {patients} patients are too few to split that often.")


class Weighted(Method):
    """Cross-entropy in which some images or labels may count for more than others."""

    def __init__(self, train: LabelTable, context: Context, weights: Floats | None) -> None:
        self.exclusive = train.exclusive
        self.weights = None if weights is None else context.tensor(weights)

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        return self.cross_entropy(logits, targets, None if self.weights is None else self.weights[index])


def split_into_folds(table: LabelTable, folds: int, seed: int) -> NDArray[np.intp]:
    """(N) the fold of each image: patients stay together, and each class is spread evenly."""
    fold_of = np.full(len(table), folds - 1, dtype=np.intp)
    rows = np.arange(len(table))
    for number in range(folds - 1):
        kept, held_out = split_by_patient(table.take(rows), 1 / (folds - number), derive(seed, number))
        fold_of[rows[held_out]] = number
        rows = rows[kept]
    return fold_of
