"""Forward correction: learn clean probabilities whose noisy image matches the given labels."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bomd.learn.engine import predict
from bomd.methods.base import Context, Method, Prepared, masked_mean, train_plainly
from bomd.methods.settings import within
from bomd.tables import LabelTable

LARGEST_MISSED = 0.5  # a rare finding is hardly ever predicted with certainty, which looks like missed labels
LARGEST_SUM = 0.89  # of both rates; where it nears 1, the labels say nothing about the image


class FCorrection(Method):
    """Estimate how often each class is wrongly added or missed, and train through these rates.

    Paper: Patrini et al., Making Deep Neural Networks Robust to Label Noise, CVPR 2017, "forward". A first network is
    trained on the given labels; the images that it is surest about, the highest 3 % aside, tell the transition matrix;
    a new network is trained with its probabilities multiplied by that matrix.
    Differs: two rates for each class instead of one matrix over all; the lowest 3 % of the probabilities are set aside
    too; the share of missed labels is kept to at most one half and the sum of both rates below 0.9.
    Found: after a short run on phantoms few images are predicted with certainty, which reads as missed labels: most
    classes reach the limit of one half. Without noise that does no harm.
    Cost: 2.

    Args:
        trim: Share of the images to set aside at either end before the surest one is looked for.
    """

    def __init__(self, trim: float = 0.03) -> None:
        within("[0, 0.5)", "f-correction", trim=trim)
        self.trim = trim

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        network, history = train_plainly(train, context)
        rates, cut = estimate(predict(Method(), [network], context.images).numpy(), self.trim)
        self.rates = context.tensor(rates)
        names = ", ".join(name for name, was_cut in zip(train.classes, cut, strict=True) if was_cut)
        notes = (f"Estimated noise rates were too high and were cut for: {names}.",) if names else ()
        return Prepared(train.values, history=history, notes=notes)

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        return corrected_cross_entropy(logits, targets, self.rates)


def estimate(probabilities: NDArray[np.float32], trim: float) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """How often each class is added and missed, told by the images that a network is surest about.

    Returns:
        (2, C) shares of wrong labels among images without the class (added) and with it (missed), and (C) whether
        an estimate had to be cut.
    """
    ordered = np.sort(probabilities, axis=0)
    aside = int(trim * len(ordered))
    added, missed = ordered[aside], 1 - ordered[len(ordered) - 1 - aside]
    kept_missed = np.minimum(missed, LARGEST_MISSED)
    kept_added = np.minimum(added, LARGEST_SUM - kept_missed)
    rates = np.stack([kept_added, kept_missed]).astype(np.float32)
    return rates, (kept_missed < missed) | (kept_added < added)


def corrected_cross_entropy(logits: Tensor, targets: Tensor, rates: Tensor) -> Tensor:
    """Mean over the labelled entries of the cross-entropy between given labels and noisy probabilities.

    Computed from logarithms, since a product of small probabilities would vanish; `rates` are those of `estimate`.
    """
    present, absent = F.logsigmoid(logits), F.logsigmoid(-logits)
    (added, missed), (not_added, not_missed) = rates.log(), (1 - rates).log()
    labelled = torch.logaddexp(added + absent, not_missed + present)
    unlabelled = torch.logaddexp(not_added + absent, missed + present)
    labels = targets.nan_to_num()
    return masked_mean(-labels * labelled - (1 - labels) * unlabelled, ~targets.isnan())
