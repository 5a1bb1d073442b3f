"""A start from the user's own images without their labels: two views of an image should look alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.torch import save

from bomd import processes, progress
from bomd.config import FitSettings
from bomd.data.batches import Images
from bomd.describe.contrast import ContrastLearner
from bomd.errors import InputError
from bomd.files import write_bytes, write_json
from bomd.learn.engine import derive, fit
from bomd.networks.device import Device
from bomd.networks.weights import WEIGHTS, portable
from bomd.runs import Stages

PRESENTED = 100_000  # images shown in all, a few more or less often for sets of any size
FEWEST = 8  # images: views have to be told from those of others


def own_settings(fit: FitSettings, images: int) -> FitSettings:
    """How a start is learnt from this many images of one's own, from the settings of the classifier."""
    return replace(
        fit,
        epochs=int(np.clip(round(PRESENTED / max(images, 1)), 4, 40)),
        batch=max(2, min(256, images // 2)),
        rate=0.001,
        betas=(0.9, 0.999),
        eps=1e-8,
        schedule="onecycle",
        augment="light" if fit.augment == "none" else fit.augment,
        select="last",
    )


def learn_own(fit_settings: FitSettings, images: Images, fabric: Device, stages: Stages, seed: int) -> Path:
    """The folder of the trunk that these images taught on top of a classifier's, learnt now if it is not there yet."""
    if len(images) < FEWEST:
        raise InputError(f'Weights "self" compare images with each other: {len(images)} are too few, use "none".')
    settings = own_settings(fit_settings, len(images))
    learner = ContrastLearner()
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
