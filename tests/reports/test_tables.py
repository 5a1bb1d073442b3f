"""The tables beside a file of records: seeds of the same settings are averaged, and nothing else."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from bomd.cli import main
from bomd.experiments.recorded import Record
from bomd.reports.tables import write_results
from tests.reports.test_comparison import NOISE, record


def tables_of(records: list[Record], place: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The lines of the Markdown and the rows of the CSV."""
    write_results(records, place / "toy.jsonl")
    with (place / "toy.csv").open(encoding="utf-8") as stream:
        return (place / "toy.md").read_text(encoding="utf-8").splitlines(), list(csv.DictReader(stream))


def test_settings_of_a_method_are_no_seeds(tmp_path: Path) -> None:
    """0.5 and 0.7 with one share, 0.8 and 0.9 with another; over all four the mean would be 0.725."""
    scores = ((0.1, 0, 0.5), (0.1, 1, 0.7), (0.9, 0, 0.8), (0.9, 1, 0.9))
    records = [record("lit", seed, score, settings={"lit": {"share": share}}) for share, seed, score in scores]
    lines, rows = tables_of(records, tmp_path)
    assert "| lit (share=0.1) | south | 2 | 0.600 ± 0.141 |" in lines
    assert "| lit (share=0.9) | south | 2 | **0.850 ± 0.071** |" in lines
    south = [(row["method"], row["seed"], row["mean_auc"]) for row in rows if row["test"] == "south"]
    assert south == [(f"lit (share={share})", str(seed), str(score)) for share, seed, score in scores]
    latex = (tmp_path / "toy.tex").read_text(encoding="utf-8")
    assert r"lit (share=0.1) & south & 2 & 0.600 $\pm$ 0.141 \\" in latex


def test_settings_of_the_training_and_of_the_data_are_no_seeds(tmp_path: Path) -> None:
    records = [
        record("bce", 0, 0.5, NOISE, epochs=2),
        record("bce", 0, 0.7, NOISE, epochs=9),
        record("bce", 0, 0.9, NOISE, epochs=2, train={"count": 300}),
    ]
    lines, rows = tables_of(records, tmp_path)
    found = [line for line in lines if "| south |" in line]
    assert len(found) == len({row["noise"] + row["name"] for row in rows}) == 3
    assert "| toy | bce | (0.4, 0.4), epochs=2 | south | 1 | 0.500 |" in found
    assert "| toy | bce | (0.4, 0.4), epochs=9 | south | 1 | 0.700 |" in found
    assert "| toy (count=300) | bce | (0.4, 0.4) | south | 1 | 0.900 |" in found


def test_names_are_those_of_the_comparison(tmp_path: Path) -> None:
    records = [record("lit", 0, share, settings={"lit": {"share": share}}) for share in (0.1, 0.9)]
    _, rows = tables_of([*records, record("bce", 0, 0.5, NOISE)], tmp_path)
    with (tmp_path / "toy-comparison.csv").open(encoding="utf-8") as stream:
        entries = [entry for entry in csv.DictReader(stream) if entry["test"] == "south" and entry["seeds"] == "1"]
    names = ("name", "method", "noise", "mean_auc")
    south = [[row[name] for name in names] for row in rows if row["test"] == "south"]
    assert sorted(south) == sorted([entry[name] for name in names] for entry in entries)


def test_a_mean_over_fewer_runs_than_there_are_says_so(tmp_path: Path) -> None:
    """As for a test set in which no finding has both positives and negatives: 0.6 and 0.7 of three runs."""
    lines, _ = tables_of([record("bce", seed, score) for seed, score in enumerate((0.6, None, 0.7))], tmp_path)
    assert "| bce | south | 3 | 0.650 ± 0.071 (2 of 3 runs) |" in lines
    assert "| bce | validation | 3 | 0.600 ± 0.000 |" in lines


def test_the_comparison_is_with_the_method_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default bomd; one that no record has is refused before anything is written."""
    path = tmp_path / "toy.jsonl"
    records = [record(method, seed, 0.5 + seed / 10) for method in ("bce", "bomd", "nvum") for seed in (0, 1)]
    path.write_text("".join(json.dumps(one.written) + "\n" for one in records), encoding="utf-8")
    for words, reference in (([], "bomd"), (["--reference", "nvum"], "nvum")):
        with pytest.raises(SystemExit) as stop:
            main(["tables", str(path), *words])
        assert not stop.value.code
        assert f"One-sided p that {reference} is no better" in (tmp_path / "toy-comparison.md").read_text("utf-8")
    with pytest.raises(SystemExit) as stop:
        main(["tables", str(path), "--reference", "nvun"])
    assert stop.value.code == 2
    assert "Did you mean 'nvum'" in capsys.readouterr().err
    assert "One-sided p that nvum is no better" in (tmp_path / "toy-comparison.md").read_text("utf-8")
