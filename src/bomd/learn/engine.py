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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn

from bomd import progress
from bomd.config import DeviceSettings, FitSettings
from bomd.data.augment import augment
from bomd.data.batches import Images, normalise
from bomd.errors import InputError
from bomd.files import replacing
from bomd.learn.backbone import Network, build

History = list[dict[str, Any]]


@dataclass(frozen=True)
class Batch:
    """What a training step sees.

    Attributes:
        index: (B) rows of the training table, for methods that remember each image.
        targets: (B, C) what to learn.
        pixels: (B, H, W) uint8 as stored.
    """

    index: Tensor
    targets: Tensor
    pixels: Tensor
    channels: int
    augmentation: str
    generator: torch.Generator

    def view(self) -> Tensor:
        """(B, channels, H, W) a newly augmented and normalised view; each call draws another."""
        return prepare(augment(self.pixels, self.augmentation, self.generator), self.channels)


class Learner:
    """What the loop asks of whatever is being learnt; the defaults suit one network."""

    networks = 1

    def build(self, outputs: int, settings: FitSettings, seed: int) -> list[Network]:
        """The networks to train, each from a seed of its own."""
        return [
            build(settings.backbone, outputs, weights=settings.weights, seed=derive(seed, "network", number))
            for number in range(self.networks)
        ]

    def buffers(self) -> dict[str, Tensor]:
        """Per-sample memory that belongs in checkpoints; tensors are restored in place."""
        return {}

    def start_epoch(self, epoch: int, predict: Callable[[], Tensor]) -> None:
        """Called before each epoch; `predict()` scores the whole training table, (N, C) on the CPU."""

    def step(self, networks: Sequence[nn.Module], batch: Batch) -> Tensor:
        """The loss of one batch, summed over networks."""
        raise NotImplementedError

    def predict(self, networks: Sequence[nn.Module], images: Tensor) -> Tensor:
        """(B, C) probabilities of normalised images; several networks are averaged."""
        return torch.stack([network(images).float().sigmoid() for network in networks]).mean(0)


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
    validate: Callable[[Sequence[nn.Module]], float] | None = None,
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
    wrapped = [_place(network, fabric) for network in networks]
    adam = torch.optim.Adam(
        [weight for network in networks for weight in network.parameters() if weight.requires_grad],
        lr=settings.rate,
        betas=settings.betas,
        eps=settings.eps,
        weight_decay=settings.decay,
    )
    optimiser: Any = fabric.setup_optimizers(adam)
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
            began = time.perf_counter()
            learner.start_epoch(epoch, lambda: predict(learner, wrapped, images, fabric))
            total = torch.zeros((), device=fabric.device)
            torch.manual_seed(derive(seed, "epoch", epoch))
            for trained in wrapped:
                trained.train()
            stream = _batches(images, table, batch, steps, networks[0].channels, settings, seed, epoch)
            for number, piece in enumerate(stream):
                for group in optimiser.param_groups:
                    group["lr"] = settings.rate * rate_factor(
                        settings.schedule, (epoch * steps + number) / (settings.epochs * steps)
                    )
                loss = learner.step(wrapped, piece)
                optimiser.zero_grad(set_to_none=True)
                fabric.backward(loss)
                if settings.clip > 0:
                    for network in networks:
                        nn.utils.clip_grad_norm_(network.parameters(), settings.clip)
                optimiser.step()
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
                "images": steps * batch * len(networks),
                "seconds": round(time.perf_counter() - began, 3),
            }
            if validate is not None:
                score = validate(wrapped)
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
    networks: Sequence[nn.Module],
    images: Images,
    fabric: Fabric,
    batch: int = 256,
) -> Tensor:
    """(N, C) scores of un-augmented images in evaluation mode, on the CPU."""
    channels = int(networks[0].channels)  # type: ignore[arg-type]
    was_training = [network.training for network in networks]
    for network in networks:
        network.eval()
    parts = []
    with fabric.autocast():
        for _, pixels in images.iterate(torch.arange(len(images)), batch):
            parts.append(learner.predict(networks, prepare(pixels.float(), channels)).float().cpu())
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
    generator = torch.Generator().manual_seed(derive(seed, "augment", epoch))
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(derive(seed, "order", epoch)))
    for index, pixels in images.iterate(order[: steps * batch], batch):
        yield Batch(index, table[index], pixels, channels, settings.augment, generator)


def _place(network: Network, fabric: Fabric) -> nn.Module:
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    wrapped = fabric.setup_module(network)
    wrapped.mark_forward_method("features")
    return wrapped


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
