"""The page of the photographs says what its results say."""

from __future__ import annotations

from evidence.studies.photos import PAGE, filled


def test_the_page_is_made_of_the_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page
    assert page.count("| bomd-plus") + page.count("**bomd-plus**") >= 4
