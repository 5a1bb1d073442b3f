"""Data first, then settings: an audit reads its table and its folder once, judges once, and hands on what it has."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from bomd.audits import audit as auditing
from bomd.audits import plan as planning
from bomd.audits.audit import audit
from bomd.audits.choose import Choice
from bomd.audits.found import Audit
from bomd.clean.opinion import form_opinion
from bomd.clean.posterior import judge
from bomd.clean.relabel import neighbour_mean
from bomd.cli import main
from bomd.data import records
from bomd.data.store import pack
from bomd.data.verify import verify_tables
from bomd.data.wanted import file_state
from bomd.errors import InputError
from bomd.experiments.records import load_predictions, load_record
from bomd.learn.engine import fit
from bomd.review.decisions import FILE, Event, Journal
from bomd.review.retrain import retrain

TINY = Choice("small", 32, 2, 1, 1.0, "a test", 1)
IMAGES = 32


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """32 images of 16 patients with three classes, and settings that take seconds."""
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    lines = ["image,patient,labels"]
    for row in range(IMAGES):
        kind = row % 3
        pixels = rng.integers(0, 60, (32, 32)) + 60 * kind
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "images" / f"i{row}.png")
        lines.append(f"i{row}.png,p{row // 2},{('Mass', 'Edema', 'Mass|Edema')[kind]}")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    np.save(tmp_path / "features.npy", rng.normal(size=(IMAGES, 4)).astype(np.float32))
    monkeypatch.setattr(planning, "choose", lambda *_, **__: TINY)  # a setting; timing the machine takes longer
    return tmp_path


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Counter[str]]:
    """Counts calls of real functions, by whatever name any module of ours knows them, and of walks and pandas."""

    def start(*functions: Callable[..., Any]) -> Counter[str]:
        calls: Counter[str] = Counter()

        def counting(function: Callable[..., Any], name: str) -> Callable[..., Any]:
            @functools.wraps(function)
            def wrapper(*values: Any, **named: Any) -> Any:
                calls[name] += 1
                calls[f"{name} {Path(str(values[0])).name if values else ''}"] += 1
                return function(*values, **named)

            return wrapper

        for function in functions:
            wrapper = counting(function, function.__name__)
            for name, module in list(sys.modules.items()):
                if name.startswith("bomd.") and getattr(module, function.__name__, None) is function:
                    monkeypatch.setattr(module, function.__name__, wrapper)
        monkeypatch.setattr(os, "walk", counting(os.walk, "walk"))
        monkeypatch.setattr(pd, "read_csv", counting(pd.read_csv, "read_csv"))
        return calls

    return start


def test_an_audit_reads_once_and_judges_once(place: Path, counted: Callable[..., Counter[str]]) -> None:
    calls = counted(records.read_separated, form_opinion, judge, neighbour_mean, pack, fit)
    audit(place / "labels.csv", place / "images", output=place / "out")
    assert calls["read_separated"] == calls["read_separated labels.csv"] == 1
    assert calls["walk images"] == 1
    assert calls["read_csv"] == 0
    assert calls["form_opinion"] == calls["judge"] == 1
    assert calls["neighbour_mean"] <= 1
    assert calls["pack"] == 1
    assert calls["fit"] == 3  # two halves of the patients, and the classifier
    assert not list((place / "out").rglob("tables"))


def test_so_does_one_by_features_and_one_of_a_table_in_memory(
    place: Path, counted: Callable[..., Counter[str]]
) -> None:
    frame = pd.read_csv(place / "labels.csv")
    calls = counted(records.read_separated, form_opinion, pack)
    options = {"features": place / "features.npy", "skip_missing": True, "drop_duplicates": True}
    by_file = audit(place / "labels.csv", place / "images", output=place / "one", **options)
    assert (calls["read_separated"], calls["walk"], calls["form_opinion"], calls["pack"]) == (1, 1, 1, 1)
    in_memory = audit(frame, place / "images", output=place / "two", **options)
    assert (calls["read_separated"], calls["walk"], calls["form_opinion"], calls["pack"]) == (1, 2, 2, 2)
    one, two = ((found.directory / "labels_clean.csv").read_bytes() for found in (by_file, in_memory))
    assert one == two


def test_files_that_do_not_fit_are_refused_before_every_image_file_is_asked_for_its_state(
    place: Path, counted: Callable[..., Counter[str]]
) -> None:
    np.save(place / "short.npy", np.zeros((IMAGES - 1, 4)))
    (place / "rates.csv").write_text("class,share\nMass,0.1\n")
    calls = counted(file_state, verify_tables)
    for option, file in (("features", "short.npy"), ("probabilities", "short.npy"), ("rates", "rates.csv")):
        with pytest.raises(InputError, match=file):
            planning.plan(place / "labels.csv", place / "images", output=place / "out", **{option: place / file})
    assert not calls["file_state"] + calls["verify_tables"]
    planning.plan(place / "labels.csv", place / "images", output=place / "out", features=place / "features.npy")
    assert calls["file_state"] == calls["verify_tables"] == 1


def test_every_argument_reaches_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own name and as it was given."""
    handed: dict[str, Any] = {}

    def planned(*values: Any, **named: Any) -> None:
        found = inspect.signature(planning.plan).bind(*values, **named).arguments
        handed.update(found.pop("layout"), **found)
        raise KeyboardInterrupt

    monkeypatch.setattr(auditing, "plan", planned)
    names = [name for name in inspect.signature(audit).parameters if name != "layout"]
    given = {name: object() for name in (*names, "id_column")}
    with pytest.raises(KeyboardInterrupt):
        audit(**given)  # type: ignore[arg-type]  # nobody looks at the values
    assert len(names) > 10
    assert handed == given


