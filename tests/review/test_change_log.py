"""The change log: a line for every label that differs, every answered question, and nothing else."""

from __future__ import annotations

import csv
import hashlib
import html
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bomd.cli import app
from bomd.errors import InputError
from bomd.experiments.records import LabelRecord, load_record
from bomd.files import write_json
from bomd.review.change_log import COLUMNS, as_log, change_log, write_log
from bomd.review.decisions import FILE, Event, Journal
from bomd.review.evidence import open_evidence
from bomd.review.export import merge, read_reviewed, unresolved
from bomd.review.queue import plain_labels
from bomd.tables import Opinion


def small_record() -> LabelRecord:
    """Three images, two findings; Mass of a is proposed to go, Edema of b to come."""
    from bomd.tables import LabelTable

    ids, classes = np.asarray(["a", "b", "c"]), ("Mass", "Edema")
    given = LabelTable(ids, classes, np.asarray([[1, 0], [0, 0], [0.7, np.nan]], np.float32), patients=ids)
    wrong = np.asarray([[0.9, 0.1], [0.2, 0.8], [0.1, np.nan]], np.float32)
    proposed = np.asarray([[0, 0], [0, 1], [1, np.nan]], np.float32)
    opinion = Opinion(ids, wrong, proposed, np.ones(3, np.float32), np.arange(1, 4), np.ones(2, np.bool_), ())
    neighbours = np.asarray([[1], [0], [0]])
    return LabelRecord(given, given, opinion, neighbours=neighbours, classifier=np.full((3, 2), 0.25, np.float32))


def event(name: str, image: str, labels: tuple[int | None, ...], time: str = "2026-01-01T00:00:00+00:00") -> Event:
    return Event(name, image, "edit", labels, number=1, time=time)


def test_a_line_for_every_kind_of_decision_worked_out_by_hand() -> None:
    record = small_record()
    standing = {
        "Ada": {"a": event("Ada", "a", (0, 1)), "b": event("Ada", "b", (0, 0)), "c": event("Ada", "c", (1, 1))},
        "Bob": {"b": event("Bob", "b", (0, 1), "2026-01-02T00:00:00+00:00")},
    }
    entries = change_log(record, merge(record.given, standing))
    found = [(e.kind, e.image, e.finding, e.before, e.after, e.judged.people, e.note) for e in entries]
    assert found == [
        ("changed", "a", "Mass", "1", "0", ("Ada",), "as proposed"),
        ("changed", "a", "Edema", "0", "1", ("Ada",), "the reviewer's own: not proposed"),
        ("confirmed", "c", "Mass", "0.7", "1", ("Ada",), "given as a probability"),
        ("changed", "c", "Edema", "", "1", ("Ada",), "the reviewer's own: not proposed"),
        (
            "unresolved",
            "b",
            "Edema",
            "0",
            "0",
            ("Ada", "Bob"),
            "evenly split, yes by Bob and no by Ada: stays as given",
        ),
    ]  # Mass of b was neither changed nor asked about
    assert entries[0].evidence == (
        "wrong with probability 0.90; 0% of the nearest images have it; classifier 0.25; place 1 of 3"
    )
    assert entries[-1].judged.when == "2026-01-02T00:00:00+00:00"
    against = {**standing, "Eve": {"b": event("Eve", "b", (0, 0))}}
    line = change_log(record, merge(record.given, against))[-1]
    assert (line.kind, line.note) == ("confirmed", "given label confirmed against the proposal; against Bob")


def test_a_label_that_an_earlier_review_decided_says_so() -> None:
    record = small_record()
    confirmed = np.asarray([[False, True], [False, False], [False, False]])
    record = replace(record, given=replace(record.given, confirmed=confirmed))
    standing = {"Ada": {"a": event("Ada", "a", (0, 1))}}
    notes = {e.finding: e.note for e in change_log(record, merge(record.given, standing))}
    assert notes["Edema"].endswith("; had been decided in an earlier review")
    assert "earlier" not in notes["Mass"]


def test_a_split_on_one_label_per_image_is_not_called_even() -> None:
    """Given Edema, Ada says Mass and Bob Hernia: nobody is for Edema, and nothing has a majority."""
    from bomd.tables import LabelTable

    ids = np.asarray(["a"])
    given = LabelTable(ids, ("Mass", "Edema", "Hernia"), np.asarray([[0, 1, 0]], np.float32), exclusive=True)
    opinion = Opinion(
        ids, given.values, given.values, np.ones(1, np.float32), np.ones(1, np.int64), np.ones(3, np.bool_), ()
    )
    standing = {"Ada": {"a": event("Ada", "a", (1, 0, 0))}, "Bob": {"a": event("Bob", "a", (0, 0, 1))}}
    entries = change_log(LabelRecord(given, given, opinion), merge(given, standing))
    assert {entry.finding: entry.note for entry in entries} == {
        "Mass": "evenly split, yes by Ada and no by Bob: stays as given",
        "Edema": "no class has a majority: stays as given",
        "Hernia": "evenly split, yes by Bob and no by Ada: stays as given",
    }


