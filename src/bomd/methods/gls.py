"""Generalised label smoothing: with a negative share, labels are pushed beyond 0 and 1."""

from __future__ import annotations

import torch
from torch import Tensor

from bomd.errors import InputError
from bomd.learn.engine import Predict
from bomd.methods.base import Context, Method, Prepared, masked_cross_entropy
from bomd.tables import LabelTable


class Gls(Method):
    """Cross-entropy towards labels that were pushed away from one half, after a start with plain cross-entropy.

    Paper: Wei et al., ICML 2022 (Smooth or Not), let the smoothing share r be negative and tune it; with heavy noise
    they train with cross-entropy first.
    Differs: every class is smoothed on its own against 1/2. Since targets outside [0, 1] push logits for ever, the
    push beyond the label ends at a limit, while the label itself goes on to count, and the learning rate falls to a
    tenth after the start; without a start (very short runs) the lower rate applies throughout.
    Found: with right labels it ends far below cross-entropy: with few positives, the logits of all images slide down
    together.
    Cost: 1.
    """

    def __init__(
        self, smoothing: float = -0.4, warmup: float = 1 / 6, limit: float = 10.0, slower: float = 0.1
    ) -> None:
        """Take the settings.

        Args:
            smoothing: Share r of one half in the target (1 - r) y + r / 2; -0.4 gives targets of 1.2 and -0.2.
            warmup: Share of all epochs that is trained with plain cross-entropy first.
            limit: The size of a logit from which on nothing pushes beyond the label.
            slower: Share of the recipe's learning rate to use after the warm-up.
        """
        if smoothing >= 1:
            raise InputError(f"gls.smoothing is {smoothing:g}, but must be below 1: nothing of the label is left.")
        if not 0 <= warmup <= 1:
            raise InputError(f"gls.warmup is {warmup:g}, but must be a share of all epochs in [0, 1].")
        if limit <= 0:
            raise InputError(f"gls.limit is {limit:g}, but must be above 0.")
        self.smoothing, self.warmup, self.limit, self.slower = smoothing, warmup, limit, slower
        self.warm_epochs, self.warm_share, self.warming = 0, 0.0, False

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.warm_epochs = round(self.warmup * context.fit.epochs)
        self.warm_share = self.warm_epochs / context.fit.epochs
        return Prepared(train.values)

    def start_epoch(self, epoch: int, predict: Predict) -> None:
        self.warming = epoch < self.warm_epochs

    def phase(self, epoch: int) -> object:
        return self.warming

    def pace(self, done: float) -> float:
        return 1.0 if done < self.warm_share else self.slower

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        plain = masked_cross_entropy(logits, targets)
        if self.warming:
            return plain
        # Cross-entropy is linear in the target, so what smoothing adds to it is -(t - y) z.
        known = ~targets.isnan()
        pushed = torch.where(known, self.smoothing * (0.5 - targets), 0.0)
        push = (pushed * logits.clamp(-self.limit, self.limit)).sum() / known.sum().clamp(min=1)
        return plain - push
