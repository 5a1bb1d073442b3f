"""The loss that pulls an image's descriptors towards the vectors of its labels and away from all others."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from bomd.errors import InputError

Weighting = Literal["release", "paper"]


class RankingLoss(NamedTuple):
    """The mean loss of the usable rows, and how many rows had no positive label and were left out."""

    loss: Tensor  # scalar; zero, with zero gradient, if no row was usable
    skipped: Tensor  # scalar int64, kept on the device so that reading it is the only thing that waits


def label_scores(descriptors: Tensor, vectors: Tensor) -> Tensor:
    """(B, C) how well each class fits each image: the best dot product over the image's descriptors.

    It is at least float32, whatever the inputs or autocast say.
    """
    _check_shapes(descriptors, vectors)
    with torch.autocast(descriptors.device.type, enabled=False):
        # amax shares the gradient between equal descriptors, so their order does not matter.
        return (_wide(descriptors) @ _wide(vectors).T).amax(dim=1)


def ranking_loss(
    descriptors: Tensor,
    vectors: Tensor,
    labels: Tensor,
    *,
    weighting: Weighting = "release",
    beta: float = 0.3,
) -> RankingLoss:
    """Penalise every negative class that scores above a positive one, plus the spread of the descriptors.

    Each pair of a positive p and a negative n costs softplus(score_n - score_p), summed per image. With
    weighting `paper` the sum is multiplied by positives / negatives and beta times the squared deviation of
    the descriptors from their mean, over D - 1, is added (equations 1 to 3). With `release` the sum is
    divided by the number of positives and multiplied by one plus the variance of their vectors, and the
    result is 2 ((1 - beta) sum + beta variance of the descriptors); with a single descriptor only the sum
    divided by the number of positives remains.

    A label of at least 0.5 counts as positive, one below as negative, NaN as neither. An image without
    negatives is charged softplus(-score_p) for each positive; one without positives is left out.

    Args:
        descriptors: (B, M, D).
        vectors: (C, D), one per class.
        labels: (B, C) in [0, 1] or NaN.
        weighting: how the terms are weighted.
        beta: weight of the spread of the descriptors.
    """
    _check_shapes(descriptors, vectors)
    if labels.shape != (len(descriptors), len(vectors)):
        raise InputError(
            f"Labels have shape {tuple(labels.shape)}, expected {len(descriptors)} images by {len(vectors)} classes."
        )
    if weighting not in ("release", "paper"):
        raise InputError(f"Unknown weighting {weighting!r}; choose release or paper.")
    if weighting == "paper" and descriptors.shape[2] < 2:
        raise InputError("The paper's regulariser divides by D - 1 and needs descriptors of at least 2 dimensions.")
    with torch.autocast(descriptors.device.type, enabled=False):
        bags, words = _wide(descriptors), _wide(vectors)
        positive = (labels >= 0.5).to(bags.dtype)
        negative = (labels < 0.5).to(bags.dtype)
        positives, negatives = positive.sum(dim=1), negative.sum(dim=1)

        scores = label_scores(bags, words)
        wrong_order = F.softplus(scores[:, None, :] - scores[:, :, None])  # (B, positive, negative)
        pairs = (wrong_order * positive[:, :, None] * negative[:, None, :]).sum(dim=(1, 2))
        alone = (F.softplus(-scores) * positive).sum(dim=1)
        ranking = torch.where(negatives > 0, pairs, alone)

        deviation = (bags - bags.mean(dim=1, keepdim=True)).square().sum(dim=(1, 2))
        count, width = bags.shape[1:]
        if weighting == "paper":
            rows = ranking * positives / negatives.clamp(min=1) + beta * deviation / (width - 1)
        elif count == 1:
            rows = ranking / positives.clamp(min=1)
        else:
            diversity = _vector_variance(words, positive, positives)
            ranking = (1 + diversity) * ranking / positives.clamp(min=1)
            rows = 2 * ((1 - beta) * ranking + beta * deviation / (count - 1))

        usable = positives > 0
        kept = usable.sum()
        # where, not a product: a row that is left out must not leak a NaN into the mean
        loss = torch.where(usable, rows, torch.zeros_like(rows)).sum() / kept.clamp(min=1)
    return RankingLoss(loss, len(labels) - kept)


def _vector_variance(words: Tensor, positive: Tensor, positives: Tensor) -> Tensor:
    """(B) unbiased variance of the positive classes' vectors, summed over dimensions; 0 for a single one.

    From pairwise distances, since the variance is their mean square over two: no (B, C, D) array is needed.
    """
    square = words.square().sum(dim=1)
    between = (square[:, None] + square[None, :] - 2 * words @ words.T).clamp(min=0)
    total = ((positive @ between) * positive).sum(dim=1)
    return total / (2 * positives * (positives - 1)).clamp(min=1)


def _wide(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _check_shapes(descriptors: Tensor, vectors: Tensor) -> None:
    if descriptors.ndim != 3 or vectors.ndim != 2 or descriptors.shape[2] != vectors.shape[1]:
        raise InputError(
            f"Descriptors of shape {tuple(descriptors.shape)} and class vectors of shape "
            f"{tuple(vectors.shape)} do not fit together; expected (B, M, D) and (C, D)."
        )
