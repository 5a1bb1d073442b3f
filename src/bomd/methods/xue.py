"""Global-local co-training: two students with averaged teachers, each filtering labels for the other."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bomd import progress
from bomd.config import FitSettings
from bomd.learn.engine import Batch, Predict
from bomd.methods.base import Context, Method, Prepared, masked_mean
from bomd.methods.settings import check_shares, note_if_idle, warm_epochs, within
from bomd.methods.two_gaussians import cross_entropies, low_posterior, row_means
from bomd.networks.backbone import Network
from bomd.seeds import derive
from bomd.tables import LabelTable

PROJECTION = 128  # dimensions in which two views of an image are compared
RELATION_TEMPERATURE = 0.1  # of the softmax that turns the cosines between images into a distribution
FIRST_THRESHOLD, LAST_THRESHOLD = 0.9, 0.5  # probability of being noisy above which an image is; falls with the ramp


class Xue(Method):
    """Learn labels from images that the other network's teacher trusts, and representations from all of them.

    Paper: Xue et al., Robust Medical Image Classification from Noisy Labeled Data with Global and Local Representation
    Guided Co-training, TMI 2022. Two students, each with a running average of its weights as teacher. Every epoch a
    mixture of two Gaussians splits the images by their loss in a teacher; a student learns labels from what the other's
    teacher finds clean, agrees with its own teacher in outputs and in the similarities between images, and tells noisy
    images apart by two views of each. No code was released.
    Differs: cross-entropy and agreement per class; similarities are cosines through a softmax; all labels are trusted
    in the first part of the run; the weight of the representation terms rises as in mean teachers; teachers follow
    faster in the first steps, normalise by batch while they teach and by their own running statistics when they are
    asked; the mean of both teachers is the prediction.
    Found: on phantoms the filter tells images with findings from those without, since their losses are high in the
    beginning, and what is not trusted is not learnt: after one epoch of trust it fell far behind cross-entropy even
    without noise. Teachers lag behind their students in runs of few hundred steps.
    Cost: 7.2.

    Args:
        weight: Of the three representation terms together, once the ramp is over.
        ramp: Share of the run over which that weight rises and the filter's threshold falls.
        warmup: Share of all epochs that trust all labels.
        average: How much of a teacher's weights stays at each step.
        temperature: Of the comparison of two views of noisy images.
    """

    networks = 2
    views = 2

    def __init__(
        self,
        weight: float = 1.0,
        ramp: float = 1 / 3,
        warmup: float = 0.4,
        average: float = 0.99,
        temperature: float = 0.5,
    ) -> None:
        check_shares("xue", warmup=warmup, ramp=ramp)
        within("[0, inf)", "xue", weight=weight)
        within("(0, inf)", "xue", temperature=temperature)
        within("[0, 1)", "xue", average=average)
        self.weight, self.ramp, self.warmup = weight, ramp, warmup
        self.average, self.temperature = average, temperature

    def build(self, outputs: int, settings: FitSettings, seed: int) -> list[Network]:
        """Two students with a projection each, then their teachers, which start as copies without one."""
        students = super().build(outputs, settings, seed)
        teachers = [copy.deepcopy(student).requires_grad_(False) for student in students]
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive(seed, "projection"))
            for student in students:
                width = student.feature_size
                layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, PROJECTION))
                student.add_module("projection", layers)
        return [*students, *teachers]

    def deployed(self, networks: Sequence[Network]) -> list[Network]:
        return list(networks[2:])

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.epochs = context.fit.epochs
        self.labels = train.values
        self.clean = context.buffer((2, len(train))).fill_(1.0)  # row k: what teacher k trusts
        self.pull = context.buffer(())  # weight of the representation terms in this epoch
        self.steps = context.buffer(())
        self._set_pull(0)
        self.warm = warm_epochs(self.warmup, self.epochs)
        notes = note_if_idle("xue", self.warm, self.epochs, "all labels are trusted")
        return Prepared(train.values, notes=notes)

    def buffers(self) -> dict[str, Tensor]:
        return {"steps": self.steps}

    def start_epoch(self, epoch: int, predict: Predict) -> None:
        self._set_pull(epoch)
        if epoch < self.warm:
            return
        logits = predict(lambda networks, images: torch.cat([teacher(images) for teacher in networks[2:]], dim=1))
        threshold = FIRST_THRESHOLD + (LAST_THRESHOLD - FIRST_THRESHOLD) * self._ramped(epoch)
        for number, part in enumerate(logits.chunk(2, dim=1)):
            self.clean[number].copy_(torch.as_tensor(trusted(part.numpy(), self.labels, threshold)))
        shares = ", ".join(f"{share:.0%}" for share in self.clean.mean(1).tolist())
        progress.say(f"epoch {epoch + 1}: the teachers trust {shares} of the images")

    def _ramped(self, epoch: int) -> float:
        length = self.ramp * self.epochs
        return epoch / length if epoch < length else 1.0

    def _set_pull(self, epoch: int) -> None:
        self.pull.fill_(self.weight * math.exp(-5 * (1 - self._ramped(epoch)) ** 2))

    def step(self, networks: Sequence[Network], batch: Batch) -> Tensor:
        first, second = batch.view(), batch.view()
        losses = []
        for number in range(2):
            student, teacher = networks[number], networks[2 + number]
            clean = self.clean[1 - number, batch.index]
            features, others = student.features(first), student.features(second)
            logits = student.head(features)
            with torch.no_grad():
                taught = teacher.features(second)
                answers = teacher.head(taught).sigmoid()
            project = student.get_submodule("projection")
            terms = (
                F.mse_loss(logits.sigmoid(), answers)
                + relation_loss(features, taught)
                + contrast_of_noisy(project(features), project(others), 1 - clean, self.temperature)
            )
            losses.append(cross_entropy_of_clean(logits, batch.targets, clean) + self.pull * terms)
        return torch.stack(losses).sum()

    @torch.no_grad()
    def after_step(self, networks: Sequence[Network]) -> None:
        self.steps += 1
        # A plain mean of the weights so far at first: the random start would linger in the average for long.
        stays = (1 - 1 / (self.steps + 1)).clamp(max=self.average)
        for student, teacher in zip(networks[:2], networks[2:], strict=True):
            # A teacher has no projection, so that modules are paired and not all weights.
            ahead: list[Tensor] = [*student.trunk.parameters(), *student.head.parameters()]
            behind: list[Tensor] = [*teacher.trunk.parameters(), *teacher.head.parameters()]
            torch._foreach_mul_(behind, stays)
            torch._foreach_add_(behind, list(torch._foreach_mul(ahead, 1 - stays)))


def trusted(logits: NDArray[np.float32], labels: NDArray[np.float32], threshold: float) -> NDArray[np.bool_]:
    """(N) whether an image's mean loss is not clearly, by the threshold, a high one; one without labels stays in."""
    return ~(1 - low_posterior(row_means(cross_entropies(logits, labels))) > threshold)


