"""The order of review: by hand, against a loop, and that errors of whole patients are found as such."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bomd.clean import posterior
from bomd.clean.calibrate import calibrate
from bomd.clean.opinion import form_opinion
from bomd.clean.order import MANY, OTHERS, chance_of_any, how_urgent, suspect_patients
from bomd.clean.posterior import TEMPER
from bomd.clean.rates import Rates, likeliest, possible_rates
from bomd.tables import NO_FINDING, LabelTable

CLASSES = ("Mass", "Edema", NO_FINDING)
RATES = Rates(np.asarray([0.1, 0.05, 0.2]), np.asarray([0.2, 0.1, 0.1]), 0.4)


def some(rows: int = 30, seed: int = 0) -> tuple[np.ndarray, LabelTable]:
    """Evidence and labels, some of them unknown, of ten patients."""
    rng = np.random.default_rng(seed)
    values = (rng.random((rows, 3)) < 0.4).astype(np.float32)
    values[rng.random(values.shape) < 0.1] = np.nan
    ids, who = (np.asarray([f"{kind}{row % most}" for row in range(rows)]) for kind, most in (("i", rows), ("p", 10)))
    return rng.random((rows, 3)), LabelTable(ids, CLASSES, values, patients=who)


def weigh(chance: float, label: float, alarm: float, miss: float, share: float) -> tuple[float, float]:
    """Logarithm of how much more likely a label is in an affected image, and how likely it is wrong there."""
    true = min(max((chance - alarm) / (1 - alarm - miss), 1e-3), 1 - 1e-3)
    alarm, miss = min(alarm / share, 0.9), min(miss / share, 0.9)
    if label >= 0.5:
        wrong, other, right = (1 - true) * alarm, true * (1 - miss), true
    else:
        wrong, other, right = true * miss, (1 - true) * (1 - alarm), 1 - true
    return math.log((wrong + other) / right), wrong / (wrong + other)


@pytest.mark.parametrize("chunk", [7, 1000])
def test_patients_and_chances_against_a_loop(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posterior, "CHUNK", chunk)
    evidence, table = some()
    patients = np.arange(30) % 10
    suspect = suspect_patients(evidence, table, RATES, patients)
    found = chance_of_any(evidence, table, RATES, suspect)
    ratio, parts = np.zeros(30), [dict[int, tuple[float, float]]() for _ in range(30)]
    for row in range(30):
        for column in range(3):
            label = float(table.values[row, column])
            if math.isnan(label):
                continue
            alarm, miss = RATES.false_alarm[column], RATES.miss[column]
            said, wrong = weigh(evidence[row, column], label, alarm, miss, 0.4)
            ratio[row] += said
            parts[row][column] = (wrong, weigh(evidence[row, column], label, alarm, miss, 1.0)[1])
    for row in range(30):
        others = sum(ratio[other] for other in range(30) if other % 10 == row % 10 and other != row)
        odds = math.exp(TEMPER * ratio[row] + OTHERS * others) * 0.4 / 0.6
        assert suspect[row] == pytest.approx(odds / (1 + odds))
        none = 1.0
        for column, (wrong, alone) in parts[row].items():
            if CLASSES[column] != NO_FINDING:
                none *= 1 - (odds / (1 + odds) * wrong + alone) / 2
        assert found[row] == pytest.approx(1 - none)


def test_few_errors_by_the_likeliest_and_many_by_their_number() -> None:
    """Two findings that are wrong with 1/2 each, or one with 3/4.

    With rates of 0.1, evidence of 0.1 + 0.8 t stands for a true label of probability t. A positive label is wrong with
    (1 - t) / ((1 - t) + 9 t): 1/2 at t = 0.1, 3/4 at t = 1/28. Beside eight images that are right, the second is the
    more urgent; beside twenty more like the first, the first is.
    """
    rates = Rates(np.full(3, 0.1), np.full(3, 0.1))
    evidence = np.asarray([[0.18, 0.18, 0.9], [0.1 + 0.8 / 28, 0.9, 0.9], *[[0.9, 0.9, 0.9]] * 8])
    values = np.ones((10, 3), dtype=np.float32)
    values[:, 2] = 0
    table = LabelTable(np.arange(10).astype(str), CLASSES, values)
    urgency, why = how_urgent(evidence, table, rates, [rates])
    assert urgency[:2] == pytest.approx([0.5, 0.75])
    assert why.startswith("Errors are few")
    some_more = np.concatenate([evidence, np.full((20, 3), 0.18)])
    more = LabelTable(np.arange(30).astype(str), CLASSES, np.concatenate([values, np.tile(values[:1], (20, 1))]))
    urgency, why = how_urgent(some_more, more, rates, [rates])
    assert urgency.mean() > MANY
    assert urgency[:2] == pytest.approx([1.0, 0.75], abs=1e-3)
    assert why.startswith("Errors are many")


def test_labels_that_people_confirmed_make_no_image_urgent() -> None:
    evidence, table = some()
    fixed = np.zeros(table.values.shape, dtype=np.bool_)
    fixed[3] = True
    confirmed = LabelTable(table.ids, CLASSES, np.nan_to_num(table.values), patients=table.patients, confirmed=fixed)
    urgency, _ = how_urgent(evidence, confirmed, RATES, [RATES])
    assert urgency[3] == 0
    assert (np.delete(urgency, 3) > 0).all()


def test_rates_of_0_make_nothing_urgent_and_no_image_is_no_error() -> None:
    evidence, table = some()
    nothing = Rates(np.zeros(3), np.zeros(3))
    assert not how_urgent(evidence, table, nothing, [nothing])[0].any()
    assert how_urgent(evidence[:0], table.take([]), RATES, [RATES])[0].shape == (0,)


def planted(by: str, seed: int = 0, patients: int = 800, each: int = 4) -> tuple[np.ndarray, np.ndarray, LabelTable]:
    """Scores, which images have a wrong label, and the labels: a fifth of the patients or images has false alarms."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(patients), each)
    truth = rng.random((len(owner), 10)) < np.linspace(0.02, 0.15, 10)
    scores = 2 * truth + rng.normal(size=truth.shape)
    hit = (rng.random(patients) < 0.2)[owner] if by == "patient" else rng.random(len(owner)) < 0.2
    given = truth | (hit[:, None] & (rng.random(truth.shape) < 0.1))
    names = tuple(f"F{column}" for column in range(10))
    ids = np.asarray([f"i{row}" for row in range(len(owner))])
    table = LabelTable(ids, names, given.astype(np.float32), patients=owner.astype(str))
    return scores, (given != truth).any(axis=1), table


