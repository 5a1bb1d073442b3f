"""Co-teaching: two networks, each trained on the images that the other finds easy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from bomd.learn.engine import Batch, Predict
from bomd.methods.base import Context, Method, Prepared, masked_mean
from bomd.methods.settings import check_shares, note_of_default, within
from bomd.networks.backbone import Network
from bomd.tables import LabelTable


class CoTeaching(Method):
    """Train each of two networks on the images of the batch that have the smallest loss in the other.

    Paper: Han et al., Co-teaching, NeurIPS 2018. The part of a batch that is kept falls from all to 1 - noise over
    the first epochs; the release divides a mean by the count once more.
    Differs: the loss of an image is its mean over classes; a plain mean over what is kept; the recipe's optimiser
    without the paper's change of momentum; `per_label` selects single labels, the easiest of each class and value,
    since whole images with many positives are the hardest and would vanish. The noise level is that of the recipe's
    noise, as the paper knows its own; on labels as they are found it is nobody's to know and has to be set.
    Found: on phantoms the hardest images are those with findings almost without exception, so that a noise level above
    the true one costs what is rare.
    Cost: 2.

    Args:
        noise: Share of the images (of the labels with `per_label`) that is left out once the ramp is over; by default
            the share that the recipe's noise made wrong.
        ramp: Share of the run over which that part grows from nothing.
        exponent: Of the ramp's shape; 1 is a straight line.
        per_label: Select labels within each class and value instead of images.
    """

    networks = 2

    def __init__(
        self, noise: float | None = None, ramp: float = 0.3, exponent: float = 1.0, per_label: bool = False
    ) -> None:
        within("[0, 1)", "co-teaching", noise=noise)
        within("(0, inf)", "co-teaching", exponent=exponent)
        check_shares("co-teaching", ramp=ramp)
        self.noise, self.ramp, self.exponent, self.per_label = noise, ramp, exponent, per_label

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.epochs = context.fit.epochs
        known = context.noise.labels if self.per_label else context.noise.images
        self.left_out = known if self.noise is None else self.noise
        self.share = context.buffer(()).fill_(self.share_in(0))
        why = "the share that the recipe's noise made wrong"
        return Prepared(train.values, notes=note_of_default("co-teaching", "noise", self.noise, self.left_out, why))

    def start_epoch(self, epoch: int, predict: Predict) -> None:
        self.share.fill_(self.share_in(epoch))

    def share_in(self, epoch: int) -> float:
        """The part of a batch that is kept in an epoch, counted from 0."""
        length = self.ramp * self.epochs
        return 1 - self.left_out * ((epoch / length) ** self.exponent if epoch < length else 1.0)

    def step(self, networks: Sequence[Network], batch: Batch) -> Tensor:
        images, labels = batch.view(), batch.targets.nan_to_num()
        entries = [
            F.binary_cross_entropy_with_logits(network(images), labels, reduction="none") for network in networks
        ]
        kept = [self.keep(losses.detach(), batch.targets) for losses in entries]
        exchanged = zip(entries, reversed(kept), strict=True)
        return torch.stack([masked_mean(losses, chosen) for losses, chosen in exchanged]).sum()

    def keep(self, losses: Tensor, targets: Tensor) -> Tensor:
        """(B, C) which labels the other network is to learn from, given this one's (B, C) losses."""
        known = ~targets.isnan()
        if self.per_label:
            positive = targets >= 0.5
            groups = (known & positive, known & ~positive)
            return torch.stack([easiest(losses, group, self.share) for group in groups]).any(0)
        mean = (losses * known).sum(1, keepdim=True) / known.sum(1, keepdim=True).clamp(min=1)
        return easiest(mean, known.any(1, keepdim=True), self.share) & known


def easiest(losses: Tensor, members: Tensor, share: Tensor) -> Tensor:
    """(B, K) the part of each column's members with the smallest losses, rounded down but never to nothing.

    Ranks instead of a shorter list keep every shape fixed, so that a GPU can replay the step.
    """
    rank = losses.masked_fill(~members, torch.inf).argsort(dim=0, stable=True).argsort(dim=0)
    count = (share * members.sum(0) + 1e-4).floor().clamp(min=1)  # 4/5 of 5 may be a hair below 4
    return (rank < count) & members
