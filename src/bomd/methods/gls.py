"""Generalised label smoothing: with a negative share, labels are pushed beyond 0 and 1."""

from __future__ import annotations

from torch import Tensor

from bomd.errors import InputError
from bomd.learn.engine import Predict
from bomd.methods.base import Context, Method, Prepared, masked_cross_entropy, masked_mean
from bomd.methods.settings import check_shares, note_of_default, warm_epochs, within
from bomd.tables import LabelTable

LOWEST = -2.0  # smoothing share; at a rate of one half, where it would have no end, labels say nothing


class Gls(Method):
    """Cross-entropy towards labels that were pushed away from one half, after a start with plain cross-entropy.

    Paper: Wei et al., ICML 2022 (Smooth or Not), let the smoothing share r be negative and tune it for every level of
    noise; where labels are flipped at a rate e, -2 e / (1 - 2 e) undoes it on average. With heavy noise they train
    with cross-entropy first.
    Differs: every class is smoothed on its own against 1/2, by that share for the rate of the recipe's noise, -2 at
    the least; without noise this is plain cross-entropy. Since targets outside [0, 1] push logits for ever, the
    push beyond the label ends at a limit, while the label itself goes on to count, and in recipes with a constant
    rate the learning rate falls to a tenth after the start: others have a schedule already.
    Cost: 1.

    Args:
        smoothing: Share r of one half in the target (1 - r) y + r / 2; -0.4 gives targets of 1.2 and -0.2. By default
            what undoes the rate at which the recipe's noise flips labels.
        warmup: Share of all epochs that is trained with plain cross-entropy first.
        limit: The size of a logit from which on nothing pushes beyond the label.
        slower: Share of the recipe's learning rate to use after the warm-up, where it is constant.
    """

    def __init__(
        self, smoothing: float | None = None, warmup: float = 0.3, limit: float = 10.0, slower: float = 0.1
    ) -> None:
        if smoothing is not None and smoothing >= 1:
            raise InputError(f"gls.smoothing is {smoothing:g}, but must be below 1: nothing of the label is left.")
        check_shares("gls", warmup=warmup)
        within("(0, inf)", "gls", limit=limit)
        self.smoothing, self.warmup, self.limit, self.slower = smoothing, warmup, limit, slower
        self.share = smoothing or 0.0  # until `prepare` knows the noise
        self.warm, self.warm_share, self.warming, self.falls = 0, 0.0, False, True

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.warm = warm_epochs(self.warmup, context.fit.epochs)
        self.warm_share = self.warm / context.fit.epochs
        self.falls = context.fit.schedule == "constant"
        self.share = undoing(context.noise.labels) if self.smoothing is None else self.smoothing
        why = f"which undoes the {context.noise.labels:.0%} of the labels that the recipe's noise flips"
        return Prepared(train.values, notes=note_of_default("gls", "smoothing", self.smoothing, self.share, why))

    def start_epoch(self, epoch: int, predict: Predict) -> None:
        self.warming = epoch < self.warm

    def phase(self, epoch: int) -> object:
        return self.warming

    def pace(self, done: float) -> float:
        return self.slower if self.falls and done >= self.warm_share else 1.0

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        plain = masked_cross_entropy(logits, targets)
        if self.warming:
            return plain
        # Cross-entropy is linear in the target, so what smoothing adds to it is -(t - y) z.
        push = self.share * (0.5 - targets.nan_to_num()) * logits.clamp(-self.limit, self.limit)
        return plain - masked_mean(push, ~targets.isnan())


def undoing(rate: float) -> float:
    """The smoothing share with which labels that are flipped at a rate lose nothing on average."""
    return max(LOWEST, 0.0 - 2 * rate / (1 - 2 * rate)) if rate < 0.5 else LOWEST
