"""The page about the paper's schedule says what its rows say, and what is missing."""

from __future__ import annotations

import re

import pytest

from evidence import DOCS
from evidence.pages import schedule

PROJECTED = [{"device": "a GPU", "item": schedule.PROJECTED, "ours": "58.7949"}]


def a_row(method: str = "bce", noise: str = "symmetric", **changes: str) -> dict[str, str]:
    row = {"device": "a GPU", "method": method, "noise": noise, "images": "83672", "size": "224"}
    row |= {"backbone": "densenet121", "batch": "64", "length": "1", "date": "2026-11-17", "jobs": "1"}
    row |= {"seconds_training": "train classifier 700.0", "peak_mb": "6000.4", "peak_gpu_mb": "7000"}
    return row | {"auc_north": "0.9000", "auc_south": "0.8000", "wrong_labels_ap": "", "said": ""} | changes


def a_sample(**changes: str) -> dict[str, str]:
    stages = "learn descriptors 100.0; train classifier 90.0"
    own = {"images": "20000", "size": "512", "length": "0.1", "seconds_training": stages}
    return a_row("bomd", **own | changes)


def headings(text: str) -> list[str]:
    return re.findall(r"^#+ (.*)", text, flags=re.MULTILINE)


def test_the_longest_training_comes_first_and_samples_last_and_no_heading_twice() -> None:
    rows = [a_sample(), a_row(length="0.1"), a_row(), a_row(device="another GPU", length="0.1")]
    assert headings(schedule.section(rows)) == [
        "The paper's schedule at its full length",
        "The paper's schedule with 10% of its epochs, densenet121 in batches of 64 on one a GPU",
        "The paper's schedule with 10% of its epochs, densenet121 in batches of 64 on one another GPU",
        "The paper's schedule for 20,000 phantoms at 512 px with 10% of its epochs",
    ]
    assert schedule.section([]) == ""
    shown = headings((DOCS / "speed.md").read_text(encoding="utf-8"))
    assert len(set(shown)) == len(shown)


def test_what_is_not_run_is_said() -> None:
    text = schedule.section([a_row(), a_row("bomd"), a_row("bomd-plus"), a_row(noise="report mining")])
    assert "Not run: bomd under report mining, bomd-plus under report mining." in text
    assert "At its full length the schedule is not run." not in text
    every = [a_row(method, noise) for noise in schedule.NOISES for method in schedule.OURS]
    assert "ot run" not in schedule.section(every)
    assert "At its full length the schedule is not run." in schedule.section([a_row(length="0.1")])


def test_methods_are_compared_with_bce_where_both_were_run() -> None:
    rows = [
        a_row(),
        a_row("bomd", auc_north="0.8990", auc_south="0.8500"),
        a_row("bomd-plus", auc_north="0.9123", auc_south="0.7900"),
        a_row("bomd", "report mining"),
    ]
    text = " ".join(schedule.section(rows).split())
    wanted = "one seed: under symmetric, bomd-plus +0.0123, -0.0100 and bomd -0.0010, +0.0500."
    assert f"AUC compared with that of bce, at the same hospital and at another, {wanted}" in text
    assert "one seed" not in schedule.section(rows[1:])


def test_seconds_of_runs_that_shared_the_device_are_called_so() -> None:
    assert "| symmetric | bce | 700.0 |  | 1 | 6,000 MB | 7,000 MB | 0.9000 | 0.8000 |" in schedule.section([a_row()])
    assert "shared" not in schedule.section([a_row()])
    stages = "train without fold 1 of 2 1034.2; train classifier 68.6"
    text = schedule.section([a_row("bomd-plus", jobs="3", seconds_training=stages, peak_gpu_mb="")])
    told = "| bomd-plus | 1,102.8 | train without fold 1 of 2: 1,034.2, train classifier: 68.6 | 3 | 6,000 MB |  | "
    assert told in text
    assert "Runs at once shared the device: their seconds are not those of a run alone" in text


def test_what_a_method_found_and_says_of_labels_is_shown() -> None:
    rows = [a_row(), a_row("bomd-plus", wrong_labels_ap="0.8663", said="Errors are many. Labels are learnt as given.")]
    text = schedule.section(rows)
    assert "| 0.9000 | 0.8000 | 0.8663 |" in text
    told = "What bomd-plus says of labels under symmetric: *Errors are many. Labels are learnt as given.*"
    assert told in " ".join(text.split())
    assert "What bce says" not in text
    assert "wrong labels, AP |" in text
    assert "wrong labels, AP |" not in schedule.section(rows[:1])


def test_a_sample_is_scaled_to_all_images_and_epochs() -> None:
    """Ten times the epochs of 83,672 / 20,000 = 4.1836 times the images: 1,900 s x 4.1836 = 7,948.84 s = 132.48 min."""
    assert schedule.full_minutes(a_sample()) == pytest.approx(132.4807, abs=1e-4)
    assert schedule.full_minutes(a_row()) == pytest.approx(700 / 60)
    folds = {"seconds_training": "train without fold 1 of 2 34.2; train classifier 68.6"}
    assert schedule.full_minutes(a_row("bomd-plus", **folds)) is None
    text = " ".join(schedule.section([a_sample()], PROJECTED).split())
    assert "bomd under symmetric would train for 132.5 minutes with 83,672 images and 20 + 30 epochs. The" in text
    assert "projects 58.8 minutes" in text
    assert "Not run: " not in text
    assert "20 + 30 epochs, 2 runs at once." in schedule.section([a_sample(jobs="2")], PROJECTED)
    assert "projects" not in schedule.section([a_sample(device="another GPU")], PROJECTED)
    assert "projects" not in schedule.section([a_sample(size="256")], PROJECTED)
    assert "would train" not in schedule.section([a_row()], PROJECTED)
