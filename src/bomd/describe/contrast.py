"""Describe images without looking at a label: two views of one image should look alike, all others different."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bomd.config import FitSettings
from bomd.data.batches import Images
from bomd.describe.written import write_all
from bomd.errors import InputError
from bomd.learn.engine import Batch, Learner
from bomd.networks.backbone import Network
from bomd.seeds import derive

PROJECTION = 128  # dimensions in which views are compared


class ContrastLearner(Learner):
    """Learns features that tell every image from all others, whatever crop of it is seen.

    Paper: Chen et al., SimCLR, ICML 2020. The BoMD paper has a row "self-supervised" without naming an objective.
    Differs: views differ by the recipe's augmentation alone, where SimCLR distorts colours and blurs, and the
    optimiser is Adam.
    """

    views = 2
    outputs = PROJECTION  # numbers that the network returns for an image; only training looks at them
    temperature = 0.1

    def build(self, outputs: int, settings: FitSettings, seed: int) -> list[Network]:
        """One network whose head has two layers: what only tells views apart is lost there, not in the features."""
        if settings.augment == "none":
            raise InputError("Self-supervised descriptors compare two views of an image: fit.augment must not be none.")
        networks = super().build(outputs, settings, seed)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive(seed, "projector"))
            for network in networks:
                width = network.feature_size
                network.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))
        return networks

    def step(self, networks: Sequence[Network], batch: Batch) -> Tensor:
        return contrast_loss(networks[0](batch.view()), networks[0](batch.view()), self.temperature)

    def predict(self, networks: Sequence[Network], images: Tensor) -> Tensor:
        """(B, F) features of length one, which are the descriptors."""
        return F.normalize(networks[0].features(images))


def keep_features(learner: ContrastLearner, networks: Sequence[Network], images: Images, path: Path) -> None:
    """Write (N, 1, F) features of all images."""
    one = (1, networks[0].feature_size)
    write_all(path, images, networks, partial(learner.predict, networks), one, what="features of all images")


def contrast_loss(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Mean cross-entropy of finding the other view (B, D) of an image among all other views (NT-Xent).

    Views are compared by their cosine divided by the temperature: the smaller, the more the most similar wrong ones
    count.
    """
    if first.shape != second.shape or first.ndim != 2:
        raise InputError(f"Views have shapes {tuple(first.shape)} and {tuple(second.shape)}; both must be (B, D).")
    if temperature <= 0:
        raise InputError(f"The temperature is {temperature:g}, but must be above 0.")
    views = F.normalize(torch.cat([first, second]))
    places = torch.arange(len(views), device=views.device)
    likeness = (views @ views.T / temperature).masked_fill(places[:, None] == places, -torch.inf)
    return F.cross_entropy(likeness, (places + len(first)) % len(views))