def first(count: int, scores: np.ndarray, wrong: np.ndarray, table: LabelTable) -> tuple[int, str]:
    """How many images of the first ones are wrong, and what is said about the order."""
    opinion, _, _ = form_opinion(scores, table)
    return int(wrong[opinion.rank <= count].sum()), " ".join(opinion.reasons)


def test_errors_that_sit_in_whole_patients_are_found_as_such() -> None:
    """More wrong images come first than where nobody knows whose images they are."""
    scores, wrong, table = planted("patient")
    unknown = LabelTable(table.ids, table.classes, table.values)
    found, why = first(300, scores, wrong, table)
    alone, other = first(300, scores, wrong, unknown)
    assert "patient by patient" in why
    assert "patient by patient" not in other
    assert found > alone + 15


def test_errors_of_single_images_are_not_blamed_on_patients() -> None:
    scores, wrong, table = planted("image")
    unknown = LabelTable(table.ids, table.classes, table.values)
    found, why = first(300, scores, wrong, table)
    assert "patient by patient" not in why
    assert found == first(300, scores, wrong, unknown)[0]


def test_images_that_are_affected_come_by_the_chance_that_anything_is_wrong() -> None:
    evidence, table = some()
    alone = LabelTable(table.ids, table.classes, table.values)
    affected = Rates(np.full(3, 0.1), np.full(3, 0.1), 0.4, 1.0)
    urgency, why = how_urgent(evidence, alone, affected, [affected])
    suspect = suspect_patients(evidence, alone, affected, np.arange(len(alone)))
    np.testing.assert_array_equal(urgency, chance_of_any(evidence, alone, affected, suspect))
    assert why.startswith("Images in which anything is likely wrong")


def test_images_of_one_patient_each_are_images() -> None:
    """To be affected together with nobody is to be affected alone."""
    scores, _, table = planted("image", patients=300, each=2)
    evidence = calibrate(scores, table.values)
    possible = possible_rates(evidence, table.values)
    alone, together = (likeliest(possible, evidence, table.values, who) for who in (None, np.arange(len(table))))
    assert together.gain == pytest.approx(alone.gain, rel=1e-9)
    assert together.affected == alone.affected
