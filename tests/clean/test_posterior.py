"""What is believed of each label: by hand, against a loop, at the limits, and calibrated."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bomd.clean import posterior as module
from bomd.clean.posterior import judge
from bomd.clean.rates import Rates


def some(rows: int = 40, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Chances, and labels of which some are unknown and some are soft."""
    rng = np.random.default_rng(seed)
    chances = rng.random((rows, classes))
    labels = (rng.random((rows, classes)) < chances).astype(np.float64)
    labels[rng.random(labels.shape) < 0.1] = np.nan
    labels[0, :2] = 0.3, 0.8
    return chances, labels


RATES = Rates(np.asarray([0.1, 0.05, 0.02, 0.08]), np.asarray([0.2, 0.1, 0.3, 0.05]), affected=0.3)


def test_one_label_by_hand() -> None:
    """Absent findings are labelled at rate 0.1, present ones missed at 0.2, anywhere.

    A label is given with probability 0.66, so the finding is there with (0.66 - 0.1) / 0.7 = 0.8. Labelled, it is wrong
    with 0.2 * 0.1 out of 0.2 * 0.1 + 0.8 * 0.8; not labelled, with 0.8 * 0.2 out of 0.8 * 0.2 + 0.2 * 0.9.
    """
    found = judge(np.full((2, 1), 0.66), np.asarray([[1.0], [0.0]]), Rates(np.asarray([0.1]), np.asarray([0.2])))
    np.testing.assert_allclose(found.wrong, [[0.02 / 0.66], [0.16 / 0.34]], rtol=1e-6)
    np.testing.assert_allclose(found.truth, [[1 - 0.02 / 0.66], [0.16 / 0.34]], rtol=1e-6)
    assert found.suspect.tolist() == [1, 1]
    assert found.weight.tolist() == [1, 1]


def test_an_affected_image_by_hand() -> None:
    """Half of the images are affected; there 0.2 of the absent findings are labelled. Both findings look absent (0.1).

    If sound, both labels have probability 0.1 each; if affected, 0.1 + 0.9 * 0.2 = 0.28, of which 0.18 is wrong. Each
    label speaks for itself with half its weight: the odds that the image is affected are (0.28 / 0.1) ^ (2 / 2).
    """
    rates = Rates(np.full(2, 0.1), np.zeros(2), affected=0.5)
    found = judge(np.full((1, 2), 0.1 * 0.9 + 0.1), np.ones((1, 2)), rates)
    suspect = 2.8 / 3.8
    assert found.suspect[0] == pytest.approx(suspect, rel=1e-6)
    assert found.weight[0] == pytest.approx((1 - suspect) / 0.5, rel=1e-6)
    np.testing.assert_allclose(found.wrong, [[suspect * 0.18 / 0.28] * 2], rtol=1e-6)


@pytest.mark.parametrize("affected", [0.3, 1.0])
def test_against_a_loop(affected: float) -> None:
    chances, labels = some()
    rates = Rates(RATES.false_alarm, RATES.miss, affected)
    found = judge(chances, labels, rates)
    for row in range(40):
        odds, parts = 0.0, {}
        for column in range(4):
            a, m = rates.false_alarm[column], rates.miss[column]
            true = min(max((chances[row, column] - a) / (1 - a - m), 1e-3), 1 - 1e-3)
            a, m = min(a / affected, 0.9), min(m / affected, 0.9)
            if math.isnan(labels[row, column]):
                continue
            if labels[row, column] >= 0.5:
                right, wrong, other = true, (1 - true) * a, true * (1 - m)
            else:
                right, wrong, other = 1 - true, true * m, (1 - true) * (1 - a)
            odds += 0.5 * math.log((wrong + other) / right)
            parts[column] = wrong / (wrong + other)
        suspect = 1 / (1 + math.exp(-odds) * (1 - affected) / affected)
        assert found.suspect[row] == pytest.approx(suspect, rel=1e-5)
        weight = 1 if affected == 1 else min(1, (1 - suspect) / (1 - affected))
        assert found.weight[row] == pytest.approx(weight, rel=1e-5)
        for column in range(4):
            if column not in parts:
                assert np.isnan(found.wrong[row, column])
                assert np.isnan(found.truth[row, column])
                continue
            doubt, given = suspect * parts[column], labels[row, column]
            assert found.wrong[row, column] == pytest.approx(doubt, rel=1e-5)
            turned = 0 if given >= 0.5 else 1
            assert found.truth[row, column] == pytest.approx((1 - doubt) * given + doubt * turned, rel=1e-5)


@pytest.mark.parametrize("affected", [0.3, 1.0])
def test_rates_of_0_return_the_labels_to_the_bit(affected: float) -> None:
    chances, labels = some()
    found = judge(chances, labels, Rates(np.zeros(4), np.zeros(4), affected))
    np.testing.assert_array_equal(found.truth, labels.astype(np.float32))
    assert np.nanmax(found.wrong) == 0
    assert (found.weight == 1).all()


