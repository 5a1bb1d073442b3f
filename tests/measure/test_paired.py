"""Two methods on the same patients: differences, intervals and p from a bootstrap that copies rows one by one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from bomd.measure.paired import over_seeds
from bomd.tables import NO_FINDING, LabelTable

NAMES = ("Mass", "Edema", "Hernia", NO_FINDING)
DRAWS = 60


def a_case(rows: int = 36, seed: int = 0) -> tuple[LabelTable, list[LabelTable], list[LabelTable]]:
    """36 images of 12 patients, two unknown labels, a finding with a single positive; the first method is better."""
    random = np.random.default_rng(seed)
    values = (random.random((rows, 4)) < 0.4).astype(np.float32)
    values[:, 2] = 0
    values[3, 2] = 1
    values[[4, 9], [0, 1]] = np.nan
    ids = np.asarray([f"i{row:02}" for row in range(rows)])
    patients = np.asarray([f"p{row % 12:02}" for row in range(rows)])
    truth = LabelTable(ids, NAMES, values, patients=patients)

    def method(signal: float) -> LabelTable:
        noise = random.random((rows, 4))
        return LabelTable(ids, NAMES, np.clip(signal * np.nan_to_num(values) + (1 - signal) * noise, 0, 1))

    return truth, [method(0.2), method(0.25)], [method(0.1), method(0.15), method(0.1)]


def slowly(
    truth: LabelTable, ones: list[LabelTable], others: list[LabelTable], columns: list[int], counts: np.ndarray
) -> float:
    """The mean difference over findings on a set in which every image occurs as often as its patient was drawn."""
    patients = sorted(set(truth.groups.tolist()))
    copies = np.concatenate([[row] * counts[patients.index(name)] for row, name in enumerate(truth.groups)]).astype(int)
    gaps = []
    for column in columns:
        known = copies[~np.isnan(truth.values[copies, column])]
        labels = truth.values[known, column]
        if labels.min() == labels.max():
            continue
        means = [
            np.mean([roc_auc_score(labels, table.values[known, column]) for table in side]) for side in (ones, others)
        ]
        gaps.append(means[0] - means[1])
    return float(np.mean(gaps))


@pytest.mark.parametrize(("fewest", "columns"), [(1, [0, 1, 2]), (2, [0, 1])])
def test_it_is_what_copies_of_the_rows_give(fewest: int, columns: list[int]) -> None:
    truth, ones, others = a_case()
    found = over_seeds(truth, ones, others, draws=DRAWS, seed=3, minimum_positives=fewest)
    counts = np.random.default_rng(3).multinomial(12, [1 / 12] * 12, size=DRAWS)
    drawn = [slowly(truth, ones, others, columns, each) for each in counts]
    assert found is not None
    assert found.difference == pytest.approx(slowly(truth, ones, others, columns, np.ones(12, dtype=int)), abs=1e-12)
    assert found.low == pytest.approx(float(np.percentile(drawn, 2.5)), abs=1e-12)
    assert found.high == pytest.approx(float(np.percentile(drawn, 97.5)), abs=1e-12)
    worse = sum(gap <= 0 for gap in drawn)
    assert worse not in (0, DRAWS - worse, DRAWS)  # or p could not tell the first method from the second
    assert found.p == pytest.approx((worse + 1) / (DRAWS + 1), abs=1e-12)
    back = over_seeds(truth, others, ones, draws=DRAWS, seed=3, minimum_positives=fewest)
    assert back is not None
    assert back.p == pytest.approx((DRAWS - worse + sum(gap == 0 for gap in drawn) + 1) / (DRAWS + 1), abs=1e-12)


def test_p_is_never_0_and_equal_methods_are_no_better_than_each_other() -> None:
    """Right against wrong on every draw: 1 of 101. Against itself no draw is better: 101 of 101."""
    values = np.asarray([[1], [0], [1], [0], [1], [0]], dtype=np.float32)
    truth = LabelTable(np.asarray([*"abcdef"]), ("Mass",), values)
    right, wrong = truth.replace(0.1 + 0.8 * values), truth.replace(0.9 - 0.8 * values)
    sure, same = over_seeds(truth, [right], [wrong], draws=100), over_seeds(truth, [right], [right], draws=100)
    assert sure is not None
    assert same is not None
    assert (sure.difference, sure.low, sure.high) == (1, 1, 1)
    assert sure.p == pytest.approx(1 / 101, abs=0.001)  # draws of one kind of label alone say nothing
    assert same.p == 1


def test_draws_without_both_kinds_of_labels_do_not_count() -> None:
    """Two patients, one ill: half of all draws take one of them twice and have no AUC."""
    truth = LabelTable(np.asarray([*"ab"]), ("Mass",), np.asarray([[1], [0]], dtype=np.float32))
    right = truth.replace(np.asarray([[0.9], [0.1]], dtype=np.float32))
    wrong = truth.replace(np.asarray([[0.1], [0.9]], dtype=np.float32))
    found = over_seeds(truth, [right], [wrong], draws=400, seed=1)
    both = int((np.random.default_rng(1).multinomial(2, [0.5, 0.5], size=400) == 1).all(axis=1).sum())
    assert found is not None
    assert 150 < both < 250
    assert found.p == pytest.approx(1 / (both + 1))


def test_without_a_finding_that_counts_there_is_nothing_to_compare() -> None:
    """Too few positives, positives alone, negatives alone, and "No Finding", which is none."""
    values = np.asarray([[1, 1, 0, 1], [0, 1, 0, 0], [0, 1, 0, 1]], dtype=np.float32)
    truth = LabelTable(np.asarray([*"abc"]), ("Mass", "Edema", "Hernia", NO_FINDING), values)
    assert over_seeds(truth, [truth], [truth], draws=10, minimum_positives=2) is None
    assert over_seeds(truth, [truth], [truth], draws=10) is not None
    assert over_seeds(truth.align(["Edema", "Hernia", NO_FINDING]), [truth], [truth], draws=10) is None
