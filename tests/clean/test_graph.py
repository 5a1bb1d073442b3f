from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bomd.clean import bags, graph
from bomd.clean.graph import nearest_images
from bomd.errors import InputError


def loop(values, k, groups=None, rows=None):
    """Every pair of descriptors of every pair of images, in float64; equal distances by lower row."""
    values = np.float64(values)
    indices, distances = [], []
    for i in range(len(values)) if rows is None else rows:
        others = []
        for j in range(len(values)):
            if j == i or (groups is not None and groups[i] == groups[j]):
                continue
            closest = min(np.sqrt(np.square(a - b).sum()) for a in values[i] for b in values[j])
            others.append((np.float32(closest), j))
        others = sorted(others)[:k]
        others += [(np.float32(np.inf), -1)] * (k - len(others))
        distances.append([distance for distance, _ in others])
        indices.append([j for _, j in others])
    return np.asarray(indices), np.asarray(distances)


def assert_equals_loop(found, values, k, **options):
    indices, distances = loop(values, k, **options)
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_allclose(found.distances, distances, rtol=2e-7)


def cloud(seed, N=60, M=3, D=5, copies=0):
    """Random descriptors far from the origin, the last images being copies of earlier ones."""
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(N, M, D)).astype(np.float32) + 100
    if copies:
        values[-copies:] = values[generator.integers(0, N - copies, copies)]
    return values


FOUR = np.array([[0, 10], [0.1, 20], [10.2, 30], [0.3, 10.05]], dtype=np.float32)[:, :, None]


def test_worked_example():
    """A{0, 10}, B{.1, 20}, C{10.2, 30}, D{.3, 10.05}: from A come D (.05), B (.1) and C (.2)."""
    found = nearest_images(FOUR, 3, device="cpu")
    assert found.indices[0].tolist() == [3, 1, 2]
    np.testing.assert_allclose(found.distances[0], [0.05, 0.1, 0.2], atol=1e-6)
    assert found.indices.dtype == np.int64
    assert found.distances.dtype == np.float32


def test_six_points_that_can_be_drawn():
    """Three near the origin and three near (10, 0), one descriptor each.

    (0, 0) is 1 from (1, 0) and 2 from (0, 2); (10, 0) is 1 from both (11, 0) and (10, 1): lower row first.
    """
    points = np.array([[0, 0], [1, 0], [0, 2], [10, 0], [11, 0], [10, 1]], dtype=np.float32)[:, None]
    found = nearest_images(points, 2, device="cpu")
    assert found.indices.tolist() == [[1, 2], [0, 2], [0, 1], [4, 5], [3, 5], [3, 4]]
    np.testing.assert_allclose(found.distances, [[1, 2], [1, 5**0.5], [2, 5**0.5], [1, 1], [1, 2**0.5], [1, 2**0.5]])


@pytest.mark.parametrize("copies", [0, 25])
@pytest.mark.parametrize(("M", "k"), [(1, 1), (3, 10), (4, 59)])
def test_equals_the_loop(copies, M, k):
    values = cloud(M, M=M, copies=copies)
    assert_equals_loop(nearest_images(values, k, device="cpu"), values, k)


def test_groups_are_kept_apart():
    """One patient has 50 of 60 images, so that their lists cannot be filled."""
    values = cloud(7)
    groups = np.array(["big"] * 50 + [f"patient {i // 2}" for i in range(10)])
    found = nearest_images(values, 12, groups=groups, device="cpu")
    assert_equals_loop(found, values, 12, groups=groups)
    assert (found.indices[:50, 10:] == -1).all()
    assert np.isinf(found.distances[:50, 10:]).all()


def test_many_copies_and_a_collapsed_network():
    """Copies tie at distance zero, and the lower row must win, however many there are."""
    values = np.repeat(cloud(8, N=2, M=2), 150, axis=0)
    found = nearest_images(values, 2, device="cpu")
    assert found.indices[0].tolist() == [1, 2]
    assert found.indices[149].tolist() == [0, 1]
    assert found.indices[150].tolist() == [151, 152]
    assert found.indices[299].tolist() == [150, 151]
    assert (found.distances == 0).all()


