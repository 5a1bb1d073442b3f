"""The nine cells of the noise grid side by side: three groups by share of images, in each the chance of a flip."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bomd.measure.significance import Sample
from evidence.reproduce.figures.gather import LEVELS, NOISES, Noise
from evidence.reproduce.figures.style import SMALLEST, Look, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLACES = {noise: place + place // len(LEVELS) for place, noise in enumerate(NOISES)}  # a gap after each group


def grid_series(axes: Axes, samples: Mapping[Noise, Sample | None], look: Look, shift: float = 0.0) -> None:
    """A line through each group, broken between groups.

    Args:
        samples: By cell; one that is missing or None is left out.
        shift: Of all points to the right, so that bars of several series do not hide one another.
    """
    by_place = {PLACES[noise]: sample for noise, sample in samples.items()}
    places = range(len(NOISES) + len(LEVELS) - 1)
    series(axes, [place + shift for place in places], [by_place.get(place) for place in places], look)


def grid_axis(axes: Axes, labelled: bool = True) -> None:
    """Ticks for the chance of a flip, and below them the share of images of each group.

    Args:
        labelled: False for panels above another that has the labels.
    """
    axes.set_xticks(list(PLACES.values()), [f"{labels:g}" if labelled else "" for _, labels in NOISES])
    axes.set_xlim(-0.6, max(PLACES.values()) + 0.6)
    axes.grid(visible=False, axis="x")
    if not labelled:
        return
    axes.set_xlabel("labels: chance that a label flips", labelpad=13)
    for rows in LEVELS:
        middle = math.fsum(PLACES[rows, labels] for labels in LEVELS) / len(LEVELS)
        axes.annotate(
            f"rows = {rows:g}",
            (middle, 0),
            (0, -11),
            ("data", "axes fraction"),
            "offset points",
            ha="center",
            va="top",
            fontsize=SMALLEST,
        )
