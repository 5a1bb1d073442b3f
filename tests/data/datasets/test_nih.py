"""ChestX-ray14 on a tiny copy of its layout and on the real label files."""

from __future__ import annotations

import gzip
import runpy
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bomd.data.chosen import choose
from bomd.data.datasets import nih
from bomd.data.datasets.classes import CHEXPERT, NIH, NIH_NATIVE
from bomd.errors import InputError

make = runpy.run_path(str(Path(__file__).parents[1] / "nih" / "make.py"))["make"]
SHARED = Path(__file__).parents[3] / "../shared/data"
real = pytest.mark.skipif(not (SHARED / "labels").is_dir(), reason="needs the label files in ../shared/data/labels")


def positives(table, name):
    return int((table.values[:, table.classes.index(name)] == 1).sum())


@pytest.mark.parametrize("layout", ["images", "parts"])
@pytest.mark.parametrize("labels", ["Data_Entry_2017_v2020.csv", "Data_Entry_2017.csv"])
def test_reads_labels_patients_views_and_paths_of_every_layout(tmp_path, layout, labels):
    table = nih.read(make(tmp_path, layout=layout, labels=labels), "all", classes="native")
    assert table.classes == NIH_NATIVE
    assert table.ids.tolist()[1] == "00000001_001.png"
    assert table.patients.tolist() == ["1", "1", "2", "3", "4"]
    assert table.views.tolist() == ["PA", "AP", "PA", "PA", "AP"]
    found = [{name for name, value in zip(table.classes, row, strict=True) if value} for row in table.values]
    assert found == [
        {"Cardiomegaly"},
        {"Cardiomegaly", "Effusion", "Consolidation"},
        {"No Finding"},
        {"Consolidation"},
        {"Hernia", "Nodule"},
    ]
    assert all(Path(path).is_file() and path.endswith(name) for path, name in zip(table.paths, table.ids, strict=True))


def test_rule_for_consolidation_drops_rows_or_only_the_column(tmp_path):
    root = make(tmp_path)
    rows = nih.read(root, "train")
    assert rows.classes == NIH
    assert rows.ids.tolist() == ["00000001_000.png", "00000002_000.png"]
    columns = nih.read(root, "train", drop="columns")  # 00000003 had nothing but Consolidation
    assert columns.ids.tolist() == ["00000001_000.png", "00000001_001.png", "00000002_000.png"]
    assert columns.values[1].sum() == 2


def test_a_class_that_nih_does_not_label_is_nan(tmp_path):
    table = nih.read(make(tmp_path), "all", classes="chexpert")
    assert table.classes == CHEXPERT
    assert table.ids.tolist() == ["00000001_000.png", "00000002_000.png"]  # Nodule is outside this list
    unlabelled = np.isnan(table.values).all(axis=0)
    assert [name for name, empty in zip(table.classes, unlabelled, strict=True) if empty] == ["Fracture"]


def test_labels_load_without_images_and_compressed(tmp_path):
    root = make(tmp_path)
    shutil.rmtree(root / "images")
    labels = root / "Data_Entry_2017_v2020.csv"
    (root / "Data_Entry_2017_v2020.csv.gz").write_bytes(gzip.compress(labels.read_bytes()))
    labels.unlink()
    table = nih.read(root, "test", images=False)
    assert table.paths is None
    assert table.ids.tolist() == ["00000004_000.png"]


def test_a_half_downloaded_set_is_refused_by_name_or_used_as_it_is(tmp_path):
    root = make(tmp_path)
    (root / "images" / "00000002_000.png").unlink()
    with pytest.raises(
        InputError, match=r"^1 of 2 images are not in .*: 00000002_000\.png\. .*missing=\"drop\""
    ) as error:
        nih.read(root, "train")
    assert "\n" not in str(error.value)
    assert nih.read(root, "train", missing="drop").ids.tolist() == ["00000001_000.png"]


def test_no_more_than_five_missing_images_are_named(tmp_path):
    root = make(tmp_path)
    extra = "".join(f"0000010{i}_000.png,Mass,0,{100 + i},58,M,PA,1,1,1,1\n" for i in range(8))
    with (root / "Data_Entry_2017_v2020.csv").open("a") as stream:
        stream.write(extra)
    with pytest.raises(InputError, match=r"^8 of 13 images") as error:
        nih.read(root, "all", classes="native")
    assert str(error.value).count("_000.png") == 5
    assert "00000104_000.png ..." in str(error.value)


def test_wrong_roots_say_what_was_looked_for_and_where(tmp_path):
    with pytest.raises(InputError, match=r"There is no folder .*/nowhere"):
        nih.read(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"^No Data_Entry_2017_v2020.csv or Data_Entry_2017.csv \(or .gz\) in "):
        nih.read(tmp_path)
    archive = tmp_path / "CXR8.zip"
    with zipfile.ZipFile(archive, "w") as stream:
        stream.writestr("x", "y")
    with pytest.raises(InputError, match=r"CXR8.zip is an archive: unpack it"):
        nih.read(archive)
    with pytest.raises(InputError, match=r"found the archive CXR8.zip: unpack it"):
        nih.read(tmp_path)


