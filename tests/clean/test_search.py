"""The search in every type that it may begin with, against all distances in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bomd.clean import search as searching
from bomd.clean.bags import open_bags
from bomd.clean.graph import nearest_images
from bomd.clean.rounded import as_queries, round_bags, rounded_width, squares, unit
from bomd.clean.search import Search

TYPES = [torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture(params=["bfloat16", "float32"])
def begins(request, monkeypatch):
    """A GPU's search begins in bfloat16, whose products a CPU can compute as well, only slowly."""
    monkeypatch.setattr(searching, "multiplies_bfloat16", lambda device: request.param == "bfloat16")
    return request.param


@pytest.fixture
def settled(monkeypatch):
    """Of every attempt, which of its rows were certain."""
    seen = []
    settle = Search._settle

    def remember(self, exact, near):
        found, certain = settle(self, exact, near)
        seen.append(certain)
        return found, certain

    monkeypatch.setattr(Search, "_settle", remember)
    return seen


def ignore(steps=1, note=""):
    pass


def make(values, k, groups=None, memory=1e9, device="cpu"):
    bags = open_bags(values, torch.device(device), memory)
    codes = np.arange(len(values)) if groups is None else np.unique(groups, return_inverse=True)[1]
    return Search(bags, bags, codes, codes, k, memory)


def truth(values, k, rows=None, groups=None):
    """Every pair of descriptors by difference in float64; equal float32 distances by lower row."""
    values, count = np.float64(values), len(values)
    rows = np.arange(count) if rows is None else rows
    groups = np.arange(count) if groups is None else np.asarray(groups)
    indices, distances = np.full((len(rows), k), -1), np.full((len(rows), k), np.inf, dtype=np.float32)
    for place, row in enumerate(rows):
        apart = [np.linalg.norm(values[:, m] - own, axis=1) for own in values[row] for m in range(values.shape[1])]
        closest = np.min(apart, axis=0).astype(np.float32)
        others = np.flatnonzero(groups != groups[row])
        first = others[np.lexsort((others, closest[others]))][:k]
        indices[place, : len(first)], distances[place, : len(first)] = first, closest[first]
    return indices, distances


def assert_exact(values, k, groups=None, rows=None, memory=1e9):
    rows = np.arange(len(values)) if rows is None else rows
    found = make(values, k, groups, memory)(rows, ignore)
    indices, distances = truth(values, k, rows, groups)
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_allclose(found.distances, distances, rtol=2e-7)


def cloud(seed, N=300, M=3, D=24, offset=0.0):
    return np.random.default_rng(seed).normal(size=(N, M, D)).astype(np.float32) + np.float32(offset)


def clusters(seed, N=300, M=3, D=24, spread=0.01):
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(8, D))[generator.integers(0, 8, N)][:, None]
    return (centres + spread * generator.normal(size=(N, M, D))).astype(np.float32)


def crowded(seed, N=400, D=16):
    """Points on a thick sphere around the first: nearly equally far from it, so that rounding shuffles them."""
    generator = np.random.default_rng(seed)
    points = generator.normal(size=(N, 1, D))
    points *= (1 + 0.02 * generator.random((N, 1, 1))) / np.linalg.norm(points, axis=2, keepdims=True)
    points[0] = 0
    return points.astype(np.float32)


@pytest.mark.usefixtures("begins")
@pytest.mark.parametrize("k", [1, 10, 299])
@pytest.mark.parametrize("values", [cloud(1), cloud(1, offset=1e5), clusters(1), clusters(1, spread=1e-6)])
def test_equals_all_distances(values, k):
    assert_exact(values, k)
    assert_exact(values, k, rows=np.array([7, 7, 299, 0]))


@pytest.mark.usefixtures("begins")
@pytest.mark.parametrize("memory", [1, 1e4, 3e4, 1e5, 1e6])
def test_no_memory_changes_the_result(memory):
    """From one row, one bag and one pair at a time to everything at once."""
    values = cloud(2, N=30, D=8)
    values[15:25] = values[3]
    groups = np.arange(30) // 2
    assert_exact(values, 4, groups, memory=memory)
    assert_exact(values, 4, groups, rows=np.array([20, 3, 3, 29]), memory=memory)


@pytest.mark.usefixtures("begins")
def test_groups_and_copies(settled):
    values = cloud(3)
    values[100:200] = values[:100]
    values[200:220] = values[0]
    assert_exact(values, 12)
    assert_exact(values, 12, groups=np.random.default_rng(3).integers(0, 40, 300))
    settled.clear()
    assert_exact(values, 12, groups=np.where(np.arange(300) < 295, 0, np.arange(300)))  # 5 images left for 295
    assert settled[0][:295].all()


@pytest.mark.usefixtures("begins")
@pytest.mark.parametrize("factor", [1e-38, 1e-25, 1e18, 1e36])
def test_size_of_numbers_does_not_matter(factor, settled):
    """Squares of these over- or underflow in float32; powers of two would change nothing at all."""
    values = cloud(4)
    scaled = values * np.float32(2.0 ** math.frexp(factor)[1])
    plain, found = (nearest_images(each, 5, device="cpu") for each in (values, scaled))
    np.testing.assert_array_equal(plain.indices, found.indices)
    settled.clear()
    assert_exact(scaled, 5)
    assert settled[0].all()


@pytest.mark.usefixtures("begins")
def test_usual_descriptors_are_settled_at_once(settled):
    assert_exact(cloud(5, N=600, D=64), 10)
    assert settled[0].all()
    values = cloud(5, N=2000, M=1, D=32)
    values[17] *= 1000  # one far image costs nobody his certainty
    settled.clear()
    assert_exact(values, 5, rows=np.arange(100, 200))
    assert settled[0].all()


