"""`bomd reproduce`: does what is missing and nothing else, survives an interruption, and says what is not there."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bomd import cli, runs
from bomd.config import Config
from bomd.errors import InputError
from bomd.experiments.identity import identity
from bomd.experiments.recorded import read_records
from bomd.files import beside, read_text, write_json
from evidence.reproduce import ARTEFACTS
from evidence.reproduce.artefact import Setting, key_of
from evidence.reproduce.facts import estimate, facts, listed
from evidence.reproduce.work import Made, Place, adopt, choose, do_missing, gather, make, plan, to_do

RECIPE = (Path(__file__).parent / "tiny.toml").read_text(encoding="utf-8")

# Does what a worker does without training anything, and notes what it did.
STAND_IN = """
import json, sys
from pathlib import Path
from bomd import runs
from bomd.config import parse
from bomd.files import write_json
for line in sys.stdin:
    task = json.loads(line)
    config, root = parse(task["config"], ["bce", "bomd", "bomd-paper", "nvum"]), Path(task["root"])
    with (root / "order.txt").open("a") as order:
        print(config.method, config.noise["rows"], config.noise["labels"], config.seed, file=order)
    run = runs.start(root, config)
    scores = {"mean_auc": 0.5 + config.seed / 100, "mean_auc_low": 0, "mean_auc_high": 1, "averaged": []}
    result = {"tests": {"here": scores | {"classes": [], "left_out": []}}, "images": {"train": 60, "here": 40}}
    result |= {"name": config.name, "method": config.method, "seed": config.seed, "seconds": 2.0}
    write_json(run.directory / "environment.json", runs.environment("none", 0.0))
    result |= {"detection": None, "labels": None, "flagged": None, "images_presented": 3}
    write_json(run.directory / "result.json", result)
    print(json.dumps({"reason": None, "usable": True}), flush=True)
"""
COMMAND = (sys.executable, "-c", STAND_IN)


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    return Setting(str(path), seeds=(0,))


@pytest.fixture
def place(setting: Setting, tmp_path: Path) -> Place:
    return Place.of(setting, tmp_path / "runs", tmp_path / "results")


def finished(place: Place, config: Config) -> runs.Run:
    """A run directory with as little in it as tables need."""
    run = runs.start(place.root, config)
    scores = {"mean_auc": 0.6, "mean_auc_low": 0, "mean_auc_high": 1, "averaged": [], "classes": [], "left_out": []}
    result: dict[str, Any] = {"tests": {"here": scores}, "images": {"train": 60, "here": 40}, "seconds": 2.0}
    result |= {"name": config.name, "method": config.method, "seed": config.seed, "images_presented": 3}
    write_json(run.directory / "environment.json", runs.environment("none", 0.0))
    write_json(run.directory / "result.json", result | {"detection": None, "labels": None, "flagged": None})
    return run


def order(place: Place) -> list[str]:
    path = place.root / "order.txt"
    return path.read_text().splitlines() if path.exists() else []


class Interrupting(io.StringIO):
    """A terminal in which somebody presses Ctrl-C when a number of runs is finished."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def write(self, text: str) -> int:
        self.left -= text.count("finished: ")
        if self.left <= 0:
            raise KeyboardInterrupt
        return len(text)


def test_interrupted_it_continues_where_it_stopped(setting: Setting, place: Place) -> None:
    """Of 30 runs of the grid 4 are finished when it is interrupted: they are recorded, and not done again."""
    place.root.mkdir()
    plans = plan([ARTEFACTS["noise-grid"]], setting, Made())
    missing = to_do(gather(plans, setting, place))
    assert len(missing) == 30
    with pytest.raises(KeyboardInterrupt):
        do_missing(missing[:12], place, 1, Console(file=Interrupting(after=4), width=200), COMMAND)
    adopt(gather(plans, setting, place), place)  # the fourth was finished, and interrupted before it was recorded
    assert len(read_records(place.records)) == 4
    assert beside(place.records, ".csv").exists()
    before = order(place)
    assert {line.split()[1] for line in before[:3]} == {"0.0"}  # the most important level of noise came first

    left = to_do(gather(plans, setting, place))
    assert len(left) == 26
    assert do_missing(left[:8], place, 1, None, COMMAND) == {}
    found = gather(plans, setting, place)["noise-grid"]
    assert len(found.done) == 12
    assert len(read_records(place.records)) == 12
    again = [line for line in order(place) if order(place).count(line) > 1]
    assert len(set(again)) <= 1  # the run that was under way when it was interrupted


