"""Is one method better than another over seeds? The paper's test, and one that takes both spreads into account."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """What is kept of the same measurement over several seeds.

    Attributes:
        std: Sample standard deviation, divided by count - 1; None for a single value.
    """

    mean: float
    std: float | None
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Sample | None:
        """Mean and spread of these values; None where there are none."""
        known = list(values)
        if not known:
            return None
        return cls(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))


SURE = 0.05  # the largest p of a difference that pages call one


def z_test(one: Sample, other: Sample) -> float | None:
    """One-sided p that `one` is no better, as the BoMD paper computes it: z = (mean - other mean) / other std.

    It takes the other's standard deviation over runs for the whole uncertainty: neither the number of runs nor the
    spread of `one` counts. Here for comparison with the paper alone; judge by `welch_test`.

    Returns:
        None where the other has no spread to compare with.
    """
    if not other.std:
        return None
    return 0.5 * math.erfc((one.mean - other.mean) / other.std / math.sqrt(2))


def welch_test(one: Sample, other: Sample) -> float | None:
    """One-sided p that `one` is no better, by Welch's t-test for spreads and counts that need not agree.

    Returns:
        None where either has a single run, or neither has any spread.
    """
    if one.std is None or other.std is None or not (one.std or other.std):
        return None
    from scipy.special import stdtr  # type: ignore[import-untyped]  # half a second to import

    first, second = one.std**2 / one.count, other.std**2 / other.count
    freedom = (first + second) ** 2 / (first**2 / (one.count - 1) + second**2 / (other.count - 1))
    t = (one.mean - other.mean) / math.sqrt(first + second)
    return float(stdtr(freedom, -t))


def verdict(one: Sample | None, other: Sample | None) -> int:
    """1 where `one` is surely better over seeds by Welch's test, -1 where the other is, 0 where nobody can tell.

    Every page, HTML or Markdown, calls a method better by this rule.
    """
    p = None if one is None or other is None else welch_test(one, other)
    return 0 if p is None else int(p < SURE) - int(p > 1 - SURE)