def test_what_a_type_cannot_tell_apart_is_left_to_longer_ones(settled, monkeypatch):
    """Two clusters 2,000 apart whose members are 1e-3 apart: in bfloat16 and float32 all members are one point."""
    monkeypatch.setattr(searching, "multiplies_bfloat16", lambda device: True)
    values = np.random.default_rng(6).normal(scale=1e-3, size=(3000, 1, 8)).astype(np.float32)
    values[::2, :, 0] += 1000
    values[1::2, :, 0] -= 1000
    assert_exact(values, 2, rows=np.arange(40))
    assert [int(certain.sum()) for certain in settled] == [0, 0, 40]


@pytest.mark.usefixtures("begins")
def test_copies_are_measured_once(settled, monkeypatch):
    """2,000 images of which all but one are the same, as of a network that has collapsed."""
    measured = []
    closest = searching.closest
    monkeypatch.setattr(searching, "closest", lambda *bags: (measured.append(len(bags[0])), closest(*bags))[1])
    values = np.ones((2000, 2, 4), dtype=np.float32)
    values[1000] = 3
    assert_exact(values, 3, rows=np.array([0, 1, 1000, 1999]))
    assert settled[-1].all()
    assert not settled[-2].any()
    assert sum(measured) < 100


@pytest.mark.usefixtures("begins")
def test_certain_rows_are_right_and_missed_neighbours_uncertain(settled, monkeypatch, begins):
    """With hardly more candidates than neighbours, rounding drops true neighbours: never without being noticed."""
    monkeypatch.setattr(searching, "PER_NEIGHBOUR", 1)
    monkeypatch.setattr(searching, "SPARE", 2)
    left = certain = 0
    for seed in range(2):
        for values in (crowded(seed), cloud(seed, N=400, M=2, D=6), cloud(seed, N=300, M=1, D=300)):
            settled.clear()
            assert_exact(values, 3)
            left, certain = left + int((~settled[0]).sum()), certain + int(settled[0].sum())
    assert certain > 200
    assert left > 50 or begins == "float32"  # the data are hard enough to tell


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "values", [cloud(8, 150, 1, offset=50), crowded(8, 150), cloud(8, 150, 1) ** 5, cloud(8, 150, 1, 300)]
)
def test_what_is_shown_stays_within_the_bound(dtype, values):
    """Every pair, not only the nearest."""
    bags = open_bags(values, torch.device("cpu"), 1e9)
    tile = round_bags(bags, bags.block(slice(None)), dtype)
    shown = squares(as_queries(tile.vectors, bags.width), tile.vectors).double().numpy()
    points = np.float64(values[:, 0]) * bags.scale
    true = np.linalg.norm(points[:, None] - points, axis=2)
    reach = tile.lengths.numpy()[:, None] + tile.lengths.numpy()
    error = (rounded_width(bags.width) + 16) * unit(dtype) * reach**2
    assert (shown <= (true + float(tile.share) * reach) ** 2 + error).all()
    assert (shown >= np.maximum(true - float(tile.share) * reach, 0) ** 2 - error).all()
    assert float(tile.share) < {torch.bfloat16: 2**-7, torch.float32: 2**-21, torch.float64: 2**-50}[dtype]
    assert tile.lengths.max() == pytest.approx(bags.radius, rel=1e-6)
    assert 0.5 <= bags.radius <= 1


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_small_integer_cases(data):
    """Integer coordinates make every distance exact and equal distances frequent, at every size of tiles."""
    N, M, D = (data.draw(st.integers(low, high)) for low, high in ((2, 30), (1, 3), (1, 3)))
    values = data.draw(arrays.arrays(np.float32, (N, M, D), elements=st.integers(-300, 300).map(float)))
    k = data.draw(st.integers(1, N - 1))
    groups = data.draw(st.none() | arrays.arrays(np.int64, N, elements=st.integers(0, 3)))
    rows = data.draw(st.none() | st.lists(st.integers(0, N - 1), max_size=4).map(lambda rows: np.array(rows, int)))
    memory = data.draw(st.floats(4e3, 1e6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "multiplies_bfloat16", lambda device: data.draw(st.booleans()))
        assert_exact(values, k, groups, rows, memory)


@pytest.mark.usefixtures("begins")
def test_advance_counts_every_row_once():
    steps: list[int] = []
    values = np.concatenate([cloud(12, M=1), np.zeros((700, 1, 24), dtype=np.float32)])
    make(values, 3)(np.arange(len(values)), steps.append)
    assert len(steps) > 1
    assert sum(steps) == len(values)


def test_only_the_rows_asked_for_are_multiplied(monkeypatch):
    counted = []
    monkeypatch.setattr(
        searching, "squares", lambda *given: (counted.append(given[0].shape[1] * given[1].shape[1]), squares(*given))[1]
    )
    make(cloud(10), 5)(np.array([1, 2, 50, 299]), ignore)
    assert sum(counted) == 4 * 300


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("memory", [2e7, 4e9])
def test_a_gpu_finds_the_same(memory, settled):
    values = cloud(14, N=3000, D=128)
    groups = np.arange(3000) // 2
    found = make(values, 10, groups, memory, "cuda")(np.arange(3000), ignore)
    assert all(certain.all() for certain in settled)
    expected = make(values, 10, groups)(np.arange(3000), ignore)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.distances, expected.distances, rtol=2e-7)
