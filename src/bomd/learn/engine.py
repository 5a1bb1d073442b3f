"""The one way anything is trained: `fit` runs the loop, `predict` scores images, both on Lightning Fabric.

Nothing in the loop carries hidden random state: the order of the images, their augmentation and any dropout
are drawn from generators seeded by (seed, epoch). A checkpoint therefore needs only weights, optimiser and the
learner's memory, and a run that was killed ends with the numbers of one that was not.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn

from bomd import progress
from bomd.config import DeviceSettings, FitSettings
from bomd.data.augment import Motion, draw, move
from bomd.data.batches import Images, normalise
from bomd.errors import InputError
from bomd.files import replacing
from bomd.learn.backbone import Network, build

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
    """What a training step sees.

    Attributes:
        index: (B) rows of the training table, for methods that remember each image.
        targets: (B, C) what to learn.
        pixels: (B, H, W) uint8 as stored.
        channels: Of the images that networks expect.
        motions: How to augment each view, as many as the learner's `views`; None leaves images as they are.
    """

    index: Tensor
    targets: Tensor
    pixels: Tensor
    channels: int
    motions: Sequence[Motion] | None = None
    _given: list[int] = field(default_factory=lambda: [0], repr=False)

    def view(self) -> Tensor:
        """(B, channels, H, W) a newly augmented and normalised view; each call returns another."""
        if self.motions is None:
            return prepare(self.pixels.float(), self.channels)
        number = self._given[0]
        if number == len(self.motions):
            raise ValueError(f"The step asks for more than {number} views: set `views` of the learner.")
        self._given[0] += 1
        return prepare(move(self.pixels, self.motions[number]), self.channels)


class Learner:
    """What the loop asks of whatever is being learnt; the defaults suit one network.

    Attributes:
        networks: How many networks `build` makes.
        views: How many augmented views of a batch `step` asks for.
        recordable: Whether `step` and `after_step` are operations on tensors alone, so that a GPU can record them
            once and replay them: no branch on a tensor's value, no `.item()`, no shape that depends on values, no
            random numbers but PyTorch's. Python values that they read may change between epochs only, and `phase`
            has to say so.
    """

    networks = 1
    views = 1
    recordable = True

    def build(self, outputs: int, settings: FitSettings, seed: int) -> list[Network]:
        """The networks, each from a seed of its own; those whose weights need no gradient are not trained."""
        return [
            build(settings.backbone, outputs, weights=settings.weights, seed=derive(seed, "network", number))
            for number in range(self.networks)
        ]

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
        return torch.stack([network(images).sigmoid() for network in self.deployed(networks)]).mean(0)

    def deployed(self, networks: Sequence[Network]) -> list[Network]:
        """The networks to keep in a model: the mean of their probabilities is the prediction."""
        return list(networks)


def derive(seed: int, *names: object) -> int:
    """A seed for one purpose, unrelated to the seeds of all other purposes."""
    return int.from_bytes(hashlib.sha256(repr((seed, *names)).encode()).digest()[:6], "big")


def make_fabric(settings: DeviceSettings) -> Fabric:
    """One process on the chosen device, in the chosen precision."""
    gpu = torch.cuda.is_available()
    if settings.accelerator == "cuda" and not gpu:
        raise InputError("device.accelerator is 'cuda', but PyTorch sees no GPU here. Use 'auto' or 'cpu'.")
    gpu = gpu and settings.accelerator != "cpu"
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)  # its hints are about choices made here
    precision = settings.precision
    if precision == "auto":
        precision = "bf16-mixed" if gpu and torch.cuda.is_bf16_supported() else "32-true"
    return Fabric(accelerator="cuda" if gpu else "cpu", devices=1, precision=precision)


def prepare(pixels: Tensor, channels: int) -> Tensor:
    """(B, channels, H, W) normalised, in the memory layout that convolutions like best."""
    return normalise(pixels, channels).contiguous(memory_format=torch.channels_last)


def fit(
    learner: Learner,
    images: Images,
    targets: NDArray[np.float32],
    settings: FitSettings,
    *,
    outputs: int,
    fabric: Fabric,
    seed: int,
    directory: Path,
    what: str,
    validate: Callable[[Sequence[Network]], float] | None = None,
) -> tuple[list[Network], History]:
    """Train a learner's networks, continuing from the last checkpoint in `directory` if there is one.

    Args:
        images: The training images; positions are rows of the training table.
        targets: (N, C) what to learn, for every row of the training table.
        outputs: Numbers that each network returns.
        directory: Belongs to this fit alone; its name must change when anything that matters here does.
        what: A word for the progress bar.
        validate: Scores the networks after each epoch, higher is better; needed for `select="best"`.

    Returns:
        The trained networks in evaluation mode, and one record per epoch.
    """
    if len(targets) < 2:
        raise InputError(f"{len(targets)} images to train on: at least 2 are needed.")
    torch.manual_seed(derive(seed, "build"))
    networks = learner.build(outputs, settings, seed)
    for network in networks:
        network.place(fabric)
    optimiser = torch.optim.Adam(
        [weight for network in networks for weight in network.parameters() if weight.requires_grad],
        lr=settings.rate,
        betas=settings.betas,
        eps=settings.eps,
        weight_decay=settings.decay,
    )
    table = torch.as_tensor(targets, dtype=torch.float32, device=fabric.device)
    buffers = learner.buffers()
    batch = min(settings.batch, len(targets))
    steps = len(targets) // batch
    checkpoint = directory / "checkpoint.pt"
    state = _load(checkpoint)
    history: History = state["history"] if state else []
    best: dict[str, Any] | None = state["best"] if state else None
    if state:
        for network, weights in zip(networks, state["networks"], strict=True):
            network.load_state_dict(weights)
        optimiser.load_state_dict(state["optimiser"])
        for name, tensor in buffers.items():
            tensor.copy_(state["buffers"][name])

    with progress.bar(what, settings.epochs * steps) as advance:
        advance(len(history) * steps)
        for epoch in range(len(history), settings.epochs):
            began, shown = time.perf_counter(), _shown(networks)
            learner.start_epoch(epoch, lambda score=None: predict(learner, networks, images, fabric, score=score))
            total = torch.zeros((), device=fabric.device)
            torch.manual_seed(derive(seed, "epoch", epoch))
            for network in networks:
                network.train()
            stream = _batches(learner, images, table, batch, steps, networks[0].channels, settings, seed, epoch)
            for number, piece in enumerate(stream):
                done = (epoch * steps + number) / (settings.epochs * steps)
                for group in optimiser.param_groups:
                    group["lr"] = settings.rate * rate_factor(settings.schedule, done) * learner.pace(done)
                loss = learner.step(networks, piece)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                if settings.clip > 0:
                    for network in networks:
                        nn.utils.clip_grad_norm_(network.parameters(), settings.clip)
                optimiser.step()
                learner.after_step(networks)
                total += loss.detach()
                advance()
            mean = float(total) / steps
            if not math.isfinite(mean):
                raise InputError(
                    f"The loss of {what!r} became {mean} in epoch {epoch + 1}: "
                    f"lower the learning rate (now {settings.rate:g}) or clip gradients (fit.clip)."
                )
            record: dict[str, Any] = {
                "stage": what,
                "epoch": epoch + 1,
                "loss": mean,
                "images": _shown(networks) - shown,
                "seconds": round(time.perf_counter() - began, 3),
            }
            if validate is not None:
                score = validate(networks)
                record["validation"] = score if math.isfinite(score) else None
                if settings.select == "best" and (best is None or score > best["score"]):
                    best = {"score": score, "epoch": epoch + 1, "networks": _weights(networks)}
            history.append(record)
            advance(0, note=f"loss {mean:.4f}")
            _save(checkpoint, networks, optimiser, buffers, history, best)

    if settings.select == "best" and best is not None:
        for network, weights in zip(networks, best["networks"], strict=True):
            network.load_state_dict(weights)
    for network in networks:
        network.eval()
    return networks, history


@torch.no_grad()
def predict(
    learner: Learner,
    networks: Sequence[Network],
    images: Images,
    fabric: Fabric,
    batch: int = 256,
    score: Score | None = None,
) -> Tensor:
    """(N, C) scores of un-augmented images in evaluation mode, on the CPU."""
    ask = score or learner.predict
    was_training = [network.training for network in networks]
    for network in networks:
        network.eval()
    parts = []
    for _, pixels in images.iterate(torch.arange(len(images)), batch):
        parts.append(ask(networks, prepare(pixels.float(), networks[0].channels)).float().cpu())
    for network, mode in zip(networks, was_training, strict=True):
        network.train(mode)
    return torch.cat(parts)


def rate_factor(schedule: str, progress_made: float) -> float:
    """The share of the learning rate to use when this part of all steps is done.

    `onecycle` warms up over a tenth of the steps and moves the rate only; PyTorch's scheduler of that name
    also moves the momentum.
    """
    if schedule == "constant":
        return 1.0
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * progress_made))
    warm, start = 0.1, 0.04
    if progress_made < warm:
        return start + (1 - start) * 0.5 * (1 - math.cos(math.pi * progress_made / warm))
    return 0.5 * (1 + math.cos(math.pi * (progress_made - warm) / (1 - warm)))


def _batches(
    learner: Learner,
    images: Images,
    table: Tensor,
    batch: int,
    steps: int,
    channels: int,
    settings: FitSettings,
    seed: int,
    epoch: int,
) -> Iterator[Batch]:
    """Whole batches in a new order; the incomplete last one is left to the next epoch's order."""
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(derive(seed, "order", epoch)))
    motions = _motions(learner.views, steps * batch, settings.augment, seed, epoch, table.device)
    for number, (index, pixels) in enumerate(images.iterate(order[: steps * batch], batch)):
        part = slice(number * batch, (number + 1) * batch)
        own = None if motions is None else [motion.take(part) for motion in motions]
        yield Batch(index, table[index], pixels, channels, own)


