"""The commands `review` and `decisions` as the command line calls them."""

from __future__ import annotations

import csv
import re
import shlex
import shutil
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from bomd import runs
from bomd.audits.arrays import read_rates
from bomd.cli import main
from bomd.cli import review as cli_review
from bomd.errors import InputError
from bomd.experiments.records import LabelRecord, load_predictions
from bomd.files import read_json, write_json
from bomd.review.decisions import FILE, Event, Journal, current, read_events
from bomd.review.evidence import only_run, open_evidence
from bomd.review.export import take_in
from bomd.review.queue import Queue, plain_labels, replay
from bomd.tables import NO_FINDING

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
    (run / "model").mkdir()
    said = call("decisions", str(run), "--output", str(tmp_path / "mine.csv"))
    assert f"3 of {len(evidence)} images are reviewed" in said
    assert "Ada: 3 images" in said
    assert "Grace [b]: 3 images" in said
    assert "Cohen's kappa over 3 images that several people judged: " in said
    assert (
        said.splitlines()[-1] == f"Next, a classifier that learns from it: {shlex.join(['bomd', 'retrain', str(run)])}"
    )
    with (tmp_path / "mine-details.csv").open(newline="", encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    assert len({line["id"] for line in lines}) == 3
    assert {line["reviewers"] for line in lines} == {"Ada|Grace [b]"}


def said_on(run: Path, name: str, rows: slice, *, accept: bool, undo: bool = False) -> None:
    evidence = open_evidence(run)
    with closing(Journal(run / FILE, evidence.classes)) as journal:
        for row in evidence.rows[rows]:
            labels = plain_labels((evidence.proposed if accept else evidence.given)[row])
            image = str(evidence.record.given.ids[row])
            saved = journal.submit(Event(name, image, "edit", labels)).result(timeout=20)
            if undo:
                journal.submit(Event(name, image, "undo", undoes=saved.number)).result(timeout=20)


def test_decisions_on_copies_are_taken_in_once_and_keep_their_times(run: Path, tmp_path: Path) -> None:
    """Ada reviews on one machine and Grace on another; what Ada took back after the copy was made stays so."""
    said_on(run, "Ada", slice(0, 2), accept=True)
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    said_on(copy, "Grace", slice(0, 3), accept=False)
    said_on(copy, "Grace", slice(3, 4), accept=True, undo=True)
    classes = open_evidence(run).classes
    with closing(Journal(run / FILE, classes)) as journal:
        last = journal.events()[-1]
        journal.submit(Event("Ada", last.image, "undo", undoes=last.number)).result(timeout=20)
    expected = [event.time for event in current(read_events(copy / FILE, classes))["Grace"].values()]
    for _ in range(2):
        said = call("decisions", str(run), "--with", str(copy), "-o", str(tmp_path / "mine.csv"))
        assert "Ada: 1 image\n" in said
        assert "Grace: 3 images" in said
        assert "over 1 image that several people judged" in said
        events = read_events(run / FILE, classes)
        assert len(events) == 3 + 3
        assert [event.time for event in events if event.reviewer == "Grace"] == expected


def test_what_was_taken_back_on_a_copy_is_taken_back_here(run: Path, tmp_path: Path) -> None:
    """Both were decided before the copy was made; here Grace went on, so that it is not her last decision any more."""
    said_on(run, "Grace", slice(0, 2), accept=True)
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    classes = open_evidence(run).classes
    with closing(Journal(copy / FILE, classes)) as journal:
        last = journal.events()[-1]
        journal.submit(Event("Grace", last.image, "undo", undoes=last.number)).result(timeout=20)
    said_on(run, "Grace", slice(4, 5), accept=True)
    for _ in range(2):
        said = call("decisions", str(run), "--with", str(copy), "-o", str(tmp_path / "mine.csv"))
        assert "Grace: 2 images" in said
    events = read_events(run / FILE, classes)
    assert [event.action for event in events] == ["edit", "edit", "edit", "undo"]
    assert last.image not in current(events)["Grace"]
    assert last.image not in (tmp_path / "mine-details.csv").read_text()
    desk = replay(Queue(open_evidence(run)), events)["Grace"]  # as the page starts
    assert desk.progress()["decided"] == 2


@pytest.mark.parametrize(
    ("first", "then", "stands"),
    [
        ([("accept", 0, 2), ("undo", 2, 2), ("accept", 0, 2)], [], "accept"),  # at one go, within a second
        ([("skip", 0, 2), ("accept", 0, 3)], [("undo", 3, 4)], "skip"),  # what was never taken in stands again
        ([("accept", 0, 2), ("skip", 0, 2), ("accept", 0, 2), ("undo", 4, 2), ("undo", 3, 2)], [], "accept"),
    ],
)
def test_what_stands_on_a_copy_stands_here_however_often_it_is_taken_in(
    run: Path, tmp_path: Path, first: list[tuple[str, int, int]], then: list[tuple[str, int, int]], stands: str
) -> None:
    """Of one image that Ada had kept before the copy was made: actions, what each undoes, and the second."""
    evidence = open_evidence(run)
    image, labels = str(evidence.record.given.ids[evidence.rows[0]]), plain_labels(evidence.given[evidence.rows[0]])

    def say(folder: Path, story: list[tuple[str, int, int]]) -> None:
        with closing(Journal(folder / FILE, evidence.classes)) as journal:
            for action, undoes, second in story:
                said = labels if action in ("accept", "keep") else None
                time = f"2026-01-01T00:00:0{second}+00:00"
                journal.submit(Event("Ada", image, action, said, undoes or None, time=time)).result(timeout=20)

    say(run, [("keep", 0, 1)])
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    for story in (first, then, []):
        say(copy, story)
        take_in(run, copy)
        there, here = (current(read_events(place / FILE, evidence.classes))["Ada"][image] for place in (copy, run))
        assert (here.action, here.time) == (there.action, there.time)
    assert here.action == stands


def test_only_a_copy_of_the_same_run_is_taken_in(run: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(run, tmp_path / "other"))
    record = LabelRecord.load(other / "labels.npz")
    replace(record, given=record.given.replace(1 - record.given.values)).save(other / "labels.npz")
    said_on(other, "Grace", slice(0, 1), accept=True)
    with pytest.raises(InputError, match=r"is no copy of .*: it has other labels or evidence"):
        CliRunner().invoke(app, ["decisions", str(run), "--with", str(other)], catch_exceptions=False)
    assert read_events(run / FILE, open_evidence(run).classes) == []


def test_without_decisions_the_given_labels_are_written(run: Path) -> None:
    said = call("decisions", str(run))
    assert "0 of 60 images are reviewed; 0 labels are unresolved." in said
    assert "kappa" not in said
    assert (
        said.splitlines()[-1]
        == f"Nobody has decided anything yet: {shlex.join(['bomd', 'review', str(run), '--open'])}"
    )
    assert (run / "reviewed.csv").exists()


def test_one_image_with_one_open_label_is_said_as_one(run: Path, tmp_path: Path) -> None:
    evidence = open_evidence(run)
    row, journal = int(evidence.rows[0]), Journal(run / FILE, evidence.classes)
    given = plain_labels(evidence.given[row])
    other = (1 - (given[0] or 0), *given[1:])
    for name, labels in (("Ada", given), ("Grace", other)):
        journal.submit(Event(name, str(evidence.record.given.ids[row]), "edit", labels)).result(timeout=20)
    journal.close()
    said = call("decisions", str(run), "--output", str(tmp_path / "mine.csv"))
    assert "1 of 60 images is reviewed; 1 label is unresolved." in said


def test_a_review_that_is_stopped_says_what_comes_next(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is how it ends, so that it is no error, and the gate is closed behind it."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bomd.review.server.serve", interrupted)
    assert "bomd retrain" not in call("review", str(run)), "where nothing was trained, nothing can be trained again"
    (run / "model").mkdir()
    said = call("review", str(run)).splitlines()
    assert said[-2] == f"Stopped. Your table as it was decided: {shlex.join(['bomd', 'decisions', str(run)])}"
    assert said[-1] == f"A classifier that learns from it: {shlex.join(['bomd', 'retrain', str(run)])}"
    assert "127.0.0.1" not in (run / "review.html").read_text()


def test_decisions_tell_rates_that_an_audit_takes(run: Path, tmp_path: Path) -> None:
    """All that was proposed is accepted: labels are then wrong more often than where nothing was."""
    with pytest.raises(InputError, match="Nobody has decided"):
        call("decisions", str(run), "--rates", str(tmp_path / "rates.csv"))
    evidence = open_evidence(run)
    found = []
    for name, values in (("kept", evidence.given), ("changed", 1 - np.clip(evidence.given, 0, 1))):
        (run / FILE).unlink(missing_ok=True)
        journal = Journal(run / FILE, evidence.classes)
        for row in range(len(evidence)):
            image = str(evidence.record.given.ids[row])
            journal.submit(Event("Ada", image, "edit", plain_labels(values[row]))).result(timeout=20)
        journal.close()
        call("decisions", str(run), "--output", str(tmp_path / "mine.csv"), "--rates", str(tmp_path / f"{name}.csv"))
        found.append(read_rates(tmp_path / f"{name}.csv", evidence.classes))
    kept, changed = found
    assert set(kept) == set(changed) == {name for name in evidence.classes if name != NO_FINDING}
    for name in kept:
        assert changed[name]["false_alarm"] > kept[name]["false_alarm"]
        assert changed[name]["miss"] > kept[name]["miss"]


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
    bomd("decisions", str(before), "--output", str(reviewed))
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


def test_no_process_is_started_with_the_token_among_its_arguments(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The browser gets the run's gate, which only its owner can read, and which holds no token afterwards."""
    shown: list[str] = []
    seen: list[tuple[str, int]] = []
    page = run / "review.html"
    monkeypatch.setattr("webbrowser.open", lambda address: shown.append(address) or True)
    monkeypatch.setattr(
        "bomd.review.server.serve",  # would go on until somebody stops it
        lambda pages, token, listener: seen.append((token, page.read_text().count(token))),
    )
    call("review", str(run), "--open")
    assert shown == [page.resolve().as_uri()]
    [(token, found)] = seen
    assert found == 1
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert token not in page.read_text()
    assert token not in shown[0]


TINY = """
method = "bce"
validation = 0.0
[images]
size = 32
[train]
dataset = "phantom"
count = 60
[fit]
backbone = "small"
weights = "none"
epochs = 1
batch = 16
"""


def test_one_command_from_decisions_to_a_model_with_thresholds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    bomd("run", str(tmp_path / "tiny.toml"), "--runs", str(tmp_path / "runs"))
    run = only_run(tmp_path / "runs")
    with pytest.raises(InputError, match=re.escape(f"yet: start with bomd review {shlex.quote(str(run))} --open")):
        cli_review.retrain(run)
    given = LabelRecord.load(run / "labels.npz").given
    flipped = tuple(int(1 - value) for value in given.values[0])
    journal = Journal(run / FILE, given.classes)
    journal.submit(Event("Ada", str(given.ids[0]), "edit", flipped)).result(timeout=20)
    journal.close()
    bomd("retrain", str(run), "--held-out", "0.3")
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == f"Next, new images: bomd predict {run / 'retrained' / 'model'} IMAGES"
    model = read_json(run / "retrained" / "model" / "model.json")
    assert model["thresholds"] == dict.fromkeys(given.classes)  # 18 images cannot have 10 with a finding and 10 without
    for name in given.classes:
        assert f"\n  {name}: too few held-out labels, or no better than a coin on them\n" in said
    card = (run / "retrained" / "model" / "README.md").read_text()
    assert "No threshold was chosen: too few held-out labels, or no better than a coin on them." in card
    after = only_run(tmp_path / "runs" / "run-retrained")
    record = LabelRecord.load(after / "labels.npz").given
    assert 0 < len(record) < len(given)  # the others choose thresholds
    held_out, _ = load_predictions(after / "predictions.npz")["validation"]
    assert len(record) + len(held_out) == len(given)
    (own,) = [table.select(given.ids[:1]).values[0] for table in (record, held_out) if given.ids[0] in table.ids]
    assert own.tolist() == list(flipped)
    side = "train" if given.ids[0] in record.ids else "validation"
    assert model["facts"]["decided"] == {side: {"labels": len(given.classes), "images": 1}}
    assert f"{len(given.classes)} labels of 1 image" in card
    with pytest.raises(InputError, match="between 0 and 1"):
        cli_review.retrain(run, held_out=1.5)


def test_where_an_image_has_one_class_a_model_is_not_said_to_lack_thresholds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny.toml").write_text(TINY.replace("count = 60", "count = 60\none_finding = true"))
    bomd("run", str(tmp_path / "tiny.toml"), "--runs", str(tmp_path / "runs"))
    run = only_run(tmp_path / "runs")
    given = LabelRecord.load(run / "labels.npz").given
    with closing(Journal(run / FILE, given.classes)) as journal:
        kept = tuple(int(value) for value in given.values[0])
        journal.submit(Event("Ada", str(given.ids[0]), "keep", kept)).result(timeout=20)
    capsys.readouterr()
    bomd("retrain", str(run))
    said = capsys.readouterr().out
    assert "An image has one class: the one with the highest probability is called.\n" in said
    assert "thresholds" not in said


def test_nothing_can_be_retrained_where_nothing_was_trained(run: Path) -> None:
    """That stays so however many decisions there are, and is said before anybody spends an evening on them."""
    write_json(run / "config.json", {"format": runs.FORMAT, "config": {"method": "features"}})
    with pytest.raises(InputError, match="trained nothing"):
        cli_review.retrain(run)
    evidence = open_evidence(run)
    journal = Journal(run / FILE, evidence.classes)
    image = str(evidence.record.given.ids[0])
    journal.submit(Event("Ada", image, "keep", plain_labels(evidence.given[0]))).result(timeout=20)
    journal.close()
    assert "bomd retrain" not in call("decisions", str(run))  # the next command is one that works
    with pytest.raises(InputError, match="trained nothing"):
        cli_review.retrain(run)
    assert not (run / "retrained").exists()