def cross_entropy_of_clean(logits: Tensor, targets: Tensor, clean: Tensor) -> Tensor:
    """Mean cross-entropy over the labels (B, C) of clean images; `clean` (B) is 1 or 0."""
    counted = ~targets.isnan() * clean[:, None]
    entries = F.binary_cross_entropy_with_logits(logits, targets.nan_to_num(), reduction="none")
    return masked_mean(entries, counted)


def relation_loss(features: Tensor, taught: Tensor) -> Tensor:
    """How differently student and teacher see the similarities within a batch, by their (B, F) features."""
    return symmetric_divergence(relations(features), relations(taught))


def relations(features: Tensor) -> Tensor:
    """(B, B) logarithms of how each image's similarity is spread over the batch; rows of exp sum to 1."""
    directions = F.normalize(features)
    return F.log_softmax(directions @ directions.T / RELATION_TEMPERATURE, dim=1)


def symmetric_divergence(one: Tensor, other: Tensor) -> Tensor:
    """Mean of both Kullback-Leibler divergences between rows of log-probabilities, and over rows."""
    return 0.5 * ((one.exp() - other.exp()) * (one - other)).sum(1).mean()


def contrast_of_noisy(first: Tensor, second: Tensor, noisy: Tensor, temperature: float) -> Tensor:
    """Mean cross-entropy of finding the other view of a noisy image among all views of noisy images (NT-Xent).

    Clean images, whose `noisy` (B) is 0 and not 1, are masked instead of left out, so that every shape is fixed; fewer
    than two noisy images give 0.
    """
    views = F.normalize(torch.cat([first, second]))
    weights = torch.cat([noisy, noisy])
    places = torch.arange(len(views), device=views.device)
    partners = (places + len(first)) % len(views)
    # A partner is never masked, so that rows of clean images stay finite; their weight is 0.
    allowed = (places[:, None] != places) & ((weights > 0) | (partners[:, None] == places))
    likeness = (views @ views.T / temperature).masked_fill(~allowed, -torch.inf)
    losses = F.cross_entropy(likeness, partners, reduction="none")
    return masked_mean(losses, weights)
