"""Audit, review, decisions, and the next audit: the user's own table goes round, and what was decided is fixed."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bomd.audits import kept
from bomd.audits.audit import audit
from bomd.audits.found import Audit
from bomd.review.decisions import FILE, Event, Journal
from bomd.review.evidence import open_evidence
from bomd.review.export import write_reviewed
from bomd.review.queue import plain_labels

ROWS = 120


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two classes that features tell apart; images 0, 1, 12 and 13 have the label of the other."""
    (tmp_path / "images").mkdir()
    rng = np.random.default_rng(0)
    truth = np.arange(ROWS) % 24 // 12
    features = np.eye(2)[truth] + rng.normal(0, 0.05, (ROWS, 2))
    np.save(tmp_path / "features.npy", features.astype(np.float32))
    given = np.where(np.isin(np.arange(ROWS), (0, 1, 12, 13)), 1 - truth, truth)
    lines = ["file;age;findings;note"]
    for row, label in enumerate(given):
        Image.fromarray(rng.integers(0, 256, (32, 32), dtype=np.uint8)).save(tmp_path / "images" / f"i{row}.png")
        lines.append(f'i{row}.png;{20 + row};{("Mass", "Edema")[label]};"a; ""b"""')
    (tmp_path / "labels.csv").write_text("\r\n".join(lines) + "\r\n", encoding="utf-8", newline="")
    return tmp_path


def audited(place: Path, table: Path, name: str) -> Audit:
    rates = place / "rates.csv"
    rates.write_text("class,miss,false_alarm\nMass,0.1,0.1\nEdema,0.1,0.1\n")
    features = place / "features.npy"
    return audit(table, place / "images", output=place / name, features=features, rates=rates, per_image="multi")


def decide(found: Audit, image: str, action: str, person: str = "Ada") -> None:
    evidence = open_evidence(found.run.directory)
    row = evidence.numbers[image]
    journal = Journal(found.run.directory / FILE, evidence.classes)
    labels = plain_labels((evidence.proposed if action == "accept" else evidence.given)[row])
    journal.submit(Event(person, image, action, labels)).result(timeout=20)
    journal.close()


def test_the_table_comes_back_as_it_was_and_decided_labels_stay(place: Path) -> None:
    first = audited(place, place / "labels.csv", "first")
    assert set(np.flatnonzero(first.flags.noisy)) >= {0, 1, 12, 13}
    decide(first, "i0.png", "accept")
    decide(first, "i12.png", "keep")  # wrong, but somebody said so
    _, reviewed = write_reviewed(first.run.directory, place / "reviewed.csv")
    before, after = ((place / name).read_bytes() for name in ("labels.csv", "reviewed.csv"))
    assert after == before.replace(b"i0.png;20;Edema", b"i0.png;20;Mass")

    second = audited(place, reviewed, "second")
    assert second.record.given.classes == first.record.given.classes  # no column of ours is taken for a class
    assert not second.flags.noisy[[0, 12]].any()
    assert second.flags.noisy[[1, 13]].all()
    assert np.array_equal(second.labels.values[12], second.record.given.values[12])
    assert second.opinion.rank[[0, 12]].min() > ROWS - 2
    assert any("labels of 2 images are as people decided" in note for note in second.notes)
    with (second.directory / "labels_clean.csv").open(newline="", encoding="utf-8") as stream:
        line = list(csv.DictReader(stream, delimiter=";"))[12]
    assert (line["flagged"], line["Mass wrong"], line["Mass proposed"]) == ("0", "0", "1")

    # A second review adds to the first: who decided what is not lost.
    decide(second, "i1.png", "accept", "Grace")
    write_reviewed(second.run.directory, place / "twice.csv")
    with (place / "twice-details.csv").open(newline="", encoding="utf-8") as stream:
        people = {line["id"]: line["reviewers"] for line in csv.DictReader(stream)}
    assert people == {"i0.png": "Ada", "i12.png": "Ada", "i1.png": "Grace"}
    third = audited(place, place / "twice.csv", "third")
    assert not third.flags.noisy[[0, 1, 12]].any()


def test_without_the_details_nothing_counts_as_decided(place: Path) -> None:
    first = audited(place, place / "labels.csv", "first")
    decide(first, "i12.png", "keep")
    _, reviewed = write_reviewed(first.run.directory, place / "reviewed.csv")
    (place / "reviewed-details.csv").unlink()
    second = audited(place, reviewed, "second")
    assert second.record.given.confirmed is None
    assert second.flags.noisy[12]


def test_a_run_of_a_recipe_gives_back_the_table_of_its_folder(place: Path) -> None:
    """Nothing is kept beside such a run: the recipe says where the table is."""
    from bomd import runs
    from bomd.config import Config

    train = {"dataset": "folder", "root": str(place), "labels": "labels.csv", "images": "images"}
    run = runs.start(place / "runs", Config(train=train)).directory
    own = kept.find(run)
    assert own is not None
    assert (own.form.id_column, own.form.label_column, own.suffix) == ("file", "findings", ".csv")
    assert "".join(own.records.lines()).encode() == (place / "labels.csv").read_bytes()
    (place / "labels.csv").unlink()
    assert kept.find(run) is None
    assert kept.find(runs.start(place / "runs", Config(train={"dataset": "phantom"})).directory) is None
