"""Thresholds are where sensitivity + specificity is highest, and label noise at fixed rates leaves them there."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from bomd.errors import InputError
from bomd.measure.thresholds import MINIMUM, choose_thresholds, youden_threshold
from bomd.tables import LabelTable


def gain(labels: np.ndarray, scores: np.ndarray, threshold: float) -> float:
    """Sensitivity + specificity - 1, spelled out."""
    called = [score >= threshold for score in scores]
    sick = [call for call, label in zip(called, labels, strict=True) if label == 1]
    healthy = [call for call, label in zip(called, labels, strict=True) if label == 0]
    return sum(sick) / len(sick) - sum(healthy) / len(healthy)


def test_six_images_by_hand() -> None:
    """Scores .1 .2 .3 .4 .6 .9 with findings at .3, .6, .9: cutting above .2 finds all three and one healthy image,
    J = 1 - 1/3; above .4 it finds two of three and nobody else, J = 2/3. Equal: the higher cut, halfway .4 to .6."""
    labels, scores = np.array([0, 0, 1, 0, 1, 1.0]), np.array([0.1, 0.2, 0.3, 0.4, 0.6, 0.9])
    assert youden_threshold(labels, scores, minimum=1) == pytest.approx(0.5)
    labels[3] = math.nan  # then .25 separates them
    assert youden_threshold(labels, scores, minimum=1) == pytest.approx(0.25)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.integers(0, 8)), min_size=2, max_size=30))
def test_no_other_threshold_is_better(rows: list[tuple[float, int]]) -> None:
    labels, scores = np.array([row[0] for row in rows]), np.array([row[1] / 8 for row in rows])
    found = youden_threshold(labels, scores, minimum=1)
    if len(set(labels)) < 2:
        assert found is None
        return
    candidates = np.linspace(-0.03125, 1.03125, 18)  # between any two levels, and beyond both ends
    best = max(gain(labels, scores, threshold) for threshold in candidates)
    if found is None:
        assert roc_auc_score(labels, scores) <= 0.5 + 1e-12
    else:
        assert roc_auc_score(labels, scores) > 0.5 + 1e-12
        assert gain(labels, scores, found) == pytest.approx(best)
        assert found not in scores
        called = scores >= found
        stricter = [threshold for threshold in candidates if (scores >= threshold).sum() < called.sum()]
        assert all(gain(labels, scores, threshold) < best - 1e-12 for threshold in stricter)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=3, max_size=8))
def test_labels_that_are_wrong_at_fixed_rates_leave_it_where_it_is(counts: list[tuple[int, int]]) -> None:
    """Of ten copies of every image, two that have the finding lose it, and three that do not get it."""
    clean, noisy, scores = [], [], []
    for level, (positives, negatives) in enumerate(counts):
        for label, copies, flipped in ((1, 10 * positives, 2 * positives), (0, 10 * negatives, 3 * negatives)):
            clean += [label] * copies
            noisy += [1 - label] * flipped + [label] * (copies - flipped)
            scores += [level / 10] * copies
    arrays = [np.array(values, dtype=float) for values in (clean, noisy, scores)]
    if 0 < arrays[0].sum() < len(clean):
        assert youden_threshold(arrays[0], arrays[2]) == youden_threshold(arrays[1], arrays[2])


def test_too_few_images_or_no_use_give_none() -> None:
    labels = np.r_[np.ones(MINIMUM - 1), np.zeros(50)]
    scores = np.r_[np.full(MINIMUM - 1, 0.9), np.full(50, 0.1)]
    assert youden_threshold(labels, scores) is None
    assert youden_threshold(1 - labels, 1 - scores) is None
    assert youden_threshold(np.r_[labels, 1], np.r_[scores, 0.9]) == pytest.approx(0.5)
    assert youden_threshold(np.r_[labels, 1], np.full(len(labels) + 1, 0.5)) is None  # it says the same of all
    assert youden_threshold(np.r_[labels, 1], -np.r_[scores, 0.9]) is None  # it ranks them the wrong way round
    mixed = np.r_[np.full(10, 0.9), np.full(30, 0.1), np.full(40, 0.5)]  # one cut is good, and the ranks are bad
    assert youden_threshold(np.r_[np.ones(40), np.zeros(40)], mixed) is None


def table(values: np.ndarray, classes: tuple[str, ...]) -> LabelTable:
    return LabelTable(np.array([f"i{row}" for row in range(len(values))]), classes, values)


def test_rows_match_by_id_and_classes_by_name() -> None:
    random = np.random.default_rng(0)
    truth = table((random.random((60, 2)) < 0.5).astype(np.float32), ("Mass", "Edema"))
    predicted = table(random.random((60, 3)).astype(np.float32), ("Edema", "Hernia", "Mass"))
    expected = choose_thresholds(truth, predicted)
    assert list(expected) == ["Edema", "Hernia", "Mass"]
    assert expected["Hernia"] is None
    assert expected["Mass"] == youden_threshold(truth.values[:, 0], predicted.values[:, 2])
    assert choose_thresholds(truth.take(random.permutation(60)), predicted) == expected


def test_soft_labels_are_refused() -> None:
    truth = table(np.array([[0.0], [0.5]], dtype=np.float32), ("Mass",))
    with pytest.raises(InputError, match=r"'i1' has a label of 0\.5 for 'Mass'"):
        choose_thresholds(truth, table(np.zeros((2, 1)), ("Mass",)))


@pytest.mark.parametrize(("positives", "chosen"), [(10, True), (9, False)])
def test_ten_images_of_either_kind_are_enough(positives: int, chosen: bool) -> None:
    labels = np.asarray([1.0] * positives + [0.0] * 10)
    assert (youden_threshold(labels, 0.2 + 0.6 * labels) is not None) == chosen
