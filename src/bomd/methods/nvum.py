"""Non-volatile unbiased memory: remember each image's logits, corrected for how common a class is."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bomd.config import FitSettings
from bomd.data.batches import Images
from bomd.files import write_array
from bomd.learn.engine import Batch, predict
from bomd.methods.base import Context, Method, Prepared, frequencies, logits_and_features, masked_mean
from bomd.methods.settings import within
from bomd.networks.backbone import Network
from bomd.tables import NO_FINDING, LabelTable

SCORES = "scores.npy"  # what `keep_features` calls the logits
CLAMP = 1e-4  # probabilities stay this far from 0 and 1


class Nvum(Method):
    """Cross-entropy plus a term that pulls predictions towards the remembered logits of an averaged network.

    Paper: Liu et al., MICCAI 2022. A memory t of logits less ln of the class prior, from 0, written by a copy of the
    network whose weights are a running average, and the loss CE + lambda ln(1 - sigmoid(t p)) per class; the averaged
    network is evaluated. The learning rate falls to a tenth at 70 % and again at 90 % of the epochs.
    Differs: the release gives the term a random mix of two images' memories (`mix`), although the images are not
    mixed. Here the averaged network is the plain mean of all steps until its running average has a full window,
    since short runs would otherwise evaluate what is left of random weights; its batch norms collect statistics of
    their own, which fitted it better than averages of the trained network's. The rate falls in recipes with a constant
    rate only: others have a schedule already.
    Cost: 2.

    Args:
        weight: Of the term beside cross-entropy (the paper's lambda).
        momentum: How much of an image's memory stays at each visit (the paper's beta).
        average: How much of the averaged network stays at each step.
        mix: Give the term the memory of another image too, by a random share, as the release does.
    """

    def __init__(self, weight: float = 1.0, momentum: float = 0.9, average: float = 0.99, mix: bool = False) -> None:
        within("[0, 1)", "nvum", momentum=momentum, average=average)
        self.weight, self.momentum, self.average, self.mix = weight, momentum, average, mix
        self.falls = True

    def build(self, outputs: int, settings: FitSettings, seed: int) -> list[Network]:
        """The network that is trained, and its running average, which starts as a copy."""
        (network,) = super().build(outputs, settings, seed)
        averaged = copy.deepcopy(network)
        averaged.requires_grad_(False)
        return [network, averaged]

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.falls = context.fit.schedule == "constant"
        self.memory = context.buffer(train.values.shape)  # (N, C)
        self.steps = context.buffer(())  # that the average has taken
        self.log_prior = torch.log(context.tensor(class_prior(train)) + 1e-12)  # (C)
        return Prepared(train.values)

    def buffers(self) -> dict[str, Tensor]:
        return {"memory": self.memory, "steps": self.steps}

    def pace(self, done: float) -> float:
        if not self.falls or done < 0.7:
            return 1.0
        return 0.1 if done < 0.9 else 0.01

    def step(self, networks: Sequence[Network], batch: Batch) -> Tensor:
        images = batch.view()
        with torch.no_grad():
            self.remember(networks[1](images), batch.index)
        return self.loss(networks[0](images), batch.targets, batch.index)

    def remember(self, logits: Tensor, index: Tensor) -> None:
        """Move the memory of these rows towards unbiased logits (B, C) of the averaged network."""
        unbiased = logits.detach().float() - self.log_prior
        self.memory.index_copy_(0, index, self.memory[index].lerp(unbiased, 1 - self.momentum))

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        memory = self.memory[index]
        if self.mix:
            share = torch.rand((), device=memory.device)
            share = torch.maximum(share, 1 - share)
            other = torch.rand(len(memory), device=memory.device).argsort()
            memory = share * memory + (1 - share) * memory[other]
        term = -F.softplus(memory * logits.sigmoid().clamp(CLAMP, 1 - CLAMP))
        return self.cross_entropy(logits, targets) + self.weight * masked_mean(term, ~targets.isnan())

    @torch.no_grad()
    def after_step(self, networks: Sequence[Network]) -> None:
        self.steps += 1
        share = (1 / self.steps).clamp(min=1 - self.average)
        trained: list[Tensor] = [*networks[0].parameters()]
        averaged: list[Tensor] = [*networks[1].parameters()]
        torch._foreach_add_(averaged, torch._foreach_mul(torch._foreach_sub(trained, averaged), share))

    def deployed(self, networks: Sequence[Network]) -> list[Network]:
        return [networks[1]]


def class_prior(train: LabelTable) -> NDArray[np.float64]:
    """(C) frequency of "No Finding", and that of each finding times the frequency of any finding."""
    frequency = frequencies(train.values.astype(np.float64))
    if NO_FINDING in train.classes:
        frequency[train.findings] *= 1 - frequency[train.classes.index(NO_FINDING)]
    return frequency


def keep_features(method: Nvum, networks: Sequence[Network], images: Images, path: Path) -> None:
    """Write (N, 1, F) features of the averaged network, and beside them (N, C) its logits."""
    found = predict(method, method.deployed(networks), images, score=logits_and_features).numpy()
    logits, features = np.split(found, [method.memory.shape[1]], axis=1)
    write_array(path, features[:, None])
    write_array(path.with_name(SCORES), logits)
