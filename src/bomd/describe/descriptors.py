"""An image becomes a bag of descriptors in the label space (the paper's MID)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from bomd.data.batches import Images
from bomd.describe.labelspace import LabelSpace
from bomd.describe.ranking import Weighting, ranking_loss
from bomd.describe.written import Stored, write_all
from bomd.files import read_array
from bomd.learn.engine import Batch, Learner
from bomd.networks.backbone import Network
from bomd.tables import Descriptors


class DescriptorLearner(Learner):
    """Learns M descriptors per image that rank the image's labels above all others.

    Paper: Eq. 1 to 3 of BoMD (Chen et al. 2023).
    Differs: the release's weighting by default; see `ranking_loss`.
    """

    def __init__(
        self, space: LabelSpace, descriptors: int, weighting: Weighting, beta: float, stored: Stored = "float32"
    ) -> None:
        self.vectors = torch.as_tensor(space.vectors)
        self.descriptors, self.weighting, self.beta, self.stored = descriptors, weighting, beta, stored

    @property
    def outputs(self) -> int:
        """Numbers that the network returns for an image."""
        return self.descriptors * self.vectors.shape[1]

    def step(self, networks: Sequence[Network], batch: Batch) -> Tensor:
        flat = networks[0](batch.view())
        bags = flat.reshape(len(flat), self.descriptors, -1)
        if self.vectors.device != flat.device or self.vectors.dtype != flat.dtype:
            self.vectors = self.vectors.to(flat)  # once: a recorded step cannot reach the host's memory
        return ranking_loss(bags, self.vectors, batch.targets, weighting=self.weighting, beta=self.beta).loss

    def predict(self, networks: Sequence[Network], images: Tensor) -> Tensor:
        """(B, M * D) descriptors, side by side."""
        flat: Tensor = networks[0](images)
        return flat


def extract(
    learner: DescriptorLearner, networks: Sequence[Network], images: Images, path: Path, batch: int = 256
) -> None:
    """Write the descriptors of all images."""
    one = (learner.descriptors, learner.outputs // learner.descriptors)
    ask = partial(learner.predict, networks)
    write_all(path, images, networks, ask, one, what="descriptors of all images", stored=learner.stored, batch=batch)


def load(path: Path, images: Images) -> Descriptors:
    """Open what `extract` wrote."""
    return Descriptors(images.ids, read_array(path, mapped=True))
