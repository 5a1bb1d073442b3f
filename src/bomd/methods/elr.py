"""Early-learning regularisation: hold on to what was predicted before the noise was learnt."""

from __future__ import annotations

import torch
from torch import Tensor

from bomd.methods.base import Context, Method, Prepared, masked_cross_entropy, masked_mean
from bomd.methods.settings import within
from bomd.tables import LabelTable

CLAMP = 1e-4  # probabilities stay this far from 0 and 1, so that the logarithm is finite


class Elr(Method):
    """Cross-entropy plus a term that pulls each prediction towards the running average of earlier ones.

    Paper: Liu et al., NeurIPS 2020. A running average q of softmax outputs p per image, from 0, and the loss
    CE + lambda mean ln(1 - <q, p>); the average is moved before it is used and carries no gradient.
    Differs: each class is a pair of outcomes with an average each, so the term is ln(1 - q+ p - q- (1 - p)), meaned
    over classes. `one_sided` keeps q+ alone, as code of NVUM's authors does, which can only push predictions up.
    With a large weight everything freezes at the predictions of the first epoch.
    Cost: 1.

    Args:
        weight: Of the term beside cross-entropy (the paper's lambda).
        momentum: How much of the running average stays at each visit of an image (the paper's beta).
        one_sided: Remember the positive outcome only (ablation).
    """

    def __init__(self, weight: float = 3.0, momentum: float = 0.9, one_sided: bool = False) -> None:
        within("[0, 1)", "elr", momentum=momentum)
        self.weight, self.momentum, self.one_sided = weight, momentum, one_sided

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.memory = context.buffer((len(train), 2, len(train.classes))).double()  # averages of p and of 1 - p
        return Prepared(train.values)

    def buffers(self) -> dict[str, Tensor]:
        return {"memory": self.memory}

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        # Close to agreement the term is the logarithm of a small difference, of which single precision keeps little.
        probabilities = logits.double().sigmoid().clamp(CLAMP, 1 - CLAMP)
        outcomes = torch.stack([probabilities, 1 - probabilities], dim=1)
        average = self.memory[index].lerp(outcomes.detach(), 1 - self.momentum)
        self.memory.index_copy_(0, index, average)
        agreement = average * outcomes
        term = torch.log1p(-(agreement[:, 0] if self.one_sided else agreement.sum(1)))
        penalty = masked_mean(term, ~targets.isnan())
        return masked_cross_entropy(logits, targets) + self.weight * penalty.to(logits.dtype)
