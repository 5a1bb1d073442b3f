"""Any CSV and a folder: what is detected, what is refused, and with which words."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from rich.console import Console

from bomd import progress
from bomd.data.datasets import folder
from bomd.data.image_files import ImageIndex
from bomd.errors import InputError
from bomd.tables import NO_FINDING

REAL = Path(__file__).parents[3] / "../shared/data/nih"


def make(root: Path, text: str, images: str = "a.png b.png c.png", name: str = "labels.csv") -> Path:
    """A folder with a label file and images, which are not decoded here and may be empty."""
    root.mkdir(parents=True, exist_ok=True)
    for image in images.split():
        (root / "images" / image).parent.mkdir(parents=True, exist_ok=True)
        (root / "images" / image).write_bytes(b"")
    (root / name).write_text(text)
    return root


def test_one_column_per_class(tmp_path: Path) -> None:
    root = make(
        tmp_path,
        "image,patient_id,Mass,Effusion,split\na.png,p1,1,0.25,train\nb.png,p1,,0,train\nc.png,p2,0,1,val\n",
    )
    table = folder.read(root)
    assert table.ids.tolist() == ["a.png", "b.png", "c.png"]
    assert table.classes == ("Mass", "Effusion")
    np.testing.assert_array_equal(table.values, np.array([[1, 0.25], [np.nan, 0], [0, 1]], np.float32))
    assert table.patients is not None
    assert table.patients.tolist() == ["p1", "p1", "p2"]
    assert table.paths is not None
    assert table.paths.tolist() == [str(tmp_path / "images" / name) for name in table.ids]
    assert folder.read(root, "validation").ids.tolist() == ["c.png"]
    assert folder.read(root, "train").ids.tolist() == ["a.png", "b.png"]


def test_a_column_that_lists_labels_may_have_any_name(tmp_path: Path) -> None:
    """Where nothing else is a label: cells such as urchin|crab are."""
    table = folder.read(make(tmp_path / "any", "file,animals\na.png,urchin|crab\nb.png,crab\nc.png,\n"))
    assert table.classes == ("crab", "urchin")
    np.testing.assert_array_equal(table.values, [[1, 1], [1, 0], [0, 0]])
    beside = folder.read(make(tmp_path / "beside", "file,Mass,notes\na.png,1,old|new\nb.png,0,\nc.png,0,\n"))
    assert beside.classes == ("Mass",)
    two = make(tmp_path / "two", "file,animals,notes\na.png,urchin|crab,old|new\nb.png,crab,\nc.png,,\n")
    with pytest.raises(InputError, match="label_column"):
        folder.read(two)


def test_one_delimited_column(tmp_path: Path) -> None:
    table = folder.read(make(tmp_path, "Image Index,Finding Labels\na.png,Mass|Effusion\nb.png,No Finding\nc.png,\n"))
    assert table.classes == ("Effusion", "Mass", NO_FINDING)
    expected = np.array([[1, 1, 0], [0, 0, 1], [np.nan] * 3], np.float32)  # blank beside "No Finding": unknown
    np.testing.assert_array_equal(table.values, expected)
    assert table.patients is None


def test_a_blank_cell_means_none_where_no_finding_is_never_said(tmp_path: Path) -> None:
    table = folder.read(make(tmp_path, "id,labels\na,Mass; Effusion\nb,\nc,Mass\n"))
    assert table.classes == ("Effusion", "Mass")
    np.testing.assert_array_equal(table.values, [[1, 1], [0, 0], [0, 1]])


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("id,labels\na,X|Y\nb,X\nc,Y\n", None),
        ("id;labels\r\na;X|Y\r\nb;X\r\nc;Y\r\n", None),
        ("id\tlabels\na\tX,Y\nb\tX\nc\tY\n", None),
        ('\ufeffid,labels\na,"X,Y"\nb,X\nc,Y\n', None),
        (" id , labels \n a ,X/Y\nb, X\nc,Y \n", "/"),
        (",id,labels\n0,a,X;Y\n1,b,X\n2,c,Y\n", ";"),
    ],
    ids=["pipe", "semicolon file with CRLF", "tabs", "byte order mark and quotes", "spaces", "row numbers"],
)
def test_separators_marks_and_spaces(tmp_path: Path, text: str, delimiter: str | None) -> None:
    table = folder.read(make(tmp_path, text), delimiter=delimiter)
    assert table.ids.tolist() == ["a", "b", "c"]
    assert table.classes == ("X", "Y")
    np.testing.assert_array_equal(table.values, [[1, 1], [1, 0], [0, 1]])


def test_words_for_labels_and_names_for_no_finding(tmp_path: Path) -> None:
    table = folder.read(make(tmp_path, "id,Mass,no_finding\na,True,NO\nb,false,yes\nc,NA,nan\n"))
    assert table.classes == ("Mass", NO_FINDING)
    np.testing.assert_array_equal(table.values, [[1, 0], [0, 1], [np.nan, np.nan]])


def test_classes_can_be_chosen_and_ordered(tmp_path: Path) -> None:
    wide = make(tmp_path / "wide", "id,A,B,C\na,0,1,0\nb,1,0,0\nc,0,0,1\n")
    assert folder.read(wide, classes=["C", "A"]).classes == ("C", "A")
    listed = make(tmp_path / "listed", "id,labels\na,A|B\nb,C\nc,B\n")
    table = folder.read(listed, classes=["C", "A"])
    np.testing.assert_array_equal(table.values, [[0, 1], [1, 0], [0, 0]])
    assert folder.describe(listed, columns=folder.Columns(["C", "A"])).unused == ("class B",)


def test_images_are_found_by_path_name_or_stem(tmp_path: Path) -> None:
    text = "path,A\nx/a,0\nimages/y/a.png,1\nb.jpg,1\nc,0\n.\\z\\d.png,1\n"
    root = make(tmp_path, text, "x/a.png y/a.png y/b.jpg deep/er/c.PNG z/d.png")
    table = folder.read(root)
    assert table.paths is not None
    found = [Path(path).relative_to(root / "images").as_posix() for path in table.paths]
    assert found == ["x/a.png", "y/a.png", "y/b.jpg", "deep/er/c.PNG", "z/d.png"]
    absolute = make(tmp_path / "absolute", f"id,A\n{tmp_path}/absolute/images/a.png,1\n", "a.png y/a.png")
    assert Path(str(folder.read(absolute).paths[0])).parent.name == "images"  # type: ignore[index]


def test_other_places_for_labels_and_images(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(b"")
    (tmp_path / "one.csv").write_text("id,A\na,1\n")
    (tmp_path / "two.csv").write_text("id,A\na,0\n")
    with pytest.raises(InputError, match=r"holds one\.csv, two\.csv: pass labels \(--set 'labels=FILE'"):
        folder.read(tmp_path)
    table = folder.read(tmp_path, labels=Path("two.csv"), images=tmp_path / "pictures")
    assert table.values.tolist() == [[0]]
    assert folder.read(tmp_path, labels=tmp_path / "one.csv").values.tolist() == [[1]]


def test_an_id_column_is_recognised_by_the_files_it_names(tmp_path: Path) -> None:
    root = make(tmp_path, "nr,scan,id,A\n1,a.png,77,1\n2,b.png,78,0\n3,c.png,79,0\n")
    with pytest.raises(InputError, match=r"3 of 3 ids .* no image .*'77'.*is 'id' the id column\?"):
        folder.read(root)
    assert folder.read(root, id_column="scan", classes=["A"]).ids.tolist() == ["a.png", "b.png", "c.png"]
    unnamed = make(tmp_path / "unnamed", "nr,scan,A\n1,a.png,1\n2,b.png,0\n3,c.png,0\n")
    assert folder.describe(unnamed, columns=folder.Columns(["A"])).id_column == "scan"
    both = make(tmp_path / "both", "id,path,A\n1,a.png,1\n2,b.png,0\n3,c.png,0\n")
    assert folder.describe(both).id_column == "path"


def test_a_column_with_decimal_commas_is_refused_and_not_left_out(tmp_path: Path) -> None:
    """So a column with blanks is saved where others hold whole numbers; as one that is not used it was lost."""
    with pytest.raises(InputError, match=r"Label '0,0' in column 'B', line 2 .* is not a number \(0\.5, not 0,5\)"):
        folder.read(make(tmp_path, "id;A;B\na;1;0,0\nb;0;\nc;0;1,0\n"))
    free = make(tmp_path / "free", "id;A;dose\na;1;2,5\nb;0;13,0\nc;0;0,5\n")
    assert folder.describe(free).unused == ("dose",)


def test_a_column_that_lists_classes_goes_before_numbers_without_a_judgement(tmp_path: Path) -> None:
    text = "id,pixel spacing,Befund\na,0.143,X|Y\nb,0.168,X\nc,0.143,Y\n"
    found = folder.describe(make(tmp_path, text))
    assert (found.label_column, found.classes, found.unused) == ("Befund", ("X", "Y"), ("pixel spacing",))
    judged = folder.describe(make(tmp_path / "judged", "id,Mass,near\na,1,b|c\nb,0,a|c\nc,0.5,b\n"))
    assert (judged.label_column, judged.classes) == (None, ("Mass",))


def test_classes_that_differ_in_case_alone_are_named(tmp_path: Path) -> None:
    found = folder.describe(make(tmp_path, "id,labels\na,Mass|Edema\nb,mass\nc,MASS|no finding\n")).summary()
    assert found[-1] == "told apart by upper and lower case alone, which may be a slip: MASS, Mass, mass"
    plain = folder.describe(make(tmp_path / "plain", "id,labels\na,Mass|Edema\nb,Mass\nc,Edema\n")).summary()
    assert "told apart" not in "\n".join(plain)


def test_a_column_without_a_name_is_not_one_that_pandas_named(tmp_path: Path) -> None:
    """Saved with its row numbers, read and saved again: neither column of numbers is of use."""
    found = folder.describe(make(tmp_path, ",Unnamed: 0,id,A\n0,0,a,1\n1,1,b,0\n2,2,c,0\n"))
    assert (found.id_column, found.classes, found.unused) == ("id", ("A",), ())


def test_a_column_of_names_in_other_case_is_that_of_the_images(tmp_path: Path) -> None:
    """Whatever it is called: its upper and lower case is the trouble, and no missing column."""
    root = make(tmp_path, "Bild,A\nA.PNG,1\nB.PNG,0\nC.PNG,0\n")
    assert folder.describe(root).id_column == "Bild"
    with pytest.raises(InputError, match=r"3 of them are there in other upper or lower case, such as 'a\.png' for 'A"):
        folder.read(root)


def test_what_was_detected_is_said_before_work_starts(tmp_path: Path) -> None:
    root = make(tmp_path, "id,Patient ID,sex,labels,note\na,1,0,X|Y,hm\nb,1,1,X,\nc,2,0,Y,\n")
    lines = folder.describe(root).summary()
    text = "\n".join(lines)
    for part in (
        "3 rows",
        "3 files",
        "id: id",
        "patient: Patient ID",
        "split: not given",
        "2 classes",
        "X, Y",
    ):
        assert part in text
    assert "with | between" in text
    assert "not used: sex, note" in text
    output = io.StringIO()
    progress.enable(Console(file=output, width=1000))
    try:
        folder.read(root)
    finally:
        progress.disable()
    assert output.getvalue().splitlines() == lines


def test_a_split_is_drawn_by_patient_where_none_is_given(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = [f"i{row}.png" for row in range(400)]
    lines = [f"{name},p{rng.integers(120)},{int(rng.random() < 0.1)}" for name in names]
    root = make(tmp_path, "\n".join(["image,patient,A", *lines]), " ".join(names))
    parts = {name: folder.read(root, name) for name in folder.SPLITS}
    assert sorted(id_ for part in parts.values() for id_ in part.ids) == sorted(names)
    patients = [name for part in parts.values() for name in set(part.groups)]
    assert len(patients) == len(set(patients))
    total = folder.read(root).values.sum()
    for name, share in folder.SPLITS.items():
        assert abs(len(parts[name]) - share * 400) <= 12
        assert abs(parts[name].values.sum() - share * total) <= 3
    assert folder.read(root, "test", seed=1).ids.tolist() != parts["test"].ids.tolist()
    with pytest.raises(InputError, match="Unknown split 'holdout'"):
        folder.read(root, "holdout")


GOOD = "id,A\na,1\nb,0\nc,0\n"

BAD_TABLES = {
    "empty": ("", r"labels\.csv is empty"),
    "blank lines": ("\n\n", r"labels\.csv is empty"),
    "header only": ("id,A\n", "header but no rows"),
    "no separator": ("id:A\na:1\n", "one column, 'id:A': separate columns by comma"),
    "same name twice": ("id,A,A\na,1,0\n", "2 columns called 'A'"),
    "no id": ("x,A\nq,1\nr,0\n", "No id column .* none of x, A"),
    "no labels": ("id,note\na,hm\nb,so\nc,oh\n", "No labels in .*id, note"),
    "blank labels": ("id,labels\na,\nb,\n", "blank in every row"),
    "duplicate": ("id,A\na,1\nb,0\na,0\n", r"Duplicate id 'a' .*lines 2 and 4 \(1 ids"),
    "blank id": ("id,A\na,1\n,0\n", "'id' .* blank in line 3"),
    "blank patient": ("id,patient,A\na,p,1\nb,,0\n", "'patient' .* blank in line 3"),
    "above 1": (
        "id,A\na,1\nb,2\nc,0\n",
        r"Label '2' in column 'A', line 3 .*outside \[0, 1\]; if 'A' is not a class",
    ),
    "uncertain": ("id,A\na,1\nb,-1\nc,0\n", "'-1' .*if -1 means uncertain"),
    "infinite": ("id,A\na,1\nb,inf\nc,0\n", r"outside \[0, 1\]"),
    "a word": ("id,A\na,1\nb,maybe\nc,0\n", "'maybe' .* line 3 .*is not a number"),
    "decimal comma": ("id;A\na;0,9\nb;1\nc;0\n", r"'0,9' .* line 2 .*is not a number \(0\.5, not 0,5\)"),
    "decimal commas": ("id;A\na;0,9\nb;0,1\nc;0,2\n", r"Label '0,9' in column 'A', line 2 .*\(0\.5, not 0,5\)"),
    "lists of Python": ("id,labels\na,['A']\nb,\"['A', 'B']\"\nc,\n", r"Cells such as \['A'\] .*write A\|B instead"),
    "no image": ("id,A\na,1\nzz,0\n", "1 of 2 ids .*have no image in .*'zz'"),
    "climbing": ("id,A\na,1\n../images/b.png,0\n", "outside the images folder"),
    "elsewhere": ("id,A\na,1\n/etc/b.png,0\n", "'/etc/b.png' lies outside"),
    "same image": ("id,A\na,1\na.png,0\n", "2 ids .* name the same image"),
    "long rows": ("id,labels\na,X,Y\nb,X,Z\n", "Cannot read"),
    "one long row": ("id,labels\na,X\nb,X,Z\n", "Cannot read .*line 3"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_tables_get_one_line(tmp_path: Path, case: str) -> None:
    text, message = BAD_TABLES[case]
    with pytest.raises(InputError, match=message) as error:
        folder.read(make(tmp_path, text))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (("X|Y", "X", "Y"), "2 classes, listed in labels with | between: X, Y"),
        (("X",) * 3, "1 class, listed in labels: X"),
    ],
)
def test_a_sign_between_classes_is_named_where_there_is_one(tmp_path: Path, cells: tuple[str, ...], words: str) -> None:
    text = "id,labels\n" + "".join(map("{},{}\n".format, "abc", cells))
    assert words in folder.describe(make(tmp_path, text)).summary()


def test_many_ids_without_image_are_counted(tmp_path: Path) -> None:
    text = "id,A\na,1\n" + "".join(f"x{row},0\n" for row in range(9))
    with pytest.raises(InputError, match=r"9 of 10 ids .*'x0', 'x1', 'x2', 'x3', 'x4' \.\.\."):
        folder.read(make(tmp_path, text))


def test_an_ambiguous_name_shows_both(tmp_path: Path) -> None:
    root = make(tmp_path, GOOD, "x/a.png y/a.png b.png c.png")
    with pytest.raises(InputError, match=r"'a' may be .*x/a\.png or .*y/a\.png"):
        folder.read(root)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id_column": "idd"}, r"no column 'idd'\. Did you mean 'id'"),
        ({"label_column": "nope"}, "no column 'nope'"),
        ({"classes": ["B"]}, "no class 'B'"),
        ({"labels": Path("gone.csv")}, r"No label file gone\.csv"),
        ({"images": Path("gone")}, "no folder"),
        ({"split": "fold7"}, "Unknown split"),
    ],
)
def test_wrong_arguments_get_one_line(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        folder.read(make(tmp_path, GOOD), **options)  # type: ignore[arg-type]


def test_a_wrong_split_or_delimiter_names_what_is_there(tmp_path: Path) -> None:
    root = make(tmp_path, "id,labels,split\na,X;Y,train\nb,X,train\nc,Y,test\n")
    with pytest.raises(InputError, match=r"No row .* split 'validation'; column 'split' holds 'test', 'train'"):
        folder.read(root, "validation")
    with pytest.raises(InputError, match=r"'\|' never occurs .*is the delimiter ';'\?"):
        folder.read(root, delimiter="|")
    with pytest.raises(InputError, match="no class 'Z' in column 'labels'"):
        folder.read(root, classes=["Z"])


def test_wrong_places_get_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder"):
        folder.read(tmp_path / "absent")
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        archive.writestr("a", "b")
    with pytest.raises(InputError, match="archive: unpack it"):
        folder.read(tmp_path / "set.zip")
    (tmp_path / "bare").mkdir()
    with pytest.raises(InputError, match=r"holds no \.csv, \.tsv, \.csv\.gz, \.tsv\.gz, \.parquet, \.xlsx file"):
        folder.read(tmp_path / "bare")
    (tmp_path / "bare" / "labels.csv").write_text(GOOD)
    with pytest.raises(InputError, match=r"No images in .*bare"):
        folder.read(tmp_path / "bare")
    (tmp_path / "bare" / "labels.csv").write_bytes(b"id,A\n\xff\xfe\x00\n")
    with pytest.raises(InputError, match="is neither UTF-8, UTF-16 nor Windows-1252: save it as CSV in UTF-8"):
        folder.read(tmp_path / "bare")


def test_parquet_is_read_like_csv_or_asks_for_pyarrow(tmp_path: Path) -> None:
    root = make(tmp_path, "", name="labels.parquet")
    frame = pd.DataFrame({"id": ["a", "b", "c"], "A": [1.0, None, 0.5], "B": [True, False, True]})
    try:
        frame.to_parquet(root / "labels.parquet")
    except ImportError:
        with pytest.raises(InputError, match=r"needs an extra: pip install 'bomd\[parquet\]'"):
            folder.read(root)
        return
    np.testing.assert_array_equal(folder.read(root).values, [[1, 1], [np.nan, 0], [0.5, 1]])


def test_the_index_does_not_enter_linked_folders(tmp_path: Path) -> None:
    make(tmp_path / "real", GOOD)
    make(tmp_path / "other", GOOD, "hidden.png")
    (tmp_path / "real" / "images" / "link").symlink_to(tmp_path / "other" / "images")
    assert len(ImageIndex(tmp_path / "real" / "images").paths) == 3


@pytest.mark.slow
def test_two_hundred_thousand_rows_take_seconds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    count = 200_000
    names = np.array([f"{row:08d}.png" for row in range(count)])
    (tmp_path / "images").mkdir()
    for row in range(0, count, 40):  # creating all files would take longer than the test
        (tmp_path / "images" / names[row]).write_bytes(b"")
    frame = pd.DataFrame({"id": names, "patient": rng.integers(0, 60_000, count).astype(str)})
    for number in range(14):
        frame[f"class{number}"] = rng.choice(["0", "1", "", "0.35"], count)
    frame.to_csv(tmp_path / "labels.csv", index=False)
    start = time.process_time()
    with pytest.raises(InputError, match="195000 of 200000 ids"):
        folder.read(tmp_path)
    assert time.process_time() - start < 8


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the real images in ../shared/data/nih")
def test_the_real_nih_folder_is_understood_without_a_word() -> None:
    table = folder.read(REAL, classes=None)
    assert len(table) == 6952
    assert len(np.unique(table.groups)) == 2822
    assert len(table.classes) == 15
    assert table.classes[-1] == NO_FINDING
    raw = pd.read_csv(REAL / "Data_Entry_2017_v2020.csv", index_col=False)
    for column, name in enumerate(table.classes):
        listed = raw["Finding Labels"].str.split("|").map(lambda names, wanted=name: wanted in names)
        assert table.values[:, column].sum() == listed.sum()
    assert table.paths is not None
    with Image.open(table.paths[0]) as image:
        assert image.size == (128, 128)


def test_repeated_ids_can_be_left_out(tmp_path: Path) -> None:
    root = make(tmp_path, "id,A,patient\na,1,p\nb,0,q\na,0,r\nc,1,s\n")
    with pytest.raises(InputError, match=r"Duplicate id 'a'.*lines 2 and 4.*drop_duplicates = true"):
        folder.read(root)
    table = folder.read(root, drop_duplicates=True)
    assert table.ids.tolist() == ["a", "b", "c"]
    assert table.values[:, 0].tolist() == [1, 0, 1]
    assert table.patients is not None
    assert table.patients.tolist() == ["p", "q", "s"]


def test_dicom_without_a_suffix_is_found_by_its_whole_name(tmp_path: Path) -> None:
    root = make(tmp_path, "id,A\n1.2.840.1,1\n1.2.840.2,0\nIM0001,0\na,1\n", "a.tif notes.txt")
    for name in ("1.2.840.1", "1.2.840.2", "IM0001"):
        (root / "images" / name).write_bytes(bytes(128) + b"DICM")
    table = folder.read(root)
    assert table.paths is not None
    assert [Path(path).name for path in table.paths] == ["1.2.840.1", "1.2.840.2", "IM0001", "a.tif"]
    assert any("1 other file is no image and was skipped (1 .txt)" in line for line in folder.describe(root).summary())


def packed(content: bytes) -> bytes:
    """By gzip and without the time of day: contents are names of tests, which must be the same in every process."""
    return gzip.compress(content, mtime=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id,A\na,1\nb,0,7,8\n", "line 3 has 4 cells, but the header has 2"),
        (b'id,A\na,1\nb,"0\n', "a quotation mark is never closed"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is an old Excel workbook, not text: save it as CSV in UTF-8"),
        (b"PK\x03\x04 cut short", "is a damaged archive, not text"),
        (packed(b"id,A\na,1\n")[:-9], "Compressed file ended before"),
        (b"\x1f\x8b\x08" + bytes(40), "Cannot read .*labels.csv: Error -3 while decompressing"),
        (packed(b"id,A\na,1\n") + b"rest", "Cannot read .*labels.csv: Not a gzipped file"),
        (packed(b"PAR1 and no more"), "no CSV or TSV compressed with gzip: unpack it"),
        (packed(packed(b"id,A\na,1\n")), "no CSV or TSV compressed with gzip: unpack it"),
        (lzma.compress(b"id,A\na,1\n"), "no CSV or TSV compressed with gzip: unpack it"),
        (bz2.compress(b"id,A\na,1\n"), "no CSV or TSV compressed with gzip: unpack it"),
        (b"PAR1 and no more", "is no sound Parquet file"),
        ("id,A\na,Ą\n".encode("iso8859_2") + b"\x81", "neither UTF-8, UTF-16 nor Windows-1252"),
        ("id,A\na,1\n".encode("utf-16")[:-1], "is no text in UTF-16: save it as CSV in UTF-8"),
        ("id,\udcff\na,1\n".encode("utf-16", "surrogatepass"), "is no text in UTF-16: save it as CSV in UTF-8"),
    ],
)
def test_files_that_are_no_table_are_named_for_what_they_are(tmp_path: Path, content: bytes, message: str) -> None:
    """In our words: nothing that pandas says gets through."""
    root = make(tmp_path, "")
    (root / "labels.csv").write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        folder.read(root)
    assert "\n" not in str(caught.value)
    assert not any(word in str(caught.value) for word in ("tokeniz", "C error", "codec", "fields", "pandas", "Arrow"))


def test_a_column_may_be_called_like_the_first_letters_of_an_archive(tmp_path: Path) -> None:
    table = folder.read(make(tmp_path, "PK,image,Mass\n7,a.png,1\n8,b.png,0\n9,c.png,0\n"), classes=["Mass"])
    assert table.ids.tolist() == ["a.png", "b.png", "c.png"]


def test_a_workbook_without_openpyxl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make(tmp_path, "")
    (root / "labels.csv").unlink()
    with zipfile.ZipFile(root / "labels.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", "")
    with pytest.raises(InputError, match=r"labels\.xlsx: it is no sound Excel workbook; save it as CSV in UTF-8"):
        folder.read(root)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(
        InputError, match=r"is an Excel workbook, which needs an extra: pip install 'bomd\[excel\]', or save"
    ):
        folder.read(root)


def test_a_guessed_encoding_is_said(tmp_path: Path) -> None:
    root = make(tmp_path, "")
    (root / "labels.csv").write_bytes("id,Épanchement\na,1\n".encode("cp1252"))
    layout = folder.describe(root)
    assert layout.classes == ("Épanchement",)
    assert "read as Windows-1252" in layout.summary()[0]


def test_names_that_look_like_formulas_are_read_without_their_apostrophe(tmp_path: Path) -> None:
    root = make(tmp_path, "id,'=A1,labels\n'@a.png,1,x\nb.png,0,y\n", "@a.png b.png")
    table = folder.read(root, classes=["=A1"])
    assert table.ids.tolist() == ["@a.png", "b.png"]
    assert table.classes == ("=A1",)


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("id,note\na,x\nb,y\n", "--set 'label_column=NAME'"),
        ("id,note\na,x\nb,y\n", '--set \'classes=["A", "B"]\''),
        ("id,A,B\na,1,0\nb,x,1\nc,0,1\n", '--set \'classes=["A", "B"]\''),
        ("q,w\n1,1\n0,0\n", "--set 'id_column=NAME'"),
    ],
)
def test_what_to_pass_is_said_as_an_option(tmp_path: Path, text: str, option: str) -> None:
    with pytest.raises(InputError) as caught:
        folder.read(make(tmp_path, text))
    assert option in str(caught.value)