def test_errors_anywhere_weigh_every_image_in_full() -> None:
    chances, labels = some()
    found = judge(chances, labels, Rates(RATES.false_alarm, RATES.miss, 1.0))
    assert (found.weight == 1).all()
    assert judge(chances, labels, RATES).weight.min() < 0.9


def test_confirmed_labels_are_never_wrong_and_do_not_accuse_their_image() -> None:
    chances, labels = some()
    fixed = np.zeros(labels.shape, dtype=np.bool_)
    fixed[:, 1] = True
    found = judge(chances, labels, RATES, fixed)
    assert np.nanmax(found.wrong[:, 1]) == 0
    known = ~np.isnan(labels[:, 1])
    np.testing.assert_array_equal(found.truth[known, 1], labels[known, 1].astype(np.float32))
    hidden = labels.copy()
    hidden[:, 1] = np.nan
    others = judge(chances, hidden, RATES)
    np.testing.assert_array_equal(found.suspect, others.suspect)
    np.testing.assert_array_equal(found.wrong[:, [0, 2, 3]], others.wrong[:, [0, 2, 3]])


def test_order_bounds_and_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    chances, labels = some()
    found = judge(chances, labels, RATES)
    for values in (found.wrong, found.truth, found.suspect, found.weight):
        assert np.nanmin(values) >= 0
        assert np.nanmax(values) <= 1
    assert np.array_equal(np.isnan(found.wrong), np.isnan(labels))
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(40), rng.permutation(4)
    turned = Rates(RATES.false_alarm[columns], RATES.miss[columns], RATES.affected)
    other = judge(chances[rows][:, columns], labels[rows][:, columns], turned)
    np.testing.assert_allclose(other.wrong, found.wrong[rows][:, columns], rtol=1e-5)
    monkeypatch.setattr(module, "CHUNK", 7)
    np.testing.assert_array_equal(judge(chances, labels, RATES).wrong, found.wrong)


def test_probabilities_are_calibrated_where_rates_are_right() -> None:
    """In every tenth of the range, about that share of 200,000 labels is wrong: within 0.03."""
    rng = np.random.default_rng(0)
    chance = rng.beta(0.3, 0.7, (50_000, 4))
    truth = rng.random(chance.shape) < chance
    alarm, miss = np.asarray([0.05, 0.2, 0.1, 0.3]), np.asarray([0.3, 0.1, 0.2, 0.4])
    given = np.where(rng.random(truth.shape) < np.where(truth, miss, alarm), ~truth, truth)
    chances = chance * (1 - miss) + (1 - chance) * alarm
    found = judge(chances, given.astype(np.float64), Rates(alarm, miss)).wrong
    for low in np.arange(0, 1, 0.1):
        part = (found >= low) & (found < low + 0.1)
        if part.sum() > 1000:
            assert (given != truth)[part].mean() == pytest.approx(found[part].mean(), abs=0.03)
    assert (found > 0.9).sum() > 1000


def test_five_hundred_classes_and_one() -> None:
    for classes in (1, 500):
        rng = np.random.default_rng(1)
        chances = rng.random((300, classes))
        labels = (rng.random(chances.shape) < chances).astype(np.float64)
        found = judge(chances, labels, Rates(np.full(classes, 0.01), np.full(classes, 0.1), 0.2))
        assert np.isfinite(found.wrong).all()
        assert np.isfinite(found.weight).all()


def test_where_nothing_goes_wrong_an_image_is_as_suspect_as_any() -> None:
    rates = Rates(np.zeros(2), np.zeros(2), 0.3)
    found = judge(np.full((3, 2), 0.5), np.asarray([[1, 0], [0, 1], [1, 1.0]]), rates)
    assert found.suspect == pytest.approx([0.3] * 3)
    assert judge(np.full((1, 2), 0.5), np.ones((1, 2)), Rates(np.zeros(2), np.zeros(2))).suspect == pytest.approx([1])


def test_a_soft_label_moves_towards_the_other_side_of_one_half() -> None:
    """0.6 and 0.5 are positive, 0.4 is not. The truth is 2/7 likely: 1/7 of 2/5 and 2/70 of 3/5 are wrong."""
    rates = Rates(np.asarray([0.2]), np.asarray([0.1]))
    labels = np.asarray([[0.6], [0.5], [0.4]])
    found = judge(np.full((3, 1), 0.4), labels, rates)
    assert found.wrong[:, 0] == pytest.approx([5 / 14, 5 / 14, 1 / 21])
    assert found.truth[:, 0] == pytest.approx([0.6 * 9 / 14, 0.5 * 9 / 14, 0.4 + 0.6 / 21])
