"""CAN-style: two trunks whose maps are multiplied, trained with a loss that weighs rare findings up."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from bomd.config import FitSettings
from bomd.learn.engine import Batch
from bomd.methods.base import Context, Method, Prepared, frequencies, masked_cross_entropy
from bomd.networks.architectures import FusedNetwork, build_as
from bomd.networks.backbone import Network
from bomd.tables import LabelTable


class Can(Method):
    """Two extractors that must agree on a place, under a loss balanced between positives and negatives.

    Paper: Ma et al., Multi-label Thoracic Disease Image Classification with Cross-Attention Networks, MICCAI 2019.
    DenseNet-121 and DenseNet-169, each behind a 1 x 1 transition to a common shape; the product of their maps is
    pooled and classified. The loss is a multi-label balance loss plus an attention loss, whose exact terms could not
    be confirmed: results are CAN-style.
    Differs: two trunks of the recipe's one backbone with layers of their own on top (trunks with pretrained weights
    start alike); maps are normalised before they are multiplied. The balance loss is a focal loss with each class's
    share of negatives as the weight of its positives and the reverse; the attention loss is the cross-entropy of each
    trunk's own maps.
    Cost: 2.

    Args:
        focus: Exponent that takes weight from labels that are predicted well (the gamma of focal loss).
        attention: Weight of the cross-entropy of each trunk on its own.
        width: Channels of the maps that are multiplied.
    """

    trusts_labels = True

    def __init__(self, focus: float = 2.0, attention: float = 0.5, width: int = 512) -> None:
        self.focus, self.attention, self.width = focus, attention, width

    def build(self, outputs: int, settings: FitSettings, seed: int) -> list[Network]:
        return [build_as("can", outputs, settings, seed, width=self.width)]

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.negatives = context.tensor(1 - frequencies(train.values))  # (C)
        return Prepared(train.values)

    def step(self, networks: Sequence[Network], batch: Batch) -> Tensor:
        (network,) = networks
        assert isinstance(network, FusedNetwork)
        logits, *factors = network.head.all(network.features(batch.view()))
        attention = torch.stack([masked_cross_entropy(factor, batch.targets) for factor in factors]).sum()
        return balance_loss(logits, batch.targets, self.negatives, self.focus) + self.attention * attention


def balance_loss(logits: Tensor, targets: Tensor, negatives: Tensor, focus: float) -> Tensor:
    """Focal cross-entropy in which the positives and negatives of a class weigh alike, summed over classes.

    `negatives` (C) are shares among the labels of a class, `focus` the exponent of 1 - the probability of a label.
    """
    labels, known = targets.nan_to_num(), ~targets.isnan()
    probabilities = logits.sigmoid()
    positive = negatives * labels * (1 - probabilities).pow(focus) * F.softplus(-logits)
    negative = (1 - negatives) * (1 - labels) * probabilities.pow(focus) * F.softplus(logits)
    return ((positive + negative) * known).sum(dim=1).mean()
