"""Reviewed labels: the majority decides, and the table goes back as it came, with the details beside it."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bomd.data.datasets.corrected import read_corrections
from bomd.errors import InputError
from bomd.review.decisions import FILE, Event, Journal
from bomd.review.evidence import open_evidence
from bomd.review.export import as_details, as_table, merge, read_reviewed, reviewed_labels, write_reviewed
from bomd.review.queue import plain_labels
from bomd.tables import LabelTable

GIVEN = LabelTable(
    np.asarray(["a", "b", "c"]),
    ("Mass", "Edema"),
    np.asarray([[1, 0], [0.7, np.nan], [0.1, 1 / 3]], dtype=np.float32),
    patients=np.asarray(["p,1", 'p"2', "p\n3"]),
)


def said(name: str, **labels: tuple[int | None, ...]) -> dict[str, Event]:
    return {image: Event(name, image, "edit", values) for image, values in labels.items()}


def test_one_reviewer_decides() -> None:
    reviewed = merge(GIVEN, {"Ada": said("Ada", a=(0, 1)) | {"b": Event("Ada", "b", "skip")}})
    assert reviewed.labels.values[0].tolist() == [0, 1]
    assert np.array_equal(reviewed.labels.values[1:], GIVEN.values[1:], equal_nan=True)
    assert reviewed.reviewers.tolist() == [1, 0, 0]


def test_the_majority_decides_and_a_split_keeps_the_given_label() -> None:
    people = {"A": said("A", a=(0, 1)), "B": said("B", a=(0, 0)), "C": said("C", a=(1, 1))}
    assert merge(GIVEN, people).labels.values[0].tolist() == [0, 1]
    two = merge(GIVEN, {name: people[name] for name in "AC"})
    assert two.labels.values[0].tolist() == [1, 1]  # split on Mass, which was given as 1
    assert two.split.tolist() == [[True, False], [False, False], [False, False]]
    assert two.labels.confirmed.tolist() == [[False, True], [False, False], [False, False]]  # type: ignore[union-attr]


def test_a_decided_label_is_yes_or_no_and_an_unknown_one_stays_unknown() -> None:
    kept = merge(GIVEN, {"Ada": said("Ada", b=(1, None), c=(0, 0))})
    assert np.array_equal(kept.labels.values[1:], [[1, np.nan], [0, 0]], equal_nan=True)  # 0.7, blank; 0.1, a third
    assert kept.labels.confirmed.tolist() == [[False, False], [True, False], [True, True]]  # type: ignore[union-attr]
    changed = merge(GIVEN, {"Ada": said("Ada", b=(0, 1), c=(1, 0))})
    assert changed.labels.values[1:].tolist() == [[0, 1], [1, 0]]


def test_what_was_confirmed_before_stays_so_until_people_are_split() -> None:
    before = replace(GIVEN, confirmed=np.asarray([[True, True], [True, False], [False, False]]))
    again = merge(before, {"Ada": said("Ada", a=(0, 0)), "Bob": said("Bob", a=(1, 0))})
    assert again.labels.confirmed.tolist() == [[False, True], [True, False], [False, False]]  # type: ignore[union-attr]


def test_a_table_of_our_own_reads_back_to_the_bit() -> None:
    reviewed = merge(GIVEN, {"Ada": said("Ada", a=(0, 1))})
    lines = list(csv.reader(io.StringIO(as_table(reviewed, None))))
    assert lines[:3] == [["id", "patient", "Mass", "Edema"], ["a", "p,1", "0", "1"], ["b", 'p"2', "0.7", ""]]
    numbers = np.asarray([[float(cell or "nan") for cell in line[2:]] for line in lines[2:]], dtype=np.float32)
    assert np.array_equal(numbers, GIVEN.values[1:], equal_nan=True)


def test_details_say_who_when_and_what_was_given() -> None:
    one = {"a": Event("Ada|x", "a", "edit", (0, 1), time="2026-01-02"), "b": Event("Ada|x", "b", "skip")}
    two = {"a": Event("Bob", "a", "keep", (1, 1), time="2026-01-03")}
    lines = list(csv.DictReader(io.StringIO(as_details(merge(GIVEN, {"Ada|x": one, "Bob": two})))))
    assert [(line["id"], line["class"], line["given"], line["decided"]) for line in lines] == [
        ("a", "Mass", "1", "1"),
        ("a", "Edema", "0", "1"),
    ]
    assert [line["unresolved"] for line in lines] == ["1", "0"]
    assert {(line["reviewers"], line["time"]) for line in lines} == {("Ada\\|x|Bob", "2026-01-03")}


def test_no_cell_is_a_formula_and_the_files_still_find_their_images(tmp_path: Path) -> None:
    table = LabelTable(
        np.asarray(["=HYPERLINK(1)", "+1", "-1"]),
        ("@Mass", "Edema"),
        np.zeros((3, 2), dtype=np.float32),
        patients=np.asarray(["=1+1", "-p", "p"]),
    )
    reviewed = merge(table, {"=Eve": said("=Eve", **{"=HYPERLINK(1)": (1, 0)})})
    text, details = as_table(reviewed, None), as_details(reviewed)
    lines = list(csv.reader(io.StringIO(text)))
    assert [line[:2] for line in lines[1:]] == [["'=HYPERLINK(1)", "'=1+1"], ["+1", "'-p"], ["-1", "p"]]
    assert lines[0][2] == "'@Mass"
    assert all(line[4] == "'=Eve" for line in list(csv.reader(io.StringIO(details)))[1:])
    (tmp_path / "reviewed.csv").write_text(text, encoding="utf-8")
    (tmp_path / "reviewed-details.csv").write_text(details, encoding="utf-8")
    for name in ("reviewed.csv", "reviewed-details.csv"):
        found = read_corrections(table, tmp_path / name).over(table)
        assert found.values.tolist() == [[1, 0], [0, 0], [0, 0]]
        assert found.confirmed.tolist() == [[True, True], [False, False], [False, False]]  # type: ignore[union-attr]


def test_a_class_that_is_called_like_a_column_is_refused() -> None:
    table = LabelTable(GIVEN.ids, ("id", "Edema"), GIVEN.values)
    with pytest.raises(InputError, match="rename"):
        as_table(merge(table, {}), None)


def test_a_run_without_decisions_gives_the_given_labels(run: Path) -> None:
    given = open_evidence(run).record.given
    assert np.array_equal(reviewed_labels(run).values, given.values, equal_nan=True)
    assert not (run / FILE).exists()  # looking leaves no trace


def test_decisions_of_a_run_come_out_by_id(run: Path, tmp_path: Path) -> None:
    evidence = open_evidence(run)
    row = int(evidence.rows[0])
    image = str(evidence.record.given.ids[row])
    journal = Journal(run / FILE, evidence.classes)
    journal.submit(Event("Ada", image, "accept", plain_labels(evidence.proposed[row]))).result(timeout=20)
    (tmp_path / "out").mkdir()
    reviewed, path = write_reviewed(run, tmp_path / "out" / "mine.csv")  # while a server could be at work
    assert reviewed.labels.values[row].tolist() == evidence.proposed[row].tolist()
    others = np.arange(len(evidence)) != row
    assert np.array_equal(reviewed.labels.values[others], evidence.record.given.values[others], equal_nan=True)
    with path.open(newline="", encoding="utf-8") as stream:
        lines = {line["id"]: line for line in csv.DictReader(stream)}
    assert [int(lines[image][name]) for name in evidence.classes] == evidence.proposed[row].tolist()
    with (tmp_path / "out" / "mine-details.csv").open(newline="", encoding="utf-8") as stream:
        details = list(csv.DictReader(stream))
    assert {(line["id"], line["reviewers"]) for line in details} == {(image, "Ada")}
    assert [line["class"] for line in details] == list(evidence.classes)
    journal.submit(Event("Ada", "unheard of", "skip")).result(timeout=20)
    journal.close()
    with pytest.raises(InputError, match="unheard of"):
        read_reviewed(run)


def test_one_label_stays_one_whatever_several_people_say() -> None:
    """Two of three name the same class; two who differ, or three who all do, decide nothing."""
    given = LabelTable(np.asarray(["a", "b"]), ("x", "y", "z", "w"), np.eye(4)[[0, 3]], exclusive=True)
    people = {"A": said("A", a=(0, 1, 0, 0)), "B": said("B", a=(0, 1, 0, 0)), "C": said("C", a=(0, 0, 1, 0))}
    agreed = merge(given, people)
    assert agreed.labels.exclusive
    assert agreed.labels.values.tolist() == [[0, 1, 0, 0], [0, 0, 0, 1]]
    assert agreed.labels.confirmed is not None
    assert agreed.labels.confirmed.all(axis=1).tolist() == [True, False]
    for names in ("AC", "ABCD"):
        people |= {"D": said("D", a=(0, 0, 1, 0))}
        apart = merge(given, {name: people[name] for name in names})
        np.testing.assert_array_equal(apart.labels.values, given.values)
        assert apart.labels.confirmed is not None
        assert not apart.labels.confirmed.any()
        assert apart.split[0].all()
