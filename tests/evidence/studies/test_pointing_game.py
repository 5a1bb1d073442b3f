"""The pointing game on maps that one could draw, and its intervals against the equation that they solve."""

from __future__ import annotations

import numpy as np
import pytest

from bomd.errors import InputError
from evidence.studies.pointing_game import Point, point, summarise, wilson


def one(side: int, row: int, column: int) -> np.ndarray:
    found = np.zeros((side, side), dtype=np.float32)
    found[row, column] = 1
    return found


def test_a_hit_a_miss_and_the_share_of_the_image() -> None:
    """A 2 x 2 region of a 10 x 10 image: 4 % of it, and 12 % with the eight pixels that touch it by a side."""
    region = np.zeros((10, 10), dtype=np.bool_)
    region[4:6, 4:6] = True
    assert point("Mass", one(10, 5, 4), region, margin=0) == Point("Mass", True, 0.04)
    assert not point("Mass", one(10, 6, 4), region, margin=0).hit
    assert point("Mass", one(10, 6, 4), region, margin=0.1) == Point("Mass", True, 0.12)
    assert not point("Mass", one(10, 6, 6), region, margin=0.1).hit, "the corner is further away than a pixel"


def test_a_map_without_heat_points_nowhere() -> None:
    region = np.ones((4, 4), dtype=np.bool_)
    assert not point("Mass", np.zeros((4, 4), dtype=np.float32), region).hit


def test_near_is_what_a_slow_search_finds() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        heat, region = rng.random((9, 12), dtype=np.float32), rng.random((9, 12)) < 0.05
        region[rng.integers(9), rng.integers(12)] = True
        row, column = np.unravel_index(np.argmax(heat), heat.shape)
        places = np.argwhere(region)
        distance = np.hypot(places[:, 0] - row, places[:, 1] - column).min()
        assert point("x", heat, region, margin=0.1).hit == (distance <= 0.1 * 12)


def test_findings_and_all_of_them() -> None:
    rows = summarise([Point("Mass", True, 0.1), Point("Nodule", False, 0.3), Point("Mass", False, 0.2)])
    assert [(row.finding, row.images, row.hits) for row in rows] == [
        ("Mass", 2, 0.5),
        ("Nodule", 1, 0.0),
        ("all", 3, 1 / 3),
    ]
    assert rows[0].chance == pytest.approx(0.15)
    assert rows[1].low == 0
    assert summarise([]) == []


def test_intervals_are_wilsons() -> None:
    """4 of 10: both ends p solve |0.4 - p| = 1.959964 sqrt(p (1 - p) / 10)."""
    for end in wilson(4, 10):
        assert abs(0.4 - end) == pytest.approx(1.959964 * np.sqrt(end * (1 - end) / 10))
    assert wilson(0, 5)[0] == 0
    assert wilson(5, 5)[1] == 1


def test_what_cannot_be_pointed_at_is_refused() -> None:
    with pytest.raises(InputError, match="lies nowhere"):
        point("Mass", np.ones((4, 4), dtype=np.float32), np.zeros((4, 4), dtype=np.bool_))
    with pytest.raises(InputError, match="of one shape"):
        point("Mass", np.ones((4, 4), dtype=np.float32), np.ones((4, 5), dtype=np.bool_))
