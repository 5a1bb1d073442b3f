"""Reviewed labels: the majority decides, given labels stay beside them to the bit."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from bomd.data.datasets.corrected import correct
from bomd.errors import InputError
from bomd.review.decisions import FILE, Event, Journal
from bomd.review.evidence import open_evidence
from bomd.review.export import merge, read_reviewed, reviewed_labels, to_csv, write_csv
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
    assert two.unresolved.tolist() == [1, 0, 0]


def test_confirming_leaves_soft_and_unknown_labels_as_they_were() -> None:
    kept = merge(GIVEN, {"Ada": said("Ada", b=(1, None), c=(0, 0))})
    assert np.array_equal(kept.labels.values, GIVEN.values, equal_nan=True)
    changed = merge(GIVEN, {"Ada": said("Ada", b=(0, 1), c=(1, 0))})
    assert changed.labels.values[1:].tolist() == [[0, 1], [1, GIVEN.values[2, 1]]]


def test_csv_reads_back_to_the_bit() -> None:
    reviewed = merge(GIVEN, {"Ada": said("Ada", a=(0, 1))})
    lines = list(csv.reader(io.StringIO(to_csv(reviewed))))
    assert lines[0] == ["id", "patient", "reviewers", "unresolved", "Mass", "Edema", "given:Mass", "given:Edema"]
    assert lines[1] == ["a", "p,1", "1", "0", "0", "1", "1", "0"]
    assert lines[2] == ["b", 'p"2', "0", "0", "0.7", "", "0.7", ""]
    numbers = np.asarray([[float(cell or "nan") for cell in line[6:]] for line in lines[1:]], dtype=np.float32)
    assert np.array_equal(numbers, GIVEN.values, equal_nan=True)


def test_no_cell_is_a_formula_and_the_file_still_finds_its_images(tmp_path: Path) -> None:
    table = LabelTable(
        np.asarray(["=HYPERLINK(1)", "+1", "-1"]),
        ("@Mass", "Edema"),
        np.zeros((3, 2), dtype=np.float32),
        patients=np.asarray(["=1+1", "-p", "p"]),
    )
    text = to_csv(merge(table, {"Ada": said("Ada", **{"=HYPERLINK(1)": (1, 0)})}))
    lines = list(csv.reader(io.StringIO(text)))
    assert [line[:2] for line in lines[1:]] == [["'=HYPERLINK(1)", "'=1+1"], ["+1", "'-p"], ["-1", "p"]]
    assert lines[0][4] == "'@Mass"
    (tmp_path / "reviewed.csv").write_text(text, encoding="utf-8")
    assert correct(table, tmp_path / "reviewed.csv").values.tolist() == [[1, 0], [0, 0], [0, 0]]


def test_a_class_that_is_called_like_a_column_is_refused() -> None:
    table = LabelTable(GIVEN.ids, ("id", "Edema"), GIVEN.values)
    with pytest.raises(InputError, match="rename"):
        to_csv(merge(table, {}))


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
    reviewed = write_csv(run, tmp_path / "out" / "reviewed.csv")  # while a server could be at work
    assert reviewed.labels.values[row].tolist() == evidence.proposed[row].tolist()
    others = np.arange(len(evidence)) != row
    assert np.array_equal(reviewed.labels.values[others], evidence.record.given.values[others], equal_nan=True)
    with (tmp_path / "out" / "reviewed.csv").open(newline="", encoding="utf-8") as stream:
        lines = {line["id"]: line for line in csv.DictReader(stream)}
    assert lines[image]["reviewers"] == "1"
    journal.submit(Event("Ada", "unheard of", "skip")).result(timeout=20)
    journal.close()
    with pytest.raises(InputError, match="unheard of"):
        read_reviewed(run)
