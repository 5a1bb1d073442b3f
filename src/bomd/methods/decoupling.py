"""Decoupling: two networks that learn only where they disagree."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from bomd import progress
from bomd.learn.engine import Batch, Predict
from bomd.methods.base import Context, Method, Prepared, frequencies
from bomd.methods.settings import check_shares, note_if_idle, warm_epochs, within
from bomd.networks.backbone import Network
from bomd.tables import LabelTable


class Decoupling(Method):
    """Train two networks on the labels about which their decisions differ.

    Paper: Malach and Shalev-Shwartz, Decoupling "when to update" from "how to update", NeurIPS 2017. Images on which
    two networks predict different classes move both; the loss is divided by their number, or by a tenth of the batch
    where they are fewer.
    Differs: decided for every class of an image on its own, against the class's frequency in place of one half, which
    rare findings never reach; the warm-up on all labels is a share of the run, where the paper counts steps.
    Found: on phantoms the networks disagree about few labels after a few epochs and learn little from then on, so that
    the warm-up must be long enough for a network to learn what it can: with 1 of 12 epochs it fell far behind
    cross-entropy even without noise.
    Cost: 2.

    Args:
        warmup: Share of all epochs on all labels, before disagreement counts.
        minimum: Least share of a batch's labels to divide the loss by, so that few disagreements weigh little.
    """

    networks = 2

    def __init__(self, warmup: float = 0.6, minimum: float = 0.1) -> None:
        check_shares("decoupling", warmup=warmup)
        within("(0, 1]", "decoupling", minimum=minimum)
        self.warmup, self.minimum = warmup, minimum

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.frequency = context.tensor(frequencies(train.values))  # (C)
        self.seen = context.buffer((2,))  # labels that the networks disagreed about, and all labels, in this epoch
        self.warm = warm_epochs(self.warmup, context.fit.epochs)
        self.everything = self.warm > 0
        notes = note_if_idle("decoupling", self.warm, context.fit.epochs, "all labels count")
        return Prepared(train.values, notes=notes)

    def buffers(self) -> dict[str, Tensor]:
        return {"seen": self.seen}

    def start_epoch(self, epoch: int, predict: Predict) -> None:
        differing, labels = self.seen.tolist()
        if labels:
            progress.say(f"epoch {epoch}: the networks disagreed on {differing / labels:.1%} of the labels")
        self.seen.zero_()
        self.everything = epoch < self.warm

    def phase(self, epoch: int) -> object:
        return self.everything

    def step(self, networks: Sequence[Network], batch: Batch) -> Tensor:
        images = batch.view()
        return self.loss_of_both([network(images) for network in networks], batch.targets)

    def loss_of_both(self, logits: Sequence[Tensor], targets: Tensor) -> Tensor:
        """The sum of both networks' losses; each of the two logits is (B, C)."""
        known = ~targets.isnan()
        decisions = [part.detach().sigmoid() > self.frequency for part in logits]
        differing = known & (decisions[0] != decisions[1])
        self.seen += torch.stack([differing.sum(), known.sum()])
        chosen = known if self.everything else differing
        labels = targets.nan_to_num()
        entries = [F.binary_cross_entropy_with_logits(part, labels, reduction="none") for part in logits]
        return torch.stack([weighted_mean(part, chosen, known, self.minimum) for part in entries]).sum()


def weighted_mean(losses: Tensor, chosen: Tensor, known: Tensor, minimum: float) -> Tensor:
    """Sum of the chosen losses over their number, or over the share `minimum` of the known ones where that is more."""
    divisor = torch.maximum(chosen.sum(), minimum * known.sum()).clamp(min=1e-6)
    return (losses * chosen).sum() / divisor
