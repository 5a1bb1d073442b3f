"""Asymmetric loss: easy negatives count little, and the easiest not at all."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from bomd.methods.base import Method
from bomd.methods.settings import within


class Asl(Method):
    """Focal cross-entropy with a stronger focus for negatives, and a margin below which they do not count.

    Paper: Ridnik et al., ICCV 2021. -y (1 - p)^g+ ln p - (1 - y) m^g- ln(1 - m) with m = max(p - margin, 0), summed
    over classes and images; the release treats the focusing weights as constants.
    Differs: summed over classes but meaned over images, so that the recipe's learning rate fits any batch size. The
    loss has no defence against wrong labels beyond ignoring negatives that look certain.
    Cost: 1.

    Args:
        positive_focus: Power of 1 - p in the weight of positives (the paper's gamma+).
        negative_focus: Power of p less the margin in the weight of negatives (the paper's gamma-).
        margin: Negatives predicted below it do not count; others are taken to be this much lower.
    """

    trusts_labels = True

    def __init__(self, positive_focus: float = 0.0, negative_focus: float = 4.0, margin: float = 0.05) -> None:
        within("[0, inf)", "asl", positive_focus=positive_focus, negative_focus=negative_focus)
        within("[0, 1)", "asl", margin=margin)
        self.positive_focus, self.negative_focus, self.margin = positive_focus, negative_focus, margin

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        labels, known = targets.nan_to_num(), ~targets.isnan()
        probabilities = logits.detach().sigmoid()
        positives = (1 - probabilities).pow(self.positive_focus) * F.softplus(-logits)
        negatives = (probabilities - self.margin).clamp(min=0).pow(self.negative_focus) * self._surprise(logits)
        entries = labels * positives + (1 - labels) * negatives
        return logits.shape[1] * (entries * known).sum() / known.sum().clamp(min=1)

    def _surprise(self, logits: Tensor) -> Tensor:
        """-ln(1 - max(p - margin, 0)), computed as a sum of logarithms so that certain predictions stay finite."""
        margin = torch.full_like(logits, math.log(self.margin) if self.margin > 0 else -math.inf)
        return -torch.logaddexp(F.logsigmoid(-logits), margin).clamp(max=0)
