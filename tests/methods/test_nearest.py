"""The nearest images of a method: searched for once, whoever interrupts it, and kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bomd.clean import features, graph
from bomd.clean.graph import Reading, nearest_images
from bomd.clean.neighbours import Neighbours
from bomd.filling import Filling
from bomd.methods import nearest
from bomd.methods.nearest import find_nearest
from bomd.runs import Stages

BAGS = np.random.default_rng(0).normal(size=(40, 3, 5)).astype(np.float32)
ROWS = np.array([7, 0, 39, 12, 13, 2, 30], dtype=np.int64)
TWO = 2 * 40 * 3 * 3 * 5.0  # products that two rows need


class StoppedError(Exception):
    pass


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each search was for, without those that were done."""
    found: list[int] = []

    def watched(*rest: Any, rows: Any, done: int, **named: Any) -> Neighbours:
        found.append(len(rows) - done)
        return nearest_images(*rest, rows=rows, done=done, **named)

    monkeypatch.setattr(nearest, "nearest_images", watched)
    return found


def same(found: Neighbours, expected: Neighbours) -> None:
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.distances, expected.distances)
    assert (found.indices.dtype, found.distances.dtype) == (np.int64, np.float32)


@pytest.mark.parametrize("reading", ["images", "nodes", "ranksum"])
@pytest.mark.parametrize("groups", [None, np.array(["big"] * 36 + ["a", "a", "b", "c"])])
def test_it_is_the_search(tmp_path: Path, reading: Reading, groups: Any) -> None:
    """Also where a patient leaves fewer than there should be."""
    found = find_nearest(BAGS, 6, ROWS, Stages(tmp_path), [BAGS], groups=groups, reading=reading, device="cpu")
    same(found, nearest_images(BAGS, 6, rows=ROWS, groups=groups, reading=reading, device="cpu"))
    if reading == "images":
        assert bool((found.indices < 0).any()) == bool(np.isinf(found.distances).any()) == (groups is not None)


def test_angles_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of (1, 0), (10, 1), (0, 3), (-5, 0) and nothing: lengths do not count, and nothing is 1 from all."""
    monkeypatch.setattr(features, "BLOCK", 4)
    values = np.array([[1, 0], [10, 1], [0, 3], [-5, 0], [0, 0]], dtype=np.float32)
    found = find_nearest(values, 4, np.arange(5), Stages(tmp_path), [values], by_angle=True, device="cpu")
    assert found.indices.tolist() == [[1, 4, 2, 3], [0, 4, 2, 3], [4, 1, 0, 3], [4, 2, 1, 0], [0, 1, 2, 3]]
    near = np.sqrt(2 - 2 * 10 / 101**0.5)
    np.testing.assert_allclose(found.distances[0], [near, 1, 2**0.5, 2], rtol=1e-5)
    assert sorted(file.name for file in tmp_path.glob("*/[!.]*")) == [
        "finished.json",
        "nearest.npy",
        "nearest.npy.rows",
    ]


def test_what_was_found_is_not_searched_for_again(tmp_path: Path, asked: list[int]) -> None:
    stages = Stages(tmp_path)
    first = find_nearest(BAGS, 4, ROWS, stages, [BAGS], device="cpu")
    same(find_nearest(BAGS.copy(), 4, ROWS, stages, [BAGS.copy()], device="cpu"), first)
    assert asked == [7]
    moved = BAGS + np.float32(1e-3) * (np.arange(40) == 5)[:, None, None]
    for vectors, k, rows, reading in (
        (moved, 4, ROWS, "images"),
        (BAGS, 5, ROWS, "images"),
        (BAGS, 4, ROWS[:6], "images"),
        (BAGS, 4, ROWS, "nodes"),
    ):
        find_nearest(vectors, k, rows, stages, [vectors], reading=reading, device="cpu")  # type: ignore[arg-type]
    find_nearest(BAGS, 4, ROWS, stages, [BAGS], groups=np.arange(40) // 2, device="cpu")
    assert asked == [7, 7, 7, 6, 7, 7]


@pytest.mark.parametrize("by_angle", [False, True])
@pytest.mark.parametrize("stop", [1, 3])
def test_an_interrupted_search_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[int], by_angle: bool, stop: int
) -> None:
    vectors = BAGS[:, 0] if by_angle else BAGS
    options: dict[str, Any] = {"by_angle": by_angle, "device": "cpu"}
    whole = find_nearest(vectors, 4, ROWS, Stages(tmp_path / "whole"), [vectors], **options)
    monkeypatch.setattr(graph, "FEWEST", 1)
    monkeypatch.setitem(graph.PART, "cpu", TWO if not by_angle else 2 * 40 * 5.0)
    taken, stages = [0], Stages(tmp_path / "parts")

    def stopping(file: Filling, rows: np.ndarray) -> None:
        taken[0] += 1
        if taken[0] > stop:
            raise StoppedError
        add(file, rows)

    add = Filling.add
    monkeypatch.setattr(Filling, "add", stopping)
    with pytest.raises(StoppedError):
        find_nearest(vectors, 4, ROWS, stages, [vectors], **options)
    monkeypatch.setattr(Filling, "add", add)
    assert not list(tmp_path.glob("parts/*/angles*"))
    same(find_nearest(vectors, 4, ROWS, stages, [vectors], **options), whole)
    assert asked == [7, 7, 7 - 2 * stop]


def test_nobody_to_search_for(tmp_path: Path) -> None:
    found = find_nearest(BAGS, 4, ROWS[:0], Stages(tmp_path), [BAGS], device="cpu")
    assert found.indices.shape == found.distances.shape == (0, 4)
