"""Held-out patients: disjoint, in proportion, and the same whatever the order of the rows."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bomd.data.split import split_by_patient
from bomd.errors import InputError
from bomd.tables import LabelTable


def make_table(
    count: int, patients: int, prevalence: tuple[float, ...] = (0.005, 0.03, 0.1, 0.5), seed: int = 0
) -> LabelTable:
    """Patients have their own tendency to each class, so that positives cluster as they do in reality."""
    rng = np.random.default_rng(seed)
    tendency = rng.gamma(0.5, 2.0, (patients, len(prevalence))) * prevalence
    who = np.concatenate([np.arange(patients), rng.choice(patients, count - patients)])
    values = (rng.random((count, len(prevalence))) < tendency[who]).astype(np.float32)
    ids = np.array([f"image{row:06d}" for row in range(count)])
    return LabelTable(ids, [f"c{i}" for i in range(len(prevalence))], values, patients=np.array([f"p{i}" for i in who]))


def test_sides_are_complete_disjoint_and_share_no_patient() -> None:
    table = make_table(3000, 800)
    kept, held_out = split_by_patient(table, 0.2, 0)
    assert sorted([*kept, *held_out]) == list(range(3000))
    assert (np.diff(kept) > 0).all()
    assert (np.diff(held_out) > 0).all()
    assert not set(table.groups[kept]) & set(table.groups[held_out])


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.3, 0.7])
def test_every_class_and_the_images_keep_their_share(fraction: float) -> None:
    """The excess of a class is at most what one or two patients bring; a random split misses by far more."""
    table = make_table(6000, 1500)
    _, held_out = split_by_patient(table, fraction, 0)
    totals = table.values.sum(axis=0)
    assert totals.min() > 10
    assert np.abs(table.values[held_out].sum(axis=0) - fraction * totals).max() <= 4
    assert abs(len(held_out) - fraction * 6000) <= 0.01 * 6000


def test_it_is_nearer_to_the_share_than_chance() -> None:
    table = make_table(8000, 2000)
    totals = table.values.sum(axis=0)
    _, held_out = split_by_patient(table, 0.2, 0)
    own = np.abs(table.values[held_out].sum(axis=0) / totals - 0.2).mean()
    rng = np.random.default_rng(0)
    names = np.unique(table.groups)
    by_chance = []
    for _ in range(20):
        rows = np.isin(table.groups, rng.choice(names, 400, replace=False))
        by_chance.append(np.abs(table.values[rows].sum(axis=0) / totals - 0.2).mean())
    assert own < min(by_chance) / 4


def test_four_patients_with_two_rare_positives() -> None:
    """Half of four single-image patients, two of them positive: one of each kind goes to each side."""
    table = LabelTable(np.array(list("abcd")), ("A",), np.array([[1], [1], [0], [0]]))
    for seed in range(5):
        kept, held_out = split_by_patient(table, 0.5, seed)
        assert table.values[kept].sum() == table.values[held_out].sum() == 1
        assert len(kept) == len(held_out) == 2


def test_the_seed_decides_and_repeats() -> None:
    table = make_table(500, 200)
    first = split_by_patient(table, 0.2, 1)[1]
    assert first.tolist() == split_by_patient(table, 0.2, 1)[1].tolist()
    assert first.tolist() != split_by_patient(table, 0.2, 2)[1].tolist()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.1, 0.9))
def test_shuffled_rows_give_the_same_images(seed: int, fraction: float) -> None:
    table = make_table(120, 40, seed=seed)
    soft = np.random.default_rng(seed).random(table.values.shape).astype(np.float32)
    table = table.replace(np.where(soft < 0.1, np.nan, table.values * soft))
    order = np.random.default_rng(seed + 1).permutation(120)
    kept, held_out = split_by_patient(table, fraction, 3)
    again_kept, again_held_out = split_by_patient(table.take(order), fraction, 3)
    assert sorted(table.ids[kept]) == sorted(table.ids[order][again_kept])
    assert sorted(table.ids[held_out]) == sorted(table.ids[order][again_held_out])


def test_without_patients_every_image_is_its_own() -> None:
    table = make_table(400, 50)
    _, held_out = split_by_patient(LabelTable(table.ids, table.classes, table.values), 0.25, 0)
    assert len(held_out) == 100


def test_fraction_0_holds_out_nothing_and_others_are_checked() -> None:
    table = make_table(20, 10)
    kept, held_out = split_by_patient(table, 0, 0)
    assert kept.tolist() == list(range(20))
    assert held_out.shape == (0,)
    assert len(table.take(held_out)) == 0
    for fraction in (-0.1, 1.0, 1.5, float("nan")):
        with pytest.raises(InputError, match="must be at least 0 and below 1"):
            split_by_patient(table, fraction, 0)
    one = LabelTable(table.ids, table.classes, table.values, patients=np.full(20, "same"))
    with pytest.raises(InputError, match="1 patients leaves one side empty"):
        split_by_patient(one, 0.2, 0)


def test_a_hundred_thousand_images_take_seconds() -> None:
    table = make_table(100_000, 30_000, prevalence=(0.002,) * 7 + (0.02,) * 6 + (0.5,))
    start = time.process_time()
    split_by_patient(table, 0.1, 0)
    assert time.process_time() - start < 5
