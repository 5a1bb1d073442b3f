"""Corrected labels: only what the file names changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bomd import progress
from bomd.data import datasets
from bomd.data.datasets.corrected import DETAILS, digest_of, mark_confirmed, read_corrections
from bomd.errors import InputError
from bomd.experiments.confirmed import decided_note
from bomd.tables import LabelTable

TABLE = LabelTable(np.array(["a", "b", "c"]), ("Mass", "Edema"), np.array([[0, 1], [1, 0], [1, 1]], dtype=np.float32))


def test_named_images_and_classes_change_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "reviewed.csv"
    path.write_text("id,patient,Mass,given:Mass\nc,p,0,1\na,p,,0\nother,p,1,1\n")
    found = read_corrections(TABLE, path).over(TABLE)
    assert np.isnan(found.values[0, 0])
    assert found.values[2, 0] == 0
    assert found.values[:, 1].tolist() == [1, 0, 1]
    assert found.values[1].tolist() == [1, 0]
    assert TABLE.values[2, 0] == 1


def test_apostrophes_against_formulas_are_seen_through(tmp_path: Path) -> None:
    table = LabelTable(np.array(["=1+1", "'=2"]), ("@SUM(A1)", "-x"), np.zeros((2, 2), dtype=np.float32))
    path = tmp_path / "reviewed.csv"
    path.write_text("\ufeffid,'@SUM(A1),-x\n'=1+1,1,0\n'=2,0,1\n", encoding="utf-8")  # the mark is Excel's
    assert read_corrections(table, path).over(table).values.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name,Mass\na,1\n", "no column 'id'"),
        ("id,Other\na,1\n", "no column named as a class"),
        ("id,Mass\na,1\na,0\n", "more than once"),
        ("id,Mass\nz,1\n", "names no image"),
        ("id,Mass\na,2\n", "no label from 0 to 1"),
        ("id,Mass\na,maybe\n", "no label from 0 to 1"),
        ("id,Mass\na,1,0\n", "Cannot read"),  # pandas would take the first cell for a name and shift the others
        ("id,Mass,Mass\na,1,0\n", "2 columns called 'Mass'"),
        ("id,Mass\n", "no rows"),
        ("", "is empty"),
        (f"{','.join(DETAILS)}\na,Mass,0,1,A|B,,1\nz,Mass,0,1,A,,0\n", "holds no decision"),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=reason) as caught:
        read_corrections(TABLE, path).over(TABLE)
    assert "\n" not in str(caught.value)


def test_a_recipe_names_the_file_and_its_content(tmp_path: Path) -> None:
    plain, _ = datasets.read({"dataset": "phantom", "count": 6}, "train")
    path = tmp_path / "reviewed.csv"
    name = plain.classes[0]
    path.write_text(f"id,{name}\n{plain.ids[2]},{1 - plain.values[2, 0]:.0f}\n")
    source = {"dataset": "phantom", "count": 6, "labels_from": str(path), "labels_digest": digest_of(path)}
    found, _ = datasets.read(source, "train")
    assert np.argwhere(found.values != plain.values).tolist() == [[2, 0]]
    path.write_text(path.read_text() + "\n")
    with pytest.raises(InputError, match="has changed since"):
        datasets.read(source, "train")


def with_details(path: Path, table: str, *lines: str) -> Path:
    path.write_text(table)
    path.with_name(f"{path.stem}-details.csv").write_text("\n".join([",".join(DETAILS), *lines]) + "\n")
    return path


def test_details_say_which_labels_people_decided_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of four lines one is split, one was edited by hand afterwards, and one is about a class that is not there."""
    lines = ("a,Mass,0,0,Ada,,0", "a,Edema,1,0,Ada|Bob,,1", "b,Mass,1,1,Ada,,0", "b,Other,1,1,Ada,,0")
    path = with_details(tmp_path / "reviewed.csv", "id,Mass,Edema\na,0,1\nb,0,0\nc,1,0\n", *lines)
    with progress.shown():
        found = read_corrections(TABLE, path)
    assert "holds decisions on classes that are not there, such as 'Other'." in capsys.readouterr().err
    assert found.detailed
    assert found.confirmed.tolist() == [[True, False], [False, False], [False, False]]
    everything = found.over(TABLE)
    assert everything.values.tolist() == [[0, 1], [0, 0], [1, 0]]  # what was edited by hand counts, unconfirmed
    assert everything.confirmed is not None
    assert np.array_equal(everything.confirmed, found.confirmed)
    assert found.over(TABLE, decided_only=True).values.tolist() == [[0, 1], [1, 0], [1, 1]]
    assert found.over(TABLE.select(["c", "a"])).values.tolist() == [[1, 0], [0, 1]]
    assert decided_note(everything, found).startswith("1 label of 1 image is as people decided (reviewed.csv)")


