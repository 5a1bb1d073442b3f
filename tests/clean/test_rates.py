"""How often labels are wrong: by hand, against loops, and recovered from planted noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bomd.clean import rates as module
from bomd.clean.rates import (
    SHARES,
    Rates,
    compare,
    estimate_rates,
    explain,
    known_rates,
    least_likely,
    possible_rates,
    true_probability,
)
from bomd.errors import InputError


def planted(
    alarm: float, miss: float, affected: float = 1.0, rows: int = 8000, classes: int = 6, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Evidence and labels of a set in which this share of the images has false alarms and misses at these rates.

    A fifth of the findings are there; the evidence knows how probable each one is, so that the probability of a given
    label follows exactly.
    """
    rng = np.random.default_rng(seed)
    chance = rng.beta(0.15, 0.6, (rows, classes))
    truth = rng.random(chance.shape) < chance
    hit = rng.random((rows, 1)) < affected
    labels = np.where(hit & (rng.random(truth.shape) < np.where(truth, miss, alarm)), ~truth, truth)
    overall = affected * alarm, affected * miss
    return chance * (1 - overall[1]) + (1 - chance) * overall[0], labels.astype(np.float64)


def test_likelihoods_by_hand() -> None:
    """Half of the images are affected: there 0.2 of the absent findings are labelled, and 0.4 of the present are not.

    A finding is there with probability 0.8. If it is labelled: right 0.8; affected 0.8 * 0.6 + 0.2 * 0.2, of which the
    last part is wrong. If it is not: right 0.2; affected 0.2 * 0.8 + 0.8 * 0.4. An unknown label says nothing.
    """
    rates = Rates(np.full(3, 0.1), np.full(3, 0.2), affected=0.5)
    found = compare(np.full((1, 3), 0.8), np.asarray([[1, 0, np.nan]]), rates)
    np.testing.assert_allclose(found[0], [[0.8, 0.2, 1]])
    np.testing.assert_allclose(found[1], [[0.52, 0.48, 1]])
    np.testing.assert_allclose(found[2], [[0.04, 0.32, 0]])


def test_the_true_label_by_hand() -> None:
    """A label is given with probability 0.5, 0.1 of the absent and 0.7 of the present ones are: (0.5 - 0.1) / 0.6."""
    rates = Rates(np.asarray([0.1]), np.asarray([0.3]))
    found = true_probability(np.asarray([[0.5], [0.05], [0.9]]), rates)
    np.testing.assert_allclose(found, [[2 / 3], [1e-3], [1 - 1e-3]])


def test_least_likely_by_hand() -> None:
    """Of six labelled images the two that look least like the class are taken: one of them has it."""
    chances = np.asarray([[0.9], [0.1], [0.8], [0.2], [0.7], [0.6], [0.01]])
    labels = np.asarray([[1], [1], [1], [0], [1], [0], [np.nan]])
    assert least_likely(chances, labels).tolist() == [(1 + 0.5) / 3]
    assert np.isnan(least_likely(chances, np.full((7, 1), np.nan))).all()


