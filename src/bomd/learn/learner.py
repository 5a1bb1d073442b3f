"""What the training loop asks of whatever is being learnt, and what a step is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from bomd import spread
from bomd.config import FitSettings
from bomd.data.augment import Motion, move
from bomd.data.batches import normalise
from bomd.networks.backbone import Network, build
from bomd.seeds import derive

History = list[dict[str, Any]]
Score = Callable[[Sequence[Network], Tensor], Tensor]


class Predict(Protocol):
    """Scores the whole training table with un-augmented images in evaluation mode, (N, ...) on the CPU.

    By default these are the learner's own predictions; `score(networks, images)` asks for something else, such as
    the features or the logits of one network.
    """

    def __call__(self, score: Score | None = None) -> Tensor: ...


@dataclass(frozen=True)
class Batch:
    """What a training step sees; of several processes each has the pixels and motions of its share."""

    index: Tensor  # (B) rows of the training table, for methods that remember each image
    targets: Tensor  # (B, C) what to learn
    pixels: Tensor  # (B, H, W) uint8 as stored, or (B, H, W, 3) in colour
    channels: int  # of the images that networks expect
    motions: Sequence[Motion] | None = None  # how to augment each of the learner's `views`; None leaves images alone
    gathers: bool = False  # whether a view has the images of all processes
    _given: list[int] = field(default_factory=lambda: [0], repr=False)

    def view(self) -> Tensor:
        """(B, channels, H, W) a newly augmented and normalised view; each call returns another.

        Of several processes each gets its share of the images, which networks know about, unless the learner `mixes`.
        """
        given = self._given[0]
        if self.motions is not None and given == len(self.motions):
            raise ValueError(f"The step asks for more than {given} views: set `views` of the learner.")
        moved = self.pixels.float() if self.motions is None else move(self.pixels, self.motions[given])
        self._given[0] += 1
        return prepare(spread.gather(moved, len(self.index)) if self.gathers else moved, self.channels)


class Learner:
    """What the loop asks of whatever is being learnt; the defaults suit one network.

    Attributes:
        networks: How many networks `build` makes.
        views: How many augmented views of a batch `step` asks for.
        mixes: Whether `step` computes with images before a network sees them; several processes then exchange them.
        exclusive: Whether an image has one class and no other, so that probabilities are a softmax.
        recordable: Whether `step` and `after_step` are operations on tensors alone, so that a GPU can record them
            once and replay them: no branch on a tensor's value, no `.item()`, no shape that depends on values, no
            random numbers but PyTorch's. Python values that they read may change between epochs only, and `phase`
            has to say so.
    """

    networks = 1
    views = 1
    mixes = False
    exclusive = False
    recordable = True

    def build(self, outputs: int, settings: FitSettings, seed: int) -> list[Network]:
        """The networks, each from a seed of its own; those whose weights need no gradient are not trained."""
        make = partial(build, settings.backbone, outputs, weights=settings.weights, freeze=settings.freeze)
        return [make(seed=derive(seed, "network", number)) for number in range(self.networks)]

    def buffers(self) -> dict[str, Tensor]:
        """Memory that belongs in checkpoints; tensors are restored in place."""
        return {}

    def start_epoch(self, epoch: int, predict: Predict) -> None:
        """Called before each epoch; `predict()` scores the whole training table."""

    def phase(self, epoch: int) -> object:
        """Changes when Python values that `step` reads do; called after `start_epoch`."""
        return None

    def pace(self, done: float) -> float:
        """Share of the recipe's learning rate to use when this part of all steps is done."""
        return 1.0

    def step(self, networks: Sequence[Network], batch: Batch) -> Tensor:
        """The loss of one batch, summed over networks."""
        raise NotImplementedError

    def after_step(self, networks: Sequence[Network]) -> None:
        """Called after the weights have moved, for averages of weights."""

    def predict(self, networks: Sequence[Network], images: Tensor) -> Tensor:
        """(B, C) probabilities of normalised images; several networks are averaged."""
        return average(self.deployed(networks), images, self.exclusive)

    def deployed(self, networks: Sequence[Network]) -> list[Network]:
        """The networks to keep in a model: the mean of their probabilities is the prediction."""
        return list(networks)


def average(networks: Sequence[Network], images: Tensor, exclusive: bool) -> Tensor:
    """(B, C) mean probabilities: each class on its own, or one of them for each image."""
    logits = [network(images) for network in networks]
    return torch.stack([own.softmax(dim=1) if exclusive else own.sigmoid() for own in logits]).mean(0)


def prepare(pixels: Tensor, channels: int) -> Tensor:
    """(B, channels, H, W) normalised, in the memory layout that convolutions like best."""
    return normalise(pixels, channels).contiguous(memory_format=torch.channels_last)
