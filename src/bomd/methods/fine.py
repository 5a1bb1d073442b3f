"""FINE: keep the labels whose images lie along the main direction of their class."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from bomd.learn.engine import Predict
from bomd.methods.base import Context, Method, Prepared, entry_losses, masked_mean
from bomd.methods.settings import check_shares, note_if_idle, warm_epochs
from bomd.methods.two_gaussians import low_posterior
from bomd.tables import LabelTable


class Fine(Method):
    """Learn from images whose features agree with the leading eigenvector of each of their classes.

    Paper: Kim et al., FINE, NeurIPS 2021. Features of a class have one main direction; the cosine to it is split by
    two Gaussians, and training goes on with the samples in the upper heap. The release takes the absolute cosine,
    the paper the squared projection.
    Differs: each positive label, "No Finding" among them, is judged in its class, and an image is kept if all its
    positive labels are (`per_label` drops the labels instead); the next round's direction comes from the labels
    kept in that class. Negative labels are not judged. Cosines are scaled to [0, 1] in each class before they are
    split, so that the least variance is relative to their range. Rejected images stay in the batches with weight 0,
    so that a batch learns from fewer images.
    Found: two Gaussians always find a lower heap, so that images go with right labels too: on 1,500 phantoms from
    scratch a fifth of them, among them up to a third of the images with a finding. What is dropped early is never
    learnt, so that the warm-up is long; dropping labels instead (`per_label`) costs less.
    Cost: 1.03.

    Args:
        per_label: Drop rejected positive labels from the loss instead of their images.
        warmup: Share of all epochs of plain cross-entropy, before the first selection.
        every: Share of all epochs between selections.
        threshold: Posterior of the upper heap above which a label is kept.
        fewest: Classes with fewer positive labels keep all of them.
    """

    def __init__(
        self,
        per_label: bool = False,
        warmup: float = 0.75,
        every: float = 0.25,
        threshold: float = 0.5,
        fewest: int = 50,
    ) -> None:
        check_shares("fine", warmup=warmup, every=every)
        self.per_label, self.warmup, self.every = per_label, warmup, every
        self.threshold, self.fewest = threshold, fewest

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        epochs = context.fit.epochs
        self.warm, self.apart = warm_epochs(self.warmup, epochs), max(1, warm_epochs(self.every, epochs))
        self.positive = torch.from_numpy(train.values >= 0.5)
        self.clean = context.buffer(train.values.shape).fill_(1)
        return Prepared(train.values, notes=note_if_idle("fine", self.warm, epochs, "nothing is selected"))

    def buffers(self) -> dict[str, Tensor]:
        return {"clean": self.clean}

    def start_epoch(self, epoch: int, predict: Predict) -> None:
        if epoch < self.warm or (epoch - self.warm) % self.apart:
            return
        features = predict(lambda networks, images: networks[0].features(images))
        self.clean.copy_(self.select(features, self.clean.cpu() > 0))

    def select(self, features: Tensor, before: Tensor) -> Tensor:
        """(N, C) whether each label is kept by (N, F) features; all but positive ones are.

        The directions come from what was kept `before`, (N, C).
        """
        kept = torch.ones_like(self.positive)
        for column in range(self.positive.shape[1]):
            rows = self.positive[:, column].nonzero().flatten()
            if len(rows) < self.fewest:
                continue
            scores = alignment(features[rows], before[rows, column])
            high = low_posterior(-scores.numpy(), iterations=100, tolerance=1e-6)  # as the release does
            kept[rows, column] = torch.from_numpy(high > self.threshold)
        return kept

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        clean = self.clean[index]
        weights = ~targets.isnan() * (clean if self.per_label else clean.amin(dim=1, keepdim=True))
        return masked_mean(entry_losses(logits, targets.nan_to_num()), weights)


def alignment(features: Tensor, trusted: Tensor) -> Tensor:
    """(N) absolute cosine of (N, F) features to the main direction of the trusted ones, or of all where none is."""
    exact = features.double()
    chosen = exact[trusted] if trusted.any() else exact
    # The F x F matrix, because a decomposition of the features themselves would make N x N numbers.
    directions: Tensor = torch.linalg.eigh(chosen.T @ chosen).eigenvectors
    return (F.normalize(exact, dim=1) @ directions[:, -1]).abs()
