"""DivideMix: two networks divide the images for each other by their loss, and learn from mixed images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.learn.engine import Batch, Predict
from bomd.methods.base import Context, Method, Prepared, entry_losses, frequencies, masked_cross_entropy, masked_mean
from bomd.methods.settings import check_shares, note_if_idle, warm_epochs, within
from bomd.methods.two_gaussians import Floats, cross_entropies, low_posterior, low_posterior_by_label, row_means
from bomd.networks.backbone import Network
from bomd.seeds import derive
from bomd.tables import LabelTable


class DivideMix(Method):
    """Trust the labels of images with a small loss in the other network, and guess the others.

    Paper: Li et al., DivideMix, ICLR 2020. Each network's losses are split by two Gaussians; the other network
    refines the labels of the likely clean part, guesses those of the rest, sharpens both, and learns from mixtures of
    images. The Clothing1M release gives the guessed images no loss of their own (`unlabelled_weight` 0).
    Differs: sigmoid per class, sharpened class by class; the penalty pulls the mean prediction of each class towards
    its prevalence, since towards one half it would ask for 50 % ill; probabilities are averaged, not logits.
    Both networks learn in the same step, in training mode throughout. A batch is drawn from all images: an image
    without trust has weight 0 in the first loss instead of a place in a second batch, so that partners are as often
    clean as images are, not every other time. Every image has a mixing share of its own, and partners follow each
    other in one random circle. Unknown labels are guessed and have no loss.
    Found: two Gaussians always leave some images without trust, with right labels too, most of all those with findings
    while the network is young. With much noise on whole images most that it rejects are wrong.
    Cost: 6.8.

    Args:
        per_label: Divide the labels of each class, positive and negative apart, instead of whole images.
        warmup: Share of all epochs of plain cross-entropy, before the first division.
        threshold: Posterior of the low-loss heap above which a label is trusted.
        temperature: Below 1 makes refined and guessed labels sharper.
        mixing: Both parameters of the Beta distribution of mixing shares.
        unlabelled_weight: Weight of the squared error to guessed labels, once it has grown to the full.
        ramp: Share of all epochs over which that weight grows.
    """

    networks = 2
    views = 2
    mixes = True

    def __init__(
        self,
        per_label: bool = False,
        warmup: float = 0.4,
        threshold: float = 0.5,
        temperature: float = 0.5,
        mixing: float = 0.5,
        unlabelled_weight: float = 0.0,
        ramp: float = 0.5,
    ) -> None:
        check_shares("dividemix", warmup=warmup, ramp=ramp)
        within("(0, inf)", "dividemix", temperature=temperature, mixing=mixing)
        self.per_label, self.warmup, self.threshold = per_label, warmup, threshold
        self.temperature, self.mixing = temperature, mixing
        self.unlabelled_weight, self.ramp = unlabelled_weight, ramp
        self.dividing = False

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        count, classes = train.values.shape
        self.labels, self.seed = train.values, context.seed
        self.posteriors = context.buffer((2, count, classes if self.per_label else 1)).fill_(1)
        self.shares = context.buffer((2, 2, count)).fill_(1)  # by network, view and row, new in every epoch
        self.places = context.buffer((2, 2, count))  # in the circle of partners, likewise
        self.growing = context.buffer(())
        self.prevalence = context.tensor(frequencies(train.values.astype(np.float64)))  # (C)
        self.epochs = context.fit.epochs
        self.warm = warm_epochs(self.warmup, self.epochs)
        notes = note_if_idle("dividemix", self.warm, self.epochs, "nothing is divided")
        return Prepared(train.values, notes=notes)

    def buffers(self) -> dict[str, Tensor]:
        return {"posteriors": self.posteriors}

    def start_epoch(self, epoch: int, predict: Predict) -> None:
        self.dividing = epoch >= self.warm
        if not self.dividing:
            return
        logits = predict(lambda networks, images: torch.cat([network(images) for network in networks], dim=1))
        for number, part in enumerate(logits.chunk(2, dim=1)):
            losses = cross_entropies(part.numpy(), self.labels)
            self.posteriors[number].copy_(torch.from_numpy(clean_posterior(losses, self.labels, self.per_label)))
        generator = np.random.default_rng(derive(self.seed, "mix", epoch))
        self.shares.copy_(torch.from_numpy(generator.beta(self.mixing, self.mixing, self.shares.shape)))
        self.places.copy_(torch.from_numpy(generator.random(self.places.shape)))
        length = self.ramp * self.epochs
        grown = min(1.0, (epoch - self.warm) / length) if length else 1.0
        self.growing.fill_(self.unlabelled_weight * grown)

    def phase(self, epoch: int) -> object:
        return self.dividing

    def step(self, networks: Sequence[Network], batch: Batch) -> Tensor:
        views = [batch.view(), batch.view()]
        if not self.dividing:  # another view for each, or pretrained networks would hardly differ
            pairs = zip(networks, views, strict=True)
            return torch.stack([masked_cross_entropy(network(view), batch.targets) for network, view in pairs]).sum()
        images, known = torch.cat(views), ~batch.targets.isnan()
        with torch.no_grad():
            guesses = torch.stack([network(images).sigmoid().unflatten(0, (2, -1)).mean(0) for network in networks])
        total = torch.zeros((), device=images.device)
        for own, network in enumerate(networks):
            clean = self.posteriors[1 - own][batch.index]
            trusted = (clean > self.threshold) & known
            refined = clean * batch.targets + (1 - clean) * guesses[own]
            targets = sharpen(torch.where(trusted, refined, guesses.mean(0)), self.temperature)
            shares, places = (table[own][:, batch.index].flatten() for table in (self.shares, self.places))
            mixed, aim = mix(images, targets.repeat(2, 1), shares, places)
            total = total + self.mixed_loss(network(mixed), aim, trusted.repeat(2, 1), known.repeat(2, 1))
        return total

    def mixed_loss(self, logits: Tensor, aim: Tensor, trusted: Tensor, known: Tensor) -> Tensor:
        """The loss of one network on mixtures (2B, C): cross-entropy counts trusted labels, and all else known ones."""
        predicted = logits.sigmoid()
        mean = (predicted * known).sum(0) / known.sum(0).clamp(min=1)
        return (
            masked_mean(entry_losses(logits, aim), trusted)
            + self.growing * masked_mean((predicted - aim) ** 2, known & ~trusted)
            + (divergence(self.prevalence, mean) * known.any(0)).sum()
        )


def mix(images: Tensor, targets: Tensor, shares: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Images and targets, each mixed with those of its partner, the next by (2B) places in one circle.

    Of (2B) shares in [0, 1] the larger side belongs to the image itself.
    """
    order = places.argsort()
    partner = torch.empty_like(order)
    partner[order] = order.roll(1)
    share = torch.maximum(shares, 1 - shares)[:, None]
    mixed = torch.lerp(images[partner], images, share[:, :, None, None])
    return mixed, torch.lerp(targets[partner], targets, share.to(targets.dtype))  # float64 where the network is


def clean_posterior(losses: Floats, labels: NDArray[np.float32], per_label: bool) -> Floats:
    """(N, C) posterior that each label is clean by its (N, C) loss, or (N, 1) that each image is, by its mean loss."""
    return low_posterior_by_label(losses, labels) if per_label else low_posterior(row_means(losses))[:, None]


def sharpen(probabilities: Tensor, temperature: float) -> Tensor:
    """Move probabilities away from one half: p^(1/T) / (p^(1/T) + (1 - p)^(1/T)), any shape."""
    return torch.sigmoid(torch.logit(probabilities, eps=1e-6) / temperature)


def divergence(prevalence: Tensor, mean: Tensor) -> Tensor:
    """(C) Kullback-Leibler divergence of one Bernoulli distribution per class from another."""
    mean = mean.clamp(1e-4, 1 - 1e-4)
    rest = 1 - prevalence
    own = torch.xlogy(prevalence, prevalence) + torch.xlogy(rest, rest)
    # The logarithm of the mean stands alone, since the gradient of 0 log 0 is not a number.
    return own - prevalence * mean.log() - rest * (-mean).log1p()
