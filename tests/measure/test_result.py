"""What came of a run: which scores stand for held-out patients, and what an empty result says."""

from __future__ import annotations

import math

import pytest

from bomd.measure.metrics import Classification, ClassScore
from bomd.measure.result import BEFORE_NOISE, HELD_OUT, VALIDATION, Result, Space, held_out


def scored(auc: float) -> Classification:
    return Classification(mean_auc=auc)


def test_held_out_patients_are_judged_by_the_best_labels_that_are_known() -> None:
    both = Result({VALIDATION: scored(0.6), BEFORE_NOISE: scored(0.7), "south": scored(0.8)})
    assert (both.auc(HELD_OUT), both.auc(VALIDATION), both.auc("south")) == (0.7, 0.6, 0.8)
    assert Result({VALIDATION: scored(0.6)}).auc(HELD_OUT) == 0.6
    assert Result({"south": scored(0.8)}).auc(HELD_OUT) is None
    assert Result({"south": scored(math.nan)}).auc("south") is None


@pytest.mark.parametrize(
    ("test", "expected"), [(VALIDATION, True), (BEFORE_NOISE, True), (HELD_OUT, True), ("south", False)]
)
def test_which_patients_are_held_out(test: str, expected: bool) -> None:
    assert held_out(test) == expected


def test_what_nobody_counted_is_0() -> None:
    assert (Result({}).format, Result({}).images_presented, Space(()).images) == (1, 0, 0)
    assert (ClassScore("Mass").positives, ClassScore("Mass").draws) == (0, 0)
