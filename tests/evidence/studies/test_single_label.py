"""The page of single labels says what its results say, and its digits can be made anew."""

from __future__ import annotations

from pathlib import Path

from bomd.data.datasets import folder
from bomd.data.one_label import with_kind
from evidence.rows import read_rows
from evidence.studies.single_label import (
    NOISE,
    PAGE,
    PHANTOM_NOISE,
    PHANTOMS,
    RULES,
    add,
    filled,
    recipes,
    write_digits,
)


def test_the_page_is_made_of_the_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page
    assert all(name in page for name in RULES.values())


def test_the_digits_are_a_folder_with_one_label_each(tmp_path: Path) -> None:
    table = folder.read(write_digits(tmp_path), "test")
    assert with_kind(table).exclusive
    assert len(table) == 599
    assert len(table.classes) == 10


def test_rows_made_side_by_side_come_together_and_newer_ones_count(tmp_path: Path) -> None:
    def row(seed: int, rule: str, hits: int) -> dict[str, object]:
        return {"evidence": "network", "set": "digits", "noise": "none", "seed": seed, "rule": rule, "hits_100": hits}

    add([row(1, "bce", 5)], tmp_path / "rows.csv")
    add([row(0, "bce", 6), row(0, "cleanlab", 7) | {"moved": 3}], tmp_path / "rows.csv")
    add([row(1, "bce", 8)], tmp_path / "rows.csv")
    found = [(row["rule"], row["seed"], row["hits_100"], row["moved"]) for row in read_rows(tmp_path / "rows.csv")]
    assert found == [("bce", "0", "6", ""), ("bce", "1", "8", ""), ("cleanlab", "0", "7", "3")]


def test_every_noise_of_all_sets_is_asked_for(tmp_path: Path) -> None:
    asked = [(facts["set"], facts["noise"], recipe["seed"]) for recipe, facts in recipes(tmp_path, [3, 4])]
    assert len(set(asked)) == len(asked) == 2 * (len(NOISE) + len(PHANTOMS) * len(PHANTOM_NOISE))
    written = (tmp_path / "digits" / "labels.csv").stat().st_mtime_ns
    list(recipes(tmp_path, [3]))
    assert (tmp_path / "digits" / "labels.csv").stat().st_mtime_ns == written, "others may be reading"
