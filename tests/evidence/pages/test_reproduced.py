"""The page of reproduced tables and figures is what its script makes of results/, and those are what records say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bomd.files import read_text
from evidence import DOCS, RESULTS
from evidence.pages import reproduced
from evidence.reproduce import ARTEFACTS
from evidence.reproduce.artefact import Setting
from evidence.reproduce.work import Made, Place, choose, gather, make, plan


def test_the_page_is_what_the_results_say() -> None:
    assert (DOCS / "reproduced.md").read_text() == reproduced.page()


@pytest.mark.parametrize("recipe", reproduced.RECIPES)
def test_the_tables_are_what_the_records_say(recipe: str, tmp_path: Path) -> None:
    """Made anew from the records and the bootstraps that are kept, without any run."""
    setting = Setting(recipe)
    place = Place.of(setting, tmp_path / "runs", RESULTS)
    tables = choose([name for name, artefact in ARTEFACTS.items() if artefact.kind == "table"])
    made = make(gather(plan(tables, setting, Made()), setting, place), tmp_path, Made(), [".csv"])
    ours = [file for files in made.files.values() for file in files if reproduced.PAPER not in file.name]
    assert len(ours) > 10
    for file in ours:
        assert file.read_text() == (place.folder / file.name).read_text(), file.name


@pytest.mark.slow
@pytest.mark.parametrize("recipe", reproduced.RECIPES)
def test_results_hold_the_numbers_of_everything_on_the_site_and_no_others(recipe: str) -> None:
    made, kept = reproduced.made(recipe), RESULTS / "reproduced" / recipe
    numbers = {file.name: file for ending in ("csv", "csv.xz") for file in made.glob(f"*.{ending}")}
    ours = {name for name in numbers if reproduced.PAPER not in name}
    assert ours == {file.name for file in kept.glob("*.csv*")} - {name for name in numbers if reproduced.PAPER in name}
    for name in ours:
        assert read_text(numbers[name]) == read_text(kept / name), f"{name}: run python -m evidence.pages.reproduced"


@pytest.mark.slow
def test_what_is_made_is_made_anew_only_where_something_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    stamp = reproduced.made("phantom") / "made-of.txt"
    before = stamp.stat().st_mtime_ns
    reproduced.made("phantom")
    assert stamp.stat().st_mtime_ns == before
    state = reproduced._state("phantom")
    monkeypatch.setattr(reproduced, "CODE", ())
    assert reproduced._state("phantom") != state


def test_a_page_without_any_result_says_what_is_missing(tmp_path: Path) -> None:
    assert "No run of recipe phantom is recorded." in reproduced.page(tmp_path)
    assert "Not made for recipe nih-64: noise-grid, main-results" in reproduced.shown("nih-64", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", reproduced.RECIPES)
def test_figures_come_before_tables_some_of_which_are_folded(recipe: str) -> None:
    text = reproduced.shown(recipe, reproduced.made(recipe))
    places = [text.index(f"### {recipe}: {part}\n") for part in ("figures", "tables")]
    assert places == sorted(places)
    assert text.count("<details") == text.count("</details>") > 0
    open_parts = re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)
    assert "The paper's, another setting" in text
    assert "The paper's, another setting" not in open_parts


def test_a_title_is_the_same_where_it_is_not_markdown() -> None:
    assert reproduced._html(r"AUC at (p\_s, p\_l) &lt; 1 & more") == "AUC at (p_s, p_l) &lt; 1 &amp; more"
