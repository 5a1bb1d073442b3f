"""Hermoza et al., stage 1: a saliency map for every finding, pooled by a learnt soft maximum."""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from bomd.config import FitSettings
from bomd.methods.base import Context, Method, Prepared, masked_mean
from bomd.networks.architectures import build_as
from bomd.networks.backbone import Network
from bomd.tables import LabelTable

SCALE = 10.0  # brings the weighted loss back to about the size of plain cross-entropy


class Hermoza(Method):
    """A feature pyramid with a saliency map per class, whose soft maximum is the prediction.

    Paper: Hermoza et al., Region Proposals for Saliency Map Refinement for Weakly-supervised Disease Localisation and
    Classification, MICCAI 2020. Stage 1: DenseNet-121 with leaky ReLUs, a pyramid over its four stages, two
    convolutions per class, log-mean-exp pooling of learnt sharpness, and a cross-entropy weighted by each class's
    share of all positives. Stage 2 refines the maps by region proposals.
    Differs: stage 1 only, which the AUC is computed from. The trunk keeps its own activations, and the classes share
    the norm before their first convolution. "No Finding" is one of the outputs.
    Cost: 1 in images, each of which takes several times as long through a pyramid and a map per class.

    Args:
        width: Channels of the pyramid.
        hidden: Channels of each class between its two convolutions.
    """

    trusts_labels = True

    def __init__(self, width: int = 256, hidden: int = 128) -> None:
        self.width, self.hidden = width, hidden

    def build(self, outputs: int, settings: FitSettings, seed: int) -> list[Network]:
        return [build_as("hermoza", outputs, settings, seed, width=self.width, hidden=self.hidden)]

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        positives = np.nansum(train.values, axis=0)
        shares = positives / max(float(positives.sum()), 1.0)
        self.shares = context.tensor(shares)  # (C)
        return Prepared(train.values)

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        return SCALE * weighted_cross_entropy(logits, targets, self.shares)


def weighted_cross_entropy(logits: Tensor, targets: Tensor, shares: Tensor) -> Tensor:
    """Mean over the labelled entries of a cross-entropy that weighs the positives of rare classes up.

    A class's share of all positives (C) is the weight of its negatives, and one less that of its positives.
    """
    labels = targets.nan_to_num()
    entries = (1 - shares) * labels * F.softplus(-logits) + shares * (1 - labels) * F.softplus(logits)
    return masked_mean(entries, ~targets.isnan())
