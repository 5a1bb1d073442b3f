"""The command that makes weights to start from: pretrain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bomd.cli import options
from bomd.errors import InputError


def pretrain(
    backbone: Annotated[
        str, typer.Argument(metavar="BACKBONE", help="small, efficientnet_lite0 or densenet121.")
    ] = "efficientnet_lite0",
    weights: Annotated[
        str | None,
        options.option("phantom, or imagenet+phantom; by default the second where there are ImageNet weights."),
    ] = None,
    size: Annotated[int, options.option("Side of the images that it is for, in pixels.")] = 128,
    count: Annotated[int | None, options.option("Phantoms to learn from; by default what takes minutes.")] = None,
    epochs: Annotated[int | None, options.option("Passes over them.")] = None,
    hospitals: Annotated[
        str | None, options.option("Where phantoms are taken, separated by commas: north, south, varied.")
    ] = None,
    targets: Annotated[str, options.option("What to learn beside labels, separated by commas: severity, place.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the phantoms and of everything drawn at random.")] = 0,
    output: Annotated[Path | None, options.output("Also copy the model folder to here.", "DIR")] = None,
) -> None:
    """Learn chests from generated X-rays, as weights for `fit.weights = "phantom"` or `"imagenet+phantom"`.

    They are kept for all runs of this user, in ~/.cache/bomd or in the folder that BOMD_CACHE names, and used where a
    recipe or `bomd audit --weights` asks for them. Without options they are just those that a run with images of this
    size would make on its first use. With options they are others: name the printed folder as `fit.weights`.

    For example: bomd pretrain small --size 64
    """
    from bomd.config import DeviceSettings
    from bomd.networks.backbone import BACKBONES
    from bomd.networks.device import make_fabric
    from bomd.pretrain.make import copy_to, make
    from bomd.pretrain.plan import usual
    from bomd.pretrain.provide import parts

    if weights is None:
        known = backbone in BACKBONES and BACKBONES[backbone].load is not None
        weights = "imagenet+phantom" if known else "phantom"
    base, steps = parts(weights)
    if steps != ("phantom",):
        raise InputError(f'--weights {weights!r}: "self" needs images and is made by the run that asks for it.')
    changes: dict[str, Any] = {"count": count, "epochs": epochs, "seed": seed or None}
    changes["hospitals"] = None if hospitals is None else _listed(hospitals)
    changes["targets"] = _listed(targets) or None
    given = {name: value for name, value in changes.items() if value is not None}
    fabric = make_fabric(DeviceSettings())
    start = make(usual(backbone, base, size, fabric.device.type, **given), fabric)
    folder = start.folder if output is None else copy_to(start, output)
    print(start.note())
    print(f"It took {start.facts['seconds']:g} seconds to make.")
    print(f"Weights: {folder}")


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