def test_images_that_were_never_unpacked_are_pointed_out(tmp_path):
    root = make(tmp_path)
    shutil.rmtree(root / "images")
    (root / "images_001.tar.gz").write_bytes(b"")
    with pytest.raises(InputError, match=r"None of the 5 images is in .*images_001.tar.gz: unpack it.*images=False"):
        nih.read(root, "all", classes="native")


def test_a_wrong_header_names_the_missing_columns(tmp_path):
    root = make(tmp_path)
    labels = root / "Data_Entry_2017_v2020.csv"
    labels.write_text(labels.read_text().replace("Finding Labels", "findings").replace("View Position", "view"))
    with pytest.raises(InputError, match=r"has no column 'Finding Labels', 'View Position'; its header starts with"):
        nih.read(root, "all")


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252", "utf-8-sig"])
def test_a_label_file_that_excel_saved_again(tmp_path, encoding):
    root = make(tmp_path)
    before = nih.read(root, "all")
    labels = root / "Data_Entry_2017_v2020.csv"
    header, _, rest = labels.read_text().partition("\n")
    labels.write_bytes(f"{header},Größe\n{rest}".encode(encoding))
    after = nih.read(root, "all")
    assert after.ids.tolist() == before.ids.tolist()
    np.testing.assert_array_equal(after.values, before.values)


def test_labels_that_are_not_a_table_or_not_of_this_set(tmp_path):
    root = make(tmp_path)
    labels = root / "Data_Entry_2017_v2020.csv"
    text = labels.read_text()
    labels.write_text(text.replace("Hernia", "Covid"))
    with pytest.raises(InputError, match=r"has the finding 'Covid'"):
        nih.read(root, "all")
    labels.write_text("")
    with pytest.raises(InputError, match=r"^Cannot read .*Data_Entry_2017_v2020.csv: it is empty"):
        nih.read(root, "all")
    labels.unlink()
    (root / "Data_Entry_2017_v2020.csv.gz").write_bytes(gzip.compress(text.encode())[:60])
    with pytest.raises(InputError, match=r"^Cannot read .*csv.gz: "):
        nih.read(root, "all")


def test_lists_are_needed_for_a_split_and_must_fit(tmp_path):
    root = make(tmp_path)
    (root / "train_val_list.txt").rename(root / "elsewhere.txt")
    with pytest.raises(InputError, match=r'^No train_val_list.txt .*or split="all"\.'):
        nih.read(root, "train")
    (root / "train_val_list.txt").write_text("99999999_000.png\n")
    with pytest.raises(InputError, match="is it the right list"):
        nih.read(root, "train")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"split": "valid"}, "split: 'valid'"), ({"classes": "mimic"}, "classes: "), ({"drop": "all"}, "drop: ")],
)
def test_unknown_choices_are_refused(tmp_path, wrong, said):
    with pytest.raises(InputError, match=said):
        nih.read(make(tmp_path), **wrong)


def test_explain_counts_the_images_of_a_class(tmp_path):
    root = make(tmp_path)
    assert choose("nih", root, {"classes": "native"}).terms_behind("Cardiomegaly", "all") == [("Cardiomegaly", 2, True)]
    with pytest.raises(InputError, match="No class 'Fracture'"):
        choose("nih", root).terms_behind("Fracture", "all")


@real
def test_published_counts():
    labels = SHARED / "labels"
    everything = nih.read(labels, "all", classes="native", images=False)
    assert len(everything) == 112120
    assert len(np.unique(everything.patients)) == 30805
    assert everything.values.sum(axis=1).max() == 9
    assert positives(everything, "Consolidation") == 4667
    train, test = (nih.read(labels, split, classes="native", images=False) for split in ("train", "test"))
    assert (len(train), len(test)) == (86524, 25596)
    assert not set(train.patients) & set(test.patients)
    trimmed = nih.read(labels, "train", images=False)
    assert len(trimmed) == 83672
    assert trimmed.classes == NIH
    findings = trimmed.values[:, trimmed.findings].max(axis=1)
    np.testing.assert_array_equal(trimmed.values[:, -1], 1 - findings)  # No Finding exactly where there is none


@real
def test_images_of_a_part_of_the_official_list():
    table = nih.read(SHARED / "nih", "train", classes="native", lists=SHARED / "labels")
    assert len(table) == 6952
    assert len(np.unique(table.patients)) == 2822
    assert Path(table.paths[0]).is_file()
    whole = nih.read(SHARED / "labels", "train", classes="native", images=False)
    np.testing.assert_array_equal(whole.select(table.ids).values, table.values)
