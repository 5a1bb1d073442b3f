"""The page of single labels says what its results say, and its digits can be made anew."""

from __future__ import annotations

from pathlib import Path

from bomd.data.datasets import folder
from bomd.data.one_label import with_kind
from evidence.studies.single_label import PAGE, RULES, filled, write_digits


def test_the_page_is_made_of_the_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page
    assert all(name in page for name in RULES.values())


def test_the_digits_are_a_folder_with_one_label_each(tmp_path: Path) -> None:
    table = folder.read(write_digits(tmp_path), "test")
    assert with_kind(table).exclusive
    assert len(table) == 599
    assert len(table.classes) == 10
