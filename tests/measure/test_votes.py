"""Votes of neighbours, against cases worked out by hand and a slow loop."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from bomd.clean.graph import Neighbours
from bomd.measure.result import Rates
from bomd.measure.votes import count_votes, judge_votes, vote_quality
from bomd.tables import LabelTable


def test_a_row_worked_out_by_hand() -> None:
    """Votes (3, 1, 0), given (1, 1, 0), true (1, 0, 0): from two votes on, the one wrong label is found alone."""
    counts = np.array([[3, 1, 0]])
    given, clean = np.array([[1, 1, 0]], dtype=np.float32), np.array([[1, 0, 0]], dtype=np.float32)
    first, second, third, fourth = vote_quality(counts, given, clean, 4)
    assert first.entry.micro.to_dict() == {"precision": None, "recall": 0.0}
    assert second.entry.micro == third.entry.micro == Rates(1.0, 1.0)
    assert first.positive.micro == Rates(0.5, 1.0)
    assert fourth.positive.micro.to_dict() == {"precision": None, "recall": 0.0}
    assert fourth.entry.micro == Rates(0.5, 1.0)


def test_votes_are_counted_and_nobody_votes_for_nothing() -> None:
    labels = np.array([[1, 0], [1, np.nan], [0, 1]], dtype=np.float32)
    found = count_votes(labels, np.array([[1, 2], [0, -1], [0, 1]]))
    assert found.tolist() == [[1, 1], [1, 0], [2, 0]]


def test_equals_a_loop_over_labels() -> None:
    generator = np.random.default_rng(0)
    counts = generator.integers(0, 6, (40, 3))
    given = generator.integers(0, 2, (40, 3)).astype(np.float32)
    clean = generator.integers(0, 2, (40, 3)).astype(np.float32)
    given[3, 1] = clean[5, 2] = np.nan
    for line in vote_quality(counts, given, clean, 5):
        for kind in ("positive", "entry"):
            each = []
            whole = [0, 0, 0]
            for column in range(3):
                tally = [0, 0, 0]  # hits, flagged, wrong
                for row in range(40):
                    old, true = given[row, column], clean[row, column]
                    if np.isnan(old) or np.isnan(true):
                        continue
                    voted = counts[row, column] >= line.threshold
                    flagged, wrong = (voted, true == 1) if kind == "positive" else (voted != (old == 1), old != true)
                    tally = [
                        tally[0] + bool(flagged and wrong),
                        tally[1] + bool(flagged),
                        tally[2] + bool(wrong),
                    ]
                whole = [a + b for a, b in zip(whole, tally, strict=True)]
                each.append((tally[0] / tally[1], tally[0] / tally[2]))
            micro, macro = getattr(line, kind).micro, getattr(line, kind).macro
            assert micro.precision == pytest.approx(whole[0] / whole[1])
            assert micro.recall == pytest.approx(whole[0] / whole[2])
            assert macro.precision == pytest.approx(np.mean([pair[0] for pair in each]))
            assert macro.recall == pytest.approx(np.mean([pair[1] for pair in each]))


def test_only_findings_of_rows_with_known_truth_are_judged() -> None:
    asked: list[NDArray[np.int64]] = []

    def voters(rows: NDArray[np.int64]) -> Neighbours:
        asked.append(rows)
        return Neighbours(np.full((len(rows), 2), 0), np.zeros((len(rows), 2), dtype=np.float32))

    values = np.array([[1, 0], [0, 1], [0, 1]], dtype=np.float32)
    given = LabelTable(np.array(["a", "b", "c"]), ("Mass", "No Finding"), values)
    clean = given.replace(np.array([[1, 0], [0, 1], [1, 0]]))
    found = judge_votes(voters, given, clean, np.array([False, True, True]), seed=0)
    assert found is not None
    assert asked[0].tolist() == [1, 2]
    assert (found.images, found.neighbours) == (2, 2)
    # Both neighbours are image a, which has Mass: both rows are voted Mass, and one of them truly has it.
    assert found.thresholds[1].positive.micro == Rates(0.5, 1.0)
    assert judge_votes(voters, given, clean, np.zeros(3, dtype=np.bool_), seed=0) is None


def test_a_label_of_one_half_is_a_vote() -> None:
    labels = np.array([[0.5, 0.49], [0, 0]], dtype=np.float32)
    assert count_votes(labels, np.array([[1], [0]])).tolist() == [[0, 0], [1, 0]]
