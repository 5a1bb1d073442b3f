"""Is one method better than another over seeds? The paper's test, and one that takes both spreads into account."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """What is kept of the same measurement over several seeds."""

    mean: float
    std: float | None  # sample standard deviation, divided by count - 1; None for a single value
    count: int
    low: float | None = None  # lower end of the interval of a single run, where it has one; likewise `high`
    high: float | None = None

    @classmethod
    def of(cls, values: Iterable[float | None], low: float | None = None, high: float | None = None) -> Sample | None:
        """Mean and spread of what is known, None and NaN being unknown; None where nothing is.

        `low` and `high` are those of a single value: of several the spread says more.
        """
        known = [value for value in values if value is not None and math.isfinite(value)]
        if not known:
            return None
        if len(known) > 1:
            return cls(statistics.fmean(known), statistics.stdev(known), len(known))
        ends = [None if end is None or math.isnan(end) else end for end in (low, high)]
        return cls(float(known[0]), None, 1, *ends)


UNDEFINED = "–"


def show(sample: Sample | None, percent: bool = False, digits: int = 3) -> str:
    """A mean as people write it: 0.873 ± 0.004, or 0.873 (0.861–0.885)."""
    if sample is None:
        return UNDEFINED
    scale, digits, unit = (100, 1, " %") if percent else (1, digits, "")

    def written(value: float) -> str:
        return f"{value * scale:.{digits}f}"

    if sample.std is not None:
        return f"{written(sample.mean)} ± {written(sample.std)}{unit}"
    if sample.low is not None and sample.high is not None:
        return f"{written(sample.mean)} ({written(sample.low)}–{written(sample.high)}){unit}"
    return written(sample.mean) + unit


def show_seconds(seconds: float | None) -> str:
    """A duration in the unit that suits it."""
    if seconds is None or math.isnan(seconds):
        return UNDEFINED
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"


SURE = 0.05  # the largest p of a difference that pages call one


def z_test(one: Sample, other: Sample) -> float | None:
    """One-sided p that `one` is no better, as the BoMD paper computes it: z = (mean - other mean) / other std.

    It takes the other's standard deviation over runs for the whole uncertainty (None without one): neither the number
    of runs nor the spread of `one` counts. Here for comparison with the paper alone; judge by `welch_test`.
    """
    if not other.std:
        return None
    return 0.5 * math.erfc((one.mean - other.mean) / other.std / math.sqrt(2))


def welch_test(one: Sample, other: Sample) -> float | None:
    """One-sided p that `one` is no better, by Welch's t-test; None with a single run of either, or without spread."""
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


@dataclass(frozen=True)
class Gap:
    """Mean AUC of a method minus that of another on the same data."""

    mean: float  # over the seeds that both have
    std: float | None  # sample standard deviation over these seeds; None for one
    won: int  # seeds in which the method is ahead
    count: int
    low: float | None = None  # of the 95 % interval over test patients, as `high`; None where it was not computed
    high: float | None = None
    over_seeds: int | None = None  # `verdict` of all seeds; None with a single one, which it cannot judge

    @property
    def certain(self) -> int:
        """1 or -1 where chance does not explain it, else 0: by seeds as on every page, by patients for a single one."""
        if self.over_seeds is not None or self.low is None or self.high is None:
            return self.over_seeds or 0
        return int(self.low > 0) - int(self.high < 0)
