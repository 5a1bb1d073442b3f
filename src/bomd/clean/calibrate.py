"""Scores become probabilities: per class, how often does a score like this one come with a positive label?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError

LEAST = 1e-4  # no probability is nearer to 0 or 1: one wild score must not outweigh many labels
STEPS = 50  # of Newton's method, which needs about eight
FITTED = 200_000  # rows at most that a class is fitted on; more would not change the third digit

Doubles = NDArray[np.float64]


def calibrate(scores: NDArray[Any], labels: NDArray[Any]) -> Doubles:
    """Fit sigmoid(a s + b) to the labels of each class by logistic regression, with a not below 0.

    A class whose scores say nothing about its labels, or point the wrong way, gets its frequency everywhere. Where
    scores come from a network that never saw the image, the result is the probability of a *given* label.

    Args:
        scores: (N, C) of any scale, finite; higher means that the class fits better.
        labels: (N, C) in [0, 1] or NaN.

    Returns:
        (N, C) probabilities.

    Examples:
        >>> import numpy as np
        >>> found = calibrate(np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([[0.0], [1.0], [0.0], [1.0]]))
        >>> bool((np.diff(found[:, 0]) > 0).all()), round(float(found.mean()), 3)
        (True, 0.5)
    """
    if scores.shape != labels.shape or scores.ndim != 2:
        raise InputError(f"Scores of shape {scores.shape} do not fit labels of shape {labels.shape}.")
    if not np.isfinite(scores).all():
        raise InputError("Scores must be finite.")
    found = np.empty(scores.shape)
    step = -(-len(scores) // FITTED) if len(scores) else 1
    for column in range(scores.shape[1]):
        given = np.asarray(labels[::step, column], dtype=np.float64)
        known = ~np.isnan(given)
        own = np.asarray(scores[:, column], dtype=np.float64)
        middle, spread = (own.mean(), own.std()) if len(own) else (0.0, 1.0)
        scaled = (own - middle) / (spread or 1.0)
        slope, offset = _fit(scaled[::step][known], given[known])
        found[:, column] = sigmoid(slope * scaled + offset)
    return np.clip(found, LEAST, 1 - LEAST)


def logistic(values: Doubles) -> Doubles:
    """ln(p / (1 - p))."""
    return np.asarray(np.log(values) - np.log1p(-values))


def sigmoid(values: NDArray[Any]) -> Doubles:
    """1 / (1 + exp(-v)), without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * np.asarray(values, dtype=np.float64))))


def _fit(scores: Doubles, labels: Doubles) -> tuple[float, float]:
    """Slope and offset for scores of mean 0 and deviation 1; a weak pull to slope 0 keeps separable labels finite."""
    frequency = float(np.clip(labels.mean(), LEAST, 1 - LEAST)) if len(labels) else 0.5
    flat = (0.0, float(logistic(np.asarray(frequency))))
    if len(labels) < 2 or labels.min() == labels.max():
        return flat
    design = np.stack([scores, np.ones_like(scores)])
    pull = np.array([1e-2, 1e-6])

    def loss(at: Doubles) -> float:
        logits = at @ design
        return float((np.logaddexp(0, logits) - labels * logits).sum() + 0.5 * (pull * at**2).sum())

    weights, value = np.array(flat), loss(np.array(flat))
    for _ in range(STEPS):
        chance = sigmoid(weights @ design)
        gradient = design @ (chance - labels) + pull * weights
        curvature = (design * (chance * (1 - chance))) @ design.T + np.diag(pull)
        move = np.linalg.solve(curvature, gradient)
        while (lower := loss(weights - move)) > value and np.abs(move).max() > 1e-9:
            move = move / 2  # Newton's step may overshoot where scores have long tails
        gained, weights, value = value - lower, weights - move, lower
        if gained <= 1e-10 * (1 + abs(value)):
            break
    return (float(weights[0]), float(weights[1])) if weights[0] > 0 else flat
