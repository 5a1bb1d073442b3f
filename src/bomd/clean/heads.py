"""Logistic heads on features that somebody has: how probable is each given label, judged without its patient?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize  # type: ignore[import-untyped]
from scipy.special import log_softmax, softmax  # type: ignore[import-untyped]

from bomd.clean.calibrate import LEAST, Doubles, logistic, sigmoid
from bomd.errors import InputError

FOLDS = 5
RIDGES = (0.004, 0.015, 0.06)  # per image; the one under which held-out labels are most likely is taken
DIRECTIONS = 400  # at most that the features are rotated to: those along which images differ most
SCALE = 0.1  # of a standardised feature, so that the ridges mean the same for any features
ITERATIONS = 60  # of L-BFGS
FITTED = 50_000  # images at most that a head is fitted on; a few hundred weights need no more

Floats = NDArray[np.float32]


def cross_fit_heads(
    features: NDArray[Any],
    labels: NDArray[Any],
    groups: NDArray[Any],
    *,
    folds: int = FOLDS,
    seed: int = 0,
    exclusive: bool = False,
) -> Doubles:
    """Score every label by a logistic regression of all classes that was fitted without its patient.

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
    if features.ndim != 2 or labels.ndim != 2 or not len(features) == len(labels) == len(groups):
        raise InputError(f"Features {features.shape}, labels {labels.shape} and {len(groups)} groups do not fit.")
    if not np.isfinite(features).all():
        raise InputError("Features must be finite.")
    fold_of = split_groups(groups, folds, seed)
    rotated = rotate(features)
    found: list[tuple[float, Doubles]] = []
    for ridge in RIDGES:
        scores = np.empty(labels.shape)
        for fold in range(fold_of.max() + 1):
            own = fold_of == fold
            others = np.flatnonzero(~own)
            others = others[:: -(-len(others) // FITTED)]
            weights = fit_heads(rotated[others], labels[others], ridge * len(others), exclusive)
            scores[own] = rotated[own] @ weights[:-1] + weights[-1]
        found.append((_surprise(scores, labels, exclusive), scores))
    return min(found, key=lambda pair: pair[0])[1]


def split_groups(groups: NDArray[Any], folds: int, seed: int) -> NDArray[np.intp]:
    """(N) the fold of each image, so that those of one group stay together and folds have as many groups each."""
    names, member = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise InputError("All images are of one patient: nobody else can judge them.")
    order = np.random.default_rng(seed).permutation(len(names))
    return np.asarray((order % min(folds, len(names)))[member], dtype=np.intp)


def rotate(features: NDArray[Any]) -> Floats:
    """(N, at most 400) features of mean 0 and deviation 0.1, turned to the directions of most variation."""
    values = np.asarray(features, dtype=np.float32)
    spread = values.std(axis=0)
    scaled = (values - values.mean(axis=0)) * (SCALE / np.where(spread > 0, spread, 1))
    part = scaled[:: -(-len(scaled) // FITTED)]
    if scaled.shape[1] > len(part):
        _, _, directions = np.linalg.svd(part, full_matrices=False)
        return np.asarray(scaled @ directions[:DIRECTIONS].T, dtype=np.float32)
    _, vectors = np.linalg.eigh(part.T @ part)  # in rising order
    return np.asarray(scaled @ vectors[:, ::-1][:, :DIRECTIONS], dtype=np.float32)


def fit_heads(features: NDArray[Any], labels: NDArray[Any], ridge: float, exclusive: bool = False) -> Doubles:
    """(D + 1, C) weights, the offsets last, with the least cross-entropy plus half the ridge times squared weights.

    Args:
        features: (N, D).
        labels: (N, C) in [0, 1]; NaN does not count.
        ridge: Pull of the weights to 0; offsets are free.
        exclusive: Whether the classes of an image share a total of 1 (softmax) or stand alone.
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
    """Mean cross-entropy of the known labels."""
    known = ~np.isnan(labels)
    entropies = _entropies(scores, np.where(known, labels, 0), known, exclusive)
    return float(entropies.sum() / max(known.sum(), 1))


def _entropies(logits: NDArray[Any], target: NDArray[Any], known: NDArray[np.bool_], exclusive: bool) -> NDArray[Any]:
    """(N, C) cross-entropy of each label; 0 where it is not known."""
    if exclusive:
        return np.asarray(-target * log_softmax(logits, axis=1))  # an unknown label has no target
    return np.where(known, np.logaddexp(0, logits) - target * logits, 0)
