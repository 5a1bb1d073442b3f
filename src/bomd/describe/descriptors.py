"""An image becomes a bag of descriptors in the label space (the paper's MID)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bomd import progress
from bomd.data.batches import Images
from bomd.describe.labelspace import LabelSpace
from bomd.describe.ranking import Weighting, ranking_loss
from bomd.files import replacing
from bomd.learn.backbone import Network
from bomd.learn.engine import Batch, Learner, prepare
from bomd.tables import Descriptors


class DescriptorLearner(Learner):
    """Learns M descriptors per image that rank the image's labels above all others.

    Paper: Eq. 1 to 3 of BoMD (Chen et al. 2023).
    Differs: the release's weighting by default; see `ranking_loss`.
    """

    def __init__(self, space: LabelSpace, descriptors: int, weighting: Weighting, beta: float) -> None:
        self.vectors = torch.as_tensor(space.vectors)
        self.descriptors, self.weighting, self.beta = descriptors, weighting, beta

    @property
    def outputs(self) -> int:
        """Numbers that the network returns for an image."""
        return self.descriptors * self.vectors.shape[1]

    def step(self, networks: Sequence[Network], batch: Batch) -> Tensor:
        flat = networks[0](batch.view())
        bags = flat.reshape(len(flat), self.descriptors, -1)
        vectors = self.vectors.to(flat.device, non_blocking=True)
        return ranking_loss(bags, vectors, batch.targets, weighting=self.weighting, beta=self.beta).loss

    def predict(self, networks: Sequence[Network], images: Tensor) -> Tensor:
        """(B, M * D) descriptors, side by side."""
        flat: Tensor = networks[0](images)
        return flat


@torch.no_grad()
def extract(
    learner: DescriptorLearner,
    networks: Sequence[Network],
    images: Images,
    path: Path,
    batch: int = 256,
) -> Descriptors:
    """Write the descriptors of un-augmented images to `path` batch by batch, and return them as a memory map."""
    channels = networks[0].channels
    shape = (len(images), learner.descriptors, learner.outputs // learner.descriptors)
    for network in networks:
        network.eval()
    with replacing(path) as temporary:
        values = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float32, shape=shape)
        with progress.bar("descriptors of all images", len(images)) as advance:
            place = 0
            for _, pixels in images.iterate(torch.arange(len(images)), batch):
                bags = learner.predict(networks, prepare(pixels.float(), channels))
                values[place : place + len(bags)] = bags.reshape(-1, *shape[1:]).cpu().numpy()
                place += len(bags)
                advance(len(bags))
        values.flush()
        del values
    return load(path, images)


def load(path: Path, images: Images) -> Descriptors:
    """Open what `extract` wrote."""
    return Descriptors(images.ids, np.load(path, mmap_mode="r", allow_pickle=False))
