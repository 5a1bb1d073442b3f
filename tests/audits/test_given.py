"""The user's table comes back to the last character, with columns beside it that no spreadsheet runs."""

from __future__ import annotations

import csv
import io
import ntpath
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from bomd.audits.given import read_given
from bomd.data.cells import harmless, original
from bomd.data.label_files import read_table, read_verbatim
from bomd.errors import InputError
from bomd.tables import LabelTable


def make(root: Path, text: str, images: str = "a b c") -> Path:
    """A table and grey images."""
    (root / "images").mkdir(parents=True, exist_ok=True)
    for name in images.split():
        Image.fromarray(np.full((8, 8), 90, np.uint8)).save(root / "images" / f"{name}.png")
    (root / "labels.csv").write_bytes(text.encode())
    return root / "labels.csv"


def read(root: Path, text: str, **options: object) -> object:
    return read_given(make(root, text), root / "images", **options)  # type: ignore[arg-type]


def test_columns_that_nobody_filled_in_are_told(tmp_path: Path) -> None:
    found = read_given(make(tmp_path, "id,Mass,Edema,note\na,1,,x\nb,0, ,\nc,0,,\n"), tmp_path / "images")
    assert found.labels.classes == ("Mass",)
    assert found.blank == ("Edema",)
    listed = make(tmp_path, "id,labels,Edema\na,Mass,\nb,Mass|Hernia,\nc,No Finding,\n")
    assert read_given(listed, tmp_path / "images").blank == ()  # the list says which classes there are


def test_given_characters_stay_where_they_were(tmp_path: Path) -> None:
    """A mark, odd quotation, blanks, a blank line, a line break in a cell and Windows' line ends all survive."""
    header = '\ufeffid,"Mass", Effusion ,remark'
    rows = ['a,1,0,"two\r\nlines"', '"b", 0 ,1,', "c,,1,-1.5"]
    text = header + "\r\n" + rows[0] + "\r\n\r\n" + "\r\n".join(rows[1:]) + "\r\n"
    found = read_given(make(tmp_path, text), tmp_path / "images")
    assert found.labels.ids.tolist() == ["a", "b", "c"]
    written = "".join(found.records.beside(["x"], [["1"], ["2"], ["3"]]))
    assert written == "\r\n".join([header + ",x", *(f"{row},{n}" for n, row in enumerate(rows, 1))]) + "\r\n"


def test_rows_of_separators_alone_are_none(tmp_path: Path) -> None:
    """A spreadsheet leaves them where rows were emptied; quotation marks are somebody's intention."""
    found = read_given(make(tmp_path, "id;Mass;note\na;1;\n;;\nb;0;\n ; ;\n;;\n"), tmp_path / "images")
    assert found.labels.ids.tolist() == ["a", "b"]
    assert list(found.records.rows) == ["a;1;", "b;0;"]
    with pytest.raises(InputError, match=r"'id' of .* is blank in line 3"):
        read_given(make(tmp_path, 'id,Mass\na,1\n"",""\n"",""\n'), tmp_path / "images")


def test_a_blank_id_is_no_duplicate(tmp_path: Path) -> None:
    for options in ({}, {"drop_duplicates": True}, {"skip_missing": True}):
        with pytest.raises(InputError, match=r"Column 'id' of .* is blank in line 3\."):
            read_given(make(tmp_path, "id,Mass\na,1\n,0\n,1\nb,0\n"), tmp_path / "images", **options)


def test_a_given_formula_is_not_run_and_nothing_else_changes(tmp_path: Path) -> None:
    """Our own reader gives the formula back."""
    found = read_given(make(tmp_path, "id,Mass,=x\na,1,=1+1\n'b',0, spaced \nc,1,-2\n", "a 'b' c"), tmp_path / "images")
    written = "".join(found.records.beside(["new"], [["1"], ["2"], ["3"]]))
    assert written.splitlines() == ["id,Mass,'=x,new", "a,1,'=1+1,1", "'b',0, spaced ,2", "c,1,-2,3"]
    (tmp_path / "again.csv").write_text(written)
    assert read_table(tmp_path / "again.csv")["=x"].tolist() == ["=1+1", " spaced ", "-2"]


