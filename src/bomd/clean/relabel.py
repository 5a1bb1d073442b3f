"""Rewrite the labels of suspect images from those of their neighbours, smoothly."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bomd.clean.neighbours import Neighbours
from bomd.clean.vote import vote
from bomd.errors import InputError
from bomd.tables import LabelTable

Labels = TypeVar("Labels", LabelTable, NDArray[Any])


def neighbour_mean(labels: NDArray[Any], neighbours: Neighbours | NDArray[Any]) -> NDArray[np.float64]:
    """(Q, C) mean given label of each image's (Q, K) neighbours, as in `vote` with all counting alike."""
    indices = neighbours.indices if isinstance(neighbours, Neighbours) else np.asarray(neighbours)
    if indices.ndim != 2 or not np.issubdtype(indices.dtype, np.integer):
        raise InputError(f"Neighbours must be a (Q, K) array of row numbers, got {indices.dtype} {indices.shape}.")
    if indices.size and (indices.min() < -1 or indices.max() >= len(labels)):
        raise InputError(f"Neighbours name rows {indices.min()} to {indices.max()}, but there are {len(labels)} rows.")
    return vote(labels, indices, np.ones(len(labels)))


def relabel(
    labels: Labels,
    neighbours: Neighbours | NDArray[Any],
    noisy: NDArray[np.bool_],
    *,
    graph_weight: float = 0.6,
    uniform: float = 0.25,
    use_graph: bool = True,
    use_mask: bool = True,
) -> Labels:
    """Mix the labels of noisy images with the mean of their neighbours and a uniform share (equation 6).

    A noisy row y with neighbour mean b becomes

        (1 - graph_weight) y + graph_weight (uniform + (1 - uniform) b) m

    where the mask m is 1 for classes that the image or any neighbour has, and 0 for all others. Other rows
    come back unchanged to the bit. NaN stays NaN, and a label for which no neighbour is labelled is kept.

    Args:
        labels: (N, C), given labels in [0, 1] or NaN.
        neighbours: (N, K) for all rows, or one row for each noisy image in order; -1 where there are fewer.
        noisy: (N) rows to rewrite.
        graph_weight: weight of the new part, in [0, 1]; lambda in the paper.
        uniform: share of every class inside the new part, in [0, 0.5]; gamma in the paper. 0 drops the term.
        use_graph: whether the neighbour mean is part of the new label; without it, and without the mask, this
            is label smoothing.
        use_mask: whether classes that neither the image nor a neighbour has are kept out of the new part.

    Returns:
        New labels of the same type.

    Examples:
        >>> import numpy as np
        >>> labels = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> new = relabel(labels, np.array([[1, 2]]), np.array([True, False, False]))
        >>> new.round(2).tolist()  # both neighbours of the first image have the other class
        [[0.55, 0.6], [0.0, 1.0], [0.0, 1.0]]
    """
    if not 0 <= graph_weight <= 1:
        raise InputError(f"The graph weight (lambda) is {graph_weight:g}, but must lie in [0, 1].")
    if not 0 <= uniform <= 0.5:
        raise InputError(f"The uniform share (gamma) is {uniform:g}, but must lie in [0, 0.5].")
    given = labels.values if isinstance(labels, LabelTable) else np.asarray(labels)
    if not np.issubdtype(given.dtype, np.floating):
        given = given.astype(np.float32)
    if given.ndim != 2:
        raise InputError(f"Labels have shape {given.shape}, expected (N, C).")
    if not (np.isnan(given) | ((given >= 0) & (given <= 1))).all():
        raise InputError("Labels must lie in [0, 1] or be NaN.")
    noisy = np.asarray(noisy)
    if noisy.dtype != np.bool_ or noisy.shape != (len(given),):
        raise InputError(f"Noisy rows must be {len(given)} booleans, got {noisy.dtype} {noisy.shape}.")
    indices = neighbours.indices if isinstance(neighbours, Neighbours) else np.asarray(neighbours)
    if len(indices) == len(given):
        indices = indices[noisy]
    elif len(indices) != noisy.sum():
        raise InputError(
            f"{len(indices)} rows of neighbours fit neither the {len(given)} images nor the {noisy.sum()} noisy ones."
        )

    old = given[noisy].astype(np.float64)
    mean = neighbour_mean(given, indices)
    part = uniform + (1 - uniform) * mean if use_graph else np.full_like(mean, uniform)
    if use_mask:
        part = part * (old + mean > 0)
    mixed = (1 - graph_weight) * old + graph_weight * part
    mixed = np.where(np.isnan(mean), old, mixed)
    new = given.copy()
    new[noisy] = np.clip(mixed, 0, 1)  # rounding may leave the interval by one last bit
    return labels.replace(new) if isinstance(labels, LabelTable) else new
