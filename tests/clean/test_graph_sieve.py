"""The fast search with a certificate, in every arithmetic that a CPU can imitate, against the full scan."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bomd.clean import arithmetic, bags, encode, sieve
from bomd.clean import plan as planning
from bomd.clean.arithmetic import HALF, HALF_INSIDE, PLAIN, Arithmetic
from bomd.clean.bags import open_bags
from bomd.clean.encode import Encoder, principal_axes
from bomd.clean.graph import nearest_images
from bomd.clean.scan import Scan
from bomd.clean.sieve import Sieve

ROUNDED = Arithmetic(rounded=True)  # bfloat16 numbers, multiplied in float32: what the fast units compute
WAYS = [ROUNDED, PLAIN]


def ignore(steps=1, note=""):
    pass


def make_scan(values, k, groups=None, memory=1e9):
    opened = open_bags(values, torch.device("cpu"), memory)
    codes = np.arange(len(values)) if groups is None else np.unique(groups, return_inverse=True)[1]
    return Scan(opened, opened, codes, codes, k, memory)


def cloud(seed, N=300, M=3, D=24, offset=0.0):
    return np.random.default_rng(seed).normal(size=(N, M, D)).astype(np.float32) + np.float32(offset)


def crowded(seed, N=400, D=16):
    """Points on a thick sphere around the first: nearly equally far from it, so that rounding shuffles them."""
    generator = np.random.default_rng(seed)
    points = generator.normal(size=(N, 1, D))
    points *= (1 + 0.02 * generator.random((N, 1, 1))) / np.linalg.norm(points, axis=2, keepdims=True)
    points[0] = 0
    return points.astype(np.float32)


def flat(seed, N=400, M=2, D=300, axes=12, noise=1e-4):
    """Descriptors that vary along few axes, and hardly at all along the others."""
    generator = np.random.default_rng(seed)
    inside = generator.normal(size=(N, M, axes)) @ generator.normal(size=(axes, D)) + 5
    return (inside + noise * generator.normal(size=(N, M, D))).astype(np.float32)


def try_once(fast, rows, proposals=None):
    return fast._settle(rows, fast._propose(rows, fast.encoder, fast.plan(rows, None, proposals), ignore))


def assert_same(found, expected):
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.distances, expected.distances)


def assert_equals_scan(values, k, way, groups=None, rows=None):
    """Both searches of the same rows; returns the fast one, to ask what it did."""
    scan = make_scan(values, k, groups)
    rows = np.arange(len(values)) if rows is None else rows
    fast = Sieve(scan, len(rows), way)
    assert_same(fast.search(rows, ignore), scan.search(rows, ignore))
    return fast


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("k", [1, 10, 299])
@pytest.mark.parametrize("offset", [0, 1e5])
def test_equals_the_scan(way, k, offset):
    assert_equals_scan(cloud(1, offset=offset), k, way)
    assert_equals_scan(cloud(1, offset=offset), k, way, rows=np.array([7, 7, 299, 0]))


@pytest.mark.parametrize("way", WAYS)
def test_usual_descriptors_need_no_scan(way):
    assert assert_equals_scan(cloud(2, N=600, D=64), 10, way).uncertified == 0


@pytest.mark.parametrize("way", WAYS)
def test_groups_and_copies(way):
    values = cloud(3)
    values[100:200] = values[:100]
    values[200:220] = values[0]
    groups = np.random.default_rng(3).integers(0, 40, 300)
    assert_equals_scan(values, 12, way)
    assert_equals_scan(values, 12, way, groups=groups)
    crowd = np.where(np.arange(300) < 295, 0, np.arange(300))  # only 5 images are left for 295
    fast = assert_equals_scan(values, 12, way, groups=crowd)
    assert fast.uncertified == 0
    assert try_once(fast, np.arange(295))[1].all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("factor", [1e-38, 1e-25, 1e18, 1e36])
def test_size_of_numbers_does_not_matter(way, factor):
    """Squares of these over- or underflow in float32; powers of two would change nothing at all."""
    values = cloud(4)
    scaled = values * np.float32(2.0 ** math.frexp(factor)[1])
    plain, found = (nearest_images(each, 5, backend="torch", device="cpu") for each in (values, scaled))
    np.testing.assert_array_equal(plain.indices, found.indices)
    assert assert_equals_scan(scaled, 5, way).uncertified == 0


def test_one_far_image_costs_nobody_the_certificate():
    values = cloud(5, N=2000, M=1, D=32)
    values[17] *= 1000
    assert assert_equals_scan(values, 5, ROUNDED, rows=np.arange(100, 200)).uncertified == 0


def test_what_bfloat16_cannot_tell_apart_is_scanned():
    """Two clusters 2,000 apart whose members are 1e-3 apart: rounded, all members are the same point."""
    values = np.random.default_rng(6).normal(scale=1e-3, size=(3000, 1, 8)).astype(np.float32)
    values[::2, :, 0] += 1000
    values[1::2, :, 0] -= 1000
    fast = assert_equals_scan(values, 2, ROUNDED, rows=np.arange(40))
    assert fast.uncertified == 40


def test_all_images_the_same():
    fast = assert_equals_scan(np.ones((2000, 2, 4), dtype=np.float32), 3, ROUNDED, rows=np.array([0, 1, 1999]))
    assert fast.uncertified == 3


def test_more_candidates_are_tried_before_the_scan():
    """600 images within the resolution of bfloat16 are too many for 28 candidates, but not for 16 times as many."""
    values = crowded(7, N=4000, D=8)
    values[600:] *= 2
    scan = make_scan(values, 1)
    fast = Sieve(scan, 1, ROUNDED)
    rows = np.array([0])
    _, certain = try_once(fast, rows)
    assert not certain.any()
    values[300:] *= 2
    fast = assert_equals_scan(values, 1, ROUNDED, rows=rows)
    assert fast.uncertified == 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.slow
def test_certain_rows_are_right_and_missed_neighbours_uncertain(way):
    """With hardly more candidates than neighbours, rounding drops true neighbours: never without being noticed."""
    k, wrong, certain_rows = 3, 0, 0
    for seed in range(6):
        for values in (crowded(seed), cloud(seed, N=400, M=2, D=6), cloud(seed, N=400, M=3, D=300)):
            scan = make_scan(values, k)
            fast, rows = Sieve(scan, len(values), way), np.arange(len(values))
            truth = scan.search(rows, ignore)
            near, certain = try_once(fast, rows, k + 2)
            np.testing.assert_array_equal(near.indices[certain], truth.indices[certain])
            np.testing.assert_array_equal(near.distances[certain], truth.distances[certain])
            wrong += int((near.indices != truth.indices).any(axis=1).sum())
            certain_rows += int(certain.sum())
    assert certain_rows > 500
    assert wrong > 50 or way is PLAIN  # the data are hard enough to tell


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.slow
def test_values_shown_stay_within_the_bound(way, projected):
    """Every pair, not only the nearest: what the fast search shows for a pair never exceeds the limit for it."""
    for values in (
        cloud(8, 150, 1, offset=50),
        crowded(8, 150),
        cloud(8, 150, 1) ** 5,
        cloud(8, 150, 1, 300),
        flat(8, 150, 1),
    ):
        scan = make_scan(values, 1)
        fast = Sieve(scan, len(values), way)
        encoder = Encoder(way, principal_axes(scan.targets)) if projected else fast.encoder
        (tile,) = fast._tiles(encoder, 0, len(values), len(values))
        shown = fast._near(tile.as_queries(), tile).double().numpy()
        points = np.float64(values[:, 0]) * scan.targets.scale
        true = np.linalg.norm(points[:, None] - points, axis=2)
        norms, losses = tile.norms.numpy(), tile.losses.numpy()
        added_up = (tile.vectors.shape[2] + 16) * encode.UNIT * (norms[:, None] + norms) ** 2
        assert (shown <= (true + losses[:, None] + losses) ** 2 + added_up).all()
        if not projected:
            assert (shown >= np.maximum(true - losses[:, None] - losses, 0) ** 2 - added_up).all()
        assert (losses <= float(tile.share) * norms * (1 + 1e-12)).all()
        assert float(tile.share) < (2**-7 if way.rounded else 2**-21)  # bfloat16 rounds by at most 2**-8
        assert norms.max() == pytest.approx(scan.targets.radius)
        assert 0.5 <= scan.targets.radius <= 1


def test_few_axes_are_enough_for_flat_descriptors(monkeypatch):
    """Both the pilot and the search then multiply 128 numbers a vector instead of 312, and certify every row."""
    monkeypatch.setattr(sieve, "PROJECTION_OPERATIONS", 0)
    widths = []
    multiply = Arithmetic.multiply
    monkeypatch.setattr(Arithmetic, "multiply", lambda *given: (widths.append(given[1].shape[1]), multiply(*given))[1])
    for way in WAYS:
        assert assert_equals_scan(flat(15), 7, way).uncertified == 0
    assert set(widths) == {128}


def test_axes_are_given_up_where_they_do_not_help(monkeypatch):
    monkeypatch.setattr(sieve, "PROJECTION_OPERATIONS", 0)
    fast = assert_equals_scan(cloud(16, N=600, M=1, D=300), 7, PLAIN)
    assert fast.uncertified == 0
    assert [encoder.axes for encoder, _ in fast._attempts] == [None, None]


def test_rows_that_axes_do_not_serve_are_tried_without_them(monkeypatch):
    monkeypatch.setattr(sieve, "PROJECTION_OPERATIONS", 0)
    values = np.concatenate([flat(17, N=700), 10 + cloud(17, N=300, M=2, D=300)])
    fast = assert_equals_scan(values, 7, PLAIN)
    assert fast.uncertified == 0
    projecting, proposals = fast._attempts[0]
    assert projecting.axes is not None
    rows = np.arange(1000)
    proposed = fast._propose(rows, projecting, fast.plan(rows, projecting, proposals), ignore)
    certain = fast._settle(rows, proposed)[1]
    assert certain[:700].mean() > 0.9
    assert certain[700:].mean() < 0.5


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_small_integer_cases(data):
    """Equal distances are frequent here, and the rank of equal ones has to be that of the scan."""
    N, M, D = (data.draw(st.integers(low, high)) for low, high in ((2, 40), (1, 3), (1, 3)))
    values = data.draw(arrays.arrays(np.float32, (N, M, D), elements=st.integers(-300, 300).map(float)))
    k = data.draw(st.integers(1, N - 1))
    groups = data.draw(st.none() | arrays.arrays(np.int64, N, elements=st.integers(0, 3)))
    rows = data.draw(st.none() | st.lists(st.integers(0, N - 1), max_size=4).map(lambda rows: np.array(rows, int)))
    assert_equals_scan(values, k, ROUNDED, groups=groups, rows=rows)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows", [None, np.array([250, 3, 3, 299])])
def test_streaming_from_a_memory_map_changes_nothing(way, rows, tmp_path, monkeypatch):
    """Memory for a few images only: targets come in blocks, rows in batches, products in tiles and strips."""
    monkeypatch.setattr(bags, "BLOCK", 16)
    monkeypatch.setattr(planning, "TILE", {"cpu": 16})
    values = cloud(9)
    groups = np.arange(300) // 2
    np.save(tmp_path / "values.npy", values)
    stored = np.load(tmp_path / "values.npy", mmap_mode="r")
    asked = np.arange(300) if rows is None else rows
    ample, scarce = make_scan(values, 7, groups), make_scan(stored, 7, groups, memory=60_000)
    fast = Sieve(scarce, len(asked), way)
    sizes = fast.plan(asked)
    assert sizes.block < 100
    assert sizes.tile < sizes.block
    assert sizes.batch < 10
    assert sizes.passes >= 4
    assert not sizes.mirrored
    assert_same(fast.search(asked, ignore), ample.search(asked, ignore))
    assert fast.uncertified == 0


def count_products(monkeypatch):
    """Numbers of products that were computed."""
    counted = []
    multiply = Arithmetic.multiply

    def counting(self, first, second):
        counted.append(len(first) * len(second))
        return multiply(self, first, second)

    monkeypatch.setattr(Arithmetic, "multiply", counting)
    return counted


def test_only_the_rows_asked_for_are_multiplied(monkeypatch):
    counted = count_products(monkeypatch)
    values = cloud(10)
    Sieve(make_scan(values, 5), 4, PLAIN).search(np.array([1, 2, 50, 299]), ignore)
    assert sum(counted) == 4 * 300 * 9


def test_each_pair_is_multiplied_once_if_all_rows_are_asked_for(monkeypatch):
    """19 tiles of 16 images and one of 4: only the upper triangle of tiles is multiplied."""
    monkeypatch.setattr(planning, "TILE", {"cpu": 16})
    values = cloud(11, N=308)
    expected = make_scan(values, 5).search(np.arange(308), ignore)
    counted = count_products(monkeypatch)
    found = Sieve(make_scan(values, 5), 308, PLAIN).search(np.arange(308), ignore)
    assert_same(found, expected)
    tiles = [16] * 19 + [4]
    assert sum(counted) == 9 * sum(tiles[i] * tiles[j] for i in range(20) for j in range(i, 20))


def test_advance_counts_every_row_once():
    steps: list[int] = []
    values = np.concatenate([cloud(12, M=1), np.zeros((1200, 1, 24), dtype=np.float32)])
    fast = Sieve(make_scan(values, 3), len(values), ROUNDED)
    fast.search(np.arange(len(values)), steps.append)
    assert fast.uncertified > 0
    assert sum(steps) == len(values)


def test_arithmetic_of_a_cpu(monkeypatch):
    """Small searches never pay for a probe; a probe that fails, in whatever way, means float32."""
    monkeypatch.setattr(arithmetic, "bfloat16_gain", lambda: pytest.fail("probed"))
    cpu = torch.device("cpu")
    assert arithmetic.fastest(cpu, 1e9) == PLAIN
    monkeypatch.setattr(arithmetic, "bfloat16_gain", lambda: 0.0)
    assert arithmetic.fastest(cpu, 1e18) == PLAIN
    monkeypatch.setattr(arithmetic, "bfloat16_gain", lambda: 8.0)
    assert arithmetic.fastest(cpu, 1e18) == HALF_INSIDE
    assert not arithmetic._adds_up_in_float32(cpu)  # offered on GPUs only, so that the fallback is taken


@pytest.mark.parametrize(
    ("probe", "patience", "gain"),
    [
        ("print(2.5)", 60, 2.5),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", 60, 0.0),
        ("raise RuntimeError('could not create a primitive')", 60, 0.0),
        ("print('nonsense')", 60, 0.0),
        ("import time; time.sleep(60)", 0.3, 0.0),
    ],
)
def test_a_probe_may_die(probe, patience, gain, monkeypatch, tmp_path):
    information = tmp_path / "cpuinfo"
    information.write_text("flags : avx512_bf16 amx_bf16\n")
    monkeypatch.setattr(arithmetic, "Path", lambda path: information)
    monkeypatch.setattr(arithmetic, "PROBE", probe)
    monkeypatch.setattr(arithmetic, "PROBE_SECONDS", patience)
    arithmetic.bfloat16_gain.cache_clear()
    try:
        assert arithmetic.bfloat16_gain() == gain
    finally:
        arithmetic.bfloat16_gain.cache_clear()


def test_no_probe_where_the_cpu_has_no_bfloat16(monkeypatch, tmp_path):
    monkeypatch.setattr(arithmetic, "Path", lambda path: tmp_path / "missing")
    monkeypatch.setattr(arithmetic, "PROBE", "print(2.5)")
    arithmetic.bfloat16_gain.cache_clear()
    try:
        assert arithmetic.bfloat16_gain() == 0.0
    finally:
        arithmetic.bfloat16_gain.cache_clear()


@pytest.mark.slow
def test_bfloat16_units_of_this_cpu():
    if arithmetic.bfloat16_gain() == 0:
        pytest.skip("this CPU does not multiply bfloat16")
    assert assert_equals_scan(cloud(13, N=600, D=64), 10, HALF_INSIDE).uncertified == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tensor_cores():
    values = cloud(14, N=3000, D=128)
    opened = open_bags(values, torch.device("cuda"), 4e9)
    codes = np.arange(3000) // 2
    scan = Scan(opened, opened, codes, codes, 10, 4e9)
    for way in (HALF, HALF_INSIDE, PLAIN):
        fast = Sieve(scan, 3000, way)
        assert_same(fast.search(np.arange(3000), ignore), scan.search(np.arange(3000), ignore))
        assert fast.uncertified == 0