def test_semicolons_and_short_rows(tmp_path: Path) -> None:
    found = read_given(make(tmp_path, "id;Mass;Effusion;note\na;1;0;x\nb;0;1\nc;1;0;\n"), tmp_path / "images")
    written = "".join(found.records.beside(["new"], [["1;2"], ["2"], ["3"]]))
    assert list(csv.reader(io.StringIO(written), delimiter=";"))[1:3] == [
        ["a", "1", "0", "x", "1;2"],
        ["b", "0", "1", "", "2"],
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.text(st.characters(codec="utf-8"), max_size=6), min_size=3, max_size=3), min_size=1))
def test_whatever_the_cells_hold_they_are_read_back(tmp_path_factory: pytest.TempPathFactory, rows: list) -> None:
    """Records that Python's own writer made, with any text in the cells, keep every cell beside the new one."""
    stream = io.StringIO(newline="")
    csv.writer(stream, quoting=csv.QUOTE_ALL).writerows([["id", "x", "y"], *rows])
    file = tmp_path_factory.mktemp("any") / "t.csv"
    file.write_bytes(stream.getvalue().encode())
    records = read_verbatim(file)[1]
    written = "".join(records.beside(["new"], [[str(place)] for place in range(len(rows))]))
    lines = list(csv.reader(io.StringIO(written, newline="")))[1:]
    assert [list(map(original, line)) for line in lines] == [[*row, str(place)] for place, row in enumerate(rows)]
    assert all(harmless(original(cell)) == cell for line in lines for cell in line)


@pytest.mark.parametrize("cell", ["=cmd|' /C calc'!A0", "+1+1", "@SUM(A1)", "-1+2", "\t=1", "\r=1", "\n=1"])
def test_no_added_cell_is_a_formula(cell: str) -> None:
    assert harmless(cell) == f"'{cell}"


@settings(deadline=None)
@given(st.text(st.sampled_from("'=+-@\t\r\n\uff1da1. e")) | st.text())
def test_what_is_made_harmless_can_be_told_back(cell: str) -> None:
    assert original(harmless(cell)) == cell
    assert not harmless(cell).startswith(("=", "@", "\uff1d")) or not any(map(str.isalnum, cell))


@pytest.mark.parametrize("cell", ["-0.25", "1e-3", "", "Mass", "a=b", "-", "--", "+.5e-3", "'quoted'"])
def test_numbers_and_words_stay_as_they_are(cell: str) -> None:
    assert harmless(cell) == cell


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("id,Mass\n", "header but no rows"),
        ("id,Mass,Effusion\na,1,0\na,0,1\n", "Duplicate id 'a'"),
        ("id,Mass,Effusion\na,,\nb,,\n", "No labels"),
        ("id,labels\na,\nb,\n", "There are no labels"),
        ("id,Mass,Effusion\na,1,0\nd,0,1\n", "1 of 2 rows have no image in .*: 'd'; leave them out"),
        ("id,Mass,Effusion\nx,1,0\nd,0,1\n", "is the folder or the id column wrong"),
        ("id,Mass,Effusion\n../a,1,0\nb,0,1\n", "outside the images folder"),
        ("id,Mass,rank,Effusion\na,1,1,0\nb,0,0,1\n", "column 'rank', which an audit adds"),
        ("id,Mass,Mass target\na,1,1\nb,0,0\n", "column 'Mass target', which an audit adds"),
        ("id,Mass,Effusion\na,1,7\nb,0,1\n", "outside \\[0, 1\\]"),
        ('id,Mass,Effusion\na,1,"0\nb,0,1\n', "(Cannot read|cannot be told apart|Label)"),
        ("id,Mass,Effusion\na,1,0,9,9\nb,0,1\n", "Cannot read"),
    ],
)
def test_bad_tables_are_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_where_no_folder_was_named_and_it_has_not_the_images_the_way_to_name_it_is_said(tmp_path: Path) -> None:
    """Not so where one was named."""
    file = tmp_path / "labels.csv"
    file.write_text("id,Mass,Effusion\na,1,0\nb,0,1\n")
    named = tmp_path / "photos"
    named.mkdir()
    for message in (r"^No images in .*DICOM", "2 of 2 rows have no image in .*'a', 'b'"):
        with pytest.raises(InputError, match=f"{message}.*; if they lie elsewhere, name their folder with --images.$"):
            read_given(file, None)
        with pytest.raises(InputError, match=message) as caught:
            read_given(file, named)
        assert "--images" not in str(caught.value)
        for folder in (tmp_path, named):
            Image.fromarray(np.full((8, 8), 90, np.uint8)).save(folder / "unrelated.png")


def test_rows_without_an_image_can_be_left_out(tmp_path: Path) -> None:
    file = make(tmp_path, "id,Mass,Effusion\na,1,0\ngone,1,1\nc,0,1\n")
    found = read_given(file, tmp_path / "images", skip_missing=True)
    assert found.labels.ids.tolist() == ["a", "c"]
    assert found.rows == (0, 2)
    assert found.missing == ("gone",)
    assert len(found.records.rows) == 3


