"""The page of reproduced tables and figures is what its script makes of results/, and those are what records say."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from evidence import ROOT
from evidence.pages import reproduced
from evidence.reproduce import ARTEFACTS
from evidence.reproduce.artefact import Setting
from evidence.reproduce.work import Made, Place, choose, gather, make, plan
from evidence.reproduce.writing import read_index

MADE = sorted(path.name for path in (ROOT / "results" / "reproduced").glob("*"))


def test_the_page_is_what_the_results_say() -> None:
    assert (ROOT / "docs" / "reproduced.md").read_text() == reproduced.page()


@pytest.mark.parametrize("recipe", MADE)
def test_the_pictures_of_the_page_are_those_that_were_made(recipe: str) -> None:
    for picture in reproduced.pictures(recipe):
        assert (ROOT / "docs" / "images" / "reproduced" / recipe / picture.name).read_bytes() == picture.read_bytes()


@pytest.mark.parametrize("recipe", MADE)
def test_the_tables_are_what_the_records_say(recipe: str, tmp_path: Path) -> None:
    """Made anew from the records and the bootstraps that are kept, without any run."""
    folder = ROOT / "results" / "reproduced" / recipe
    shutil.copytree(folder, tmp_path / "reproduced" / recipe)
    records = ROOT / "results" / f"{recipe}.jsonl"
    if records.exists():  # a recipe may have nothing but figures that need no run
        shutil.copy(records, tmp_path)
    names = [name for name in read_index(folder) if name in ARTEFACTS and ARTEFACTS[name].kind == "table"]
    setting = Setting(recipe)
    place = Place.of(setting, tmp_path / "runs", tmp_path)
    made = make(gather(plan(choose(names), setting, Made()), setting, place), place, Made())
    assert list(made.files) == [name for name in ARTEFACTS if name in names]
    for files in made.files.values():
        for file in files:
            assert file.read_text() == (folder / file.name).read_text(), file.name


def test_a_page_without_any_result_says_what_is_missing(tmp_path: Path) -> None:
    text = reproduced.page(tmp_path)
    assert "No run of recipe phantom is recorded." in text
    assert "Not made for recipe nih-64: noise-grid, main-results" in text


def test_claims_come_before_figures_and_figures_before_tables_which_are_folded() -> None:
    text = reproduced.page()
    for recipe in reproduced.RECIPES:
        places = [
            text.index(f"### {recipe}: {part}\n") for part in ("what holds and what does not", "figures", "tables")
        ]
        assert places == sorted(places)
    assert text.count("<details") == text.count("</details>") > 0
    open_parts = re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)
    assert "The paper's, another setting" in text
    assert "The paper's, another setting" not in open_parts


def test_a_title_is_the_same_where_it_is_not_markdown() -> None:
    assert reproduced._html(r"AUC at (p\_s, p\_l) &lt; 1 & more") == "AUC at (p_s, p_l) &lt; 1 &amp; more"
