"""An image becomes a bag of descriptors in the label space (the paper's MID)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from bomd import processes, progress, spread
from bomd.data.batches import Images
from bomd.describe.labelspace import LabelSpace
from bomd.describe.ranking import Weighting, ranking_loss
from bomd.files import fingerprint, mapped_array, read_array
from bomd.filling import drop, filling
from bomd.learn.engine import Batch, Learner, prepare
from bomd.networks.backbone import Network
from bomd.tables import Descriptors

Stored = Literal["float32", "float16"]


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
    """Write the descriptors of un-augmented images to `path` batch by batch, or go on with it.

    Several processes describe a share each, into a file of their own; the first then joins the files.
    """
    width = learner.outputs // learner.descriptors
    rows = spread.own_part(len(images))
    shape, key = (rows.stop - rows.start, learner.descriptors, width), _weights_of(networks)
    for network in networks:
        network.eval()
    bar = progress.bar("descriptors of all images", shape[0])
    with filling(_part(path), shape, key, learner.stored) as file, bar as advance, torch.no_grad():
        advance(file.done)
        for _, pixels in images.iterate(torch.arange(rows.start + file.done, rows.stop), batch):
            bags = learner.predict(networks, prepare(pixels.float(), networks[0].channels))
            file.add(bags.reshape(len(bags), -1, width).cpu().numpy())
            advance(len(bags))
    processes.wait()
    if processes.count() > 1 and processes.first():
        with mapped_array(path, (len(images), *shape[1:]), learner.stored) as values:
            place = 0
            for rank in range(processes.count()):
                part = read_array(_part(path, rank), mapped=True)
                values[place : place + len(part)] = part
                place += len(part)
        for rank in range(processes.count()):
            drop(_part(path, rank))
    processes.wait()


def load(path: Path, images: Images) -> Descriptors:
    """Open what `extract` wrote."""
    return Descriptors(images.ids, read_array(path, mapped=True))


def _part(path: Path, rank: int | None = None) -> Path:
    """Where one of several processes writes its share; a single process writes the whole."""
    if processes.count() == 1:
        return path
    return path.with_suffix(f".part{processes.rank() if rank is None else rank}.npy")


def _weights_of(networks: Sequence[Network]) -> str:
    """What tells these networks from others."""
    return fingerprint(*(value.cpu().numpy() for network in networks for value in network.state_dict().values()))