def test_tight_clusters_below_the_resolution_of_the_fast_search():
    """Two clusters 2,000 apart whose members are 1e-3 apart: float32 products cannot tell members apart."""
    generator = np.random.default_rng(9)
    values = generator.normal(scale=1e-3, size=(240, 1, 8)).astype(np.float32)
    values[::2, :, 0] += 1000
    values[1::2, :, 0] -= 1000
    assert_equals_loop(nearest_images(values, 2, device="cpu"), values, 2)


@pytest.mark.parametrize("memory", [None, 1e-5])
def test_rows_memory_maps_and_small_blocks_change_nothing(memory, tmp_path, monkeypatch):
    monkeypatch.setattr(bags, "READ", 7 * 15)
    values = cloud(11)
    np.save(tmp_path / "values.npy", values)
    stored = np.load(tmp_path / "values.npy", mmap_mode="r")
    rows = np.array([5, 3, 59], dtype=np.int32)
    found = nearest_images(stored, 4, rows=rows, device="cpu", memory=memory)
    assert_equals_loop(found, values, 4, rows=rows)
    whole = nearest_images(torch.from_numpy(values), 4, memory=memory)
    np.testing.assert_array_equal(whole.indices[rows], found.indices)
    np.testing.assert_array_equal(whole.distances[rows], found.distances)
    nobody = nearest_images(stored, 4, rows=rows[:0], device="cpu")
    assert nobody.indices.shape == nobody.distances.shape == (0, 4)


@pytest.mark.parametrize("reading", ["images", "nodes", "ranksum"])
def test_parts_change_nothing_and_go_on_behind_what_is_done(reading, monkeypatch):
    values, rows, kept = cloud(13), np.array([9, 1, 59, 20, 3, 30, 31]), []
    whole = nearest_images(values, 4, rows=rows, reading=reading, device="cpu")
    monkeypatch.setitem(graph.PART, "cpu", 2 * 60 * 3 * 3 * 5)  # two rows
    monkeypatch.setattr(graph, "FEWEST", 1)
    parts = nearest_images(values, 4, rows=rows, reading=reading, device="cpu", keep=kept.append)
    rest = nearest_images(values, 4, rows=rows, reading=reading, device="cpu", done=4)
    assert [len(part.indices) for part in kept] == [2, 2, 2, 1]
    for name in ("indices", "distances"):
        expected = getattr(whole, name)
        np.testing.assert_array_equal(getattr(parts, name), expected)
        np.testing.assert_array_equal(np.concatenate([getattr(part, name) for part in kept]), expected)
        np.testing.assert_array_equal(getattr(rest, name), expected[4:])
    assert len(nearest_images(values, 4, rows=rows, device="cpu", done=7).indices) == 0


def test_permuted_images_have_permuted_neighbours():
    values = cloud(12)
    order = np.random.default_rng(1).permutation(len(values))
    plain = nearest_images(values, 6, device="cpu")
    shuffled = nearest_images(values[order], 6, device="cpu")
    np.testing.assert_array_equal(order[shuffled.indices], plain.indices[order])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_small_integer_cases(data):
    """Integer coordinates make every distance exact and equal distances frequent."""
    N, M, D = (data.draw(st.integers(low, high)) for low, high in ((2, 9), (1, 3), (1, 3)))
    values = data.draw(arrays.arrays(np.float32, (N, M, D), elements=st.integers(-3, 3).map(float)))
    k = data.draw(st.integers(1, N - 1))
    groups = data.draw(st.none() | arrays.arrays(np.int64, N, elements=st.integers(0, 3)))
    found = nearest_images(values, k, groups=groups, device="cpu")
    assert_equals_loop(found, values, k, groups=groups)


