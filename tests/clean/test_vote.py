"""Votes of neighbours that count for as much as their labels are worth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bomd.clean import vote as module
from bomd.clean.vote import vote
from bomd.errors import InputError


def some() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.random((30, 4))
    labels[rng.random(labels.shape) < 0.3] = np.nan
    return labels, rng.integers(-1, 30, (50, 6)), rng.random(30) * (rng.random(30) < 0.7)


def test_by_hand() -> None:
    """a has the class and counts three times as much as b, which lacks it; c is not labelled."""
    labels = np.asarray([[1.0], [0.0], [np.nan]])
    found = vote(labels, np.asarray([[0, 1], [1, 2], [2, -1], [-1, -1]]), np.asarray([3.0, 1.0, 1.0]))
    assert found[:2].tolist() == [[0.75], [0.0]]
    assert np.isnan(found[2:]).all()


def test_against_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, neighbours, weights = some()
    monkeypatch.setattr(module, "CHUNK", 7)
    found = vote(labels, neighbours, weights)
    for row, others in enumerate(neighbours):
        for column in range(4):
            votes = [(weights[o], labels[o, column]) for o in others if o >= 0 and not math.isnan(labels[o, column])]
            total = sum(weight for weight, _ in votes)
            if total == 0:
                assert np.isnan(found[row, column])
            else:
                assert found[row, column] == pytest.approx(sum(w * value for w, value in votes) / total)


def test_an_image_without_weight_is_nobody_and_scale_is_nothing() -> None:
    labels, neighbours, weights = some()
    found = vote(labels, neighbours, weights)
    np.testing.assert_allclose(vote(labels, neighbours, 7 * weights), found)
    silent = np.where(weights[neighbours] == 0, -1, neighbours)
    np.testing.assert_allclose(vote(labels, silent, weights), found)


def test_bad_weights_are_refused() -> None:
    with pytest.raises(InputError, match="one weight"):
        vote(np.zeros((2, 1)), np.zeros((1, 1), dtype=int), np.ones(3))
    with pytest.raises(InputError, match="at least 0"):
        vote(np.zeros((2, 1)), np.zeros((1, 1), dtype=int), np.asarray([1.0, -1.0]))
