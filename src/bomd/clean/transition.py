"""One label per image: which class is given for which true one, and so what each image probably shows.

A label is taken to be drawn from a row of a matrix, which says how often a true class is given as each class. Evidence
says how probable each true class is, up to its temperature and an offset for each class. All of it is what makes the
given labels most likely together: evidence that is unsure differs from image to image, while wrong labels are as
frequent among images that look certain.

A model that has seen many labels repeats how often they are wrong: it is as unsure of every image. Where most images
look as certain as the most certain ones of their class, and these are not certain, that is taken out of the evidence
first. With no more than labels and evidence, a class that the evidence itself takes for another looks like one that is
labelled so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize  # type: ignore[import-untyped]
from scipy.special import log_softmax, softmax  # type: ignore[import-untyped]
from scipy.stats import entropy  # type: ignore[import-untyped]

from bomd.clean.calibrate import Doubles
from bomd.errors import InputError

ROUNDS = 40  # of expectation and maximisation, at most
ENOUGH = 1e-5  # nats an image by which a round has to be better
STEPS = 20  # of L-BFGS in each round
FITTED = 20_000  # images at most that all of it is fitted on
STARTS = (0.1, 0.4)  # wrong labels to begin with; the end that explains the labels better is taken
RIGHT, ANY = 8.0, 1.0  # images of each true class that count beside those seen: labelled rightly, and as any class
PULL = 1e-4  # of the offsets to 0, an image
CLEAREST, FEWEST = 0.1, 10  # part of the images of a class that are most certain, of at least so many
DECIDED, MOST = 0.9, 0.5  # an image is decided from this probability on, and most images are from this share on
SINGULAR = 1e3  # condition of a matrix from which on it cannot be taken out of anything

_LEAST, _RARE = 1e-12, 1e-4


@dataclass(frozen=True, eq=False)
class Reading:
    """Turns evidence into the logarithm of probabilities of the true class, up to temperature and offset."""

    scale: float  # inverse temperature under which the evidence predicts the given labels best
    offset: Doubles  # (C) likewise
    undo: Doubles | None = None  # (C, C) takes out what a model repeats of wrong labels, where it seems to repeat any

    def __call__(self, scores: NDArray[Any]) -> Doubles:
        centred = _centred(scores)
        if self.undo is None:
            return centred
        given = softmax(self.scale * centred + self.offset, axis=1)
        return _centred(np.log(np.maximum(given @ self.undo, _RARE)))


@dataclass(frozen=True, eq=False)
class Transition:
    """How single labels go wrong, and how evidence about them is to be read."""

    matrix: Doubles  # (C, C) share of the images of each true class (a row) that are given as each class (a column)
    frequency: Doubles  # (C) share of the images that truly have each class
    reading: Reading  # of the evidence, before the next two
    scale: float  # inverse temperature of the evidence
    offset: Doubles  # (C) added to it
    gain: float  # how much better this explains the given labels than no wrong label would, in nats an image

    @property
    def wrong(self) -> float:
        """Share of wrong labels."""
        return float(1 - self.frequency @ np.diag(self.matrix))

    def told(self, scores: NDArray[Any]) -> float:
        """Which part of what is unknown about the class of an image the evidence tells, by entropy: from 0 to 1."""
        left = entropy(softmax(self.scale * self.reading(scores) + self.offset, axis=1), axis=1).mean()
        return float(1 - left / max(entropy(self.frequency), _LEAST))

    def truth(self, scores: NDArray[Any], labels: NDArray[Any], fixed: NDArray[np.bool_] | None = None) -> Doubles:
        """(N, C) probability of each true class; that of an unlabelled image, a row without a 1, is the evidence's.

        What people confirmed (`fixed`, (N, C)) is certain, and what they took away impossible.
        """
        chance = softmax(self.scale * self.reading(scores) + self.offset, axis=1)
        given, column = _given(labels)
        chance[given] *= self.matrix[:, column[given]].T
        if fixed is not None:
            chance[fixed & ~(labels >= 0.5)] = 0
            certain = (fixed & (labels >= 0.5)).any(axis=1)
            chance[certain] = labels[certain] >= 0.5
        total = chance.sum(axis=1, keepdims=True)
        return np.asarray(chance / np.maximum(total, _LEAST))


def fit_transition(scores: NDArray[Any], labels: NDArray[Any]) -> Transition:
    """The transition under which the given labels are most likely.

    Args:
        scores: (N, C) logits or logarithms of probabilities of any temperature, by models that never saw the image.
        labels: (N, C), 1 for the class that is given and 0 elsewhere; a row without one is not labelled.
    """
    if scores.shape != labels.shape or scores.ndim != 2:
        raise InputError(f"Scores of shape {scores.shape} do not fit labels of shape {labels.shape}.")
    if not np.isfinite(scores).all():
        raise InputError("Scores must be finite.")
    given, column = _given(labels)
    rows = np.flatnonzero(given)
    rows = rows[:: -(-len(rows) // FITTED) if len(rows) else 1]
    column, count = column[rows], labels.shape[1]
    one_hot = np.eye(count)[column]
    reading = _read(np.asarray(scores)[rows], one_hot)
    evidence = reading(np.asarray(scores)[rows])
    weights = _calibrate(evidence, one_hot)
    plain = _log_likelihood(evidence, weights, np.eye(count), column)
    if reading.undo is not None:  # which is calibrated: as if nothing were wrong with the labels
        weights = np.concatenate([[1.0], np.zeros(count)])
    likelihood, matrix, weights, seen = max(
        (_maximise(evidence, column, weights, start) for start in STARTS), key=lambda found: found[0]
    )
    frequency = seen.mean(axis=0) if len(rows) else np.full(count, 1 / count)
    return Transition(matrix, frequency, reading, float(weights[0]), weights[1:], max(likelihood - plain, 0.0))


def _read(scores: NDArray[Any], one_hot: Doubles) -> Reading:
    """How to read evidence: as it is, or without what a model repeats of wrong labels."""
    evidence, count = _centred(scores), one_hot.shape[1]
    weights = _calibrate(evidence, one_hot)
    plain = Reading(float(weights[0]), weights[1:])
    given = softmax(weights[0] * evidence + weights[1:], axis=1)
    likeliest, repeated = given.argmax(axis=1), np.eye(count)
    for column in range(count):
        rows = np.flatnonzero(likeliest == column)
        if len(rows) >= FEWEST:
            own = given[rows, column]
            repeated[column] = given[rows[own >= np.quantile(own, 1 - CLEAREST)]].mean(axis=0)
    if np.linalg.cond(repeated) > SINGULAR:
        return plain
    undone = Reading(plain.scale, plain.offset, np.asarray(np.linalg.inv(repeated), dtype=np.float64))
    decided = softmax(undone(scores), axis=1).max(axis=1, initial=0) >= DECIDED
    return undone if len(decided) and decided.mean() >= MOST else plain


def _maximise(
    evidence: Doubles, column: NDArray[np.intp], weights: Doubles, wrong: float
) -> tuple[float, Doubles, Doubles, Doubles]:
    """Log-likelihood, matrix, scale with offsets, and (N, C) true classes, from so many wrong labels on."""
    count = evidence.shape[1]
    one_hot = np.eye(count)[column]
    matrix = np.full((count, count), wrong / max(count - 1, 1))
    np.fill_diagonal(matrix, 1 - wrong)
    likelihood, seen = -np.inf, one_hot
    for _ in range(ROUNDS):
        seen = softmax(weights[0] * evidence + weights[1:], axis=1) * matrix[:, column].T
        seen /= np.maximum(seen.sum(axis=1, keepdims=True), _LEAST)
        pairs = seen.T @ one_hot + RIGHT * np.eye(count) + ANY / count
        matrix = pairs / pairs.sum(axis=1, keepdims=True)
        weights = _calibrate(evidence, seen, weights)
        before, likelihood = likelihood, _log_likelihood(evidence, weights, matrix, column)
        if likelihood - before < ENOUGH:
            break
    return likelihood, matrix, weights, seen


def _calibrate(evidence: Doubles, target: Doubles, start: Doubles | None = None) -> Doubles:
    """(1 + C) scale, not below 0, and offsets with the least cross-entropy towards (N, C) probabilities."""
    if start is None:
        spread = float(evidence.std()) if evidence.size else 0.0
        start = np.concatenate([[1 / spread if spread else 0.0], np.zeros(evidence.shape[1])])

    def loss(weights: Doubles) -> tuple[float, Doubles]:
        logs = log_softmax(weights[0] * evidence + weights[1:], axis=1)
        rest = (np.exp(logs) - target) / max(len(target), 1)
        slope = np.concatenate([[(rest * evidence).sum()], rest.sum(axis=0) + 2 * PULL * weights[1:]])
        entropy = -(target * logs).sum() / max(len(target), 1)
        return float(entropy + PULL * (weights[1:] ** 2).sum()), slope

    bounds = [(0, None), *[(None, None)] * (len(start) - 1)]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": STEPS})
    return np.asarray(found.x)


def _log_likelihood(evidence: Doubles, weights: Doubles, matrix: Doubles, column: NDArray[np.intp]) -> float:
    """Mean logarithm of the probability of the given labels."""
    chance = softmax(weights[0] * evidence + weights[1:], axis=1) * matrix[:, column].T
    return float(np.log(np.maximum(chance.sum(axis=1), _LEAST)).mean()) if len(column) else 0.0


def _centred(scores: NDArray[Any]) -> Doubles:
    """A number added to all classes of an image says nothing."""
    values = np.asarray(scores, dtype=np.float64)
    return np.asarray(values - values.mean(axis=1, keepdims=True))


def _given(labels: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """(N) whether an image is labelled, and (N) as which class."""
    positive = labels >= 0.5
    return np.asarray(positive.any(axis=1)), positive.argmax(axis=1)
