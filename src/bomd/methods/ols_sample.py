"""Online label smoothing with one soft label per image."""

from __future__ import annotations

from torch import Tensor

from bomd.methods.base import Context, Method, Prepared, masked_cross_entropy
from bomd.methods.settings import within
from bomd.tables import LabelTable


class OlsSample(Method):
    """Each image's label is mixed with a running average of what was predicted for it.

    Paper: none of its own; the BoMD release (Chen et al. 2023) has it under the name of OLS (Zhang et al. 2021), with
    a running average h = 0.9 h + 0.1 p and the target (1 - r) y + r h.
    Differs: the average starts from the given label, since a start from 0 would call everything negative; the share r
    is unpublished and taken to be one half, as in OLS.
    Cost: 1.

    Args:
        smoothing: Share r of the running average in the target.
        momentum: How much of the running average stays at each visit of an image.
    """

    def __init__(self, smoothing: float = 0.5, momentum: float = 0.9) -> None:
        within("[0, 1]", "ols-sample", smoothing=smoothing, momentum=momentum)
        self.smoothing, self.momentum = smoothing, momentum

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.memory = context.tensor(train.values).nan_to_num()  # (N, C)
        return Prepared(train.values)

    def buffers(self) -> dict[str, Tensor]:
        return {"memory": self.memory}

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        probabilities = logits.detach().float().sigmoid()
        average = self.memory[index].lerp(probabilities, 1 - self.momentum)
        self.memory.index_copy_(0, index, average)
        return masked_cross_entropy(logits, (1 - self.smoothing) * targets + self.smoothing * average)
