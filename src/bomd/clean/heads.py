"""Logistic heads on features that somebody has: how probable is each given label, judged without its patient?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize  # type: ignore[import-untyped]
from scipy.special import log_softmax, softmax  # type: ignore[import-untyped]

from bomd.clean.calibrate import LEAST, Doubles, logistic, sigmoid
from bomd.clean.features import Features, blocks
from bomd.errors import InputError
from bomd.tables import Floats

FOLDS = 5
RIDGES = (0.004, 0.015, 0.06)  # per image; the one under which held-out labels are most likely is taken
DIRECTIONS = 400  # at most that the features are rotated to: those along which images differ most
SCALE = 0.1  # of a standardised feature, so that the ridges mean the same for any features
ITERATIONS = 60  # of L-BFGS
FITTED = 50_000  # images at most that a head is fitted on; a few hundred weights need no more


def cross_fit_heads(
    features: Features,
    labels: NDArray[Any],
    groups: NDArray[Any],
    *,
    folds: int = FOLDS,
    seed: int = 0,
    exclusive: bool = False,
) -> Doubles:
    """Score every label by a logistic regression of all classes that was fitted without its patient.

    Features are read in blocks, so that they may be larger than memory.

    Args:
        features: (N, D), finite, of any scale.
        labels: (N, C) in [0, 1] or NaN, which says nothing.
        groups: (N) who the image shows; all images of one stay in one fold.
        folds: Parts that the patients are split into; fewer where there are fewer patients.
        seed: Of the split.
        exclusive: Whether an image has one class and no other.

    Returns:
        (N, C) logits of the given labels.

    Examples:
        >>> import numpy as np
        >>> features = np.linspace(-1, 1, 40)[:, None]
        >>> scores = cross_fit_heads(features, (features > 0).astype(float), np.arange(40))
        >>> bool(scores[-1, 0] > 0 > scores[0, 0])
        True
    """
    if len(features.shape) != 2 or labels.ndim != 2 or not len(features) == len(labels) == len(groups):
        raise InputError(f"Features {features.shape}, labels {labels.shape} and {len(groups)} groups do not fit.")
    fold_of = split_groups(groups, folds, seed)
    turning = find_turning(features)
    weights = []
    for fold in range(fold_of.max() + 1):
        others = np.flatnonzero(fold_of != fold)
        others = others[:: -(-len(others) // FITTED)]
        turned = np.concatenate([turning(features[others[rows]]) for rows in blocks(len(others), features)])
        weights.append([fit_heads(turned, labels[others], ridge * len(others), exclusive) for ridge in RIDGES])
    scores, surprise = np.empty((len(RIDGES), *labels.shape)), np.zeros(len(RIDGES))
    for rows in blocks(len(features), features):
        turned = turning(features[rows])
        for place in range(len(RIDGES)):
            for fold in np.unique(fold_of[rows]):
                own = fold_of[rows] == fold
                found = weights[fold][place]
                scores[place, rows][own] = turned[own] @ found[:-1] + found[-1]
            surprise[place] += _surprise(scores[place, rows], labels[rows], exclusive)
    return np.asarray(scores[np.argmin(surprise)])


def split_groups(groups: NDArray[Any], folds: int, seed: int) -> NDArray[np.intp]:
    """(N) the fold of each image, so that those of one group stay together and folds have as many groups each."""
    names, member = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise InputError("All images are of one patient: nobody else can judge them.")
    order = np.random.default_rng(seed).permutation(len(names))
    return np.asarray((order % min(folds, len(names)))[member], dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Turning:
    """Makes features of mean 0 and deviation 0.1, turned to at most 400 directions of most variation."""

    mean: Floats  # (D)
    factor: Floats  # (D) by which differences from the mean are multiplied
    directions: Floats  # (D, at most 400)

    def __call__(self, features: NDArray[Any]) -> Floats:
        return np.asarray(self.scaled(features) @ self.directions, dtype=np.float32)

    def scaled(self, features: NDArray[Any]) -> Floats:
        return np.asarray((np.asarray(features, dtype=np.float32) - self.mean) * self.factor)


def find_turning(features: Features) -> Turning:
    """The turning of these features, looked at in blocks; they must be finite."""
    shift = np.asarray(features[:1], dtype=np.float64)[0]  # so that sums of squares lose nothing, and constants are 0
    total, squares = np.zeros_like(shift), np.zeros_like(shift)
    for rows in blocks(len(features), features):
        block = np.asarray(features[rows], dtype=np.float64)
        if not np.isfinite(block).all():
            raise InputError("Features must be finite.")
        block = block - shift
        total += block.sum(axis=0)
        squares += np.einsum("nd,nd->d", block, block)
    mean = total / len(features)
    spread = np.sqrt(np.maximum(squares / len(features) - mean**2, 0))
    factor = SCALE / np.where(spread > 0, spread, 1)
    plain = Turning(
        np.asarray(shift + mean, dtype=np.float32), np.asarray(factor, dtype=np.float32), np.zeros((0, 0), np.float32)
    )
    chosen = np.arange(0, len(features), -(-len(features) // FITTED))
    parts = (plain.scaled(features[chosen[rows]]) for rows in blocks(len(chosen), features))
    if len(shift) > len(chosen):
        _, _, directions = np.linalg.svd(np.concatenate(list(parts)), full_matrices=False)
        return replace(plain, directions=directions[:DIRECTIONS].T)
    together = sum((part.T @ part for part in parts), np.zeros((len(shift), len(shift)), np.float32))
    _, vectors = np.linalg.eigh(together)  # in rising order
    return replace(plain, directions=vectors[:, ::-1][:, :DIRECTIONS])


def fit_heads(features: NDArray[Any], labels: NDArray[Any], ridge: float, exclusive: bool = False) -> Doubles:
    """(D + 1, C) weights, the offsets last, with the least cross-entropy plus half the ridge times squared weights.

    Offsets are free; labels that are NaN do not count.
    """
    known = ~np.isnan(labels)
    target = np.where(known, labels, 0).astype(np.float32)
    usual = np.clip(target.sum(axis=0) / np.maximum(known.sum(axis=0), 1), LEAST, 1 - LEAST)
    start = np.zeros((features.shape[1] + 1, labels.shape[1]))
    start[-1] = logistic(np.asarray(usual, dtype=np.float64))

    def loss(flat: Doubles) -> tuple[float, Doubles]:
        weights = flat.reshape(start.shape)
        logits = features @ weights[:-1].astype(np.float32) + weights[-1]
        entropy = _entropies(logits, target, known, exclusive).sum(dtype=np.float64)
        rest = np.where(known, (softmax(logits, axis=1) if exclusive else sigmoid(logits)) - target, 0)
        slope = np.empty_like(start)
        slope[:-1] = features.T @ rest.astype(np.float32) + ridge * weights[:-1]
        slope[-1] = rest.sum(axis=0)
        return float(entropy + 0.5 * ridge * (weights[:-1] ** 2).sum()), slope.ravel()

    best = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS})
    return np.asarray(best.x.reshape(start.shape))


def _surprise(scores: Doubles, labels: NDArray[Any], exclusive: bool) -> float:
    """Cross-entropy of all known labels."""
    known = ~np.isnan(labels)
    return float(_entropies(scores, np.where(known, labels, 0), known, exclusive).sum())


def _entropies(logits: NDArray[Any], target: NDArray[Any], known: NDArray[np.bool_], exclusive: bool) -> NDArray[Any]:
    """(N, C) cross-entropy of each label; 0 where it is not known."""
    if exclusive:
        return np.asarray(-target * log_softmax(logits, axis=1))  # an unknown label has no target
    return np.where(known, np.logaddexp(0, logits) - target * logits, 0)
