"""Methods side by side from records alone: hand-made records with numbers that can be checked by eye."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from bomd.config import parse
from bomd.experiments.grid import Grid, arrange
from bomd.experiments.noise_names import noise_name
from bomd.experiments.recorded import Record
from bomd.measure.result import HELD_OUT
from bomd.measure.significance import Sample, welch_test, z_test
from bomd.methods import METHODS
from bomd.reports.comparison import entry_rows, markdown
from bomd.reports.tables import write_results

NOISE = {"kind": "symmetric", "rows": 0.4, "labels": 0.4}


def record(method: str, seed: int, score: float | None, noise: dict[str, Any] | None = None, **more: Any) -> Record:
    """As little of a record as comparisons read; `settings`, `epochs`, `presented` and `environment` may be given."""
    scores = {"mean_auc": score, "mean_auc_low": None, "mean_auc_high": None, "averaged": []}
    written = {
        "run": f"seed{seed}",
        "config": {
            "name": more.get("name", "toy"),
            "method": method,
            "seed": seed,
            "noise": {} if noise is None else noise,
            "train": {"dataset": "phantom", "root": more.get("root", "a"), **more.get("train", {})},
            "fit": {"epochs": more.get("epochs", 2)},
            "settings": more.get("settings", {}),
        },
        "result": {
            "name": more.get("name", "toy"),
            "method": method,
            "seed": seed,
            "tests": {"south": scores, "validation": {**scores, "mean_auc": 0.6}, **more.get("tests", {})},
            "images": {"south": 5, "validation": 5, "validation before noise": 5},
            "seconds": more.get("seconds", 10.0),
            "images_presented": more.get("presented", 100),
            "detection": None,
            "labels": None,
            "flagged": None,
        },
        "environment": {
            "device": "cpu",
            "versions": {"torch": "2"},
            "commit": None,
            "peak_memory_mb": 100.0 + seed,
            **more.get("environment", {}),
        },
    }
    return Record(written, f"seed{seed}")


def compare(records: list[Record], *asked: Any, reference: str = "bomd") -> list[Grid]:
    return arrange(records, *asked, reference=reference)


RECORDS = [
    *(record("bce", seed, score, presented=100) for seed, score in enumerate((0.6, 0.7, 0.8))),
    *(record("bomd", seed, score, presented=250) for seed, score in enumerate((0.8, 0.9, 0.85))),
    *(record("bce", seed, score, NOISE) for seed, score in enumerate((0.5, 0.6))),
    record("bomd", 0, 0.7, NOISE),
]


def test_entries_are_means_with_tests_against_bomd() -> None:
    (found,) = compare(RECORDS)
    assert found.methods == ("bce", "bomd")
    assert found.noises == ("no noise", "(0.4, 0.4)")
    rows = {(row["test"], row["noise"], row["method"]): row for row in entry_rows(found)}
    row = rows["south", "no noise", "bce"]
    assert (row["seeds"], row["mean_auc"], row["std"]) == (3, 0.7, 0.1)
    bomd, bce = Sample(0.85, 0.05, 3), Sample(0.7, 0.1, 3)
    assert row["z_test_p"] == pytest.approx(z_test(bomd, bce), rel=0.01)  # z = 1.5: p = 0.0668
    assert row["z_test_p"] == pytest.approx(0.0668, abs=1e-4)
    assert row["welch_p"] == pytest.approx(welch_test(bomd, bce), rel=0.01)
    assert rows["south", "no noise", "bomd"]["welch_p"] is None
    noisy = rows["south", "(0.4, 0.4)", "bce"]
    assert noisy["missing_seeds"] == "2"
    assert noisy["z_test_p"] is not None  # the spread of the other is all that it asks for
    assert noisy["welch_p"] is None  # BoMD has a single run there


def test_another_method_can_be_the_reference_and_who_is_better_is_said() -> None:
    """By hand: 0.8, 0.9, 0.85 against 0.4, 0.41, 0.42 is beyond doubt; against 0.6, 0.7, 0.8 it is p = 0.051."""
    low = [record("elr", seed, score) for seed, score in enumerate((0.4, 0.41, 0.42))]
    (found,) = compare([*RECORDS, *low], reference="elr")
    text = markdown(found)
    assert "One-sided p that elr is no better" in text
    assert "- Better than elr over seeds, by Welch's p < 0.05: bce at no noise; bomd at no noise." in text
    assert "- Worse than elr over seeds, by Welch's p < 0.05: none." in text
    assert "- Better than bce over seeds, by Welch's p < 0.05: none." in text
    assert "- Worse than bce over seeds, by Welch's p < 0.05: elr at no noise." in text
    rows = {(row["test"], row["noise"], row["method"]): row for row in entry_rows(found)}
    assert rows["south", "no noise", "elr"]["welch_p"] is None
    assert rows["south", "no noise", "bce"]["welch_p"] > 0.95


def test_a_reference_with_several_settings_is_not_said_to_be_unbeaten() -> None:
    """Nothing is compared with it, and "better: none" was what the table said; where it has one setting it counts."""
    swept = [
        record("elr", seed, score, settings={"elr": {"weight": weight}})
        for weight in (0.5, 2.0)
        for seed, score in enumerate((0.1, 0.11, 0.12))
    ]
    (found,) = compare([*RECORDS, *swept], reference="elr")
    text = markdown(found)
    assert "- Not compared with elr at no noise, where it ran with several settings." in text
    assert "Better than elr" not in text
    once = [record("elr", seed, score, NOISE) for seed, score in enumerate((0.1, 0.11))]
    text = markdown(compare([*RECORDS, *swept, *once], reference="elr")[0])
    assert "- Better than elr over seeds, by Welch's p < 0.05: bce at (0.4, 0.4)." in text
    assert "- Not compared with elr at no noise, where it ran with several settings." in text


def test_what_is_not_there_is_called_missing() -> None:
    (found,) = compare(RECORDS, ["bce", "elr"], ["no noise", "(0.6, 0.6)"], (0, 1, 2))
    assert found.methods == ("bce", "elr", "bomd")
    assert found.noises == ("no noise", "(0.6, 0.6)", "(0.4, 0.4)")
    text = markdown(found)
    assert "| bce | 0.700 ± 0.100 | missing | 0.550 ± 0.071 (2 of 3 runs) |" in text
    assert "| elr | missing | missing | missing |" in text
    assert "| bomd | **0.850 ± 0.050** | missing | **0.700 (1 of 3 runs)** |" in text
    assert "- elr: no noise; (0.6, 0.6); (0.4, 0.4) (seeds 0, 1, 2)" in text
    assert "- bomd: (0.4, 0.4) (seeds 1, 2)" in text
    (complete,) = compare([one for one in RECORDS if not one.config.noise])
    assert markdown(complete).endswith("### Missing runs\n\nNone.\n")


def test_a_planned_method_that_always_failed_is_missing_on_its_own_images_alone(tmp_path: Path) -> None:
    """It has no record: the table had neither a row for it nor a word under "Missing runs"."""
    planned = [
        parse({**record(name, seed, None).written["config"]}, METHODS) for name in ("bce", "elr") for seed in (0, 1)
    ]
    records = [record("bce", 0, 0.5), record("bce", 0, 0.5, name="other"), record("bomd", 0, 0.6, name="other")]
    write_results(records, tmp_path / "toy.jsonl", planned=planned)
    text = (tmp_path / "toy-comparison.md").read_text()
    toy, other = text.split("## other\n")
    assert "| elr | missing |" in toy
    assert toy.endswith("### Missing runs\n\n- bce: no noise (seeds 1)\n- elr: no noise (seeds 0, 1)\n\n")
    assert "elr" not in other
    assert other.endswith("### Missing runs\n\nNone.\n")


def test_a_score_that_cannot_be_computed_is_not_missing() -> None:
    (found,) = compare([record("bce", 0, None), record("bomd", 0, 0.7)])
    assert "| bce | – |" in markdown(found)
    assert "None." in markdown(found)


def test_cost_is_relative_to_bce_of_the_same_cell_and_seed() -> None:
    """In the first column 250 / 100 three times; in the second 100 / 100 where both ran: (3 x 2.5 + 1) / 4."""
    (found,) = compare(RECORDS)
    assert found.presented("bomd") == pytest.approx(2.125)
    assert found.presented("bce") == 1
    (alone,) = compare([one for one in RECORDS if one.config.method == "bomd"])
    assert alone.presented("bomd") is None


def test_memory_and_runs_at_once_are_the_largest() -> None:
    more = {"runs_at_once": 8, "peak_gpu_memory_mb": 2048.0}
    (found,) = compare([record("bce", 0, 0.5), record("bce", 1, 0.5, environment=more, seconds=20.0)])
    (row, _) = entry_rows(found)
    assert (row["peak_memory_mb"], row["peak_gpu_memory_mb"], row["runs_at_once"]) == (101.0, 2048.0, 8)
    assert row["seconds"] == 15.0
    assert "| bce | 15 s | 8 | 1.00 | 101 | 2,048 |" in markdown(found)


def test_settings_of_the_method_are_rows_and_other_settings_columns() -> None:
    records = [
        record("bomd", 0, 0.7, settings={"bomd": {"epochs": 3}}),
        record("bomd", 0, 0.8, settings={"bomd": {"epochs": 3, "neighbours": 5}}),
        record("bomd-paper", 0, 0.5, settings={"bomd": {"neighbours": 5}}),
        record("bomd-paper", 0, 0.4, settings={"bomd": {"neighbours": 5}, "bomd-paper": {"neighbours": 7}}),
        record("bce", 0, 0.6, settings={"bomd": {"neighbours": 5}}, root="elsewhere"),
        record("bce", 0, 0.6, epochs=9),
    ]
    (found,) = compare(records, ["bce"])
    assert found.methods == (
        "bce",
        "bomd (neighbours=10)",
        "bomd (neighbours=5)",
        "bomd-paper (neighbours=5)",
        "bomd-paper (neighbours=7)",
    )
    assert found.noises == ("no noise, epochs=2", "no noise, epochs=9")
    assert sum(len(group.runs) for group in found.groups.values()) == len(records)


def test_what_only_differs_between_methods_belongs_to_them() -> None:
    """BoMD was trained for longer; that is no other column, since nobody else was."""
    (found,) = compare([record("bce", 0, 0.6), record("bomd", 0, 0.7, epochs=9)])
    assert found.noises == ("no noise",)
    assert found.methods == ("bce", "bomd")


def test_other_data_are_another_grid() -> None:
    first, second = compare([record("bce", 0, 0.5), record("bce", 0, 0.6, train={"count": 7})])
    assert {first.name, second.name} == {"toy", "toy (count=7)"}


def test_a_reference_that_is_not_there_is_plain_training() -> None:
    (found,) = compare([record("bce", 0, 0.5), record("elr", 0, 0.6)], reference="bomd")
    assert found.reference == "bce"
    (alone,) = compare([record("elr", 0, 0.6)])
    assert alone.reference is None


def test_experiments_of_other_names_are_not_mixed() -> None:
    first, second = compare([record("bce", 0, 0.5), record("bce", 0, 0.9, name="other")])
    assert (first.name, second.name) == ("toy", "other")
    assert len(first.groups) == len(second.groups) == 1


def test_held_out_patients_are_judged_by_labels_before_noise() -> None:
    noisy = record("bce", 0, 0.5, NOISE, tests={"validation before noise": {"mean_auc": 0.9}})
    assert noisy.result.auc(HELD_OUT) == 0.9
    assert record("bce", 0, 0.5).result.auc(HELD_OUT) == 0.6
    assert noisy.result.auc("google") is None
    (found,) = compare([noisy, record("bce", 0, 0.5)])
    assert found.judged == ("south", HELD_OUT)


@pytest.mark.parametrize(
    ("noise", "name"),
    [
        ({}, "no noise"),
        ({"kind": "none"}, "no noise"),
        ({**NOISE, "rows": 0.0}, "no noise"),
        (NOISE, "(0.4, 0.4)"),
        ({**NOISE, "share": 0.15}, "(0.4, 0.4) share=0.15"),
        ({"kind": "missing", "rate": 0.3}, "missing rate=0.3"),
        ({**NOISE, "seed": 3}, "(0.4, 0.4)"),
        ({"kind": "symmetric"}, "symmetric"),
    ],
)
def test_noise_is_named_as_in_the_paper(noise: dict[str, Any], name: str) -> None:
    assert noise_name(noise) == name


def test_files_hold_every_entry(tmp_path: Path) -> None:
    write_results(RECORDS, tmp_path / "toy.jsonl")
    rows = list(csv.DictReader((tmp_path / "toy-comparison.csv").open()))
    assert len(rows) == 2 * 2 * 2  # methods, columns, test sets
    assert rows[0]["mean_auc"] == "0.7"
    assert "0.850 ± 0.050" in (tmp_path / "toy-comparison.md").read_text()
    assert (tmp_path / "toy.csv").exists()
    write_results([record("bce", 0, 0.5)], tmp_path / "one.jsonl")
    assert not (tmp_path / "one-comparison.csv").exists()
