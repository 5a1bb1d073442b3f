"""Inverted lists: what they find, what they say, and when they are not used."""

from __future__ import annotations

import io
import time

import numpy as np
import pytest
import torch
from rich.console import Console

from bomd import progress
from bomd.clean import graph, index
from bomd.clean.bags import open_bags
from bomd.clean.graph import nearest_images
from bomd.clean.neighbours import Neighbours
from bomd.clean.scan import Scan


@pytest.fixture
def said():
    """What was said while the test ran."""
    text = io.StringIO()
    progress.enable(Console(file=text, width=200))
    yield text
    progress.disable()


def clustered(seed, N=1500, M=2, D=16, clusters=30):
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(clusters, 1, D)) * 3
    return (centres[generator.integers(0, clusters, N)] + generator.normal(size=(N, M, D))).astype(np.float32)


def recall_by_hand(found, truth):
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.indices, truth.indices, strict=True)])


def test_lists_find_nearly_all_and_say_so(said):
    values = clustered(0)
    truth = nearest_images(values, 10, backend="torch", device="cpu")
    found = nearest_images(values, 10, backend="ivf", device="cpu")
    assert truth.recall == 1
    assert 0.99 <= found.recall <= 1
    assert recall_by_hand(found, truth) > 0.98
    assert f"recall {found.recall:.4f} on 200 rows" in said.getvalue()
    probed, _, lists = said.getvalue().split("inverted lists searched")[0].split()[-3:]
    assert int(probed) < int(lists) == 75  # 3,000 vectors: fewer than 2 x sqrt(3,000), 40 for each
    same = found.indices == truth.indices
    np.testing.assert_array_equal(found.distances[same], truth.distances[same])
    assert (found.distances >= truth.distances).all()


def test_more_lists_are_probed_until_the_recall_is_reached(said, monkeypatch):
    """Without clusters neighbours lie anywhere; asked for all of them, lists end up being searched widely."""
    values = np.random.default_rng(1).normal(size=(600, 1, 24)).astype(np.float32)
    monkeypatch.setattr(index, "RECALL", 1.0)
    found = nearest_images(values, 5, backend="ivf", device="cpu")
    assert found.recall == 1
    probed = int(said.getvalue().split(" of ")[0].split()[-1])
    assert probed >= 8
    sample = np.sort(np.random.default_rng(0).permutation(np.arange(600))[:200])
    truth = nearest_images(values, 5, rows=sample, backend="torch", device="cpu")
    np.testing.assert_array_equal(found.indices[sample], truth.indices)


@pytest.mark.parametrize("rows", [np.array([5, 1, 1, 700]), np.array([], dtype=np.int64)])
def test_rows(rows):
    values = clustered(2)
    found = nearest_images(values, 4, rows=rows, backend="ivf", device="cpu")
    truth = nearest_images(values, 4, rows=rows, backend="torch", device="cpu")
    assert found.recall >= 0.99  # of the four rows themselves, so all of their neighbours
    np.testing.assert_array_equal(found.indices, truth.indices)


def test_rows_left_with_too_few_are_searched_exactly():
    """One patient has most images of a cluster: lists that are probed hold hardly anyone else."""
    values = clustered(3, N=400, clusters=4)
    groups = np.where(np.arange(400) < 300, 0, np.arange(400))
    found = nearest_images(values, 12, groups=groups, backend="ivf", device="cpu")
    assert np.isfinite(found.distances).all()
    assert (groups[found.indices] != groups[:, None]).all()


def test_recall_counts_equal_distances_as_found():
    truth = Neighbours(np.array([[1, 2, 3]]), np.array([[0, 1, 1]], dtype=np.float32))
    assert index._recall(Neighbours(np.array([[1, 9, 8]]), np.array([[0, 1, 1]], dtype=np.float32)), truth) == 1
    late = Neighbours(np.array([[1, 3, -1]]), np.array([[0, 2, np.inf]], dtype=np.float32))
    assert index._recall(late, truth) == pytest.approx(1 / 3)
    short = Neighbours(np.array([[1, -1, -1]]), np.array([[1, np.inf, np.inf]], dtype=np.float32))
    assert index._recall(short, short) == 1


def test_copies_do_not_spoil_the_recall():
    values = np.repeat(clustered(4, N=20), 40, axis=0)
    assert nearest_images(values, 10, backend="ivf", device="cpu").recall >= 0.99


@pytest.mark.parametrize("pause", [0.0, 1.0])
def test_the_faster_way_is_taken(pause, said):
    """The exact search is at hand at once, or takes a second: lists are taken only in the second case."""
    values = clustered(5, N=400)
    opened, codes = open_bags(values, torch.device("cpu"), 1e9), np.arange(400)
    scan = Scan(opened, opened, codes, codes, 5, 1e9)
    truth = scan.search(codes, lambda steps: None)

    def exact(rows, advance):
        time.sleep(pause if len(rows) > 1 else 0)
        return Neighbours(truth.indices[rows], truth.distances[rows])

    found = index.search_lists(scan, exact, codes, lambda steps: None, unless_slower=True)
    if pause:
        assert "inverted lists searched: recall" in said.getvalue()
        assert found.recall >= 0.99
    else:
        assert "searching exactly" in said.getvalue()
        assert found.recall == 1
        np.testing.assert_array_equal(found.indices, truth.indices)


def test_large_searches_on_a_cpu_consider_lists(monkeypatch):
    asked = []

    def search_lists(scan, exact, rows, advance, *, unless_slower):
        asked.append(unless_slower)
        return exact(rows, advance)

    monkeypatch.setattr(graph, "search_lists", search_lists)
    values = clustered(6, N=100)
    nearest_images(values, 3, device="cpu")
    assert asked == []
    monkeypatch.setattr(graph, "LISTS_OPERATIONS", 100 * 100 * 4 * 2 * 16)  # 2 x 24 each, every pair once, is less
    nearest_images(values, 3, device="cpu")
    assert asked == []
    monkeypatch.setattr(graph, "LISTS_OPERATIONS", 10)
    nearest_images(values, 3, device="cpu", backend="torch")
    assert asked == []
    nearest_images(values, 3, device="cpu")
    nearest_images(values, 3, device="cpu", backend="ivf")
    assert asked == [True, False]
