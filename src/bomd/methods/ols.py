"""Online label smoothing with one soft label per class."""

from __future__ import annotations

import torch
from torch import Tensor

from bomd.learn.engine import Predict
from bomd.methods.base import Context, Method, Prepared, masked_cross_entropy
from bomd.methods.settings import within
from bomd.tables import LabelTable


class Ols(Method):
    """Each positive class adds the mean prediction of images that were right about it, one epoch ago.

    Paper: Zhang et al., IEEE TIP 2021. Row k of a table holds the mean softmax output of images of class k that were
    classified correctly in the epoch before; half of the loss is cross-entropy with that row, half with the label.
    The table starts uniform, and rows without a correct image become uniform again.
    Differs: an image is right about a positive class if that is among its highest logits, as many as it has
    positives; its soft label is the mean row of its positives, and its own label where it has none. Rows start as
    the share of each label given class k, and a row that no image was right about stays as it was.
    Cost: 1.

    Args:
        weight: Share of the soft label in the loss; the rest is the given label.
    """

    def __init__(self, weight: float = 0.5) -> None:
        within("[0, 1]", "ols", weight=weight)
        self.weight = weight

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.table = given_means(torch.as_tensor(train.values, device=context.fabric.device))
        self.sums, self.counts = context.buffer(self.table.shape), context.buffer(self.table.shape[:1])
        return Prepared(train.values)

    def buffers(self) -> dict[str, Tensor]:
        return {"table": self.table, "sums": self.sums, "counts": self.counts}

    def start_epoch(self, epoch: int, predict: Predict) -> None:
        """Take what the last epoch collected as the table of this one."""
        found = self.sums / self.counts.clamp(min=1)[:, None]
        self.table.copy_(torch.where(self.counts[:, None] > 0, found, self.table))
        self.sums.zero_()
        self.counts.zero_()

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        positive = (targets >= 0.5).float()
        self._collect(logits.detach().float(), targets, positive)
        number = positive.sum(1, keepdim=True)
        soft = torch.where(number > 0, positive @ self.table / number.clamp(min=1), targets)
        return masked_cross_entropy(logits, (1 - self.weight) * targets + self.weight * soft)

    def _collect(self, logits: Tensor, targets: Tensor, positive: Tensor) -> None:
        """Add the predictions of this batch to the rows of the positives that it was right about."""
        competing = logits.masked_fill(targets.isnan(), -torch.inf)
        above = (competing[:, None, :] > competing[:, :, None]).sum(2)
        right = positive * (above < positive.sum(1, keepdim=True))
        self.sums += right.T @ logits.sigmoid()
        self.counts += right.sum(0)


def given_means(labels: Tensor) -> Tensor:
    """(C, C) mean label of each class (column) among (N, C) labels where another class (row) is positive."""
    positive, known = (labels >= 0.5).float(), (~labels.isnan()).float()
    return positive.T @ labels.nan_to_num(0.0) / (positive.T @ known).clamp(min=1)