def _motions(
    views: int, count: int, augmentation: str, seed: int, epoch: int, device: torch.device
) -> list[Motion] | None:
    """The augmentation of a whole epoch, drawn at once: thousands of small draws would keep the host busy."""
    if augmentation == "none":
        return None
    purposes = [("augment", epoch, *([view] if view else [])) for view in range(views)]
    generators = [torch.Generator().manual_seed(derive(seed, *purpose)) for purpose in purposes]
    return [draw(count, augmentation, generator).to(device) for generator in generators]


def _shown(networks: Sequence[Network]) -> int:
    """Images that went through the networks so far."""
    return sum(network.shown for network in networks)


def _weights(networks: Sequence[nn.Module]) -> list[dict[str, Tensor]]:
    return [{name: value.detach().cpu().clone() for name, value in net.state_dict().items()} for net in networks]


def _save(
    path: Path,
    networks: Sequence[nn.Module],
    optimiser: Any,
    buffers: dict[str, Tensor],
    history: History,
    best: dict[str, Any] | None,
) -> None:
    state = {
        "networks": _weights(networks),
        "optimiser": optimiser.state_dict(),
        "buffers": {name: tensor.cpu() for name, tensor in buffers.items()},
        "history": history,
        "best": best,
    }
    with replacing(path) as temporary:
        torch.save(state, temporary)


def _load(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a damaged archive
        raise InputError(f"Cannot read checkpoint {path}: {error}. Delete it to start over.") from error
    return state
