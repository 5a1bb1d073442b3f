"""Noisy prediction calibration: learn how far to trust a trained classifier's verdict on each image."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from bomd.config import FitSettings
from bomd.learn.engine import Batch, Predict, predict
from bomd.methods.base import Context, Method, Prepared, frequencies, logits_and_features, train_plainly
from bomd.methods.settings import within
from bomd.networks.architectures import CorrectedNetwork, build_as
from bomd.networks.backbone import Network
from bomd.seeds import derive
from bomd.tables import LabelTable

SMALLEST_DRAW = 1e-6  # of the uniform numbers, whose logarithm is taken
SMALLEST_SHARE = 1e-6  # of positives, whose logit is taken
ROWS_AT_ONCE = 2048  # compared with all anchors


class Npc(Method):
    """Train a classifier, then a small variational model of when its verdicts agree with those on similar images.

    Paper: Bae et al., From Noisy Prediction to True Label, ICML 2022. Of a trained classifier's hard predictions, the
    most confident ones tell by their ten nearest neighbours what a label should be; an encoder of image and prediction
    gives Dirichlet concentrations, drawn towards that prior, from which a decoder tells the prediction. The encoder
    then corrects the classifier's probabilities by the odds of each label given each prediction.
    Differs: a latent with two states for every class, a verdict of 1 where the probability is above the class's share
    of positives, from which the odds of a verdict are counted, too, and the most confident tenth of each verdict as
    anchors. The encoder is one linear layer on a copy of the classifier's trunk and starts by trusting the verdict. Its
    loss is a mean over the classes, so that the recipe's optimiser and all its epochs suit it, where the paper sums and
    takes ten epochs of its own.
    Cost: 2.

    Args:
        trust: How firmly the prior follows the neighbours (the paper's rho).
        weight: Of the distance from the prior, beside the reconstruction.
        neighbours: Anchors that vote on the prior of an image.
        anchors: Share of the images of either verdict on a class that vote on it, the most confident ones.
    """

    trusts_labels = True  # the classifier learns them as they are; what is learnt here are its verdicts

    def __init__(self, trust: float = 5.0, weight: float = 1.0, neighbours: int = 10, anchors: float = 0.1) -> None:
        within("[1, inf)", "npc", neighbours=neighbours)
        within("(0, 1]", "npc", anchors=anchors)
        self.trust, self.weight, self.neighbours, self.anchors = trust, weight, neighbours, anchors
        self.classifier: Network | None = None
        self.limits = torch.zeros(())  # (C) logits above which a verdict is 1, once there is a classifier

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.classifier, history = train_plainly(train, context)
        both = predict(Method(), [self.classifier], context.images, score=logits_and_features)
        logits, features = both[:, : len(train.classes)], both[:, len(train.classes) :]
        self.limits = torch.logit(torch.as_tensor(frequencies(train.values)).float(), eps=SMALLEST_SHARE)
        verdicts = (logits > self.limits).float()
        device = context.fabric.device
        prior = neighbour_vote(features.to(device), logits, verdicts, self.anchors, self.neighbours)
        if train.confirmed is not None:  # nothing is left to be voted on
            prior = torch.where(torch.as_tensor(train.confirmed), torch.as_tensor(train.values), prior)
        self.verdicts, self.prior = verdicts.to(device), prior.to(device)  # (N, C) both
        self.draws, self.seed = context.buffer((*train.values.shape, 2)), context.seed
        return Prepared(train.values, history=history)

    def build(self, outputs: int, settings: FitSettings, seed: int) -> list[Network]:
        """The classifier with its correction; before `prepare`, around one that is not trained yet."""
        network = build_as("npc", outputs, settings, seed)
        assert isinstance(network, CorrectedNetwork)
        if self.classifier is not None:
            network.start_from(self.classifier, self.limits)
        return [network]

    def start_epoch(self, epoch: int, predict: Predict) -> None:
        # Uniform numbers for every image, so that its place in a batch changes nothing.
        generator = torch.Generator().manual_seed(derive(self.seed, "draws", epoch))
        self.draws.copy_(torch.rand(self.draws.shape, generator=generator).clamp(min=SMALLEST_DRAW))

    def step(self, networks: Sequence[Network], batch: Batch) -> Tensor:
        (network,) = networks
        assert isinstance(network, CorrectedNetwork)
        features = network.features(batch.view())
        verdicts, prior = self.verdicts[batch.index], self.prior[batch.index]
        of_each = network.head.concentrations(features)  # (B, C, 2, 2)
        alpha = torch.where(verdicts[..., None] == 1, of_each[:, :, 1], of_each[:, :, 0])
        guess = network.head.decode(features, sample(alpha, self.draws[batch.index]))
        reconstruction = F.binary_cross_entropy_with_logits(guess, verdicts)
        towards = self.trust * torch.stack([1 - prior, prior], dim=2) + 1.5
        return reconstruction + self.weight * divergence(alpha, towards).mean()


def neighbour_vote(features: Tensor, logits: Tensor, verdicts: Tensor, share: float, neighbours: int) -> Tensor:
    """(N, C) mean verdict of each image's nearest anchors, weighted by one over their distance, on the CPU.

    An anchor at distance 0, such as the image itself, has all the weight.

    Args:
        features: (N, F) of the images, on the device to compute on.
        share: of the images with either verdict on a class that are its anchors, the most confident ones.
        neighbours: anchors that vote; all where there are fewer.
    """
    votes = torch.empty_like(verdicts)
    for column in range(verdicts.shape[1]):
        anchors = _anchors(logits[:, column], verdicts[:, column], share).to(features.device)
        said = verdicts[:, column].to(features.device)[anchors]
        count = min(neighbours, len(anchors))
        for start in range(0, len(features), ROWS_AT_ONCE):
            part = features[start : start + ROWS_AT_ONCE]
            near = torch.cdist(part, features[anchors]).topk(count, largest=False).indices
            # Measured again: squares and products leave an image at a distance from itself.
            distances = (part[:, None] - features[anchors[near]]).norm(dim=2)
            same = distances == 0
            weights = torch.where(same.any(dim=1, keepdim=True), same.to(distances.dtype), 1 / distances)
            vote = (weights * said[near]).sum(dim=1) / weights.sum(dim=1)
            votes[start : start + len(part), column] = vote.cpu()
    return votes


def _anchors(logits: Tensor, verdicts: Tensor, share: float) -> Tensor:
    """Rows of the most confident images with either verdict; at least one of each that occurs."""
    found = []
    for verdict, confidence in ((1, logits), (0, -logits)):
        rows = (verdicts == verdict).nonzero()[:, 0]
        count = max(1, round(share * len(rows))) if len(rows) else 0
        found.append(rows[confidence[rows].argsort(descending=True, stable=True)[:count]])
    return torch.cat(found)


def sample(alpha: Tensor, uniform: Tensor) -> Tensor:
    """Draw from Gamma(alpha, 1) by the approximate inverse (u alpha Gamma(alpha)) ** (1 / alpha), each entry alone."""
    return ((uniform.log() + alpha.log() + alpha.lgamma()) / alpha).exp()


def divergence(alpha: Tensor, prior: Tensor) -> Tensor:
    """Kullback-Leibler divergence between Gamma(alpha, 1) and Gamma(prior, 1), summed over the last axis."""
    return (prior.lgamma() - alpha.lgamma() + (alpha - prior) * alpha.digamma()).sum(dim=-1)
