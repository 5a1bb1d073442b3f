"""Two Gaussians on a line: how likely is each value to belong to the lower of two heaps?

Small losses point to clean labels, so the methods that divide labels by their loss share this. Scores that are high
for clean labels are judged by their negatives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FLOOR = 5e-4  # added to both variances, of values scaled to [0, 1]: a heap never shrinks to a point
FEWEST = 10  # fewer values say nothing about two heaps

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TwoGaussians:
    """A mixture of two Gaussians; the first has the lower mean."""

    shares: Floats  # (2) parts of all values, which add up to 1
    means: Floats  # (2) ascending
    variances: Floats  # (2) above 0

    def low(self, values: Floats) -> Floats:
        """(N) probability that each of (N) values belongs to the first Gaussian."""
        below, above = self._logarithms(values)
        return np.asarray(np.exp(below - np.logaddexp(below, above)))

    def likelihood(self, values: Floats) -> float:
        """Mean logarithm of the density of (N) values."""
        return float(np.logaddexp(*self._logarithms(values)).mean())

    def _logarithms(self, values: Floats) -> Floats:
        """(2, N) logarithm of share times density."""
        means, variances, shares = self.means[:, None], self.variances[:, None], self.shares[:, None]
        return np.asarray(np.log(shares) - 0.5 * (np.log(2 * np.pi * variances) + (values - means) ** 2 / variances))


def fit(values: Floats, iterations: int = 10, tolerance: float = 1e-2) -> TwoGaussians | None:
    """Fit two Gaussians to (N) values, not all equal, by expectation maximisation from the split of least squares.

    It stops when the mean log-likelihood changes by less than the tolerance; None where one Gaussian is left without a
    value that is more likely its own.
    """
    before, mixture = -np.inf, _maximise(values, (values < _best_split(values)).astype(np.float64))
    for _ in range(iterations):
        if mixture is None:
            return None
        now = mixture.likelihood(values)
        mixture = _maximise(values, mixture.low(values))
        if abs(now - before) < tolerance:
            break
        before = now
    if mixture is None:
        return None
    own = mixture.low(values) > 0.5
    return mixture if own.any() and not own.all() else None


def low_posterior(values: Floats, iterations: int = 10, tolerance: float = 1e-2) -> Floats:
    """(N) probability that each of (N) values belongs to the heap with the lower mean.

    Values are scaled to [0, 1] first. NaN stays NaN. Fewer than `FEWEST` values all count as low, as equal values do.
    Where there are no two heaps to be found, the lower half counts as low, that is values up to the median.
    """
    known = ~np.isnan(values)
    posterior = np.where(known, 1.0, np.nan)
    judged = values[known].astype(np.float64)
    if len(judged) < FEWEST or judged.max() == judged.min():
        return posterior
    scaled = (judged - judged.min()) / (judged.max() - judged.min())
    mixture = fit(scaled, iterations, tolerance)
    posterior[known] = scaled <= np.median(scaled) if mixture is None else mixture.low(scaled)
    return posterior


def low_posterior_by_label(values: Floats, labels: NDArray[np.float32]) -> Floats:
    """(N, C) the same for each class on its own, and in it for positive and negative labels; NaN leaves a value out."""
    posterior = np.full(values.shape, np.nan)
    for column in range(labels.shape[1]):
        for rows in (labels[:, column] >= 0.5, labels[:, column] < 0.5):
            posterior[rows, column] = low_posterior(values[rows, column])
    return posterior


def cross_entropies(logits: NDArray[np.float32], labels: NDArray[np.float32]) -> Floats:
    """(N, C) binary cross-entropy of every label, NaN where there is no label."""
    exact = logits.astype(np.float64)
    return np.asarray(labels * np.logaddexp(0, -exact) + (1 - labels) * np.logaddexp(0, exact))


def row_means(values: NDArray[np.floating]) -> Floats:
    """(N) mean over the labels that are there, NaN where none is."""
    known = ~np.isnan(values)
    sums, counts = np.where(known, values, 0).sum(axis=1, dtype=np.float64), known.sum(axis=1)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def _best_split(values: Floats) -> float:
    """The smallest value of the upper heap when two heaps deviate least from their means."""
    ordered = np.sort(values)
    count = np.arange(1, len(ordered))
    below = np.cumsum(ordered)[:-1]
    above = ordered.sum() - below
    rest = len(ordered) - count
    between = count * rest * (below / count - above / rest) ** 2
    between[ordered[1:] == ordered[:-1]] = -1  # equal values stay together
    return float(ordered[1 + np.argmax(between)])


def _maximise(values: Floats, low: Floats) -> TwoGaussians | None:
    """The mixture that (N) memberships of the lower heap ask for, or None if a heap is empty."""
    members = np.stack([low, 1 - low])
    sizes = members.sum(axis=1)
    if sizes.min() < 1e-9:
        return None
    means = members @ values / sizes
    variances = (members * (values - means[:, None]) ** 2).sum(axis=1) / sizes + FLOOR
    order = np.argsort(means)
    return TwoGaussians(sizes[order] / len(values), means[order], variances[order])
