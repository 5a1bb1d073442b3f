"""The times on the page about backbones are those that were measured."""

from __future__ import annotations

from evidence.studies.backbones import PAGE, forms, page, read


def test_the_page_says_what_the_file_says() -> None:
    text, rows = PAGE.read_text(encoding="utf-8"), read()
    assert page(text, rows) == text, "run: python -m evidence.studies.backbones --page"
    assert [row["backbone"] for row in rows] == list(forms())
    assert all(f"| {row['backbone']} | {row['size']} px |" in text for row in rows)


def test_another_number_changes_the_page() -> None:
    text, rows = PAGE.read_text(encoding="utf-8"), read()
    assert page(text, [{**rows[0], "share": "9.9"}, *rows[1:]]) != text
