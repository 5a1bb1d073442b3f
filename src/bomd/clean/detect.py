"""Which labels contradict the picture: every positive class should score above every negative one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError
from bomd.progress import bar
from bomd.tables import Flags, Floats, LabelTable, Text

CHUNK = 4096  # images whose scores are computed at a time: descriptors may be larger than memory


def scores_of(descriptors: NDArray[Any], vectors: NDArray[Any]) -> Floats:
    """How well each class fits each image: the best dot product over the image's descriptors.

    Args:
        descriptors: (N, M, D); may be a memory map.
        vectors: (C, D), one per class.

    Returns:
        (N, C).

    Examples:
        >>> import numpy as np
        >>> descriptors = np.array([[[1.0, 0.0], [0.0, 0.5]]])  # one image with two descriptors
        >>> scores_of(descriptors, np.eye(2)).tolist()
        [[1.0, 0.5]]
    """
    words = np.asarray(vectors, dtype=np.float32)
    if descriptors.ndim != 3 or words.ndim != 2 or descriptors.shape[2] != words.shape[1]:
        raise InputError(
            f"Descriptors of shape {descriptors.shape} and class vectors of shape {words.shape} "
            f"do not fit together; expected (N, M, D) and (C, D)."
        )
    scores = np.empty((len(descriptors), len(words)), dtype=np.float32)
    with bar("Label scores", len(descriptors)) as advance:
        for start in range(0, len(descriptors), CHUNK):
            bags = np.asarray(descriptors[start : start + CHUNK], dtype=np.float32)
            products = bags.reshape(-1, bags.shape[2]) @ words.T
            scores[start : start + CHUNK] = products.reshape(len(bags), -1, len(words)).max(axis=1)
            advance(len(bags))
    return scores


def detect(scores: NDArray[Any], labels: NDArray[Any] | LabelTable, ids: Sequence[str] | Text | None = None) -> Flags:
    """Flag each image whose lowest positive class does not score above its highest negative class.

    A label of at least 0.5 counts as positive, one below as negative, NaN as neither. Equal scores are
    flagged. An image without positives or without negatives cannot break the rule: it is not flagged, and
    its margin is NaN.

    Args:
        scores: (N, C), finite; higher means that the class fits the image better.
        labels: (N, C) in [0, 1] or NaN.
        ids: (N) names of the rows of `scores`. A label table is matched to them; without them its rows
            must already be in the order of `scores`, and the rows of a bare array are numbered.

    Returns:
        Flags whose `entry` is, for a positive class, its score minus the highest negative score, and for a
        negative class the lowest positive score minus its own; NaN where there is nothing to compare with.

    Examples:
        >>> flags = detect([[0.9, 0.1], [0.2, 0.8]], [[1, 0], [1, 0]])
        >>> flags.noisy.tolist()  # the second image looks like the other class
        [False, True]
    """
    if isinstance(labels, LabelTable):
        table = labels if ids is None else labels.select(ids)
        names, given = table.ids, table.values
    else:
        given = np.asarray(labels, dtype=np.float32)
        names = np.asarray(ids if ids is not None else np.arange(len(given)), dtype=np.str_)
    scores = np.asarray(scores)
    if scores.ndim != 2 or scores.shape != given.shape:
        raise InputError(f"Scores have shape {scores.shape} and labels {given.shape}; both must be (N, C).")
    if len(names) != len(scores):
        raise InputError(f"{len(names)} ids for {len(scores)} rows of scores.")
    finite = np.isfinite(scores).all(axis=1)
    if not finite.all():
        raise InputError(f"Scores of image {str(names[np.argmin(finite)])!r} are not finite.")

    positive, negative = given >= 0.5, given < 0.5
    lowest_positive = np.where(positive, scores, np.inf).min(axis=1, initial=np.inf)
    highest_negative = np.where(negative, scores, -np.inf).max(axis=1, initial=-np.inf)
    comparable = np.asarray(positive.any(axis=1) & negative.any(axis=1))

    margin = np.where(comparable, lowest_positive - highest_negative, np.nan)
    entry = np.where(positive, scores - highest_negative[:, None], lowest_positive[:, None] - scores)
    entry = np.where((positive | negative) & comparable[:, None], entry, np.nan).astype(np.float32)
    noisy = comparable & ~(lowest_positive > highest_negative)
    return Flags(names, noisy, margin.astype(np.float32), entry)
