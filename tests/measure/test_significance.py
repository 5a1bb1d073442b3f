"""The p-values of the paper from its own means and spreads, and the same tests from scipy's own samples."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bomd.measure.significance import Gap, Sample, show, show_seconds, verdict, welch_test, z_test

# AUC in percent over three runs, from the paper's tables: trained on, tested on, BoMD, NVUM.
PAPER = {
    "NIH, OpenI": (Sample(89.57, 0.22, 3), Sample(88.17, 0.48, 3)),
    "NIH, PadChest": (Sample(86.45, 0.08, 3), Sample(85.49, 0.06, 3)),
    "CheXpert, OpenI": (Sample(80.03, 0.73, 3), Sample(77.21, 0.81, 3)),
    "CheXpert, PadChest": (Sample(81.76, 0.40, 3), Sample(80.62, 0.10, 3)),
}


class TestThePaper:
    @pytest.mark.parametrize(("where", "p"), [("NIH, OpenI", 0.001769), ("CheXpert, OpenI", 0.000249)])
    def test_z_gives_the_published_p(self, where: str, p: float) -> None:
        """Printed as 0.0018 and, cut off, 0.0002."""
        assert z_test(*PAPER[where]) == pytest.approx(p, abs=1e-6)

    @pytest.mark.parametrize(("where", "p"), [("NIH, PadChest", 6.4e-58), ("CheXpert, PadChest", 2.1e-30)])
    def test_z_is_far_below_the_printed_bound(self, where: str, p: float) -> None:
        """Printed as 1e-14; the tail keeps its digits, where 1 - cdf would be 0."""
        assert z_test(*PAPER[where]) == pytest.approx(p, rel=0.02)

    @pytest.mark.parametrize(("where", "p"), list(zip(PAPER, [0.0112, 6.4e-5, 0.0056, 0.0162], strict=True)))
    def test_welch_on_the_same_numbers(self, where: str, p: float) -> None:
        assert welch_test(*PAPER[where]) == pytest.approx(p, rel=0.01)


def test_mean_and_sample_deviation_by_hand() -> None:
    """1, 2, 6: mean 3, squares 4 + 1 + 9 = 14, over 2 is 7."""
    assert Sample.of([1.0, 2.0, 6.0]) == Sample(3.0, math.sqrt(7), 3)
    assert Sample.of([0.5]) == Sample(0.5, None, 1)
    assert Sample.of([]) is None


numbers = st.lists(st.floats(0.4, 0.9).map(lambda value: round(value, 4)), min_size=2, max_size=6)


@given(numbers, numbers)
def test_welch_equals_scipy_on_the_values_themselves(first: list[float], second: list[float]) -> None:
    one, other = Sample.of(first), Sample.of(second)
    assert one is not None
    assert other is not None
    p = welch_test(one, other)
    if len(set(first)) == 1 and len(set(second)) == 1:
        assert p is None
    else:
        assert p == pytest.approx(stats.ttest_ind(first, second, equal_var=False, alternative="greater").pvalue)


@given(numbers, numbers)
def test_the_better_one_has_the_smaller_p(first: list[float], second: list[float]) -> None:
    one, other = Sample.of(first), Sample.of(second)
    assert one is not None
    assert other is not None
    p, turned = welch_test(one, other), welch_test(other, one)
    if p is not None and turned is not None:
        assert p + turned == pytest.approx(1)
    z = z_test(one, other)
    if z is not None and abs(one.mean - other.mean) > 1e-9:
        assert (z < 0.5) == (one.mean > other.mean)


def test_single_runs_and_no_spread_give_no_p() -> None:
    assert welch_test(Sample(0.8, None, 1), Sample(0.7, 0.1, 3)) is None
    assert z_test(Sample(0.8, 0.1, 3), Sample(0.7, None, 1)) is None
    assert z_test(Sample(0.8, 0.1, 3), Sample(0.7, 0.0, 3)) is None
    assert z_test(Sample(0.8, None, 1), Sample(0.7, 0.1, 3)) == pytest.approx(0.1587, abs=1e-4)


def test_a_verdict_is_welch_s() -> None:
    bomd, nvum = PAPER["NIH, OpenI"]  # p = 0.011
    assert (verdict(bomd, nvum), verdict(nvum, bomd)) == (1, -1)
    near = Sample(89.4, 0.48, 3)
    assert (verdict(bomd, near), verdict(near, bomd)) == (0, 0)
    assert verdict(bomd, Sample(10.0, None, 1)) == verdict(None, bomd) == 0


@pytest.mark.parametrize(
    ("low", "high", "over_seeds", "expected"),
    [
        (0.01, 0.03, 1, 1),
        (-0.03, -0.01, -1, -1),
        (0.01, 0.03, 0, 0),  # the patients say so, the seeds do not: as the tables of results have it, nobody knows
        (0.01, 0.03, -1, -1),
        (-0.01, 0.03, 1, 1),
        (0.01, 0.03, None, 1),  # a single seed
        (None, None, 1, 1),
    ],
)
def test_the_report_calls_better_what_the_tables_do(
    low: float | None, high: float | None, over_seeds: int | None, expected: int
) -> None:
    assert Gap(0.02, 0.01, 3, 3, low, high, over_seeds).certain == expected


def test_numbers_as_people_write_them() -> None:
    assert show(Sample(0.5, 0.25, 3)) == "0.500 ± 0.250"
    assert show(Sample(0.5, None, 1), percent=True) == "50.0 %"
    assert [show_seconds(seconds) for seconds in (119.4, 120, 7199, 7200)] == ["119 s", "2 min", "120 min", "2.0 h"]
