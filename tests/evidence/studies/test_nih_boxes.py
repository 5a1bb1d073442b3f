"""NIH's boxes, from lines as it publishes them and from the whole file where that is there."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from bomd.data.datasets.classes import NIH
from bomd.errors import InputError
from evidence.studies.nih_boxes import read_boxes

HEAD = "Image Index,Finding Label,Bbox [x,y,w,h],,,\n"
REAL = Path(__file__).parents[3].parent / "shared" / "data" / "labels" / "BBox_List_2017.csv.gz"


def test_boxes_become_regions_of_any_size(tmp_path: Path) -> None:
    """The upper left quarter of 1024 pixels, and one that leaves the image."""
    file = tmp_path / "boxes.csv"
    file.write_text(HEAD + "a.png,Infiltrate,0,0,512,512\nb.png,Mass,1000,1000,100,100\n")
    first, second = read_boxes(file)
    assert (first.image, first.finding) == ("a.png", "Infiltration")
    expected = np.zeros((8, 4), dtype=bool)
    expected[:4, :2] = True
    assert np.array_equal(first.region(8, 4), expected)
    assert np.argwhere(second.region(8, 8)).tolist() == [[7, 7]]


def test_a_tiny_box_has_a_pixel(tmp_path: Path) -> None:
    file = tmp_path / "boxes.csv.gz"
    file.write_bytes(gzip.compress((HEAD + "a.png,Nodule,511,511,1,1\n\n").encode()))
    (box,) = read_boxes(file)
    assert np.argwhere(box.region(16, 16)).tolist() == [[7, 7]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,label\n", "is not a list of boxes"),
        ("", "is not a list of boxes"),
        (HEAD + "a.png,Mass,1,2,3\n", "Line 2 of .* four numbers"),
        (HEAD + "a.png,Mass,1,2,x,4\n", "Line 2 of .* four numbers"),
        (HEAD + "a.png,Mass,1,2,0,4\n", "a width and a height"),
        (HEAD + "a.png,Mass,1,2,nan,4\n", "a width and a height"),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "boxes.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_boxes(tmp_path / "boxes.csv")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Cannot read"):
        read_boxes(tmp_path / "none.csv")


@pytest.mark.skipif(not REAL.exists(), reason="needs NIH's list of boxes")
def test_the_real_list() -> None:
    boxes = read_boxes(REAL)
    assert (len(boxes), len({box.image for box in boxes})) == (984, 880)
    assert {box.finding for box in boxes} <= set(NIH)
    assert all(box.region(64, 64).any() for box in boxes)