def test_rows_that_are_left_out_are_not_read_again(place: Path, counted: Callable[..., Counter[str]]) -> None:
    """A class that only they have is no class of what is left."""
    with (place / "labels.csv").open("a") as stream:
        stream.write("gone.png,p99,Hernia\ni0.png,p0,Mass\n")
    calls = counted(records.read_separated)
    options = {"features": place / "features.npz", "skip_missing": True, "drop_duplicates": True}
    ids = np.asarray([f"i{row}.png" for row in range(IMAGES)])
    np.savez(place / "features.npz", ids=ids, features=np.load(place / "features.npy"))
    found = audit(place / "labels.csv", place / "images", output=place / "out", **options)
    assert (calls["read_separated"], calls["walk"]) == (1, 1)
    assert found.record.given.classes == ("Edema", "Mass", "No Finding")
    assert found.left_out == {"gone.png": "There is no image of that name."}


def test_after_a_crash_it_goes_on_where_it_was(
    place: Path, counted: Callable[..., Counter[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    whole = audit(place / "labels.csv", place / "images", output=place / "whole")
    with monkeypatch.context() as patch:
        patch.setattr("bomd.experiments.experiment.label_record", killed)
        with pytest.raises(KeyboardInterrupt):
            audit(place / "labels.csv", place / "images", output=place / "out")
    calls = counted(fit, pack)
    again = audit(place / "labels.csv", place / "images", output=place / "out")
    assert calls["fit"] == 1  # the folds are finished stages; the classifier opens its last checkpoint
    for name in ("labels_clean.csv", "doubtful_labels.csv"):
        assert (again.directory / name).read_bytes() == (whole.directory / name).read_bytes()
    trained = (again.run.directory / "model" / "model.json").stat().st_mtime_ns
    assert audit(place / "labels.csv", place / "images", output=place / "out").run.directory == again.run.directory
    assert (again.run.directory / "model" / "model.json").stat().st_mtime_ns == trained


@pytest.mark.parametrize("way", ["trained", "by features"])
def test_one_that_is_done_says_so_and_nothing_of_training(
    place: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    def said(*more: str) -> str:
        """What the command says before it is done, or once it has planned."""
        words = ["audit", str(place / "labels.csv"), "--images", str(place / "images"), "-o", str(place / "out"), *more]
        with pytest.raises(SystemExit) as stop:
            main(words if way == "trained" else [*words, "--features", str(place / "features.npy")])
        assert not stop.value.code
        return capsys.readouterr().err

    done, training = f"This audit is done already: its report is {place / 'out' / 'report.html'}", "Training will take"
    for before in (said("--plan"), said()):
        assert done not in before
        assert (training in before) == (way == "trained")
    for after in (said(), said("--plan")):
        assert after.count(done) == 1
        assert training not in after
    if way == "by features":
        assert done not in said("--seed", "1", "--plan")  # another audit, of which nothing is there
        said("--seed", "1")
        assert done not in said("--plan")  # the report is that of the other now
        assert done in said("--seed", "1", "--plan")


def test_whole_minutes_in_python_are_those_of_the_command_line(place: Path) -> None:
    """Else an audit of the same would be done again, and decisions about the first would not be found."""
    whole, broken = (
        planning.plan(place / "labels.csv", place / "images", output=place / "out", minutes=minutes, size=32).request
        for minutes in (2, 2.0)
    )
    assert whole == broken
    assert planning.plan(place / "labels.csv", place / "images", minutes=2.5, size=32).request != whole


def test_changed_labels_and_changed_images_are_another_run(place: Path) -> None:
    def audited() -> Audit:
        return audit(place / "labels.csv", place / "images", output=place / "out", features=place / "features.npy")

    first = audited()
    assert audited().run.directory == first.run.directory
    text = (place / "labels.csv").read_text()
    (place / "labels.csv").write_text(text.replace("i4.png,p2,Edema", "i4.png,p2,Mass"))
    second = audited()
    assert second.run.directory != first.run.directory
    assert not np.array_equal(second.record.given.values, first.record.given.values)
    Image.fromarray(np.full((32, 32), 200, np.uint8)).save(place / "images" / "i5.png")
    third = audited()
    assert third.run.directory not in (first.run.directory, second.run.directory)
    row = int(third.store().rows(["i5.png"])[0])
    assert (third.store().images[row] == 200).all()
    assert not (first.store().images[row] == 200).all()  # what the first run looked at is still there


def test_retraining_hands_on_what_the_audit_had(place: Path, counted: Callable[..., Counter[str]]) -> None:
    found = audit(place / "labels.csv", place / "images", output=place / "out")
    given = found.record.given
    flipped = tuple(int(1 - value) for value in given.values[3])
    journal = Journal(found.run.directory / FILE, given.classes)
    journal.submit(Event("Ada", "i3.png", "edit", flipped)).result(timeout=20)
    journal.close()
    (place / "labels.csv").unlink()  # nothing of it is needed any more
    calls = counted(records.read_separated)
    done = retrain(found.directory)
    assert calls["walk"] == 0
    assert calls["read_separated"] == calls["read_separated table.csv"] == 1  # the user's own, to be written again
    after = load_record(done.run.directory).given
    held_out, _ = load_predictions(done.run.directory / "predictions.npz")["validation"]
    assert sorted([*after.ids, *held_out.ids]) == sorted(given.ids)
    (own,) = [table.select(given.ids[3:4]).values[0] for table in (after, held_out) if "i3.png" in table.ids]
    assert own.tolist() == list(flipped)
    assert any("3 labels of 1 image are as people decided" in note for note in done.run.result()["notes"])
    assert retrain(found.directory).run.directory == done.run.directory
