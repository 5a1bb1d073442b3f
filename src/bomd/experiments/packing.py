"""The images of an experiment: in grey or in colour, decoded once and packed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps

import numpy as np
import torch

from bomd.config import Config
from bomd.data.colour import Keeping, keeping
from bomd.data.datasets import Dataset
from bomd.data.images import Pixels
from bomd.data.store import Store, pack
from bomd.networks.backbone import for_colour
from bomd.runs import Stages
from bomd.tables import LabelTable, Text


@dataclass(frozen=True)
class Source:
    """Labels with the packed images that they belong to."""

    labels: LabelTable
    store: Store


def how_to_keep(config: Config, tables: Mapping[str, tuple[LabelTable, Dataset]]) -> Keeping:
    """One answer for all sets, by the one called "train"; only folders can be in colour, unless the recipe says so.

    A backbone that sees grey images only is refused, and a test set of another kind than the training set.
    """
    looked_at = {
        name: table if dataset.any_images else replace(table, paths=None) for name, (table, dataset) in tables.items()
    }
    found = keeping(config.images.mode, looked_at.pop("train"), looked_at)
    if found.colour:
        for_colour(config.fit.backbone)  # says if it cannot
    return found


def pack_images(
    table: LabelTable,
    dataset: Dataset,
    config: Config,
    stages: Stages,
    device: torch.device,
    kept_as: Keeping | None = None,
    way: Callable[..., Store] | None = None,
) -> Source:
    """Decode every image once; the store is shared by all runs that use the same images at the same size.

    Args:
        kept_as: In grey or colour; by default what suits this table.
        way: Packs a share of the images, or joins such shares; by default all are packed.
    """
    draw = dataset.render
    colour = (kept_as or how_to_keep(config, {"train": (table, dataset)})).colour
    kind = (config.images.size, *["colour"] * colour)
    if draw is not None:

        @wraps(draw)
        def render(ids: Text, size: int) -> Pixels:
            return np.asarray(draw(ids, size, device=device).cpu().numpy())

    store = (way or pack)(
        table,
        stages.directory("images", table.ids, table.paths, *kind),
        config.images.size,
        render=None if draw is None else render,
        skip_broken=config.images.skip_broken,
        colour=colour,
    )
    return Source(table if len(store) == len(table) else table.select(store.ids), store)


def skipped_images(sources: Mapping[str, Source]) -> list[str]:
    """One note for each set that lost unreadable images."""
    return [
        f"{name}: {len(broken)} unreadable image{' was' if len(broken) == 1 else 's were'} left out, "
        f"such as {broken[0]['id']}."
        for name, source in sources.items()
        if (broken := source.store.broken)
    ]
