"""The end of the demo: every number in it by hand, and nothing of the record where settings are others."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from bomd.data.datasets import phantom
from bomd.data.noise import sparse
from bomd.experiments.records import LabelRecord
from bomd.reports import figures, opening
from bomd.reports.outcome import NOISY, OURS, RIGHT, Outcome, curves, found_of, recorded, tables
from bomd.tables import LabelTable, Opinion
from evidence.reproduce.figures.noise_curves import LOOKS

COMMANDS = (("Look through it", "bomd review somewhere --open"),)


def record_of(given: LabelTable, clean: LabelTable, rank: list[int], doubted: list[int]) -> LabelRecord:
    """Labels in a given order of review, of which some images are flagged; every error would be put right."""
    shape, N = given.values.shape, len(given)
    expected = np.where(np.isin(np.arange(N), doubted), 1, 0).astype(np.float32)
    judged = Opinion(
        given.ids, np.zeros(shape, np.float32), clean.values, expected, np.asarray(rank), np.ones(shape[1], bool)
    )
    return LabelRecord(given, given, judged, clean, np.ones(N, bool))


def four_images() -> LabelRecord:
    """Images a and c are wrong; they come first and third in the order of review. Labels: 2, 1, 1 and 1."""
    clean = LabelTable(np.asarray(list("abcd")), ("Mass", "Edema"), [[1, 0], [1, 0], [1, 0], [1, 0]])
    given = clean.replace(np.asarray([[1, 1], [1, 0], [0, 1], [1, 0]], np.float32))
    return record_of(given, clean, [1, 2, 3, 4], [0, 1])


def test_what_is_found_by_looking() -> None:
    """Counting labels knows the first image alone; of the other three one is wrong, so each adds a third."""
    lines = curves(four_images())
    assert lines[OURS].tolist() == [0, 1, 1, 2, 2]
    assert lines["counting labels"] == pytest.approx([0, 1, 4 / 3, 5 / 3, 2])
    assert lines["at random"].tolist() == [0, 0.5, 1, 1.5, 2]
    assert lines["perfect"].tolist() == [0, 1, 2, 2, 2]
    found = found_of(four_images())
    assert found["counting labels"] == pytest.approx(4 / 3)
    assert {key: found[key] for key in ("images", "wrong", OURS, "at random", "perfect")} == {
        "images": 4,
        "wrong": 2,
        OURS: 1,
        "at random": 1,
        "perfect": 2,
    }


def test_without_known_errors_nothing_is_counted() -> None:
    labels = four_images()
    same = record_of(labels.given, labels.given, [1, 2, 3, 4], [0])
    assert curves(same) == {}
    assert found_of(same) == {}


def phantoms() -> LabelRecord:
    """Wrong images first in the order of review, then those that are right; the first of these is flagged."""
    clean = phantom.read(hospital="north", count=60)
    given = sparse(clean, seed=0, rows=0.5).noisy
    wrong = (given.values != clean.values).any(axis=1)
    order = np.argsort(~wrong, kind="stable")
    rank = np.empty(len(order), dtype=int)
    rank[order] = np.arange(1, len(order) + 1)
    return record_of(given, clean, rank.tolist(), [int(order[wrong.sum()])])


def test_hits_are_wrong_and_the_false_alarm_is_right() -> None:
    labels = phantoms()
    assert labels.clean is not None
    rows = opening.examples(labels)
    wrong = (labels.given.values != labels.clean.values).any(axis=1)
    assert wrong[rows].tolist() == [True, True, True, False]
    assert labels.flagged[rows[-1]]
    places = labels.opinion.rank[rows].tolist()
    assert places == sorted(places)
    assert len(opening.examples(labels, hits=2)) == 3


def test_cards_show_the_very_images() -> None:
    labels = phantoms()
    cards = opening._cards(labels)
    assert [card["wrong"] for card in cards] == [True, True, True, False]
    pictures = phantom.render(labels.given.ids[opening.examples(labels)], 128).numpy()
    assert [card["image"] for card in cards] == [figures.thumbnail(picture) for picture in pictures]


def told(outcome: Outcome, record: dict[str, Any] | None) -> str:
    console = Console(width=80, record=True, color_system=None)
    console.print(*tables(outcome, record), sep="\n")
    return re.sub(r"\s+", " ", console.export_text())


def test_the_terminal_shows_this_run_beside_the_record() -> None:
    score = {"held-out patients": [0.75, 0.7, 0.8], "south": [0.6, None, None]}
    found = {"images": 4000, "wrong": 1000, OURS: 900, "counting labels": 500.4, "at random": 250, "perfect": 1000}
    today = Outcome.over([{"scores": {NOISY: score}, "found": found}])
    alone = told(today, None)
    assert "this run 1,000 900 500 250 1,000" in alone
    assert "this run 0.750 – – (0.700–0.800)" in alone
    assert "another hospital this run 0.600 – –" in alone
    assert "record" not in alone
    both = told(today, recorded())
    assert "record, 3 seeds" in both
    assert "record, one wrong label" in both
    (right,) = {show for show in re.findall(r"\d\.\d+ ± \d\.\d+", both) if show.startswith("0.878")}
    values = [seed["scores"][RIGHT]["held-out patients"][0] for seed in recorded()["seeds"]]
    assert right == f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"


@pytest.mark.parametrize("known", [True, False])
def test_the_page_begins_with_what_came_out(tmp_path: Path, known: bool) -> None:
    made = runpy.run_path(str(Path(__file__).with_name("test_report.py")))
    runs = [
        made["write_run"](tmp_path, "bce", flags=False, name="mine"),
        made["write_run"](tmp_path, "bomd-plus", name="mine", score=0.9),
    ]
    for run in runs:  # pictures are drawn of phantoms alone
        text = (run.directory / "config.json").read_text().replace('"phantom"', '"folder"')
        (run.directory / "config.json").write_text(text)
    outcome = opening.write_demo(runs, tmp_path / "page.html", recorded() if known else None, COMMANDS)
    assert outcome.scores[OURS, "south"].mean == 0.9
    page = made["Page"]((tmp_path / "page.html").read_text(encoding="utf-8"))
    places = [
        page.text.index(words) for words in (" generated chest X-rays", "What training is worth", "Summary bomd-")
    ]
    assert places == sorted(places)
    assert "bomd review somewhere --open" in page.text
    assert f"finds {outcome.found[OURS].mean:,.0f} in our order" in page.text
    assert ("As recorded, 5 seeds" in page.text) == known
    assert ("counting them is enough" in page.text) == known  # of other noise that need not be true
    means = {
        of: f"{np.mean([seed['scores'][of]['south'][0] for seed in recorded()['seeds']]):.3f}" for of in (OURS, RIGHT)
    }
    assert (f"right labels: {means[RIGHT]}" in page.text) == known  # what a reader hears who cannot see the bars
    assert "ours: " + f"{means[OURS]}, " * known + "0.900 in this run" in page.text


def test_a_method_has_one_colour_everywhere() -> None:
    """In any company and order, in the report as in the figures of the paper."""
    for others in (["x", "y"], [], ["bomd-plus", "x", "bce", "nvum", "y", "z", "bomd"]):
        for name, look in LOOKS.items():
            (found,) = [one for one in figures.looks([*dict.fromkeys([*others, name])]) if one.label == name]
            assert (found.colour, found.marker) == (look.colour, look.marker)
    several = figures.looks(["a", "bomd", "b", "bce", "c", "bomd-plus", "d"])
    assert len({look.colour for look in several[:6]}) == 6
