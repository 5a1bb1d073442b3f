"""Neighbour consistency: an image should be predicted as images with similar features are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from bomd.learn.engine import Batch, Predict
from bomd.methods.base import Context, Method, Prepared, masked_cross_entropy
from bomd.methods.settings import check_shares, warm_epochs, within
from bomd.networks.backbone import Network, find
from bomd.tables import LabelTable


class Ncr(Method):
    """Cross-entropy mixed with the divergence of each prediction from that of its nearest images.

    Paper: Iscen et al., CVPR 2022. After some epochs the loss is (1 - alpha) CE + alpha T^2 KL(q | p), q the mean
    softmax output (temperature T) of the nearest images of the batch, weighted by the cosine of pre-logit features.
    Differs: classes are Bernoulli variables and their divergences are meaned; q carries no gradient. Since small
    batches are no neighbourhood, neighbours also come from a queue of the features and logits of earlier batches;
    an image is never its own neighbour, and rows without a similar image do not count.
    Cost: 1.

    Args:
        weight: Of the neighbours; cross-entropy has the rest (the paper's alpha).
        neighbours: Images that an image is compared with.
        temperature: Logits are divided by it before the comparison.
        power: Of the cosine, in the weights of neighbours.
        warmup: Share of all epochs that is trained with plain cross-entropy first.
        queue: Entries that are kept of earlier batches, at most one per training image; 0 keeps none.
    """

    def __init__(
        self,
        weight: float = 0.3,
        neighbours: int = 10,
        temperature: float = 2.0,
        power: float = 1.0,
        warmup: float = 0.3,
        queue: int = 4096,
    ) -> None:
        check_shares("ncr", warmup=warmup)
        within("[0, 1]", "ncr", weight=weight)
        within("(0, inf)", "ncr", neighbours=neighbours, temperature=temperature, power=power)
        within("[0, inf)", "ncr", queue=queue)
        self.weight, self.neighbours, self.temperature, self.power = weight, neighbours, temperature, power
        self.warmup, self.queue = warmup, queue
        self.warm_epochs, self.warming = 0, False

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.warm_epochs = warm_epochs(self.warmup, context.fit.epochs)
        size, device = min(self.queue, len(train)), context.fabric.device
        self.rows = torch.full((size,), -1, device=device)  # which image an entry shows; -1 where it is empty
        self.features = context.buffer((size, find(context.fit.backbone).feature_size))
        self.logits = context.buffer((size, len(train.classes)))
        self.place = torch.zeros((), dtype=torch.long, device=device)  # the entry to write next
        return Prepared(train.values)

    def buffers(self) -> dict[str, Tensor]:
        return {"rows": self.rows, "features": self.features, "logits": self.logits, "place": self.place}

    def start_epoch(self, epoch: int, predict: Predict) -> None:
        self.warming = epoch < self.warm_epochs

    def phase(self, epoch: int) -> object:
        return self.warming

    def step(self, networks: Sequence[Network], batch: Batch) -> Tensor:
        features = networks[0].features(batch.view())
        logits = networks[0].head(features)
        loss = masked_cross_entropy(logits, batch.targets)
        if not self.warming:
            apart = self.divergence(features.detach(), logits, batch.index, ~batch.targets.isnan())
            loss = (1 - self.weight) * loss + self.weight * apart
        self.enqueue(features.detach(), logits.detach(), batch.index)
        return loss

    def divergence(self, features: Tensor, logits: Tensor, index: Tensor, known: Tensor) -> Tensor:
        """T^2 times the mean divergence of predictions from those of the nearest images; logits have a gradient."""
        others, rows = torch.cat([features, self.features]), torch.cat([index, self.rows])
        said = (torch.cat([logits.detach(), self.logits]) / self.temperature).sigmoid()
        wanted, similar = neighbour_mean(
            features, index, others, rows, said, neighbours=self.neighbours, power=self.power
        )
        own = logits / self.temperature
        crossed = wanted * F.softplus(-own) + (1 - wanted) * F.softplus(own)
        entropy = torch.special.entr(wanted) + torch.special.entr(1 - wanted)
        counted = known & similar[:, None]
        total: Tensor = self.temperature**2 * ((crossed - entropy) * counted).sum()
        return total / counted.sum().clamp(min=1)

    def enqueue(self, features: Tensor, logits: Tensor, index: Tensor) -> None:
        """Overwrite the oldest entries by this batch."""
        size = len(self.rows)
        count = min(size, len(index))
        if count:
            places = (self.place + torch.arange(count, device=index.device)) % size
            self.rows.index_copy_(0, places, index[:count])
            self.features.index_copy_(0, places, features[:count].float())
            self.logits.index_copy_(0, places, logits[:count].float())
            self.place.copy_((self.place + count) % size)


def neighbour_mean(
    features: Tensor,
    index: Tensor,
    other_features: Tensor,
    other_index: Tensor,
    probabilities: Tensor,
    *,
    neighbours: int,
    power: float,
) -> tuple[Tensor, Tensor]:
    """(B, C) weighted mean probabilities of each image's nearest others, and (B) whether any other was similar.

    Args:
        features: (B, F); zero vectors are similar to nothing.
        index: (B) which image each row shows; the same image is no neighbour.
        probabilities: (O, C) of the others.
        power: Of the cosine, in the weights.
    """
    cosine = F.normalize(features) @ F.normalize(other_features).T
    weights = cosine.clamp(min=0).pow(power).masked_fill(index[:, None] == other_index, 0.0)
    nearest, places = weights.topk(min(neighbours, len(other_index)))
    total = nearest.sum(1, keepdim=True)
    mean = (nearest[:, :, None] * probabilities[places]).sum(1) / total.clamp(min=1e-12)
    return mean, total[:, 0] > 0