def test_three_opinions_on_one_label_are_no_even_split() -> None:
    """Each of three people names another class: every class has one vote against two."""
    from bomd.tables import LabelTable

    ids = np.asarray(["a"])
    given = LabelTable(ids, tuple("ABCD"), np.asarray([[0, 0, 0, 1]], np.float32), exclusive=True)
    opinion = Opinion(
        ids, given.values, given.values, np.ones(1, np.float32), np.ones(1, np.int64), np.ones(4, np.bool_), ()
    )
    said = {name: tuple(np.eye(4, dtype=int)[place].tolist()) for place, name in enumerate(("Ada", "Bob", "Eve"))}
    standing = {name: {"a": event(name, "a", labels)} for name, labels in said.items()}
    entries = change_log(LabelRecord(given, given, opinion), merge(given, standing))
    assert {entry.finding: entry.note for entry in entries} == {
        "A": "no class has a majority, yes by Ada and no by Bob | Eve: stays as given",
        "B": "no class has a majority, yes by Bob and no by Ada | Eve: stays as given",
        "C": "no class has a majority, yes by Eve and no by Ada | Bob: stays as given",
        "D": "no class has a majority: stays as given",
    }


def test_of_one_label_per_image_every_label_counts_once(tmp_path: Path) -> None:
    """B is proposed for every image given A: moved to B, moved to C, left at A, and split between A and C."""
    from bomd.tables import LabelTable

    one = np.eye(3, dtype=np.float32)
    ids = np.asarray(["a", "b", "c", "d"])
    given = LabelTable(ids, tuple("ABC"), one[[0, 0, 0, 0]], exclusive=True)
    opinion = Opinion(
        ids, given.values, one[[1, 1, 1, 1]], np.ones(4, np.float32), np.arange(1, 5), np.ones(3, np.bool_), ()
    )
    LabelRecord(given, given, opinion).save(tmp_path / "labels.npz")
    moves = {"a": (0, 1, 0), "b": (0, 0, 1), "c": (1, 0, 0), "d": (1, 0, 0)}
    said = {image: event("Ada", image, labels) for image, labels in moves.items()}
    reviewed = merge(given, {"Ada": said, "Bob": {"d": event("Bob", "d", (0, 0, 1))}})
    entries, page = write_log(tmp_path, reviewed, tmp_path / "changes.csv")
    assert ("b", "B", "confirmed") in [(entry.image, entry.finding, entry.kind) for entry in entries]  # no B there
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert "<b>2</b> labels changed, <b>1</b> confirmed against a proposal, <b>1</b> unresolved" in text


def test_one_label_that_moves_is_one_change_and_one_that_is_open_is_one_question(run: Path, tmp_path: Path) -> None:
    """Of five classes image a was given C, and one person says A, another B; on b somebody moves A to C."""
    from bomd.tables import LabelTable

    ids = np.asarray(["a", "b"])
    given = LabelTable(ids, tuple("ABCDE"), np.eye(5, dtype=np.float32)[[2, 0]], exclusive=True)
    opinion = Opinion(
        ids, given.values, given.values, np.ones(2, np.float32), np.arange(1, 3), np.ones(5, np.bool_), ()
    )
    one, two = ((1, 0, 0, 0, 0), (0, 1, 0, 0, 0))
    standing = {
        "Ada": {"a": event("Ada", "a", one), "b": event("Ada", "b", (0, 0, 1, 0, 0))},
        "Bob": {"a": event("Bob", "a", two)},
    }
    LabelRecord(given, given, opinion).save(run / "labels.npz")
    reviewed = merge(given, standing)
    entries, page = write_log(run, reviewed, tmp_path / "changes.csv")
    assert sorted(f"{entry.image}{entry.finding} {entry.kind}" for entry in entries) == [
        "aA unresolved",
        "aB unresolved",
        "aC unresolved",
        "bA changed",
        "bC changed",
    ]
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert "<b>1</b> label changed, <b>0</b> confirmed against a proposal, <b>1</b> unresolved" in text
    assert "An image has one label, but a line for every class in question" in text
    assert unresolved(reviewed, None) == 1


def test_classes_that_the_table_does_not_have_are_not_counted() -> None:
    """Nobody gave Edema, so that nobody changed it."""
    record = small_record()
    reviewed = merge(record.given, {"Ada": {"a": event("Ada", "a", (0, 1))}})
    entries = change_log(record, reviewed, np.asarray([True, False]))
    assert [(entry.image, entry.finding) for entry in entries] == [("a", "Mass")]


def test_a_probability_that_people_confirmed_is_not_said_to_be_confirmed_against_a_proposal(tmp_path: Path) -> None:
    """It is 1 now where it was 0.7, so that the file differs although no label changed; the page says why."""
    small_record().save(tmp_path / "labels.npz")
    journal = Journal(tmp_path / FILE, ("Mass", "Edema"))
    journal.submit(Event("Ada", "b", "keep", (0, 0))).result(timeout=20)
    text = write_log(tmp_path, read_reviewed(tmp_path), tmp_path / "a.csv")[1].read_text(encoding="utf-8")
    assert "<b>1</b> confirmed against a proposal,\n" in text
    journal.submit(Event("Ada", "c", "keep", (1, None))).result(timeout=20)
    journal.close()
    text = write_log(tmp_path, read_reviewed(tmp_path), tmp_path / "a.csv")[1].read_text(encoding="utf-8")
    assert "<b>0</b> labels changed, <b>2</b> confirmed against a proposal or where a probability was given," in text