@pytest.mark.parametrize("affected", [0.3, 1.0])
def test_against_loops(affected: float) -> None:
    """Every share is tried, and the one under which labels are most likely is taken if it is so by 0.01 nats."""
    chances, labels = planted(0.2, 0.3, affected, rows=300)
    labels[::7, 2] = np.nan
    found = estimate_rates(chances, labels)
    bounds, often = [], []
    for column in range(6):
        known = [row for row in range(300) if not math.isnan(labels[row, column])]
        order = sorted(known, key=lambda row: chances[row, column])[: len(known) // 3]
        bounds.append((sum(labels[row, column] for row in order) + 0.5) / (len(order) + 1))
        often.append((sum(labels[row, column] for row in known) + 0.5) / (len(known) + 1))
    scores = {}
    for share in SHARES:
        limit = min(min(bounds), 0.05 if share == 1 else 0.9 * share)
        alarms = [min(bound, limit) for bound in bounds]
        misses = [min(max(a * (1 - p) / p * 0.25, 0.02), 0.4) for a, p in zip(alarms, often, strict=True)]
        total = 0.0
        for row in range(300):
            sound = affect = 1.0
            for column in range(6):
                if math.isnan(labels[row, column]):
                    continue
                a, m = alarms[column], misses[column]
                true = min(max((chances[row, column] - a) / (1 - a - m), 1e-3), 1 - 1e-3)
                a, m = min(a / share, 0.9), min(m / share, 0.9)
                one = labels[row, column] == 1
                sound *= true if one else 1 - true
                affect *= true * (1 - m) + (1 - true) * a if one else true * m + (1 - true) * (1 - a)
            total += math.log((1 - share) * sound + share * affect)
        scores[share] = (total / 300, alarms, misses)
    likeliest = max(scores, key=lambda share: scores[share][0])
    gain = scores[likeliest][0] - scores[1.0][0]
    best = likeliest if gain >= 0.01 else 1.0
    assert found.affected == best
    np.testing.assert_allclose(found.false_alarm, scores[best][1])
    np.testing.assert_allclose(found.miss, scores[best][2])
    assert found.gain == pytest.approx(gain, abs=1e-9)
    assert (best < 1) == (affected < 1)


@pytest.mark.parametrize("affected", [0.15, 0.3, 0.5])
@pytest.mark.parametrize("seed", [0, 1])
def test_planted_rates_of_affected_images_are_recovered(affected: float, seed: int) -> None:
    """The share within 0.1, false alarms over all images within 0.02."""
    chances, labels = planted(0.3, 0.3, affected, seed=seed)
    found = estimate_rates(chances, labels)
    assert found.affected == pytest.approx(affected, abs=0.1001)
    np.testing.assert_allclose(found.false_alarm, 0.3 * affected, atol=0.02)
    assert found.gain > 0.005


def test_errors_that_fall_anywhere_and_no_errors() -> None:
    """Nothing is gained by taking independent errors for affected images; without any, hardly any are believed."""
    anywhere = estimate_rates(*planted(0.03, 0.1))
    assert anywhere.affected == 1
    assert anywhere.gain < 0.001
    np.testing.assert_allclose(anywhere.false_alarm, 0.03, atol=0.01)
    chances, labels = planted(0, 0)
    assert estimate_rates(chances, labels).false_alarm.max() < 0.005


def test_no_share_of_affected_images_has_more_errors_than_room() -> None:
    """Evidence that knows nothing allows any rate: 5 % anywhere, and nine of ten absent findings of affected images."""
    chances, labels = np.full((1000, 2), 0.95), np.ones((1000, 2))
    chances[:50], labels[:50] = 0.4, 0
    found = {rates.affected: rates.false_alarm for rates in possible_rates(chances, labels)}
    np.testing.assert_allclose(found[1.0], 0.05)
    np.testing.assert_allclose(found[0.02], 0.018)
    np.testing.assert_allclose(found[0.4], 0.36)


def test_what_somebody_measured_is_taken_as_it_is() -> None:
    chances, labels = planted(0.2, 0.2, 0.3, rows=500)
    usual = estimate_rates(chances, labels)
    alarm, miss = np.full(6, np.nan), np.full(6, np.nan)
    alarm[0], miss[0], miss[1], alarm[2] = 0.33, 0.6, 0.9, 0.0
    found = estimate_rates(chances, labels, (alarm, miss))
    assert found.false_alarm[0] == 0.33
    assert found.miss[0] == 0.6
    assert found.miss[1] == 0.9
    assert found.false_alarm[1] <= 0.05 + 1e-12  # what the measured one leaves room for
    assert found.false_alarm[2] == 0
    if found.affected == usual.affected:
        np.testing.assert_allclose(found.false_alarm[3:], usual.false_alarm[3:])


def test_a_class_that_nobody_has_bounds_no_other() -> None:
    """It may never have been looked for: the others' false alarms are estimated as if it were not there."""
    chances, labels = planted(0.2, 0.2, 0.3, rows=1000)
    without = estimate_rates(chances[:, :5], labels[:, :5])
    labels[:, 5], chances[:, 5] = 0, 1e-4
    np.testing.assert_allclose(estimate_rates(chances, labels).false_alarm[:5], without.false_alarm)


def test_no_finding_bounds_no_finding() -> None:
    """It is right wherever a finding is labelled, so that it is nearly never a false alarm; others may well be."""
    chances, labels = planted(0.3, 0.3, 0.3)
    labels[:, 5] = labels[:, :5].max(axis=1) == 0
    chances[:, 5] = np.prod(1 - chances[:, :5], axis=1)
    assert estimate_rates(chances, labels).false_alarm[:5].max() < 0.07
    found = estimate_rates(chances, labels, findings=np.arange(5))
    np.testing.assert_allclose(found.false_alarm[:5], 0.09, atol=0.02)


def test_order_of_images_and_classes_is_nothing() -> None:
    chances, labels = planted(0.2, 0.2, 0.3, rows=500)
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(500), rng.permutation(6)
    one = estimate_rates(chances, labels)
    other = estimate_rates(chances[rows][:, columns], labels[rows][:, columns])
    assert one.affected == other.affected
    np.testing.assert_allclose(one.false_alarm[columns], other.false_alarm)


def test_limits() -> None:
    """Nothing labelled, one class, one image, no image."""
    blank = estimate_rates(np.full((5, 2), 0.5), np.full((5, 2), np.nan))
    assert (blank.false_alarm == 0).all()
    for shape in ((50, 1), (1, 3), (0, 2)):
        found = estimate_rates(np.full(shape, 0.3), np.zeros(shape))
        assert np.isfinite(found.miss).all()


def test_the_share_is_chosen_on_a_part_of_many_images(monkeypatch: pytest.MonkeyPatch) -> None:
    chances, labels = planted(0.3, 0.3, 0.3)
    monkeypatch.setattr(module, "SAMPLE", 2000)
    assert estimate_rates(chances, labels).affected == pytest.approx(0.3, abs=0.1001)


def test_words() -> None:
    some = explain(Rates(np.asarray([0.1, 0.02, 0.3]), np.zeros(3), 0.25, 0.0123), ("a", "b", "c"))
    assert "about 25% of the images" in some[0]
    assert "0.012 nats" in some[0]
    assert "About 10.0% of the absent findings" in some[1]
    assert "any image" in explain(Rates(np.zeros(1), np.zeros(1)), ("a",))[0]


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        ({"Goitre": {"miss": 0.1}}, "'Goitre'; the classes are 'Mass', 'Edema'"),
        ({"Mass": {"mis": 0.1}}, "neither 'miss' nor 'false_alarm'"),
        ({"Mass": {"miss": -0.1}}, "miss is -0.1"),
        ({"Mass": {"miss": math.nan}}, "miss is nan"),
        ({"Mass": {"miss": 0.5, "false_alarm": 0.5}}, "together"),
    ],
)
def test_bad_rates_are_refused(measured: dict[str, dict[str, float]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        known_rates(measured, ("Mass", "Edema"))


def test_rates_check_themselves() -> None:
    assert known_rates({}, ("Mass",)) is None
    with pytest.raises(InputError, match="from 0 to below 1"):
        Rates(np.asarray([1.0]), np.asarray([0.0]))
    with pytest.raises(InputError, match="as many"):
        Rates(np.asarray([0.1]), np.asarray([0.1, 0.2]))
    with pytest.raises(InputError, match="do not fit"):
        estimate_rates(np.zeros((2, 1)), np.zeros((1, 2)))


def test_shares_of_affected_images_that_are_tried_leave_no_wide_gap() -> None:
    """From a fiftieth to all images, each at most two and a half times the one before, the last without rest."""
    steps = np.divide(SHARES[1:], SHARES[:-1])
    assert (steps > 1).all()
    assert (steps <= 2.5).all()
    assert np.diff(SHARES).max() < 0.101
    assert (SHARES[0], SHARES[-1]) == (0.02, 1.0)