def sorted_nodes(values, i):
    """Descriptors of other images as (distance to the closest of image i, image), nearest first."""
    M = values.shape[1]
    nodes = np.float64(values).reshape(-1, values.shape[2])
    closest = np.linalg.norm(nodes[:, None] - np.float64(values[i]), axis=2).min(axis=1)
    return [node // M for node in np.argsort(closest, kind="stable") if node // M != i]


def test_nodes_reading():
    """From A{0, 1} both descriptors of B{.1, .9} come first, then C's 5: two images for three nodes."""
    found = nearest_images(FOUR, 3, reading="nodes", device="cpu")
    assert found.indices[0].tolist() == [3, 1, 2]
    four = np.array([[0, 1], [0.1, 0.9], [5, 6], [7, 8.5]], dtype=np.float32)[:, :, None]
    found = nearest_images(four, 3, reading="nodes", device="cpu")
    assert found.indices[0].tolist() == [1, 2, -1]
    np.testing.assert_allclose(found.distances[0], [0.1, 4, np.inf], atol=1e-6)
    values = cloud(13)
    found = nearest_images(values, 8, reading="nodes", device="cpu")
    for i in range(len(values)):
        expected = list(dict.fromkeys(sorted_nodes(values, i)[:8]))
        assert found.indices[i].tolist() == expected + [-1] * (8 - len(expected))


def test_ranksum_reading(monkeypatch):
    monkeypatch.setattr(graph, "RANKSUM_NODES", 20)
    values = cloud(14)
    groups = np.arange(60) // 2
    for options in ({}, {"groups": groups}):
        found = nearest_images(values, 5, reading="ranksum", device="cpu", **options)
        for i in range(len(values)):
            total: dict[int, int] = {}
            for m in range(3):
                single = values.copy()
                single[i] = values[i, m]  # only descriptor m of image i asks
                nodes = [j for j in sorted_nodes(single, i) if not options or groups[i] != groups[j]]
                for rank, image in enumerate(dict.fromkeys(nodes[:20]), 1):
                    total[image] = total.get(image, 0) + rank
            expected = sorted(total, key=lambda image: (total[image], image))[:5]
            assert found.indices[i].tolist() == expected
            nearest = [loop(values[[i, j]], 1)[1][0, 0] for j in expected]
            np.testing.assert_allclose(found.distances[i], nearest, rtol=2e-7)


def test_ranksum_may_find_fewer():
    found = nearest_images(FOUR, 3, reading="ranksum", groups=np.array([0, 0, 1, 1]), device="cpu")
    assert (np.sort(found.indices) == [[-1, 2, 3], [-1, 2, 3], [-1, 0, 1], [-1, 0, 1]]).all()


def test_search_is_exact_whatever_precision_training_chose():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        values = cloud(15, D=64)
        assert_equals_loop(nearest_images(values, 5, device="cpu"), values, 5)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_progress_counts_every_row(monkeypatch):
    steps: list[int] = []
    monkeypatch.setattr(graph, "LISTED", 16)
    monkeypatch.setattr(graph, "bar", lambda what, total: nullcontext(steps.append))
    for reading in ("images", "nodes", "ranksum"):
        steps.clear()
        nearest_images(cloud(16, copies=30), 3, reading=reading, device="cpu")
        assert sum(steps) == 60


def test_bad_input_is_refused():
    values = cloud(17)
    with pytest.raises(InputError, match="k is 60, but must lie between 1 and 59"):
        nearest_images(values, 60)
    with pytest.raises(InputError, match="between 1"):
        nearest_images(values, 0)
    with pytest.raises(InputError, match="expected \\(N, M, D\\)"):
        nearest_images(values[0, 0], 3)
    with pytest.raises(InputError, match="0 to 59"):
        nearest_images(values, 3, rows=np.array([60]))
    with pytest.raises(InputError, match="0 to 59"):
        nearest_images(values, 3, rows=np.array([True] * 60))
    with pytest.raises(InputError, match="Groups"):
        nearest_images(values, 3, groups=np.zeros(59))
    with pytest.raises(InputError, match="bfloat16"):
        nearest_images(values.view("V4"), 3)
    with pytest.raises(InputError, match="reading"):
        nearest_images(values, 3, reading="edges")
    with pytest.raises(InputError, match="cpu or cuda"):
        nearest_images(values, 3, device="meta")
    with pytest.raises(InputError, match="above 0"):
        nearest_images(values, 3, memory=0)
    huge = values * np.float32(3e36)
    huge[0] *= -1
    with pytest.raises(InputError, match="too large"):
        nearest_images(huge, 3, device="cpu")
    values[4, 1, 2] = np.nan
    with pytest.raises(InputError, match="not finite"):
        nearest_images(values, 3, device="cpu")
