"""Distances of descriptors to class vectors, against cases worked out by hand and a slow loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from bomd.files import read_arrays
from bomd.measure.space import SAMPLE, distances, measure_space, save_sample
from bomd.tables import LabelTable


def test_two_descriptors_and_one_class_by_hand() -> None:
    """Descriptors (1, 0) and (0, 1), class (1, 0): distances 0 and the root of 2, cosines 1 and 0."""
    found = distances(np.array([[[1, 0], [0, 1]]], dtype=np.float32), np.array([[1, 0]], dtype=np.float32))
    assert found["nearest"].item() == 0
    assert found["mean"].item() == pytest.approx(0.707107, abs=1e-6)
    assert found["cosine"].item() == pytest.approx(1)


def test_equals_a_loop_over_images_and_classes() -> None:
    generator = np.random.default_rng(1)
    bags = generator.normal(size=(30, 3, 5)).astype(np.float32)
    vectors = generator.normal(size=(2, 5)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    values = generator.integers(0, 2, (30, 2)).astype(np.float32)
    values[4, 0] = np.nan
    labels = LabelTable(np.arange(30).astype(str), ("A", "B"), values)
    found = measure_space(bags, vectors, labels)
    for column, entry in enumerate(found.classes):
        kept = [row for row in range(30) if not np.isnan(values[row, column])]
        each = {
            "nearest": [min(np.linalg.norm(v - vectors[column]) for v in bags[row]) for row in kept],
            "mean": [np.mean([np.linalg.norm(v - vectors[column]) for v in bags[row]]) for row in kept],
            "cosine": [max(v @ vectors[column] / np.linalg.norm(v) for v in bags[row]) for row in kept],
        }
        has = values[kept, column] == 1
        assert (entry.positives, entry.negatives) == (has.sum(), (~has).sum())
        for kind, numbers in each.items():
            closer = np.array(numbers) * (1 if kind == "cosine" else -1)
            assert getattr(entry, kind).auroc == pytest.approx(roc_auc_score(has, closer))
            assert getattr(entry, kind).gap == pytest.approx(closer[has].mean() - closer[~has].mean(), abs=1e-5)
            assert sum(getattr(entry, kind).positive) == has.sum()
            assert sum(getattr(entry, kind).negative) == (~has).sum()
            assert len(getattr(entry, kind).positive) == len(found.edges[kind]) - 1


def test_a_class_that_nobody_has_gets_no_score() -> None:
    labels = LabelTable(np.array(["a", "b"]), ("A",), np.zeros((2, 1), dtype=np.float32))
    found = measure_space(np.ones((2, 1, 3), dtype=np.float32), np.ones((1, 3), dtype=np.float32), labels)
    nearest = found.to_dict()["classes"][0]["nearest"]
    assert (nearest["auroc"], nearest["gap"]) == (None, None)


def test_a_sample_is_small_and_keeps_rows_together(tmp_path: Path) -> None:
    count = SAMPLE + 50
    labels = LabelTable(np.arange(count).astype(str), ("A",), (np.arange(count) % 2)[:, None].astype(np.float32))
    bags = np.arange(count, dtype=np.float32)[:, None, None] / count
    save_sample(tmp_path / "space.npz", bags, np.ones((1, 1), dtype=np.float32), labels, seed=3)
    kept = read_arrays(tmp_path / "space.npz")
    rows = kept["ids"].astype(int)
    assert len(np.unique(rows)) == SAMPLE
    assert np.array_equal(kept["labels"][:, 0], rows % 2)
    assert np.allclose(kept["values"][:, 0, 0], rows / count, atol=1e-3)
