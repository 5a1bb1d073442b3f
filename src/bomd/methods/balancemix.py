"""BalanceMix: mix every image with one that the network finds hard, and refine labels one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.learn.engine import Batch, Predict
from bomd.methods.base import Context, Method, Prepared, entry_losses, masked_mean
from bomd.methods.settings import check_shares, note_if_idle, warm_epochs, within
from bomd.methods.two_gaussians import Floats, cross_entropies, low_posterior_by_label, row_means
from bomd.networks.backbone import Network
from bomd.seeds import derive
from bomd.tables import NO_FINDING, LabelTable


class BalanceMix(Method):
    """Mix images with images of rare, badly learnt labels; keep, correct or down-weight each label.

    Paper: Song et al., Toward Robustness in Multi-label Classification, AAAI 2024. A second sampler prefers
    images whose labels are predicted with little confidence, and each image is mixed with one of its draws. Losses of
    each class and label value are split by two Gaussians: clean labels are kept, others are replaced where two views
    are predicted with confidence, and the rest count as much as they are likely to be clean. The code was never
    released.
    Differs: the second sampler draws from the images of the batch, with the same odds, not from the whole set.
    In the first epoch all odds are equal. Confidences are measured against the given labels, on images that are
    not augmented. Where a label of an image was replaced, "No Finding" is made to agree with the findings. A label
    counts only if both images of a mixture have it.
    Found: mixing shares near one half ask for longer training. Two Gaussians always find a doubtful part of the
    positives, and a rare class is predicted below 1 minus `confident` without any knowledge, so that refinement before
    the network knows rare classes loses them: the warm-up must be long.
    Cost: 3.

    Args:
        warmup: Share of all epochs in which images are mixed, but labels are as given.
        mixing: Both parameters of the Beta distribution of mixing shares.
        confident: A doubtful label becomes 1 where more than this is predicted, 0 where less than 1 minus this.
    """

    views = 2
    mixes = True

    def __init__(self, warmup: float = 0.5, mixing: float = 4.0, confident: float = 0.975) -> None:
        check_shares("balancemix", warmup=warmup)
        within("(0, inf)", "balancemix", mixing=mixing)
        within("[0.5, 1]", "balancemix", confident=confident)
        self.warmup, self.mixing, self.confident = warmup, mixing, confident
        self.refining = False

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.labels, self.seed = train.values, context.seed
        self.nothing = train.classes.index(NO_FINDING) if NO_FINDING in train.classes else None
        self.findings = context.buffer((len(train.classes),)).bool()
        self.findings[torch.from_numpy(train.findings).to(self.findings.device)] = True
        self.posteriors = context.buffer(train.values.shape).fill_(1)
        self.odds = context.buffer((len(train),)).fill_(1)
        self.shares = context.buffer((len(train),)).fill_(1)  # by row, new in every epoch
        self.draws = context.buffer((len(train),))  # likewise
        self.warm = warm_epochs(self.warmup, context.fit.epochs)
        notes = note_if_idle("balancemix", self.warm, context.fit.epochs, "labels stay as given")
        return Prepared(train.values, notes=notes)

    def buffers(self) -> dict[str, Tensor]:
        return {"posteriors": self.posteriors}

    def start_epoch(self, epoch: int, predict: Predict) -> None:
        self.refining = epoch >= self.warm
        generator = np.random.default_rng(derive(self.seed, "mix", epoch))
        self.shares.copy_(torch.from_numpy(generator.beta(self.mixing, self.mixing, self.shares.shape)))
        self.draws.copy_(torch.from_numpy(generator.random(self.draws.shape)))
        if epoch == 0:
            return
        logits = predict(lambda networks, images: networks[0](images))
        present, absent = confidences(logits.sigmoid().numpy(), self.labels)
        self.odds.copy_(torch.from_numpy(minority_odds(self.labels, present, absent)))
        if self.refining:
            losses = cross_entropies(logits.numpy(), self.labels)
            self.posteriors.copy_(torch.from_numpy(low_posterior_by_label(losses, self.labels)))

    def phase(self, epoch: int) -> object:
        return self.refining

    def step(self, networks: Sequence[Network], batch: Batch) -> Tensor:
        first, second = batch.view(), batch.view()
        labels, known = batch.targets.nan_to_num(), ~batch.targets.isnan()
        trust = torch.ones_like(labels)
        if self.refining:
            with torch.no_grad():
                seen = networks[0](torch.cat([first, second])).sigmoid().unflatten(0, (2, -1)).mean(0)
            labels, trust = self.refine(labels, known, self.posteriors[batch.index], seen)
        partner = choose(self.odds[batch.index], self.draws[batch.index], batch.index)
        shares = self.shares[batch.index]
        share = torch.maximum(shares, 1 - shares)[:, None]
        mixed = torch.lerp(second[partner], first, share[:, :, None, None])
        aim = torch.lerp(labels[partner], labels, share)
        return masked_mean(entry_losses(networks[0](mixed), aim) * trust, known & known[partner])

    def refine(self, labels: Tensor, known: Tensor, clean: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C) labels kept, replaced or doubted, and (B, C) how much each counts.

        Args:
            clean: (B, C) posterior of being clean, NaN where unknown.
            seen: (B, C) mean prediction of two views.
        """
        sure = (seen > self.confident) | (seen < 1 - self.confident)
        replaced = known & ~(clean > 0.5) & sure
        refined = torch.where(replaced, (seen > 0.5).to(labels.dtype), labels)
        trust = torch.where(replaced | (clean > 0.5), torch.ones_like(clean), clean.nan_to_num(0.0))
        if self.nothing is None:
            return refined, trust
        given = refined[:, self.nothing]
        healthy = ~((refined >= 0.5) & self.findings).any(dim=1)
        follows = replaced.any(dim=1) & known[:, self.nothing] & (healthy != (given >= 0.5))
        refined[:, self.nothing] = torch.where(follows, healthy.to(labels.dtype), given)
        trust[:, self.nothing] = torch.where(follows, torch.ones_like(given), trust[:, self.nothing])
        return refined, trust


