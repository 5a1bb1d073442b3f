"""Two Gaussians on a line."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture

from bomd.methods.base import masked_cross_entropy
from bomd.methods.two_gaussians import (
    FEWEST,
    FLOOR,
    TwoGaussians,
    cross_entropies,
    fit,
    low_posterior,
    low_posterior_by_label,
)


def heaps(low: int, high: int, seed: int = 0) -> np.ndarray:
    """Values around 0.2 and then around 0.7, which overlap."""
    generator = np.random.default_rng(seed)
    return np.concatenate([generator.normal(0.2, 0.1, low), generator.normal(0.7, 0.15, high)])


def test_posterior_by_hand() -> None:
    """At 0.3: 0.7 N(0.3; 0.1, 0.1) = 0.7 x 0.53991 / ... against 0.3 N(0.3; 0.6, 0.2)."""
    mixture = TwoGaussians(np.array([0.7, 0.3]), np.array([0.1, 0.6]), np.array([0.01, 0.04]))
    assert mixture.low(np.array([0.3])) == pytest.approx(0.660482, abs=1e-6)


def test_fit_agrees_with_scikit_learn() -> None:
    values = heaps(600, 300)
    theirs = GaussianMixture(2, reg_covar=FLOOR, max_iter=500, tol=1e-9, random_state=0).fit(values[:, None])
    ours = fit(values, iterations=500, tolerance=1e-9)
    assert ours is not None
    order = np.argsort(theirs.means_[:, 0])
    np.testing.assert_allclose(ours.shares, theirs.weights_[order], atol=1e-4)
    np.testing.assert_allclose(ours.means, theirs.means_[order, 0], atol=1e-4)
    np.testing.assert_allclose(ours.variances, theirs.covariances_[order, 0, 0], atol=1e-4)
    np.testing.assert_allclose(ours.low(values), theirs.predict_proba(values[:, None])[:, order[0]], atol=1e-3)


def test_few_iterations_agree_with_scikit_learn() -> None:
    """From the same split of least squares, step by step."""
    values = heaps(400, 300)
    ours = fit(values)
    theirs = GaussianMixture(2, reg_covar=FLOOR, max_iter=10, tol=1e-2, random_state=0).fit(values[:, None])
    assert ours is not None
    np.testing.assert_allclose(ours.means, np.sort(theirs.means_[:, 0]), atol=1e-6)


def test_starts_from_the_split_of_least_squares() -> None:
    values = np.random.default_rng(1).random(25)
    ordered = np.sort(values)
    costs = [ordered[:cut].var() * cut + ordered[cut:].var() * (25 - cut) for cut in range(1, 25)]
    cut = 1 + int(np.argmin(costs))
    start = fit(values, iterations=0)
    assert start is not None
    np.testing.assert_allclose(start.means, [ordered[:cut].mean(), ordered[cut:].mean()])
    np.testing.assert_allclose(start.variances, [ordered[:cut].var() + FLOOR, ordered[cut:].var() + FLOOR])


def test_a_lone_outlier_keeps_a_variance() -> None:
    posterior = low_posterior(np.array([0.0] * 30 + [1.0]))
    np.testing.assert_allclose(posterior, [1.0] * 30 + [0.0], atol=1e-6)


def test_heaps_are_told_apart_whatever_their_order_and_scale() -> None:
    values = np.concatenate([np.full(20, 50.0), np.full(30, -3.0)]) + np.linspace(0, 1, 50)
    np.testing.assert_allclose(low_posterior(values), [0.0] * 20 + [1.0] * 30, atol=1e-6)
    np.testing.assert_allclose(low_posterior(-values), [1.0] * 20 + [0.0] * 30, atol=1e-6)


def test_without_two_heaps_the_lower_half_is_low() -> None:
    """One heap: after enough iterations one Gaussian is the likelier one for every value, so the median decides."""
    values = np.array([0.0, 0.24, 0.35, 0.37, 0.37, 0.46, 0.53, 0.62, 0.65, 0.71, 0.75, 1.0])
    assert fit(values, iterations=2000, tolerance=1e-12) is None
    posterior = low_posterior(5 - 3 * values, iterations=2000, tolerance=1e-12)
    np.testing.assert_array_equal(posterior, [0.0] * 6 + [1.0] * 6)


@pytest.mark.parametrize("count", range(FEWEST))
def test_few_values_are_all_low(count: int) -> None:
    np.testing.assert_array_equal(low_posterior(np.arange(count, dtype=np.float64)), np.ones(count))


def test_equal_values_are_all_low_and_unknown_stays_unknown() -> None:
    values = np.full(30, 0.3)
    values[4] = np.nan
    posterior = low_posterior(values)
    assert np.isnan(posterior[4])
    assert (np.delete(posterior, 4) == 1).all()


@given(
    st.lists(st.floats(-5, 5, width=32), min_size=FEWEST, max_size=40),
    st.randoms(use_true_random=False),
    st.floats(0.1, 10),
    st.floats(-3, 3),
)
def test_order_scale_and_place_do_not_matter(values: list[float], random: object, factor: float, shift: float) -> None:
    given_values = np.round(np.asarray(values, dtype=np.float64), 3)
    assume(np.ptp(given_values) > 0.1)
    order = np.random.default_rng(random.getrandbits(32)).permutation(len(values))  # type: ignore[attr-defined]
    posterior = low_posterior(given_values)
    assert ((posterior >= 0) & (posterior <= 1)).all()
    assert (posterior > 0.5).any()
    np.testing.assert_allclose(low_posterior(given_values[order]), posterior[order], atol=1e-6)
    np.testing.assert_allclose(low_posterior(given_values * factor + shift), posterior, atol=1e-6)


def test_each_class_and_value_is_judged_on_its_own() -> None:
    """Losses of 1 are high among negatives, where 0 is usual, and low among positives, where 3 is."""
    labels = np.array([[0.0]] * 30 + [[1.0]] * 30 + [[np.nan]], dtype=np.float32)
    values = np.array([0.0] * 20 + [1.0] * 10 + [1.0] * 20 + [3.0] * 10 + [2.0])[:, None]
    posterior = low_posterior_by_label(values, labels)[:, 0]
    np.testing.assert_allclose(posterior[:60], [1.0] * 20 + [0.0] * 10 + [1.0] * 20 + [0.0] * 10, atol=1e-6)
    assert np.isnan(posterior[60])


def test_cross_entropies_are_those_of_the_loss() -> None:
    logits = np.array([[0.0, 2.0, -400.0], [30.0, -1.0, 0.5]], dtype=np.float32)
    labels = np.array([[1.0, 0.0, 1.0], [0.0, np.nan, 0.3]], dtype=np.float32)
    entries = cross_entropies(logits, labels)
    assert entries[0] == pytest.approx([0.693147, 2.126928, 400.0], abs=1e-6)
    assert np.isnan(entries[1, 1])
    mean = masked_cross_entropy(torch.from_numpy(logits), torch.from_numpy(labels)).item()
    assert np.nanmean(entries) == pytest.approx(mean, rel=1e-6)