def test_a_recorded_run_is_not_repeated_when_its_directory_is_gone(setting: Setting, place: Place) -> None:
    plans = plan([ARTEFACTS["language-models"]], setting, Made())
    for config in plans["language-models"]:
        finished(place, config)
    assert adopt(gather(plans, setting, place), place)
    assert not adopt(gather(plans, setting, place), place)
    shutil.rmtree(place.root)
    found = gather(plans, setting, place)
    assert to_do(found) == []
    assert len(found["language-models"].done) == 2
    assert not found["language-models"].runs


def test_it_is_repeated_where_its_directory_or_newer_numbers_are_needed(
    setting: Setting, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    plans = plan([ARTEFACTS["language-models"]], setting, Made())
    first, second = plans["language-models"]
    for config in (first, second):
        finished(place, config)
    adopt(gather(plans, setting, place), place)
    shutil.rmtree(runs.locate(place.root, first).directory)
    reading = replace(ARTEFACTS["language-models"], directories=True)
    monkeypatch.setitem(ARTEFACTS, "language-models", reading)
    assert to_do(gather(plans, setting, place)) == [first]
    newer = replace(reading, directories=False, usable=lambda record: record.result.votes is not None)
    monkeypatch.setitem(ARTEFACTS, "language-models", newer)
    assert to_do(gather(plans, setting, place)) == [first, second]


def test_runs_that_another_command_made_are_found(setting: Setting, place: Place) -> None:
    """By what they are, not by the name of their directory: other folders give another one."""
    plans = plan([ARTEFACTS["language-models"]], setting, Made())
    elsewhere = Setting(setting.recipe, setting.seeds, ["train.root=/data/elsewhere", "bomd.uniform=0.25"])
    (one, _) = ARTEFACTS["language-models"].plan(elsewhere)
    finished(place, one)
    found = gather(plans, setting, place)["language-models"]
    assert runs.locate(place.root, found.planned[0]).directory != runs.locate(place.root, one).directory
    assert found.run(found.planned[0]) is not None


def test_what_is_missing_is_listed_and_costed(setting: Setting, place: Place) -> None:
    plans = plan([ARTEFACTS["noise-grid"]], setting, Made())
    configs = plans["noise-grid"]
    assert "no run is recorded to estimate" in estimate(configs, [], 1)
    for config in configs[:3]:
        finished(place, config)
    adopt(gather(plans, setting, place), place)
    found = gather(plans, setting, place)["noise-grid"]
    lines = facts(found)
    assert lines[0].endswith("60 training images, 40 of here.")
    assert lines[1].startswith("Seeds 0; run on none, torch")
    assert lines[2].startswith("3 of 30 runs are recorded, 27 are missing: bce, bomd, nvum at (0.2, 0.2); (0.4, 0.4);")
    # 2 s were recorded for each of bce, bomd and nvum: 27 runs of 2 s, two at once
    assert "about 27 s of training" in estimate(found.missing, found.records.values(), 2)
    assert estimate([], [], 1) == "nothing to do"
    variants = ARTEFACTS["relabelling-terms"].plan(setting)
    assert listed(variants[1:3], variants) == ["bomd use_mask=False, bomd uniform=0.0 at (0.4, 0.4) (seed 0)"]


def test_names_are_checked_and_kept_in_order() -> None:
    with pytest.raises(InputError, match=r"No table or figure 'noise-gird'.*noise-grid"):
        choose(["noise-gird"])
    assert [one.name for one in choose(["main-results", "noise-grid"])] == ["noise-grid", "main-results"]
    assert len(choose(["all"])) == len(ARTEFACTS)


def test_all_leaves_out_what_the_recipe_cannot_serve(setting: Setting, place: Place) -> None:
    made = Made()
    plans = plan(choose(["noise-grid", "nih-google"]), setting, made)
    assert list(plans) == ["noise-grid"]
    assert "NIH-Google" in made.reasons["nih-google"]
    make(gather(plans, setting, place), place.folder, made)
    assert made.files == {}
    assert made.reasons["noise-grid"] == "none of its 30 runs is recorded"
    with pytest.raises(InputError, match="NIH-Google"):
        plan(choose(["nih-google"]), setting, Made())


def test_tables_without_training(setting: Setting, place: Place) -> None:
    place.root.mkdir()
    plans = plan([ARTEFACTS["noise-grid"]], setting, Made())
    do_missing(to_do(gather(plans, setting, place))[:6], place, 2, None, COMMAND)
    made = make(gather(plans, setting, place), place.folder, Made())
    assert place.folder == place.results / "reproduced" / "tiny"
    assert {file.name for file in made.files["noise-grid"]} >= {"noise-grid-here.csv", "noise-grid-tests.tex"}
    rows = list(csv.DictReader((place.folder / "noise-grid-here.csv").open()))
    assert [(row["bce"], row["bce runs"]) for row in rows[:3]] == [("0.5", "1"), ("0.5", "1"), ("", "0")]


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["reproduce", *arguments])
    return int(ended.value.code or 0)


