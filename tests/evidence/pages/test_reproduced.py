"""The page of reproduced tables and figures is what its script makes of results/, and those are what records say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bomd.files import read_text
from evidence import DOCS, RESULTS
from evidence.pages import built, methods, reproduced
from evidence.reproduce import ARTEFACTS
from evidence.reproduce.artefact import Setting
from evidence.reproduce.claims import claims
from evidence.reproduce.work import Made, Place, choose, gather, make, plan


def test_the_pages_are_what_the_results_say() -> None:
    assert (DOCS / "reproduced.md").read_text() == reproduced.page()
    assert {path.stem for path in (DOCS / "paper").iterdir()} == set(reproduced.TOPICS)
    for name in reproduced.TOPICS:
        assert (DOCS / "paper" / f"{name}.md").read_text() == reproduced.topic_page(name), name


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
def test_what_is_made_is_made_anew_only_where_something_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(built, "ROOT", tmp_path)
    source, calls = tmp_path / "records", list[Path]()
    source.write_text("1")

    def make(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "made").write_text(source.read_text())
        calls.append(folder)

    for _ in range(2):
        assert (built.built("some", [source], make) / "made").read_text() == "1"
    assert len(calls) == 1
    source.write_text("2")
    assert (built.built("some", [source], make) / "made").read_text() == "2"
    assert len(calls) == 2


def test_pages_without_any_result_say_what_is_missing(tmp_path: Path) -> None:
    page = reproduced.page(tmp_path)
    assert "No run of recipe phantom is recorded." in page
    assert set(re.findall(r'class="verdict (\w+)"', page)) == {"untested"}
    assert "No run here can tell." in reproduced.topic_page("noise", tmp_path)
    assert "It was not made" in reproduced.shown("nih-64", "noise-grid", tmp_path)


def test_real_x_rays_are_judged_by_every_method_that_their_page_compares() -> None:
    """As many rivals as the page of all methods has, but BoMD as published, and the same lead of the best."""
    (grid,) = methods.comparisons(methods.compared("nih-64"), list(methods.METHODS))
    rivals = [name for name in grid.methods if name not in ("bomd", "bomd-paper")]
    scores = {name: grid.score(name, "no noise", "openi") for name in grid.methods}
    ours = scores["bomd"]
    assert ours is not None
    above = [name for name in rivals if (found := scores[name]) is not None and found.mean > ours.mean]
    text = reproduced.topic_page("all-methods").partition("- Real images")[2]
    assert (
        f"On openi, methods with a higher mean than BoMD: without noise {len(above)} of {len(rivals)}: hermoza" in text
    )
    assert re.search(
        rf"Pneumothorax \(4 positives\), methods with a higher mean than BoMD: \d+ of {len(rivals)}: ", text
    )


def test_every_claim_is_on_the_scorecard_and_every_artefact_on_one_page() -> None:
    page = (DOCS / reproduced.PAGE).read_text()
    found = reproduced._material(Setting("nih-64"), RESULTS)
    for claim in claims(found):
        assert (claim.paper in page) == (claim.tally is not None)
    shown = [name for topic in reproduced.TOPICS.values() for name in topic.artefacts]
    assert sorted(shown) == sorted(ARTEFACTS)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", reproduced.RECIPES)
def test_what_few_will_read_is_folded(recipe: str) -> None:
    folder = reproduced.made(recipe)
    text = "\n".join(reproduced.shown(recipe, name, folder) for name in ARTEFACTS)
    assert text.count("<details") == text.count("</details>") > 0
    open_parts = re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)
    assert "The paper's, another setting" in text
    assert "The paper's, another setting" not in open_parts


def test_a_title_is_the_same_where_it_is_not_markdown() -> None:
    assert reproduced._html(r"AUC at (a\_b, c\_d) &lt; 1 & more") == "AUC at (a_b, c_d) &lt; 1 &amp; more"
