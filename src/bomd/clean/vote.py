"""Votes of the nearest images, in which an image counts for as much as its labels are worth."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError

CHUNK = 2**22  # votes at a time


def vote(labels: NDArray[Any], neighbours: NDArray[Any], weights: NDArray[Any]) -> NDArray[np.float64]:
    """Mean label of each image's neighbours, over those that exist and are labelled, each with its weight.

    Args:
        labels: (N, C) in [0, 1] or NaN.
        neighbours: (Q, K) rows of the voters; -1 stands for nobody.
        weights: (N) how much each image's vote counts, not below 0.

    Returns:
        (Q, C), NaN where nobody with any weight votes.

    Examples:
        >>> import numpy as np
        >>> vote(np.array([[1.0], [0.0], [np.nan]]), np.array([[0, 1], [1, 2]]), np.array([3.0, 1.0, 1.0])).tolist()
        [[0.75], [0.0]]
    """
    if len(weights) != len(labels) or (np.asarray(weights) < 0).any():
        raise InputError("Votes need one weight of at least 0 for each image.")
    known = np.pad(~np.isnan(labels), ((0, 1), (0, 0)))  # the last row is nobody
    mass = known * np.append(np.asarray(weights, dtype=np.float64), 0)[:, None]
    said = mass * np.pad(np.nan_to_num(labels), ((0, 1), (0, 0)))
    found = np.empty((len(neighbours), labels.shape[1]))
    step = max(1, CHUNK // max(neighbours.shape[1] * labels.shape[1], 1))
    for start in range(0, len(neighbours), step):
        rows = neighbours[start : start + step]
        total = mass[rows].sum(axis=1)
        with np.errstate(invalid="ignore"):
            found[start : start + step] = np.where(total > 0, said[rows].sum(axis=1) / total, np.nan)
    return found
