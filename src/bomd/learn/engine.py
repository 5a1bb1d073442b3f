"""The one way anything is trained: `fit` runs the loop, `predict` scores images.

Nothing in the loop carries hidden random state: the order of the images, their augmentation and any dropout
are drawn from generators seeded by (seed, epoch). A checkpoint therefore needs only weights, optimiser and the
learner's memory, and a run that was killed ends with the numbers of one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd import processes, progress, spread
from bomd.config import FitSettings
from bomd.data.augment import Motion, draw
from bomd.data.batches import Images
from bomd.errors import InputError
from bomd.files import replacing
from bomd.learn.learner import Batch, History, Learner, Predict, Score, prepare
from bomd.learn.steps import Epoch, Steps
from bomd.networks.backbone import Network
from bomd.networks.device import Device, make_fabric
from bomd.seeds import derive

__all__ = ["Batch", "History", "Learner", "Predict", "Score", "derive", "fit", "make_fabric", "predict", "prepare"]


def fit(
    learner: Learner,
    images: Images,
    targets: NDArray[np.float32],
    settings: FitSettings,
    *,
    outputs: int,
    fabric: Device,
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
        validate: Scores the networks after each epoch, higher is better; for `select="best"`, which keeps the last
            epoch where none has a finite score.

    Returns:
        The trained networks in evaluation mode, and one record per epoch.
    """
    if len(targets) < 2:
        raise InputError(f"{len(targets)} images to train on: at least 2 are needed.")
    torch.manual_seed(derive(seed, "build"))
    networks = learner.build(outputs, settings, seed)
    for network in networks:
        network.place(fabric)
    table = torch.as_tensor(targets, dtype=torch.float32, device=fabric.device)
    runner = Steps(learner, networks, images, table, settings, fabric.settings)
    buffers = learner.buffers()
    count = len(targets) // runner.batch
    path = directory / "checkpoint.pt"
    state = _load(path) if path.exists() else None
    processes.wait()  # nobody may write the next one before everybody has read this one
    history: History = state["history"] if state else []
    best: dict[str, Any] | None = state["best"] if state else None
    if state:
        _restore(networks, state["networks"])
        runner.restore(state["optimiser"])
        for name, tensor in buffers.items():
            tensor.copy_(state["buffers"][name])

    def score_table(score: Score | None = None) -> Tensor:
        return predict(learner, networks, images, score=score)

    with progress.bar(what, settings.epochs * count) as advance, closing(runner):
        advance(len(history) * count)
        for epoch in range(len(history), settings.epochs):
            began, shown = time.perf_counter(), sum(network.shown for network in networks)
            learner.start_epoch(epoch, score_table)
            shown = sum(network.shown for network in networks) - shown
            torch.manual_seed(derive(seed, "epoch", epoch))
            for network in networks:
                network.train()
            done = [(epoch * count + number) / (settings.epochs * count) for number in range(count)]
            rates = [settings.rate * rate_factor(settings.schedule, part) * learner.pace(part) for part in done]
            order = torch.randperm(len(table), generator=torch.Generator().manual_seed(derive(seed, "order", epoch)))
            whole = order[: count * runner.batch]  # the incomplete last batch is left to the next epoch's order
            motions = _motions(learner.views, len(whole), settings.augment, seed, epoch, fabric.device)
            mean, trained = runner.run(Epoch(whole, motions, rates, learner.phase(epoch)), advance)
            if not math.isfinite(mean):
                raise InputError(
                    f"The loss of {what!r} became {mean} in epoch {epoch + 1}: "
                    f"lower the learning rate (now {settings.rate:g}) or clip gradients (fit.clip)."
                )
            record: dict[str, Any] = {"stage": what, "epoch": epoch + 1, "loss": mean, "images": shown + trained}
            record["seconds"] = round(time.perf_counter() - began, 3)
            if validate is not None:
                score = validate(networks)
                record["validation"] = score if math.isfinite(score) else None
                better = math.isfinite(score) and (best is None or score > best["score"])
                if settings.select == "best" and better:
                    best = {"score": score, "epoch": epoch + 1, "networks": _weights_of(networks)}
            history.append(record)
            advance(0, note=f"loss {mean:.4f}")
            if processes.first():
                memory = {name: tensor.cpu() for name, tensor in buffers.items()}
                state = {"networks": _weights_of(networks), "optimiser": runner.optimiser.state_dict()}
                save_checkpoint(path, state | {"buffers": memory, "history": history, "best": best})

    if settings.select == "best" and best is not None:
        _restore(networks, best["networks"])
    for network in networks:
        network.eval()
    return networks, history


@torch.no_grad()
def predict(
    learner: Learner, networks: Sequence[Network], images: Images, batch: int = 256, score: Score | None = None
) -> Tensor:
    """(N, C) scores of un-augmented images in evaluation mode, on the CPU; processes share the rows."""
    ask = score or learner.predict
    was_training = [network.training for network in networks]
    for network in networks:
        network.eval()
    own = torch.arange(len(images))[spread.own_part(len(images))]
    asked = own if len(own) else torch.arange(1)  # of more processes than images some want an answer's shape alone
    parts = [ask(networks, prepare(pixels.float(), networks[0].channels)) for _, pixels in images.iterate(asked, batch)]
    scores = torch.cat(parts)[: len(own)]
    scores = spread.gather(scores, len(images)) if processes.count() > 1 else scores
    for network, mode in zip(networks, was_training, strict=True):
        network.train(mode)
    return scores.cpu()


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


def _motions(
    views: int, count: int, augmentation: str, seed: int, epoch: int, device: torch.device
) -> list[Motion] | None:
    """The augmentation of a whole epoch, drawn at once: thousands of small draws would keep the host busy."""
    if augmentation == "none":
        return None
    purposes = [("augment", epoch, *([view] if view else [])) for view in range(views)]
    generators = [torch.Generator().manual_seed(derive(seed, *purpose)) for purpose in purposes]
    return [draw(count, augmentation, generator).to(device) for generator in generators]


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write everything whole."""
    with replacing(path) as temporary:
        try:
            torch.save(state, temporary)
        except RuntimeError as error:  # what PyTorch makes of a full disk
            reason = str(error).splitlines()[0]
            raise InputError(
                f"Cannot write {path}: {reason}. Is the disk full? The same command then goes on."
            ) from error


def _load(path: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a damaged archive
        raise InputError(f"Cannot read checkpoint {path}: {error}. Delete it to start over.") from error
    return state


def _weights_of(networks: Sequence[Network]) -> list[dict[str, Tensor]]:
    """A copy of all weights and running statistics."""
    return [{name: value.detach().cpu().clone() for name, value in net.state_dict().items()} for net in networks]


def _restore(networks: Sequence[Network], weights: Sequence[Mapping[str, Tensor]]) -> None:
    for network, own in zip(networks, weights, strict=True):
        network.load_state_dict(own)
