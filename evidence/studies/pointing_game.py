"""Do heat maps point at what they are about? The pointing game, against where findings are known to lie."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError
from bomd.saved import Saved

MARGIN = 0.05  # of the image's side by which the hottest place may miss a finding: a map's cells are coarse
_TWO_SIDED = 1.959964  # standard deviations of a 95 % interval


@dataclass(frozen=True)
class Point:
    """One heat map against one finding.

    Attributes:
        finding: Its name.
        hit: Whether the hottest place lies on the finding, or within the margin of it.
        chance: Share of the image where that would be so: what pointing anywhere gives.
    """

    finding: str
    hit: bool
    chance: float


@dataclass(frozen=True)
class Pointing(Saved):
    """How often heat maps of one finding point at it.

    Attributes:
        images: How many there were.
        hits: Share of them with the hottest place on the finding.
        low: Lower end of its 95 % interval (Wilson's); likewise `high`.
        chance: What pointing anywhere would give, on average.
    """

    finding: str
    images: int
    hits: float
    low: float
    high: float
    chance: float


def point(finding: str, heat: NDArray[np.float32], region: NDArray[np.bool_], margin: float = MARGIN) -> Point:
    """Whether the hottest place of a heat map (H, W) lies in a region (H, W).

    A map without any heat points nowhere, which is a miss.

    Args:
        margin: By which it may miss, as a share of the longer side.
    """
    from scipy.ndimage import distance_transform_edt  # type: ignore[import-untyped]  # half a second to import

    if heat.shape != region.shape or heat.ndim != 2:
        raise InputError(f"Heat {heat.shape} and region {region.shape} must be maps (H, W) of one shape.")
    if not region.any():
        raise InputError(f"{finding} lies nowhere in this image: there is nothing to point at.")
    near = distance_transform_edt(~region) <= margin * max(region.shape)
    hottest = np.unravel_index(int(np.argmax(heat)), heat.shape)
    return Point(finding, bool(heat.max() > 0 and near[hottest]), float(near.mean()))


def summarise(points: Iterable[Point]) -> list[Pointing]:
    """One row for each finding in the order they come, and, where there are several, their mean as "all"."""
    found: dict[str, list[Point]] = {}
    for one in points:
        found.setdefault(one.finding, []).append(one)
    rows = [_summary(name, group) for name, group in found.items()]
    everything = [one for group in found.values() for one in group]
    return [*rows, _summary("all", everything)] if len(rows) > 1 else rows


def _summary(name: str, group: list[Point]) -> Pointing:
    count, hits = len(group), sum(one.hit for one in group)
    low, high = wilson(hits, count)
    return Pointing(name, count, hits / count, low, high, sum(one.chance for one in group) / count)


def wilson(hits: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share that was seen `hits` of `count` times; it never leaves 0 to 1."""
    share, z = hits / count, _TWO_SIDED
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, middle - half), min(1.0, middle + half)
