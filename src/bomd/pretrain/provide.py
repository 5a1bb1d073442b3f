"""From the name of a start in `fit.weights` to weights that a network can be built with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from bomd import progress
from bomd.config import FitSettings
from bomd.data.batches import Images
from bomd.errors import InputError
from bomd.networks.backbone import BACKBONES
from bomd.networks.device import Device
from bomd.networks.weights import BASES, MADE, is_made
from bomd.pretrain.make import make
from bomd.pretrain.own import learn_own
from bomd.pretrain.plan import NO_IMAGENET, usual
from bomd.runs import Stages

NAMES = tuple(
    "+".join(part for part in (base, *steps) if part)
    for base in ("", "imagenet")
    for steps in (("phantom",), ("self",), ("phantom", "self"))
)


def parts(weights: str) -> tuple[Literal["none", "imagenet"], tuple[str, ...]]:
    """What a start is put on top of, and what is learnt from then on: "phantom", "self", or both in this order."""
    found = weights.split("+")
    base = found.pop(0) if found[0] in BASES else "none"
    if tuple(found) not in ((MADE[0],), (MADE[1],), MADE):
        raise _unknown(weights, "fit.weights")
    return cast(Literal["none", "imagenet"], base), tuple(found)


def check_known(weights: str, what: str = "fit.weights") -> None:
    """Refuse a word that is neither the name of a start nor a place; `what` is where it was given, in words."""
    place = "/" in weights or "\\" in weights or bool(Path(weights).suffix) or Path(weights).exists()
    if weights not in BASES and not is_made(weights) and not place:
        raise _unknown(weights, what)


def _unknown(weights: str, what: str) -> InputError:
    return InputError(f"{what} is {weights!r}: use none, imagenet, {', '.join(NAMES)}, a folder or a file.")


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
