"""Li et al. 2022: how often labels of each class flip, from pairs of classes, and a loss weighted by it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bomd.files import read_arrays, read_json, write_arrays, write_json
from bomd.learn.engine import History, Predict, predict
from bomd.methods.base import Context, Method, Prepared, masked_mean
from bomd.methods.settings import within
from bomd.methods.two_gaussians import Floats, cross_entropies, low_posterior_by_label
from bomd.networks.backbone import Network
from bomd.tables import NO_FINDING, Flags, LabelTable

ROUNDING = 1e-9  # labels without any noise have rates of exactly 0


class LiTransition(Method):
    """Estimate each class's rates of false and missing labels, then weight every label by how likely it is true.

    Paper: Li et al., Estimating Noise Transition Matrix with Label Correlations for Noisy Multi-Label Learning,
    NeurIPS 2022. Labels with a small loss early in training show how a class goes together with another one; that and
    the frequencies of all given labels determine the class's rates. The release zeroes entries that are zero in
    the true matrix, which nobody has.
    Differs: no look at the true rates. The first training stops where its losses are read, at half the epochs of
    the second, which starts afresh. "No Finding" is never one of a pair, because its label follows from the others
    and the equations ask for independence; its rates come from dual-T. A class with too few selected labels keeps rates
    of 0, and so does one that dual-T finds predicted too seldom or with rates that cannot be (a missing rate is
    capped at one half).
    Found: on phantoms with noise on whole images, rates of missing labels come out about right on average, but rates
    of false ones far too low: labels of two classes are then not independent given the truth, as the equations ask.
    Cost: 1.6.

    Args:
        epochs: Of the first training, whose last third the losses are averaged over; half of the classifier's by
            default.
        threshold: Posterior of the low-loss heap above which a label counts as clean.
        fewest: Labels of each value that have to be clean for rates to be estimated.
    """

    def __init__(self, epochs: int | None = None, threshold: float = 0.5, fewest: int = 50) -> None:
        within("[1, inf)", "li-transition", epochs=epochs)
        self.epochs, self.threshold, self.fewest = epochs, threshold, fewest

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        losses, seen, history = self._first_training(train, context)
        clean = low_posterior_by_label(losses, train.values)
        nothing = train.classes.index(NO_FINDING) if NO_FINDING in train.classes else None
        rates, sources = estimate(train.values, clean > self.threshold, seen, nothing, self.fewest)
        self.rates = context.tensor(rates)
        lowest = np.where(np.isnan(clean), np.inf, clean).min(axis=1)
        margin = np.where(np.isinf(lowest), np.nan, lowest).astype(np.float32)
        flags = Flags(train.ids, lowest <= self.threshold, margin, clean.astype(np.float32))
        counts = ", ".join(f"{sources.count(name)} {name}" for name in ("pairs", "dual-T", "identity"))
        note = f"li-transition: rates of {len(sources)} classes come from: {counts}."
        return Prepared(train.values, flags, history=history, notes=(note,))

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        labels = targets.nan_to_num()
        here, absent = importance(logits.detach().sigmoid(), self.rates)
        entries = labels * here * F.softplus(-logits) + (1 - labels) * absent * F.softplus(logits)
        return masked_mean(entries, ~targets.isnan())

    def _first_training(self, train: LabelTable, context: Context) -> tuple[Floats, Floats, History]:
        """(N, C) mean losses over the last epochs, (N, C) last predictions, and what it took."""
        epochs = math.ceil(context.fit.epochs / 2) if self.epochs is None else self.epochs
        settings = replace(context.fit, epochs=epochs, select="last")
        inputs = (context.images.fingerprint, train.values, settings, context.seed, context.fabric.key)
        with context.stages.enter("first-training", *inputs) as stage:
            path = stage.directory / "losses.npz"
            if not stage.finished:
                learner = FirstTraining(train.values, context, epochs)
                networks, history = context.train(
                    learner, train.values, settings, len(train.classes), stage, "watch losses", ["first training"]
                )
                logits = predict(learner, networks, context.images, score=_logits)
                learner.add(logits)
                losses = learner.losses.cpu().double() / learner.window
                write_arrays(path, {"losses": losses.numpy(), "seen": logits.double().sigmoid().numpy()})
                write_json(stage.directory / "history.json", history)
                stage.finish(images=len(train))
            found = read_arrays(path)
            return found["losses"], found["seen"], read_json(stage.directory / "history.json")


class FirstTraining(Method):
    """Plain cross-entropy that adds up the loss of every label over its last epochs."""

    def __init__(self, labels: NDArray[np.float32], context: Context, epochs: int) -> None:
        self.labels, self.epochs = labels, epochs
        self.window = math.ceil(epochs / 3)  # epochs whose losses are added: the last third, and at least one
        self.losses = context.buffer(labels.shape)  # (N, C) their sum; that after the very last is left to `add`

    def buffers(self) -> dict[str, Tensor]:
        return {"losses": self.losses}

    def start_epoch(self, epoch: int, predict: Predict) -> None:
        if epoch > self.epochs - self.window:
            self.add(predict(_logits))

    def add(self, logits: Tensor) -> None:
        """Add the losses of (N, C) logits."""
        losses = torch.from_numpy(cross_entropies(logits.numpy(), self.labels))
        self.losses += losses.to(self.losses)


def importance(predicted: Tensor, rates: Tensor) -> tuple[Tensor, Tensor]:
    """(B, C) weights of positive and of negative labels: probability of the label if true over that of it as given."""
    here = predicted.clamp(1e-4, 1 - 1e-4)
    given = rates[0] * (1 - here) + (1 - rates[1]) * here
    return here / given, (1 - here) / (1 - given)


def estimate(
    labels: NDArray[np.float32], clean: NDArray[np.bool_], seen: Floats, nothing: int | None, fewest: int
) -> tuple[Floats, list[str]]:
    """(2, C) rates of false and of missing labels, and where each class's come from.

    Args:
        clean: (N, C) labels that are likely to be right.
        seen: (N, C) predictions of a network that learnt the given labels.
        nothing: The column of "No Finding".
        fewest: Labels of each value that have to be clean.
    """
    rates = np.zeros((2, labels.shape[1]))
    sources = ["identity"] * labels.shape[1]
    for column in range(labels.shape[1]):
        known = ~np.isnan(labels[:, column])
        given = labels[known, column] >= 0.5
        selected = clean[known, column]
        if min((selected & given).sum(), (selected & ~given).sum()) < fewest:
            continue
        others = [other for other in range(labels.shape[1]) if other not in (column, nothing) and column != nothing]
        tables = [pair(labels, clean, column, other, fewest) for other in others]
        found, source = from_pairs([table for table in tables if table is not None]), "pairs"
        if found is None:
            found, source = dual(given, seen[known, column], fewest), "dual-T"
        if found is not None:
            rates[:, column], sources[column] = found, source
    return rates, sources


def pair(
    labels: NDArray[np.float32], clean: NDArray[np.bool_], column: int, other: int, fewest: int
) -> tuple[Floats, Floats] | None:
    """What class `other` tells about class `column`; None where labels are too few.

    Returns:
        (2, 2) P(other = b | truth = t) by t and b, from clean labels, and (2, 2) P(given = g, other = b) by g and b.
    """
    both = ~np.isnan(labels[:, [column, other]]).any(axis=1)
    given, beside = labels[both, column] >= 0.5, labels[both, other] >= 0.5
    selected = clean[both, column]
    groups = [beside[selected & (given == truth)] for truth in (False, True)]
    if min(map(len, groups)) < fewest:
        return None
    conditional = np.array([[1 - group.mean(), group.mean()] for group in groups])
    joint = np.array([[((given == g) & (beside == b)).mean() for b in (False, True)] for g in (False, True)])
    return conditional, joint


def from_pairs(tables: list[tuple[Floats, Floats]]) -> tuple[float, float] | None:
    """The rates that the pair with the best agreement to all pairs asks for; None where no `pair` has a solution."""
    systems, solutions = [], []
    for (absent, here), joint in tables:
        if math.isclose(here[0], absent[0], abs_tol=1e-9):
            continue
        prevalence = (joint[:, 0].sum() - absent[0]) / (here[0] - absent[0])
        if not 0 < prevalence < 1:
            continue
        system = np.stack([(1 - prevalence) * absent, prevalence * here], axis=1)  # by b, of both truths
        systems.append((system, joint[1]))
        false, right = np.linalg.solve(system, joint[1])
        if -ROUNDING <= false < right <= 1 + ROUNDING:
            solutions.append((max(false, 0.0), min(right, 1.0)))
    if not solutions:
        return None
    residuals = [sum(np.abs(system @ solution - given).sum() for system, given in systems) for solution in solutions]
    false, right = solutions[int(np.argmin(residuals))]
    return float(false), float(1 - right)


def dual(given: NDArray[np.bool_], seen: Floats, fewest: int) -> tuple[float, float] | None:
    """Rates by way of the predicted class (dual-T): from truth to prediction, and from prediction to (N) labels.

    Of the predictions `seen` (N), 3 % at either end are left out when the surest are looked for. None where fewer than
    `fewest` images are predicted either way.
    """
    predicted = seen > 0.5
    if min(predicted.sum(), (~predicted).sum()) < fewest:
        return None
    lowest, highest = np.quantile(seen, [0.03, 0.97])
    to_prediction = np.array([[1 - lowest, lowest], [1 - highest, highest]])
    to_label = np.array([[1 - given[rows].mean(), given[rows].mean()] for rows in (~predicted, predicted)])
    (_, false), (missing, _) = to_prediction @ to_label
    missing = min(missing, 0.5)
    return (float(false), float(missing)) if false + missing < 0.9 else None


def _logits(networks: Sequence[Network], images: Tensor) -> Tensor:
    return cast(Tensor, networks[0](images))
