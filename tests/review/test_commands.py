"""The commands `review` and `decisions` as the command line calls them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from bomd import cli_review
from bomd.cli import main
from bomd.errors import InputError
from bomd.measure.records import LabelRecord
from bomd.review.decisions import FILE, Event, Journal
from bomd.review.evidence import only_run, open_evidence
from bomd.review.queue import plain_labels

app = typer.Typer()
app.command()(cli_review.review)
app.command()(cli_review.decisions)


def call(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return str(done.output)


def test_decisions_of_two_people_are_written_and_counted(run: Path, tmp_path: Path) -> None:
    evidence = open_evidence(run)
    journal = Journal(run / FILE, evidence.classes)
    for row in evidence.rows[:3]:
        image = str(evidence.record.given.ids[row])
        for name, values in (("Ada", evidence.proposed), ("Grace [b]", evidence.given)):
            journal.submit(Event(name, image, "edit", plain_labels(values[row]))).result(timeout=20)
    journal.close()
    said = call("decisions", str(run), "--out", str(tmp_path / "mine.csv"))
    assert f"3 of {len(evidence)} images are reviewed" in said
    assert "Ada: 3 images" in said
    assert "Grace [b]: 3 images" in said
    assert "Cohen's kappa over 3 images that several people judged: " in said
    with (tmp_path / "mine.csv").open(newline="", encoding="utf-8") as stream:
        assert sum(line["reviewers"] == "2" for line in csv.DictReader(stream)) == 3


def test_without_decisions_the_given_labels_are_written(run: Path) -> None:
    said = call("decisions", str(run))
    assert "0 of 60 images are reviewed; 0 labels are unresolved." in said
    assert "kappa" not in said
    assert (run / "reviewed.csv").exists()


@pytest.mark.parametrize("command", ["review", "decisions"])
def test_what_is_no_run_is_one_line(tmp_path: Path, command: str) -> None:
    with pytest.raises(InputError, match=r"labels\.npz"):
        call(command, str(tmp_path))


def test_a_taken_port_is_one_line(run: Path) -> None:
    from bomd.review.server import listen

    with listen(0) as taken, pytest.raises(InputError, match="Cannot listen on port"):
        call("review", str(run), "--port", str(taken.getsockname()[1]))


def test_the_server_listens_on_this_machine_only() -> None:
    from bomd.review.server import listen, make_token

    with listen(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
    tokens = {make_token() for _ in range(50)}
    assert len(tokens) == 50
    assert all(len(token) >= 32 for token in tokens)


RECIPE = """
method = "bomd"
validation = 0.0
[images]
size = 32
[train]
dataset = "phantom"
count = 60
[test.south]
dataset = "phantom"
hospital = "south"
split = "test"
count = 40
[noise]
kind = "symmetric"
rows = 0.5
labels = 0.3
[fit]
backbone = "small"
weights = "none"
epochs = 1
batch = 16
[bomd]
epochs = 1
batch = 16
neighbours = 5
"""


@pytest.mark.slow
def test_what_was_decided_is_what_the_next_run_learns(tmp_path: Path) -> None:
    """Run, review, decisions, run --labels: all through the command line but the review itself."""
    recipe, reviewed = tmp_path / "tiny.toml", tmp_path / "reviewed.csv"
    recipe.write_text(RECIPE)
    bomd("run", str(recipe), "--runs", str(tmp_path / "before"))
    before = only_run(tmp_path / "before")
    evidence = open_evidence(before)
    changed, decided = evidence.rows[:3], evidence.given[evidence.rows[:3]].copy()
    decided[:, 0] = 1 - decided[:, 0]
    journal = Journal(before / FILE, evidence.classes)
    for row, labels in zip(changed, decided, strict=True):
        image = str(evidence.record.given.ids[row])
        journal.submit(Event("Ada", image, "edit", plain_labels(labels))).result(timeout=20)
    journal.close()
    bomd("decisions", str(before), "--out", str(reviewed))
    bomd("run", str(recipe), "--labels", str(reviewed), "--runs", str(tmp_path / "after"))
    after = LabelRecord.load(only_run(tmp_path / "after") / "labels.npz").given
    given = evidence.record.given
    assert after.ids.tolist() == given.ids.tolist()
    assert np.array_equal(after.values[changed], decided)
    others = np.setdiff1d(np.arange(len(given)), changed)
    assert len(changed) == 3
    assert np.array_equal(after.values[others], given.values[others])


def bomd(*words: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    assert not stop.value.code
