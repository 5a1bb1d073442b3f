"""Corrected labels: only what the file names changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bomd.data import datasets
from bomd.data.datasets.corrected import correct, digest_of
from bomd.errors import InputError
from bomd.tables import LabelTable

TABLE = LabelTable(np.array(["a", "b", "c"]), ("Mass", "Edema"), np.array([[0, 1], [1, 0], [1, 1]], dtype=np.float32))


def test_named_images_and_classes_change_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "reviewed.csv"
    path.write_text("id,patient,Mass,given:Mass\nc,p,0,1\na,p,,0\nother,p,1,1\n")
    found = correct(TABLE, path)
    assert np.isnan(found.values[0, 0])
    assert found.values[2, 0] == 0
    assert found.values[:, 1].tolist() == [1, 0, 1]
    assert found.values[1].tolist() == [1, 0]
    assert TABLE.values[2, 0] == 1


def test_apostrophes_against_formulas_are_seen_through(tmp_path: Path) -> None:
    table = LabelTable(np.array(["=1+1", "'=2"]), ("@SUM(A1)", "-x"), np.zeros((2, 2), dtype=np.float32))
    path = tmp_path / "reviewed.csv"
    path.write_text("\ufeffid,'@SUM(A1),-x\n'=1+1,1,0\n'=2,0,1\n", encoding="utf-8")  # the mark is Excel's
    assert correct(table, path).values.tolist() == [[1, 0], [0, 1]]


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
        ("id,class,decided,unresolved\na,Mass,1,1\nz,Mass,1,0\n", "holds no decision"),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=reason) as caught:
        correct(TABLE, path)
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
