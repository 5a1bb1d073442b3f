"""The order in which a person should look at images: those whose labels fit the picture worst come first.

The margin of the rank rule looks at one pair of labels, the worst. It cannot tell an image with one doubtful label
from one where all are wrong, and rare findings, which score low wherever they are, fill the top of its list. The
ranking loss that BoMD's descriptors are trained by counts every pair of a positive and a negative label that stands
in the wrong order. Planted errors are found better by it than by the margin; see scripts/audit_ranking.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.clean.relabel import neighbour_mean
from bomd.measure.records import LabelRecord
from bomd.tables import Floats, brief

LEAST = 1e-3  # no label is held to be more certain than this: one wild guess must not outweigh many labels
PRIOR = 2.0  # votes that the frequency of a class counts for beside those of the neighbours
PAIRS = 1 << 20  # pairs of labels that are compared at a time


@dataclass(frozen=True, eq=False)
class Suspicion:
    """Higher is more suspect.

    Attributes:
        image: (N) of all labels of an image together; what cannot be judged has 0.
        entry: (N, C) of a single label, from 0 to 1; NaN where it cannot be judged.
        rank: (N) place in the order of review, from 1; equal images keep their order.
    """

    image: Floats
    entry: Floats
    rank: NDArray[np.int64]

    def __repr__(self) -> str:
        return brief(self)


def suspicion_of(record: LabelRecord) -> Suspicion:
    """The order of review of a finished run: by label scores, or by votes where no network ranked the labels.

    Labels that a person decided on are not suspect, and images with no others come last.
    """
    if record.classifier is not None and record.scores is not None:
        found = by_ranking(record.given.values, record.scores)
    else:
        assert record.neighbours is not None
        found = by_surprise(record.given.values, vote(record.given.values, record.neighbours))
    fixed = record.given.confirmed
    if fixed is None:
        return found
    settled = (fixed | np.isnan(record.given.values)).all(axis=1) & fixed.any(axis=1)
    return _ranked(np.where(settled, 0, found.image), np.where(fixed, 0, found.entry))


def by_ranking(values: NDArray[Any], scores: NDArray[Any]) -> Suspicion:
    """The ranking loss of each image: how many pairs of labels are in the wrong order, counted softly.

    A pair of a positive class p and a negative class n adds ln(1 + exp(s_n - s_p)). The suspicion of one label is the
    mean over its pairs of the probability 1 / (1 + exp(s_p - s_n)) that they are in the wrong order.

    Args:
        values: (N, C) given labels in [0, 1] or NaN; 0.5 or more is positive.
        scores: (N, C) how well each class fits each image.
    """
    image = np.zeros(len(values))
    entry = np.full(values.shape, np.nan)
    chunk = max(1, PAIRS // max(1, values.shape[1] ** 2))
    for start in range(0, len(values), chunk):
        rows = slice(start, start + chunk)
        positive, negative = values[rows] >= 0.5, values[rows] < 0.5
        own = np.asarray(scores[rows], dtype=np.float64)
        pairs = positive[:, :, None] & negative[:, None, :]
        gap = own[:, None, :] - own[:, :, None]  # above 0 where the negative class fits better
        image[rows] = np.where(pairs, np.logaddexp(0, gap), 0).sum(axis=(1, 2))
        wrong = np.where(pairs, 1 / (1 + np.exp(-np.clip(gap, -50, 50))), 0)
        count = np.where(positive, pairs.sum(axis=2), pairs.sum(axis=1))
        total = np.where(positive, wrong.sum(axis=2), wrong.sum(axis=1))
        np.divide(total, count, out=entry[rows], where=count > 0)
    return _ranked(image, entry)


def by_surprise(values: NDArray[Any], probabilities: NDArray[Any]) -> Suspicion:
    """How improbable all labels of an image are together, in nats; a single label's is the probability against it.

    Args:
        values: (N, C) given labels in [0, 1] or NaN.
        probabilities: (N, C) that the class is there.
    """
    known = ~np.isnan(values)
    positive = np.where(known, values, 0).astype(np.float64)
    likely = np.clip(np.asarray(probabilities, dtype=np.float64), LEAST, 1 - LEAST)
    surprise = np.where(known, -positive * np.log(likely) - (1 - positive) * np.log(1 - likely), 0)
    return _ranked(surprise.sum(axis=1), np.where(known, np.abs(positive - likely), np.nan))


def vote(values: NDArray[Any], neighbours: NDArray[np.int64]) -> Floats:
    """(N, C) share of the neighbours with each class, drawn towards its frequency by a few votes.

    Args:
        values: (N, C) given labels in [0, 1] or NaN.
        neighbours: (N, K) rows of the nearest images; -1 where there are fewer.
    """
    known = ~np.isnan(values)
    usual = np.divide(np.where(known, values, 0).sum(axis=0), known.sum(axis=0).clip(1))
    share = neighbour_mean(values, neighbours)
    padded = np.concatenate([known, np.zeros((1, values.shape[1]), dtype=np.bool_)])
    voters = padded[neighbours].sum(axis=1)
    mixed = (np.nan_to_num(share) * voters + PRIOR * usual) / (voters + PRIOR)
    return np.asarray(mixed, dtype=np.float32)


def _ranked(image: NDArray[np.float64], entry: NDArray[np.float64]) -> Suspicion:
    rank = np.empty(len(image), dtype=np.int64)
    rank[np.argsort(-image, kind="stable")] = np.arange(1, len(image) + 1)
    return Suspicion(image.astype(np.float32), entry.astype(np.float32), rank)
