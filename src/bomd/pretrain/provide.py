"""From the name of a start in `fit.weights` to weights that a network can be built with.

"phantom" is made once for all runs; "self" is learnt from the run's own images without their labels: two views of an
image should look alike.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

import numpy as np
from safetensors.torch import save

from bomd import processes, progress
from bomd.config import FitSettings
from bomd.data.batches import Images
from bomd.describe.contrast import ContrastLearner
from bomd.errors import InputError
from bomd.files import write_bytes, write_json
from bomd.learn.engine import derive, fit
from bomd.methods.fitted import own_settings
from bomd.networks.backbone import BACKBONES
from bomd.networks.device import Device
from bomd.networks.weights import BASES, WEIGHTS, is_made, portable
from bomd.pretrain.make import make
from bomd.pretrain.plan import NO_IMAGENET, usual
from bomd.runs import Stages

STEPS = ("phantom", "self", "phantom+self")
PRESENTED = 100_000  # images of one's own that are shown in all, a few more or less often for sets of any size
FEWEST = 8  # of them: views have to be told from those of others


def parts(weights: str) -> tuple[Literal["none", "imagenet"], tuple[str, ...]]:
    """What a start is put on top of, and what is learnt from then on: "phantom", "self", or both in this order."""
    found = weights.split("+")
    base = found.pop(0) if found[0] in BASES else "none"
    if "+".join(found) not in STEPS:
        raise _unknown(weights, "fit.weights")
    return cast(Literal["none", "imagenet"], base), tuple(found)


def check_known(weights: str, what: str = "fit.weights") -> None:
    """Refuse a word that is neither the name of a start nor a place; `what` is where it was given, in words."""
    place = "/" in weights or "\\" in weights or bool(Path(weights).suffix) or Path(weights).exists()
    if weights not in BASES and not is_made(weights) and not place:
        raise _unknown(weights, what)


def _unknown(weights: str, what: str) -> InputError:
    names = ", ".join([*STEPS, *(f"imagenet+{steps}" for steps in STEPS)])
    return InputError(f"{what} is {weights!r}: use none, imagenet, {names}, a folder or a file.")


def beneath(fit: FitSettings) -> FitSettings:
    """The settings with what the start is put on top of, to try out whether a network can be built at all."""
    check_known(fit.weights)
    if not is_made(fit.weights):
        return fit
    base, _ = parts(fit.weights)
    own = BACKBONES.get(fit.backbone)
    if own is None:
        known = ", ".join(BACKBONES)
        raise InputError(f"Weights {fit.weights!r} are made for {known}, not for {fit.backbone!r}: it has its own.")
    if base == "imagenet" and own.load is None:
        raise InputError(NO_IMAGENET.format(fit.backbone))
    return replace(fit, weights=base)


def provide(
    fit: FitSettings, images: Images, fabric: Device, stages: Stages, seed: int
) -> tuple[FitSettings, tuple[str, ...]]:
    """The settings with weights that are there, made now where they have to be, and notes about them.

    Args:
        images: Those to be learnt, for "self" and for their size.
        seed: For "self"; phantoms are learnt once for all seeds.
    """
    if not is_made(fit.weights):
        return fit, ()
    base, steps = parts(fit.weights)
    weights, notes = str(base), []
    if "phantom" in steps:
        start = make(usual(fit.backbone, base, images.size, fabric.device.type), fabric)
        weights = str(start.folder)
        notes.append(start.note())
        progress.say(start.note())
    if "self" in steps:
        place = learn_own(replace(fit, weights=weights), images, fabric, stages, seed)
        weights = str(place)
        notes.append(f"Start {fit.weights!r}: learnt from the training images without their labels.")
    return replace(fit, weights=weights), tuple(notes)


def learn_own(classifier: FitSettings, images: Images, fabric: Device, stages: Stages, seed: int) -> Path:
    """The folder of the trunk that these images taught on top of a classifier's, learnt now if it is not there yet."""
    if len(images) < FEWEST:
        raise InputError(f'Weights "self" compare images with each other: {len(images)} are too few, use "none".')
    moved = replace(classifier, augment="light" if classifier.augment == "none" else classifier.augment)
    epochs, batch = int(np.clip(round(PRESENTED / len(images)), 4, 40)), min(256, len(images) // 2)
    settings, learner = own_settings(moved, epochs, batch, 0.001, "onecycle"), ContrastLearner()
    inputs = (images.fingerprint, settings, seed, fabric.key, learner.temperature)
    with stages.enter("self", *inputs, by=(__name__,)) as stage:
        if not stage.finished:
            progress.say(f"Weights 'self': {len(images):,} images are learnt without labels, {settings.epochs} passes.")
            networks, history = fit(
                learner,
                images,
                np.zeros((len(images), 1), dtype=np.float32),
                settings,
                outputs=learner.outputs,
                fabric=fabric,
                seed=derive(seed, "self"),
                directory=stage.directory,
                what="learn images without labels",
            )
            if processes.first():
                # The trunk alone: the head compared views, which nothing else needs.
                trunk = {name: value for name, value in portable(networks[0]).items() if name.startswith("trunk.")}
                write_bytes(stage.directory / WEIGHTS, save(trunk))
                write_json(stage.directory / "history.json", history)
                (stage.directory / "checkpoint.pt").unlink(missing_ok=True)
            stage.finish(images=len(images))
        return stage.directory
