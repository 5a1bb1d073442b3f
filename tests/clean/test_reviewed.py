"""Rates from decisions: more wrong than expected means a higher rate, although doubtful labels are looked at first."""

from __future__ import annotations

import numpy as np
import pytest

from bomd.clean.rates import Rates
from bomd.clean.reviewed import FACTORS, rates_from_decisions
from bomd.errors import InputError

TRUE = 0.06  # of the absent findings that are labelled


def simulated(seed: int, images: int = 6000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probability of the given label, given label and truth of three classes of 15 %, with false alarms only."""
    random = np.random.default_rng(seed)
    truth = random.random((images, 3)) < 0.15
    evidence = 1 / (1 + np.exp(-(4 * truth - 3.7 + random.normal(0, 1, truth.shape))))
    likely = np.empty(truth.shape)  # of the truth, by evidence: its frequency among images of like evidence
    for column in range(3):
        order = np.argsort(evidence[:, column])
        for part in np.array_split(order, 60):
            likely[part, column] = truth[part, column].mean()
    given = truth | (random.random(truth.shape) < TRUE)
    return likely + (1 - likely) * TRUE, given.astype(np.float64), truth.astype(np.float64)


@pytest.mark.parametrize("thought", [0.015, 0.06, 0.2])
def test_the_true_rate_comes_out_of_the_most_doubtful_labels(thought: float) -> None:
    """Two thirds of the positives were looked at, the least likely ones: far more of them are wrong than of all.

    Had people stopped among the labels that are nearly all wrong, every high rate would explain that as well.
    """
    chance, given, truth = simulated(0)
    decided = np.full(given.shape, np.nan)
    order = np.argsort(np.where(given == 1, chance, 2), axis=None)[: int(given.sum() * 2 / 3)]
    rows, columns = np.unravel_index(order, given.shape)
    decided[rows, columns] = truth[rows, columns]
    assert (decided[rows, columns] == 0).mean() > 1.3 * (truth[given == 1] == 0).mean()
    start = Rates(np.full(3, thought), np.full(3, 0.05))
    alarm, miss = rates_from_decisions(chance, given, decided, start)
    np.testing.assert_allclose(alarm, TRUE, rtol=0.4)
    np.testing.assert_allclose(miss, 0.05)


def test_a_random_sample_gives_its_own_rate() -> None:
    chance, given, truth = simulated(1)
    decided = np.where(np.random.default_rng(0).random(given.shape) < 0.5, truth, np.nan)
    alarm, _ = rates_from_decisions(chance, given, decided, Rates(np.full(3, 0.02), np.full(3, 0.05)))
    np.testing.assert_allclose(alarm, TRUE, rtol=0.35)


def test_without_decisions_nothing_changes_and_a_silent_class_follows_the_others() -> None:
    chance, given, truth = simulated(2)
    start = Rates(np.full(3, 0.01), np.full(3, 0.05))
    nothing = np.full(given.shape, np.nan)
    alarm, miss = rates_from_decisions(chance, given, nothing, start)
    np.testing.assert_array_equal(alarm, start.false_alarm)
    np.testing.assert_array_equal(miss, start.miss)
    some = nothing.copy()
    some[:, :2] = truth[:, :2]
    alarm, _ = rates_from_decisions(chance, given, some, start)
    assert alarm[2] > 2 * start.false_alarm[2]
    assert 1 in FACTORS


def test_a_label_given_as_a_fraction_is_there_from_a_half_on() -> None:
    """Whoever was as unsure as can be and was taken at their word has false alarms, and nothing missed."""
    chance, given, truth = simulated(3)
    start = Rates(np.full(3, 0.02), np.full(3, 0.05))
    wanted = rates_from_decisions(chance, given, truth, start)
    assert (wanted[0] > 0.03).all()
    for fraction in (0.5, 0.7):
        found = rates_from_decisions(chance, np.where(given == 1, fraction, 0.2), truth, start)
        np.testing.assert_allclose(found[0], wanted[0])
        np.testing.assert_allclose(found[1], wanted[1])


def test_shapes_are_checked() -> None:
    with pytest.raises(InputError, match="same shape"):
        rates_from_decisions(np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((3, 3)), Rates(np.zeros(3), np.zeros(3)))
