"""Kept scores judge again: what is written is read back, and rows of other runs stay."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from bomd.tables import LabelTable
from evidence.studies import opinions, orders


def case(seed: int = 3, rows: int = 400) -> opinions.Case:
    """Four findings, some of them added where they are not; two images a patient."""
    rng = np.random.default_rng(seed)
    clean = (rng.random((rows, 4)) < 0.2).astype(np.float32)
    given = np.maximum(clean, rng.random(clean.shape) < 0.05).astype(np.float32)
    scores = (3 * clean + rng.normal(size=clean.shape)).astype(np.float16).astype(np.float32)
    names = np.asarray([f"i{row}" for row in range(rows)])
    who = np.asarray([f"p{row // 2}" for row in range(rows)])
    table = LabelTable(names, ("a", "b", "c", "d"), given, patients=who)
    return opinions.Case("some", "sparse", seed, table, clean, scores)


def test_what_is_kept_is_read_back(tmp_path: Path) -> None:
    one = case()
    opinions.keep([one, case(4)], tmp_path / "kept.npz")
    back = list(opinions.read([tmp_path / "kept.npz"]))
    assert [found.seed for found in back] == [3, 4]
    np.testing.assert_array_equal(back[0].scores, one.scores)
    np.testing.assert_array_equal(back[0].given.values, one.given.values)
    np.testing.assert_array_equal(back[0].given.groups, one.given.groups)
    assert list(opinions.measure(back[0].given, back[0].clean, back[0].scores)) == list(
        opinions.measure(one.given, one.clean, one.scores)
    )


def test_new_rows_take_the_place_of_old_ones_of_the_same_run_alone(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    row = {"recipe": "some", "noise": "sparse", "rule": "cleanlab"}
    opinions.write_table([row | {"seed": 0, "hits": 1}, row | {"seed": 1, "hits": 2}], path)
    opinions.write_table([row | {"seed": 1, "hits": 5, "more": "x"}], path)
    with path.open(encoding="utf-8") as stream:
        found = [(one["seed"], one["hits"], one["more"]) for one in csv.DictReader(stream)]
    assert found == [("0", "1", ""), ("1", "5", "x")]


def test_every_order_finds_more_than_chance_and_halves_share_no_patient() -> None:
    one = case(rows=1200)
    wrong = (one.given.values != one.clean).any(axis=1).mean()
    for part in orders.PARTS:
        rows = list(orders.measure(one, part))
        assert [row["form"] for row in rows] == list(orders.ORDERS)
        assert all(row["image_ap"] > wrong + 0.1 for row in rows)
    patients = one.given.groups
    choosing, reported, every = ({*patients[orders.whose(patients, part)].tolist()} for part in orders.PARTS)
    assert not choosing & reported
    assert choosing | reported == every == {*patients.tolist()}