def test_tables_in_memory_and_on_disk_say_the_same(tmp_path: Path) -> None:
    file = make(tmp_path, "id,patient,Mass,Effusion\na,p,1,0\nb,q,,0.25\nc,q,0,1\n")
    one = read_given(file, tmp_path / "images").labels
    frame = pd.read_csv(file)
    two = read_given(frame, tmp_path / "images").labels
    three = read_given(one, None).labels
    for other in (two, three):
        assert other.ids.tolist() == one.ids.tolist()
        assert other.classes == one.classes
        assert other.groups.tolist() == one.groups.tolist()
        np.testing.assert_array_equal(other.values, one.values)
    with pytest.raises(InputError, match="pass images"):
        read_given(frame, None)


def test_parquet_comes_out_as_text(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.read_csv(make(tmp_path, "id,Mass,Effusion\na,1,0\nb,0,1\n"))
    frame.to_parquet(tmp_path / "labels.parquet")
    found = read_given(tmp_path / "labels.parquet", None)
    assert isinstance(found.labels, LabelTable)
    assert list(found.records.rows) == ["a,1,0", "b,0,1"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
def test_tables_that_excel_saves(tmp_path: Path, encoding: str) -> None:
    """What is written is UTF-8, with a mark by which Excel knows it unless it was plain UTF-8 before."""
    file = make(tmp_path, "")
    text = "id,Épanchement,remark\r\na,1,für später\r\nb,0,\r\nc,,€\r\n"
    file.write_bytes(text.encode(encoding))
    found = read_given(file, tmp_path / "images")
    assert found.labels.classes == ("Épanchement",)
    np.testing.assert_array_equal(found.labels.values[:, 0], [1, 0, np.nan])
    mark = "" if encoding == "utf-8" else "\ufeff"
    assert "".join(found.records.lines()) == mark + text


def test_an_excel_workbook(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    make(tmp_path, "")
    book = tmp_path / "labels.xlsx"
    frame = pd.DataFrame(
        {"id": ["a", "b", "c"], "Mass": [1, 0, None], "Edema": [0.25, 1, 0], "remark": ["ä", "=1", None]}
    )
    frame.to_excel(book, index=False)
    found = read_given(book, tmp_path / "images")
    assert found.labels.classes == ("Mass", "Edema")
    np.testing.assert_array_equal(found.labels.values, np.array([[1, 0.25], [0, 1], [np.nan, 0]], np.float32))
    assert found.records.header == "id,Mass,Edema,remark"


def test_rows_that_repeat_an_id_can_be_left_out(tmp_path: Path) -> None:
    """The first row of an id counts; the others keep their place and get blanks."""
    file = make(tmp_path, "id,Mass\na,1\nb,0\na,0\nc,1\nb,1\n")
    with pytest.raises(InputError, match=r"'a' .*lines 2 and 4 \(2 ids are repeated\); keep .* with --drop-duplicates"):
        read_given(file, tmp_path / "images")
    found = read_given(file, tmp_path / "images", drop_duplicates=True)
    assert found.labels.ids.tolist() == ["a", "b", "c"]
    assert found.labels.values[:, 0].tolist() == [1, 0, 1]
    assert found.rows == (0, 1, 3)
    assert found.repeated == 2
    assert len(found.records.rows) == 5


def test_another_case_of_the_name_is_pointed_out(tmp_path: Path) -> None:
    file = make(tmp_path, "id,Mass\na.PNG,1\nB.png,0\nc.png,0\n")
    with pytest.raises(
        InputError, match=r"2 of 3 rows .*; 2 of them are there in other .* 'a\.png' for 'a\.PNG': write"
    ):
        read_given(file, tmp_path / "images")


def test_images_on_several_drives_of_windows_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which have no folder in common; elsewhere every two files have one."""
    found = read_given(make(tmp_path, "id,Mass\na,1\nb,0\nc,1\n"), tmp_path / "images")
    drives = iter("CDE")
    paths = ntpath.commonpath
    monkeypatch.setattr(os.path, "commonpath", lambda files: paths([f"{next(drives)}:{file}" for file in files]))
    with pytest.raises(InputError, match="lie on several drives: put them below one folder"):
        read_given(found.labels, None)


def test_probabilities_are_labels_whatever_stands_in_a_remark(tmp_path: Path) -> None:
    """One | among the remarks made a list of classes of them; a pixel spacing beside a list is none all the same."""
    found = read_given(make(tmp_path, "id,Mass,note\na,0.9,seen|twice\nb,0.2,blurred\nc,0.1,\n"), tmp_path / "images")
    assert found.labels.classes == ("Mass",)
    assert found.labels.values[:, 0].tolist() == pytest.approx([0.9, 0.2, 0.1])
