"""A network that a method trains before the classifier, once for all runs that agree on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from bomd.config import FitSettings
from bomd.data.batches import Images
from bomd.files import read_json, write_json
from bomd.learn.engine import History, Learner
from bomd.methods.base import Context
from bomd.networks.backbone import Network
from bomd.tables import Floats

Keep = Callable[[Any, Sequence[Network], Images, Path], object]  # learner, its networks, images, file to write


def fit_once(
    name: str,
    learner: Learner,
    targets: Floats,
    settings: FitSettings,
    outputs: int,
    context: Context,
    keep: Keep,
    file: str,
    inputs: Sequence[Any],
) -> tuple[Path, History]:
    """The file in which `keep` put what is needed of the trained networks, and one record per epoch.

    Args:
        name: of the stage.
        keep: a function of a module whose code counts for the stage, as that of the learner does.
        inputs: all that the outcome depends on beside images, settings, seed and device.
    """
    common = (context.images.fingerprint, settings, context.seed, context.fabric.key)
    with context.stages.enter(name, *common, *inputs, by=made_by(type(learner), keep)) as stage:
        path = stage.directory / file
        if not stage.finished:
            networks, history = context.train(learner, targets, settings, outputs, stage, f"learn {name}", [name])
            keep(learner, networks, context.images, path)
            write_json(stage.directory / "history.json", history)
            stage.finish(images=len(context.images))
        return path, read_json(stage.directory / "history.json")


def made_by(learner: type[Learner], keep: Keep) -> tuple[str, ...]:
    """The modules whose code decides about the stage; the method that asks for it is none of them."""
    return __name__, learner.__module__, keep.__module__


def own_settings(
    fit: FitSettings, epochs: int, batch: int, rate: float, schedule: Literal["constant", "cosine", "onecycle"]
) -> FitSettings:
    """How a network is trained that does not classify."""
    own = replace(fit, epochs=epochs, batch=batch, rate=rate, schedule=schedule)
    return replace(own, betas=(0.9, 0.999), eps=1e-8, select="last")
