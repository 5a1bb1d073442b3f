"""No number in a page is typed: pages and tables are what their scripts make of the records in results/."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, stdev

import pytest

from bomd.clean import opinion
from bomd.experiments.identity import identity
from bomd.experiments.plan import configure
from bomd.methods import METHODS
from bomd.reports import outcome
from bomd.reports.tables import write_tables
from evidence import RESULTS, ROOT
from evidence.pages import audit_table, dot_plots, readme, results, speed, successor
from evidence.pages import methods as pages
from evidence.records import EVERY_RUN, records_of


def test_pages_are_what_the_records_say() -> None:
    assert (ROOT / "docs" / "demo.md").read_text() == results.demo_page()
    assert (ROOT / "docs" / "nih-small.md").read_text() == results.nih_page()
    guide = (ROOT / "docs" / "ten-minutes.md").read_text()
    assert guide == audit_table.filled(guide)
    assert (ROOT / "docs" / "successor.md").read_text() == successor.page()
    assert (ROOT / "docs" / "speed.md").read_text() == speed.page(speed.read())


def asked(text: str) -> list[str]:
    """The methods that a page says it is about; those added since are not missing from it."""
    (line,) = [line for line in text.splitlines() if line.startswith(pages.COMPARED)]
    return line.removeprefix(pages.COMPARED).partition(".")[0].split(", ")


def test_comparisons_are_what_the_records_say(tmp_path: Path) -> None:
    for name, sources in pages.SOURCES.items():
        groups = {source: pages.compared(source) for source in sources}
        text = (ROOT / "docs" / f"{name}.md").read_text()
        methods = asked(text)
        assert text == pages.page(groups, methods, pages.TITLES[name])
        for source, own in sources.items():
            found = groups[source]
            assert {record.config.method for record in found} <= {*methods} <= {*METHODS}
            if found:
                pages.write_comparison(pages.comparisons(found, methods), tmp_path / f"{own}.csv")
                assert (RESULTS / f"{own}.csv").read_text() == (tmp_path / f"{own}.csv").read_text()


def test_no_comparison_is_without_records() -> None:
    assert {path.stem for path in (ROOT / "docs").glob("methods-*.md")} == {*pages.SOURCES}


def test_a_page_of_methods_says_what_is_there_and_what_is_missing() -> None:
    """On records of two methods; a third is asked for."""
    found = records_of("demo")
    found = [record for record in found if record.config.method in ("bce", "bomd")]
    text = pages.page({"demo": found, "nothing": []}, ["bce", "bomd", "bomd-paper"])
    assert asked(text) == ["bce", "bomd", "bomd-paper"]
    assert "6 of 36 runs are in" in text  # three methods, four levels of noise, three seeds
    plain = [one.result.tests["south"].mean_auc for one in found if one.config.method == "bce"]
    (grid,) = pages.comparisons(found, ["bce", "bomd", "bomd-paper"])
    cells = f"| bce | not run | not run | {fmean(plain):.3f} ± {stdev(plain):.3f} | not run |"
    assert cells in dot_plots.shown(grid, "images")
    assert "- bomd: no noise; (0.2, 0.2); (0.6, 0.6) (seeds 0, 1, 2)" in text
    assert "3,593 training images (phantom) at 64 px, small from random weights, 12 epochs" in text
    assert "Records of `nothing`: no run is in yet" in text


@pytest.mark.parametrize("name", EVERY_RUN)
def test_tables_are_what_the_records_say(name: str, tmp_path: Path) -> None:
    write_tables(records_of(name), tmp_path / f"{name}.jsonl")
    assert (RESULTS / f"{name}.csv").read_text() == (tmp_path / f"{name}.csv").read_text()


def test_readme_shows_the_recorded_demo() -> None:
    text = (ROOT / "README.md").read_text()
    assert readme.ending() in text
    assert readme.proof() in text
    assert readme.start() in text
    assert readme.large() in text
    assert (
        (ROOT / "docs" / "index.md")
        .read_text()
        .partition("```\n")[2]
        .startswith(text.partition("```\n")[2].partition("```")[0])
    )


def test_the_first_table_has_the_range_of_the_seeds_and_the_second_what_is_not_gained() -> None:
    hits = [
        int(row["hits_200"])
        for row in successor.read_rows()
        if (row["recipe"], row["noise"], row["rule"]) == ("nih-64", "sparse", "cleanlab")
    ]
    assert f"| cleanlab | {fmean(hits):.0f} ({min(hits)}–{max(hits)}) |" in readme.wrong_images()
    rows = {line.split("|")[1].strip(): line.split("|")[2:5] for line in readme.classifiers().splitlines()[2:]}
    assert rows["plain training"] == rows["**bomd**"]  # without noise, and under light and clustered errors
    assert rows["co-teaching ¹"] != rows["**bomd**"]


def test_the_successor_tells_of_both_ways_to_a_proposal_with_the_limits_of_the_code() -> None:
    text = " ".join((ROOT / "docs" / "successor.md").read_text().split())
    proposed = f"from a probability of {opinion.WORTH_PROPOSING:g} on, for classes that".replace("0.", ".")
    suspect = f"of any class in an image that is affected with a probability of {opinion.TOLD_ON:g} or more"
    assert proposed in text
    assert suspect.replace("0.", ".") in text


def test_the_demo_ships_with_what_was_recorded_of_it() -> None:
    """The package has no results/: what the demo shows beside a run is a copy, of the settings that it runs with."""
    assert outcome.recorded() == readme.demo_record()
    assert outcome.RECORD.stat().st_size < 5_000
    recipe = [configure("demo", method, seed) for method in outcome.LEARNT for seed in (0, 1, 2)]
    kept = [record for method in outcome.LEARNT for record in readme.of_method("demo", method)]
    assert [identity(config.to_dict()) for config in recipe] == [record.identity for record in kept]
    for found, record in zip(outcome.recorded()["seeds"], readme.of_method("demo", "bomd-plus"), strict=True):
        assert record.result.detection is not None
        assert found["found"]["images"] == record.result.detection.images
        share = found["found"]["wrong"] / found["found"]["images"]
        assert share == pytest.approx(record.result.detection.base_rate, abs=5e-5)  # as it is rounded there


@pytest.mark.parametrize("page", sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]))
def test_links_and_pictures_exist(page: Path) -> None:
    import re

    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"


def test_commands_and_flags_in_the_readme_exist() -> None:
    import re

    from typer.main import get_command

    from bomd.cli import app

    known = set(get_command(app).commands)  # type: ignore[attr-defined]
    for page in (ROOT / "README.md", ROOT / "docs" / "datasets.md"):
        named = re.findall(r"^bomd (\w+)", page.read_text(), flags=re.MULTILINE)
        assert named
        assert set(named) <= known
