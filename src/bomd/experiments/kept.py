"""Whether the images of an experiment are kept in grey or in colour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bomd.config import Config, FitSettings
from bomd.data.colour import Keeping, keeping
from bomd.data.datasets import Dataset
from bomd.networks.backbone import for_colour
from bomd.tables import LabelTable


def how_to_keep(config: Config, tables: Mapping[str, tuple[LabelTable, Dataset]]) -> Keeping:
    """One answer for all sets, by the one called "train"; only folders can be in colour, unless the recipe says so.

    Raises:
        InputError: The backbone sees grey images only, or a test set is of another kind than the training set.
    """
    looked_at = {
        name: table if dataset.any_images else replace(table, paths=None) for name, (table, dataset) in tables.items()
    }
    found = keeping(config.images.mode, looked_at.pop("train"), looked_at)
    if found.colour:
        for_colour(config.fit.backbone)  # says if it cannot
    return found


def settings_for(fit: FitSettings, colour: bool) -> FitSettings:
    """The settings with the backbone that suits the images."""
    return replace(fit, backbone=for_colour(fit.backbone)) if colour else fit