def test_a_file_of_ones_own_in_the_place_of_the_details_is_to_be_renamed(tmp_path: Path) -> None:
    """Whoever never reviewed anything cannot write it anew."""
    (tmp_path / "labels.csv").write_text("id,Mass,Edema\na,0,1\nb,0,0\nc,1,0\n")
    (tmp_path / "labels-details.csv").write_text("image,scanner\na,1\n")
    with pytest.raises(InputError, match=r"no column 'id': write it anew .*, or call it something else if it is no"):
        read_corrections(TABLE, tmp_path / "labels.csv")


def test_no_finding_that_an_audit_added_is_missed_by_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It stands in the details of a table that has no such class: the usual way from one audit to the next."""
    lines = ("a,Mass,0,0,Ada,,0", "a,No Finding,1,1,Ada,,0")
    path = with_details(tmp_path / "reviewed.csv", "id,Mass,Edema\na,0,1\nb,0,0\nc,1,0\n", *lines)
    with progress.shown():
        assert read_corrections(TABLE, path).confirmed.tolist() == [[True, False], [False, False], [False, False]]
    assert "not there" not in capsys.readouterr().err


def test_without_details_what_differs_was_decided(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("id,Mass\na,yes\nb,1\nc,NA\n")
    found = read_corrections(TABLE, path)
    assert not found.detailed
    assert found.confirmed.tolist() == [[True, False], [False, False], [False, False]]


def test_nobody_decided_anything(tmp_path: Path) -> None:
    path = with_details(tmp_path / "reviewed.csv", "id,Mass,Edema\na,0,1\n")
    assert not read_corrections(TABLE, path).confirmed.any()
    assert mark_confirmed(TABLE, path) is TABLE


def test_the_digest_covers_the_details(tmp_path: Path) -> None:
    path = with_details(tmp_path / "reviewed.csv", "id,Mass\na,0\n", "a,Mass,0,0,Ada,,0")
    before = digest_of(path)
    with_details(path, "id,Mass\na,0\n", "a,Mass,0,0,Bob,,0")
    assert digest_of(path) != before


def test_damaged_details_are_one_line(tmp_path: Path) -> None:
    path = with_details(tmp_path / "reviewed.csv", "id,Mass\na,0\n")
    (tmp_path / "reviewed-details.csv").write_text("id,decided\na,1\n")
    with pytest.raises(InputError, match="no column 'class'"):
        read_corrections(TABLE, path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("image;Mass;Edema\na.png;0;1\nb.png;1;0\n", "image;Mass;Edema\nb.png;0;0\na.png;0;NA\n"),
        ("image,labels\na.png,Edema\nb.png,Mass|Edema\n", "image,labels\na.png,\nb.png,Edema\n"),
    ],
)
def test_a_table_in_the_form_of_the_dataset_is_read_as_the_dataset(tmp_path: Path, before: str, after: str) -> None:
    """In the second one "Mass" is listed nowhere any more, which means that no image has it."""
    for name in "ab":
        Image.new("L", (4, 4)).save(tmp_path / f"{name}.png")
    (tmp_path / "labels.csv").write_text(before)
    (tmp_path / "new.csv").write_text(after)
    source = {"dataset": "folder", "root": str(tmp_path), "labels": "labels.csv"}
    plain, _ = datasets.read(source, "train")
    found, _ = datasets.read({**source, "labels_from": str(tmp_path / "new.csv")}, "train")
    assert found.ids.tolist() == ["a.png", "b.png"]
    assert found.classes == plain.classes
    edema = [np.nan, 0] if ";" in before else [0, 1]
    assert np.array_equal(found.align(("Mass", "Edema")).values, np.asarray([[0, 0], edema]).T, equal_nan=True)