def test_the_command_shows_what_there_is_and_what_is_missing(
    setting: Setting, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    finished(place, ARTEFACTS["language-models"].plan(setting)[0])
    where = ["--recipe", setting.recipe, "--seeds", "0", "--runs", str(place.root), "--results", str(place.results)]
    place.results.mkdir(parents=True)
    place.records.write_bytes(b"no records")
    assert call("--list", *where) == 0  # records are not opened for it
    text = capsys.readouterr().out
    assert "tab:noise_auc" in text
    assert "recorded" not in text
    place.records.unlink()
    assert call("--list", "--plan", *where) == 0
    text = capsys.readouterr().out
    assert "tab:noise_auc" in text
    assert "recorded" in text
    assert "not for it" in text  # NIH-Google
    assert call("language-models", "--plan", *where) == 0
    text = capsys.readouterr().out
    assert "language-models: 2 runs, 2 to do" in text
    assert "Together: 2 to do, as much work as 3.34 of bce" in text
    assert call("nonsense", *where) == 2
    assert call(*where) == 2
    assert call("noise-grid", "--from-records", *where) == 1
    assert "noise-grid: not made: none of its 30 runs is recorded" in capsys.readouterr().out
    assert not place.folder.exists()


@pytest.mark.slow
def test_a_table_from_the_first_run_to_the_files(
    setting: Setting, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two runs of BoMD on tiny phantoms; then a third seed is added, and the directories are thrown away."""
    where = ["--recipe", setting.recipe, "--runs", str(place.root), "--results", str(place.results)]
    assert call("language-models", "--seeds", "0", *where) == 0
    first = {key_of_run(line) for line in read_text(place.records).splitlines()}
    assert len(first) == 2
    text = (place.folder / "language-models.md").read_text()
    assert "2 of 2 runs are recorded, 0 are missing." in text
    assert "missing |" not in text
    assert (place.folder / "language-models-paper-nih.tex").exists()
    (row, _) = csv.DictReader((place.folder / "language-models.csv").open())
    (run, *_) = runs.find([place.root / "tiny"])
    assert float(row["here"]) == pytest.approx(run.result()["tests"]["here"]["mean_auc"], abs=0.2)

    shutil.rmtree(place.root / "tiny")
    assert call("language-models", "--seeds", "0", *where) == 0  # nothing is done again
    assert not (place.root / "tiny").exists()
    assert call("smoothing-toy", "label-histogram", "--from-records", "--seeds", "0", *where) == 0
    said = capsys.readouterr().out
    assert "smoothing-toy" in said
    assert "label-histogram: not made" in said


def key_of_run(line: str) -> str:
    return identity(json.loads(line)["config"])


def test_keys_are_those_of_plans(setting: Setting, place: Place) -> None:
    (one, other) = ARTEFACTS["language-models"].plan(setting)
    run = finished(place, one)
    assert key_of_run(json.dumps({"config": run.config()})) == key_of(one) != key_of(other)
