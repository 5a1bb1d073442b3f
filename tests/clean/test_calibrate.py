"""Scores become probabilities: by hand, against scikit-learn, and where there is nothing to learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from bomd.clean import calibrate as module
from bomd.clean.calibrate import LEAST, calibrate, logistic, sigmoid
from bomd.errors import InputError


def some(rows: int = 400, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores on scales of their own, and labels that follow them loosely."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(rows, classes)) * [1, 30, 0.01, *[1] * classes][:classes] + 5
    standard = (scores - scores.mean(0)) / scores.std(0)
    return scores, (rng.random((rows, classes)) < sigmoid(2 * standard - 1)).astype(np.float64)


def test_shares_by_hand() -> None:
    """A quarter of the images with score 0 are labelled, and three quarters of those with score 1."""
    scores = np.repeat([[0.0], [1.0]], 400, axis=0)
    labels = np.asarray([[float(row % 4 == 0)] for row in range(400)] + [[float(row % 4 != 0)] for row in range(400)])
    found = calibrate(scores, labels)
    assert found[0, 0] == pytest.approx(0.25, abs=1e-3)
    assert found[-1, 0] == pytest.approx(0.75, abs=1e-3)


def test_against_scikit_learn() -> None:
    scores, labels = some()
    standard = (scores - scores.mean(0)) / scores.std(0)
    for column in range(3):
        model = LogisticRegression(C=1 / 1e-2, tol=1e-10).fit(standard[:, [column]], labels[:, column])
        theirs = model.predict_proba(standard[:, [column]])[:, 1]
        np.testing.assert_allclose(calibrate(scores, labels)[:, column], theirs, atol=1e-4)


def test_scores_that_say_nothing_or_the_opposite_give_the_frequency() -> None:
    scores, labels = some()
    scores[:, 0], scores[:, 1] = 7.0, -scores[:, 1]
    found = calibrate(scores, labels)
    for column in (0, 1):
        np.testing.assert_allclose(found[:, column], labels[:, column].mean())
    assert np.ptp(found[:, 2]) > 0.3


def test_a_class_that_nobody_everybody_or_nothing_has() -> None:
    scores, labels = some(40)
    labels[:, 0], labels[:, 1], labels[:, 2] = 0, 1, np.nan
    np.testing.assert_allclose(calibrate(scores, labels), np.tile([LEAST, 1 - LEAST, 0.5], (40, 1)))


def test_unknown_labels_do_not_count_and_soft_ones_count_in_part() -> None:
    """An unknown label is as if the image were not there; half a label is one image with and one without it."""
    scores, labels = some(60, 1)
    scores = np.repeat(scores, 2, axis=0)
    soft, hard = np.repeat(labels, 2, axis=0), np.repeat(labels, 2, axis=0)
    soft[0], soft[1] = 0.5, 0.5
    hard[0], hard[1] = 0, 1
    np.testing.assert_allclose(calibrate(scores, soft), calibrate(scores, hard), atol=1e-9)
    blank = soft.copy()
    blank[10:14] = np.nan
    standard = (scores - scores.mean(0)) / scores.std(0)
    kept = np.r_[0:10, 14:120]
    model = LogisticRegression(C=1 / 1e-2, tol=1e-10)
    twice = np.r_[kept, kept]
    weight = np.r_[blank[kept, 0], 1 - blank[kept, 0]]
    model.fit(standard[twice], np.r_[np.ones(len(kept)), np.zeros(len(kept))], sample_weight=weight)
    np.testing.assert_allclose(calibrate(scores, blank)[:, 0], model.predict_proba(standard)[:, 1], atol=1e-4)


def test_only_the_order_and_spread_of_scores_count() -> None:
    scores, labels = some()
    rng = np.random.default_rng(1)
    rows, columns = rng.permutation(400), [2, 0, 1]
    found = calibrate(scores, labels)
    np.testing.assert_allclose(calibrate(3 * scores - 100, labels), found, atol=1e-9)
    np.testing.assert_allclose(calibrate(scores[rows][:, columns], labels[rows][:, columns]), found[rows][:, columns])
    for column in range(3):
        assert (np.diff(found[np.argsort(scores[:, column]), column]) >= 0).all()


def test_separable_labels_stay_inside_the_bounds() -> None:
    scores = np.linspace(-1, 1, 200)[:, None]
    found = calibrate(scores, (scores > 0).astype(float))
    assert np.isfinite(found).all()
    assert found.min() >= LEAST
    assert found.max() <= 1 - LEAST
    assert found[0, 0] < 0.01


def test_a_part_of_many_images_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, labels = some(5000)
    whole = calibrate(scores, labels)
    monkeypatch.setattr(module, "FITTED", 1000)
    part = calibrate(scores, labels)
    assert 0 < np.abs(part - whole).max() < 0.06


def test_bad_input_and_empty_input() -> None:
    with pytest.raises(InputError, match="do not fit"):
        calibrate(np.zeros((2, 3)), np.zeros((3, 2)))
    with pytest.raises(InputError, match="finite"):
        calibrate(np.full((2, 1), np.nan), np.zeros((2, 1)))
    assert calibrate(np.zeros((0, 2)), np.zeros((0, 2))).shape == (0, 2)


def test_sigmoid_and_its_inverse() -> None:
    assert sigmoid(np.asarray([-1e9, 0, 1e9])).tolist() == [0, 0.5, 1]
    values = np.asarray([0.001, 0.3, 0.9])
    np.testing.assert_allclose(sigmoid(logistic(values)), values)
