"""AUC margin: train for the area under the curve itself, as a game over three numbers per class."""

from __future__ import annotations

import torch
from torch import Tensor

from bomd.learn.engine import Predict
from bomd.methods.base import Context, Method, Prepared, frequencies, masked_cross_entropy
from bomd.methods.settings import check_shares, warm_epochs, within
from bomd.tables import LabelTable

CLAMP = 1e-4  # shares stay this far from 0 and 1, so that their log-odds are finite


class AucMargin(Method):
    """A min-max form of a squared margin between positives and negatives of each class, after cross-entropy.

    Paper: Yuan et al., ICCV 2021 (LibAUC). Probabilities of positives gather around a, those of negatives around b,
    and alpha >= 0 asks for a margin between the two. PESG moves weights, a and b down and alpha up at one rate, with
    weight decay and a pull towards reference weights; it starts from a trained cross-entropy model with a new head,
    and at the start of each later stage the rate falls to a tenth and the reference moves.
    Differs: the cross-entropy model is the first part of the same run and keeps its head; instead, probabilities are
    taken relative to each class's prior, so that those of rare classes do not start where a sigmoid is flat. The
    recipe's optimiser and schedule move the weights, in one stage and without a reference. a, b and alpha take
    plain gradient steps ten times as long as PESG's, from the first part on: rare classes move them little, and on
    phantoms a game that starts far from its balance undid what cross-entropy had learnt. The share of positives is
    that of the training labels, where the release takes each batch's. On 1,500 clean phantoms it still ends
    somewhat below cross-entropy, on the training images too.
    Cost: 1.

    Args:
        margin: Between the probabilities of positives and negatives.
        warmup: Share of all epochs that is trained with cross-entropy first.
        rate: Of the steps of a, b and alpha.
    """

    trusts_labels = True

    def __init__(self, margin: float = 1.0, warmup: float = 0.5, rate: float = 1.0) -> None:
        check_shares("auc-margin", warmup=warmup)
        within("(0, 1]", "auc-margin", rate=rate)  # longer steps are not stable
        self.margin, self.warmup, self.rate = margin, warmup, rate
        self.warm_epochs, self.warming = 0, False

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.warm_epochs = warm_epochs(self.warmup, context.fit.epochs)
        self.share = context.tensor(frequencies(train.values))  # (C) of positives
        self.odds = self.share.clamp(CLAMP, 1 - CLAMP).logit()  # (C) logits at which a prediction tells nothing
        self.game = context.buffer((3, len(train.classes)))  # a, b and alpha
        return Prepared(train.values)

    def buffers(self) -> dict[str, Tensor]:
        return {"game": self.game}

    def start_epoch(self, epoch: int, predict: Predict) -> None:
        self.warming = epoch < self.warm_epochs

    def phase(self, epoch: int) -> object:
        return self.warming

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        positive, negative = occupancy(targets)
        probabilities = (logits - self.odds).sigmoid()
        game = self.game.clone()  # the loss is taken before the move, and backpropagated after it
        self.move(probabilities.detach().float(), positive, negative)
        if self.warming:
            return masked_cross_entropy(logits, targets)
        return margin_loss(probabilities, positive, negative, self.share, game, self.margin)

    def move(self, probabilities: Tensor, positive: Tensor, negative: Tensor) -> None:
        """Take one gradient step: a and b down, alpha up but never below 0."""
        around_positives, around_negatives, tension = self.game
        share, both = self.share, self.share * (1 - self.share)
        pull_positives = 2 * (1 - share) * (positive * (probabilities - around_positives)).sum(0)
        pull_negatives = 2 * share * (negative * (probabilities - around_negatives)).sum(0)
        lacking = 2 * (gap(probabilities, positive, negative, share, self.margin) - both * tension)
        self.game += self.rate * torch.stack([pull_positives, pull_negatives, lacking])
        self.game[2].clamp_(min=0)


def occupancy(targets: Tensor) -> tuple[Tensor, Tensor]:
    """(B, C) how much each entry counts in the means over a batch as a positive and as a negative; unknown as none."""
    labels, known = targets.nan_to_num(), ~targets.isnan()
    count = known.sum(0).clamp(min=1)
    return labels / count, (1 - labels) * known / count


def gap(probabilities: Tensor, positive: Tensor, negative: Tensor, share: Tensor, margin: float) -> Tensor:
    """(C) by how much the margin between positives and negatives is missed, weighted by their shares."""
    return share * (1 - share) * margin + (probabilities * (share * negative - (1 - share) * positive)).sum(0)


def margin_loss(
    probabilities: Tensor, positive: Tensor, negative: Tensor, share: Tensor, game: Tensor, margin: float
) -> Tensor:
    """The value of the game, summed over classes.

    `positive` and `negative` (B, C) are weights of entries in means, as `occupancy` gives them; `share` (C) is that of
    positives, and `game` (3, C) are a, b and alpha.
    """
    around_positives, around_negatives, tension = game
    spread = (1 - share) * (positive * (probabilities - around_positives).square()).sum(0)
    spread = spread + share * (negative * (probabilities - around_negatives).square()).sum(0)
    missed = 2 * tension * gap(probabilities, positive, negative, share, margin)
    value: Tensor = spread + missed - share * (1 - share) * tension.square()
    return value.sum()