def confidences(predicted: NDArray[np.float32], labels: NDArray[np.float32]) -> tuple[Floats, Floats]:
    """(C) mean prediction of each class where it is labelled positive, and (C) 1 minus it where negative.

    A class without such labels has confidence 1, which nothing refers to.
    """
    exact = predicted.astype(np.float64)

    def mean(values: Floats, rows: NDArray[np.bool_]) -> Floats:
        sums, counts = np.where(rows, values, 0).sum(axis=0), rows.sum(axis=0)
        return np.where(counts > 0, sums / np.maximum(counts, 1), 1.0)

    return mean(exact, labels >= 0.5), mean(1 - exact, labels < 0.5)


def minority_odds(labels: NDArray[np.float32], present: Floats, absent: Floats) -> Floats:
    """(N) odds of being drawn: one over the sum of the confidences (C) in an image's positive and negative labels.

    An unknown label stands at the mean of the image's others, so that images with few labels are not preferred.
    """
    confidence = np.where(np.isnan(labels), np.nan, np.where(labels >= 0.5, present, absent))
    totals = np.nan_to_num(row_means(confidence), nan=1.0) * labels.shape[1]
    return np.asarray(1 / np.maximum(totals, 1e-6))


def choose(odds: Tensor, draws: Tensor, index: Tensor) -> Tensor:
    """(B) a partner for every image, drawn with these odds (above 0) by uniform draws in [0, 1).

    The order of `index`, rows of the training table, makes the choice independent of that in the batch.
    """
    order = index.argsort()
    heights = odds[order].cumsum(0)
    places = torch.searchsorted(heights, draws * heights[-1], right=True)
    return order[places.clamp(max=len(order) - 1)]
