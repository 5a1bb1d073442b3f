"""Records of many runs: added once, replaced when repeated, and turned into tables without the runs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from bomd import runs
from bomd.config import parse
from bomd.errors import InputError
from bomd.files import write_json
from bomd.measure.benchmark import add_records, read_records, run_all, write_tables
from bomd.methods import METHODS


def finished_run(place: Path, method: str, seed: int, auc: float, **train: Any) -> runs.Run:
    """A run directory as `experiment.run` leaves it, with as little in it as tables need."""
    settings = {"name": "toy", "method": method, "seed": seed, "train": {"dataset": "folder", **train}}
    run = runs.start(place, parse({**settings, "noise": {"kind": "symmetric", "rows": 0.4, "labels": 0.2}}, METHODS))
    scores = {"mean_auc": auc, "mean_auc_low": auc - 0.1, "mean_auc_high": auc + 0.1, "averaged": ["Mass"]}
    result = {
        **{key: settings[key] for key in ("name", "method", "seed")},
        "images": {"here": 10},
        "tests": {"here": scores},
        "detection": None,
        "labels": None,
        "flagged": None,
        "seconds": 1.0,
        "images_presented": 5,
    }
    write_json(run.directory / "environment.json", runs.environment("cpu", 0.0))
    write_json(run.directory / "result.json", result)
    return run


def test_records_are_added_once_and_replaced_when_repeated(tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    first, second = finished_run(tmp_path, "bce", 0, 0.7), finished_run(tmp_path, "bce", 1, 0.9)
    assert len(add_records([first], path)) == 1
    assert len(add_records([first, second], path)) == 2
    finished_run(tmp_path, "bce", 0, 0.8)
    add_records([first], path)
    assert [record["result"]["tests"]["here"]["mean_auc"] for record in read_records(path)] == [0.8, 0.9]


def test_tables_state_mean_spread_and_noise(tmp_path: Path) -> None:
    """0.7 and 0.9: mean 0.8, sample standard deviation 0.1414."""
    found = add_records(
        [finished_run(tmp_path, "bce", 0, 0.7), finished_run(tmp_path, "bce", 1, 0.9)], tmp_path / "toy.jsonl"
    )
    write_tables(found, tmp_path / "toy.jsonl")
    text = (tmp_path / "toy.md").read_text()
    assert "| bce | symmetric rows=0.4 labels=0.2 | here | 2 | 0.800 ± 0.141 |" in text
    rows = list(csv.DictReader((tmp_path / "toy.csv").open()))
    assert [row["mean_auc"] for row in rows] == ["0.7", "0.9"]
    assert all(row["device"] == "cpu" for row in rows)


def test_records_do_not_say_where_the_data_lay(tmp_path: Path) -> None:
    run = finished_run(tmp_path, "bce", 0, 0.7, root="/home/somebody/secret/nih")
    add_records([run], tmp_path / "toy.jsonl")
    text = (tmp_path / "toy.jsonl").read_text()
    assert "somebody" not in text
    assert json.loads(text)["config"]["train"]["root"] == "nih"
    assert json.loads(text)["config"]["fit"]["eps"] == 0.1


def test_unfinished_and_damaged_are_refused(tmp_path: Path) -> None:
    run = finished_run(tmp_path, "bce", 0, 0.7)
    (run.directory / "result.json").unlink()
    with pytest.raises(InputError, match="not finished"):
        add_records([run], tmp_path / "toy.jsonl")
    (tmp_path / "bad.jsonl").write_text("{")
    with pytest.raises(InputError, match="Cannot read"):
        read_records(tmp_path / "bad.jsonl")


TINY = {
    "images": {"size": 32},
    "train": {"dataset": "phantom", "count": 60},
    "fit": {"backbone": "small", "weights": "none", "epochs": 1, "batch": 16, "rate": 0.001, "eps": 1e-8},
}


@pytest.mark.slow
def test_runs_at_the_same_time_equal_runs_one_by_one(tmp_path: Path) -> None:
    configs = [parse({**TINY, "method": "bce", "seed": seed}, METHODS) for seed in (0, 1)]
    one_by_one, together = run_all(configs, tmp_path / "a"), run_all(configs, tmp_path / "b", jobs=2)
    for first, second in zip(one_by_one, together, strict=True):
        assert first.directory.name == second.directory.name
        scores = [run.result()["tests"]["validation"]["mean_auc"] for run in (first, second)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-6)


@pytest.mark.slow
def test_a_failing_run_does_not_stop_the_others(tmp_path: Path) -> None:
    good = parse({**TINY, "method": "bce"}, METHODS)
    bad = parse({**TINY, "method": "bomd", "bomd": {"neighbours": 500}}, METHODS)
    done = run_all([bad, good], tmp_path, jobs=2)
    assert [run.directory.parent.name for run in done] == ["bce"]
    with pytest.raises(InputError, match=r"No run finished. The first problem: bomd, seed 0: .*neighbours is 500"):
        run_all([bad], tmp_path, jobs=2)