def test_names_on_the_page_stand_apart(run: Path, tmp_path: Path) -> None:
    evidence = open_evidence(run)
    row = int(evidence.rows[0])
    image = str(evidence.record.given.ids[row])
    journal = Journal(run / FILE, evidence.classes)
    for name in ("Müller, Anna", "Weber|Jan"):
        journal.submit(Event(name, image, "edit", plain_labels(evidence.proposed[row]))).result(timeout=20)
    journal.close()
    _, page = write_log(run, read_reviewed(run), tmp_path / "changes.csv")
    assert "<td>Müller, Anna<br>Weber|Jan</td>" in page.read_text(encoding="utf-8")


def decide(run: Path, count: int = 6) -> None:
    """Two people: one accepts every second proposal and keeps the others; the second agrees on half of it."""
    evidence = open_evidence(run)
    journal = Journal(run / FILE, evidence.classes)
    for place, row in enumerate(evidence.rows[:count]):
        image = str(evidence.record.given.ids[row])
        for name, values in (
            ("Ada", evidence.proposed if place % 2 else evidence.given),
            ("=HYPERLINK('x')", evidence.proposed),
        ):
            journal.submit(Event(name, image, "edit", plain_labels(values[row]))).result(timeout=20)
    journal.submit(Event("Ada", str(evidence.record.given.ids[evidence.rows[count]]), "skip")).result(timeout=20)
    journal.close()


def test_the_log_has_each_differing_cell_and_each_question_once(run: Path) -> None:
    decide(run)
    record, reviewed = load_record(run), read_reviewed(run)
    entries = change_log(record, reviewed)
    wanted = set()
    for row in np.flatnonzero(reviewed.reviewers):
        for column, name in enumerate(record.given.classes):
            before, after = record.given.values[row, column], reviewed.labels.values[row, column]
            asked = record.opinion.proposed[row, column] != before
            if asked or before != after:
                wanted.add((str(record.given.ids[row]), name))
    assert wanted
    assert sorted((e.image, e.finding) for e in entries) == sorted(wanted)
    assert {e.kind for e in entries} == {"changed", "unresolved"}
    whens = [e.judged.when for e in entries]
    assert whens == sorted(whens)


def test_the_table_is_harmless_and_its_page_names_its_checksum(run: Path, tmp_path: Path) -> None:
    decide(run)
    write_json(run / "result.json", {"method": "bomd-plus", "seed": 3})
    (run / "table.csv").write_text("id,labels\n")
    file = tmp_path / "changes.csv"
    entries, page = write_log(run, read_reviewed(run), file)
    lines = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"))))
    assert tuple(lines[0]) == COLUMNS
    assert len(lines) == len(entries) > 0
    assert {line["who"] for line in lines} == {"'=HYPERLINK('x')|Ada"}
    text = page.read_text(encoding="utf-8")
    assert page == tmp_path / "changes.html"
    assert hashlib.sha256(file.read_bytes()).hexdigest() in text
    assert hashlib.sha256((run / "labels.npz").read_bytes()).hexdigest() in text
    assert f"table.csv, SHA-256 {hashlib.sha256((run / 'table.csv').read_bytes()).hexdigest()}" in text
    assert "bomd-plus, seed 3" in text
    assert "Approved by" in text
    assert "<script" not in text
    assert not re.search(r'(?:src|href)="(?!data:)', text)


def test_markup_in_names_stays_text_on_the_page(hostile_run: Path, tmp_path: Path) -> None:
    decide(hostile_run)
    entries, page = write_log(hostile_run, read_reviewed(hostile_run), tmp_path / "changes.csv")
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "<img" not in text
    assert any("<script>" in entry.image for entry in entries)
    assert all(entry.image in html.unescape(text) for entry in entries)


def test_without_decisions_the_log_is_empty_and_says_so(run: Path, tmp_path: Path) -> None:
    entries, page = write_log(run, read_reviewed(run), tmp_path / "changes.csv")
    assert entries == []
    assert (tmp_path / "changes.csv").read_text() == as_log([]) == ",".join(COLUMNS) + "\n"
    assert "No label has been changed" in page.read_text(encoding="utf-8")


def test_the_command_writes_both_and_refuses_a_page_in_the_tables_place(run: Path, tmp_path: Path) -> None:
    decide(run)
    file = tmp_path / "log" / "changes.csv"
    done = CliRunner().invoke(app, ["decisions", str(run), "--log", str(file)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    lines = file.read_text(encoding="utf-8").count("\n") - 1
    assert f"{lines} lines; to sign: {file.with_suffix('.html')}" in done.output.replace("\n", "")
    with pytest.raises(InputError, match="takes a table such as"):
        write_log(run, read_reviewed(run), tmp_path / "changes.html")
    assert not (tmp_path / "changes.html").exists()
