"""The order of review: worked out by hand, against a loop, and at its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bomd.describe.ranking import ranking_loss
from bomd.measure.suspicion import LEAST, PRIOR, by_ranking, by_surprise, vote


def test_ranking_by_hand() -> None:
    """Scores (.9, .4, .7): labels (1, 0, 1) have pairs .4-.9 and .4-.7; labels (1, 1, 0) have .7-.9 and .7-.4."""
    scores = np.tile(np.array([0.9, 0.4, 0.7], np.float32), (4, 1))
    values = np.array([[1, 0, 1], [1, 1, 0], [1, 1, 1], [0, np.nan, 1]], np.float32)
    found = by_ranking(values, scores)
    first = math.log1p(math.exp(-0.5)) + math.log1p(math.exp(-0.3))
    second = math.log1p(math.exp(-0.2)) + math.log1p(math.exp(0.3))
    np.testing.assert_allclose(found.image, [first, second, 0, math.log1p(math.exp(0.2))], rtol=1e-5)
    assert found.rank.tolist() == [2, 1, 4, 3]
    against = [1 / (1 + math.exp(gap)) for gap in (0.5, 0.3, 0.2, -0.3)]
    np.testing.assert_allclose(found.entry[0], [against[0], (against[0] + against[1]) / 2, against[1]], rtol=1e-5)
    np.testing.assert_allclose(found.entry[1], [against[2], against[3], (against[2] + against[3]) / 2], rtol=1e-5)
    assert np.isnan(found.entry[2]).all()
    assert np.isnan(found.entry[3]).tolist() == [False, True, False]


def test_the_order_is_that_of_the_loss_the_descriptors_are_trained_by() -> None:
    """With one descriptor, one positive label and unit class vectors the release's loss is the sum over pairs."""
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((20, 6)).astype(np.float32)
    values = np.eye(6, dtype=np.float32)[rng.integers(0, 6, 20)]
    found = by_ranking(values, scores)
    for row in range(20):
        bag, labels = torch.from_numpy(scores[row])[None, None], torch.from_numpy(values[row])[None]
        assert found.image[row] == pytest.approx(float(ranking_loss(bag, torch.eye(6), labels).loss), rel=1e-5)


def test_one_doubtful_label_comes_after_many() -> None:
    """The margins are -5 and -1, but the second image has every pair in the wrong order."""
    scores = np.array([[0, 5, -9, -9, -9], [0, 1, 1, 1, 1]], np.float32)
    values = np.array([[1, 0, 0, 0, 0], [1, 0, 0, 0, 0]], np.float32)
    assert by_ranking(values, scores).rank.tolist() == [2, 1]


def test_large_sets_are_judged_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    scores, values = rng.standard_normal((50, 4)), (rng.random((50, 4)) < 0.3).astype(np.float32)
    whole = by_ranking(values, scores)
    monkeypatch.setattr("bomd.measure.suspicion.PAIRS", 7 * 16)
    parts = by_ranking(values, scores)
    np.testing.assert_array_equal(whole.image, parts.image)
    np.testing.assert_array_equal(whole.entry, parts.entry)


def test_two_images_by_hand() -> None:
    """Surprises: -ln .8 - ln .9 for the first; -ln .1 for the second, whose other label is not known."""
    found = by_surprise(np.array([[1, 0], [0, np.nan]], np.float32), np.array([[0.8, 0.1], [0.9, 0.5]], np.float32))
    np.testing.assert_allclose(found.image, [-math.log(0.8) - math.log(0.9), -math.log(0.1)], rtol=1e-5)
    np.testing.assert_allclose(found.entry, [[0.2, 0.1], [0.9, np.nan]], rtol=1e-5)
    assert found.rank.tolist() == [2, 1]


def test_many_labels_against_a_loop() -> None:
    rng = np.random.default_rng(0)
    values, likely = rng.random((30, 5)).astype(np.float32), rng.random((30, 5)).astype(np.float32)
    values[rng.random((30, 5)) < 0.2] = np.nan
    found = by_surprise(values, likely)
    for row in range(30):
        total = 0.0
        for value, chance in zip(values[row].tolist(), likely[row].tolist(), strict=True):
            chance = min(max(chance, LEAST), 1 - LEAST)
            if not math.isnan(value):
                total -= value * math.log(chance) + (1 - value) * math.log(1 - chance)
        assert found.image[row] == pytest.approx(total, rel=1e-4)
    assert sorted(found.rank.tolist()) == list(range(1, 31))
    assert found.image[np.argsort(found.rank)].tolist() == sorted(found.image.tolist(), reverse=True)


def test_several_doubtful_labels_come_before_one() -> None:
    likely = np.full((2, 4), 0.1, np.float32)
    found = by_surprise(np.array([[1, 0, 0, 0], [1, 1, 0, 0]], np.float32), likely)
    assert found.rank.tolist() == [2, 1]


def test_equal_images_keep_their_order_and_certainty_is_limited() -> None:
    found = by_surprise(np.ones((3, 1), np.float32), np.zeros((3, 1), np.float32))
    assert found.rank.tolist() == [1, 2, 3]
    np.testing.assert_allclose(found.image, -math.log(LEAST), rtol=1e-5)


def test_votes_by_hand() -> None:
    """Class frequencies are 1/2 and 1/3 (one label unknown); the last image has one neighbour, the first two."""
    values = np.array([[1, 0], [0, np.nan], [1, 1], [0, 0]], np.float32)
    found = vote(values, np.array([[1, 2], [0, 2], [3, 0], [2, -1]]))
    np.testing.assert_allclose(found[0], [(1 + PRIOR / 2) / (2 + PRIOR), (1 + PRIOR / 3) / (1 + PRIOR)], rtol=1e-6)
    np.testing.assert_allclose(found[3], [(1 + PRIOR / 2) / (1 + PRIOR), (1 + PRIOR / 3) / (1 + PRIOR)], rtol=1e-6)
