"""What is learnt from a phantom: its labels and, since it was drawn, how severe each finding is and where it lies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bomd import progress
from bomd.data.datasets import phantom
from bomd.data.datasets.classes import NIH
from bomd.data.datasets.phantom import drawing
from bomd.learn.engine import Batch, Learner
from bomd.methods.base import masked_cross_entropy
from bomd.networks.backbone import Network
from bomd.tables import Floats, LabelTable, Text

GRID = 4  # cells of a side in which places are told
PLACED = 64  # pixels at which places are looked for: cells are coarse
THERE = 0.25  # a finding lies where it changes the picture by this share of its largest change
_AT_ONCE = 1024

FINDINGS = len(NIH) - 1


class PhantomLearner(Learner):
    """Cross-entropy on labels, and on severities and places where these are taught; each part counts the same.

    Places under a moved image would be other places, so that whoever teaches them leaves images as they are.
    """

    def __init__(self, targets: Sequence[str] = ()) -> None:
        self.widths = [len(NIH), *(FINDINGS * (GRID**2 if target == "place" else 1) for target in targets)]

    @property
    def outputs(self) -> int:
        """Numbers that the network returns while it learns; the labels come first."""
        return sum(self.widths)

    def step(self, networks: Sequence[Network], batch: Batch) -> Tensor:
        logits, targets = (part.split(self.widths, dim=1) for part in (networks[0](batch.view()), batch.targets))
        losses = [masked_cross_entropy(own, wanted) for own, wanted in zip(logits, targets, strict=True)]
        return torch.stack(losses).sum()

    def predict(self, networks: Sequence[Network], images: Tensor) -> Tensor:
        """(B, 14) probabilities of the labels."""
        logits: Tensor = networks[0](images)
        return logits[:, : len(NIH)].sigmoid()


def patients(hospitals: Sequence[str], count: int, split: str, seed: int) -> LabelTable:
    """Clean labels of `count` phantoms, an equal share from each hospital."""
    shares = [count // len(hospitals) + (place < count % len(hospitals)) for place in range(len(hospitals))]
    tables = [
        phantom.read(split=split, hospital=hospital, count=share, seed=seed)
        for hospital, share in zip(hospitals, shares, strict=True)
        if share
    ]
    return LabelTable(
        np.concatenate([table.ids for table in tables]),
        NIH,
        np.concatenate([table.values for table in tables]),
        patients=np.concatenate([table.groups for table in tables]),
    )


def lessons(table: LabelTable, targets: Sequence[str], device: torch.device) -> Floats:
    """(N, outputs) what `PhantomLearner` learns, in its order."""
    taught = (drawing.severity(table.ids) if target == "severity" else _places(table.ids, device) for target in targets)
    return np.concatenate([table.values, *taught], axis=1).astype(np.float32, copy=False)


def _places(ids: Text, device: torch.device) -> NDArray[np.float32]:
    """(N, 13 x cells) of 0 and 1: in which cells of the image each finding lies."""
    found = []
    with progress.bar("Where findings lie", len(ids)) as advance:
        for start in range(0, len(ids), _AT_ONCE):
            part = ids[start : start + _AT_ONCE]
            found.append(cells(drawing.places(part, PLACED, device)).cpu().numpy())
            advance(len(part))
    return np.concatenate(found)


def cells(changes: Tensor) -> Tensor:
    """(N, 13 x cells) float32 of 0 and 1 from (N, 13, H, W) changes as `phantom.drawing.places` gives them."""
    largest = changes.flatten(2).amax(2).float()[..., None, None]
    strongest = F.adaptive_max_pool2d(changes.float(), GRID)
    return ((strongest >= THERE * largest) & (largest > 0)).float().flatten(1)
