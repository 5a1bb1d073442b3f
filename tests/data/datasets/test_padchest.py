"""PadChest on a tiny copy of its layout and on the real label file."""

from __future__ import annotations

import ast
import runpy
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bomd.data.datasets import padchest
from bomd.data.datasets.classes import CHEXPERT, NIH, narrow
from bomd.errors import InputError

make = runpy.run_path(str(Path(__file__).parents[1] / "padchest" / "make.py"))["make"]
LABELS = Path(__file__).parents[3] / "../shared/data/labels"
FILE = LABELS / "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv.gz"
real = pytest.mark.skipif(not LABELS.is_dir(), reason="needs the label file in ../shared/data/labels")
ALL_ROWS = {
    "classes": "native",
    "views": (),
    "physician_only": False,
    "reviewed_view_only": False,
    "labelled_only": False,
    "one_per_patient": False,
    "minimum_age": 0,
}


def labels_of(table, name):
    row = table.values[table.ids.tolist().index(name)]
    return {label for label, value in zip(table.classes, row, strict=True) if value == 1}


@pytest.mark.parametrize("layout", ["folders", "flat"])
def test_reads_every_layout(tmp_path, layout):
    table = padchest.read(make(tmp_path, layout=layout), **ALL_ROWS)
    assert len(table) == 11
    assert all(
        Path(path).is_file() and Path(path).name == name for path, name in zip(table.paths, table.ids, strict=True)
    )
    assert table.patients.tolist()[:3] == ["A", "A", "B"]
    assert table.views.tolist()[3] == "AP"


def test_filters_are_arguments_one_by_one(tmp_path):
    root = make(tmp_path)
    default = padchest.read(root, classes="native").ids.tolist()
    assert default == ["a_1.png", "b_1.png", "c_1.png", "d_1.png", "j_1.png"]
    for option, added in (
        ({"one_per_patient": False}, "a_2.png"),
        ({"minimum_age": 10}, "e_1.png"),
        ({"views": ("PA", "AP", "L")}, "f_1.png"),
        ({"reviewed_view_only": False}, "g_1.png"),
        ({"physician_only": False}, "h_1.png"),
        ({"labelled_only": False}, "i_1.png"),
    ):
        assert set(padchest.read(root, classes="native", **option).ids) - set(default) == {added}


def test_whole_terms(tmp_path):
    table = padchest.read(make(tmp_path), classes="native")
    assert labels_of(table, "b_1.png") == {"Atelectasis", "Effusion"}  # leading blanks do not matter
    assert labels_of(table, "c_1.png") == {"No Finding"}  # pericardial effusion, pseudonodule
    assert labels_of(table, "d_1.png") == {"Cardiomegaly", "Scoliosis"}


def test_rule_for_other_findings(tmp_path):
    root = make(tmp_path)
    listed = padchest.read(root)
    assert listed.classes == NIH
    assert listed.ids.tolist() == ["a_1.png", "b_1.png", "c_1.png", "j_1.png"]  # scoliosis is listed
    assert padchest.read(root, others="any").ids.tolist() == ["a_1.png", "b_1.png"]
    assert labels_of(padchest.read(root, others="ignore"), "d_1.png") == {"Cardiomegaly"}
    assert padchest.read(root, classes="chexpert").classes == CHEXPERT
    assert padchest.read(root, classes="chexpert").ids.tolist() == ["a_1.png", "b_1.png", "c_1.png"]


def test_images_without_labels_are_nan(tmp_path):
    table = padchest.read(make(tmp_path), **ALL_ROWS)
    assert np.isnan(table.values).all(axis=1).tolist() == [name == "i_1.png" for name in table.ids]


def test_errors_are_one_line(tmp_path):
    with pytest.raises(InputError, match=r"^No PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv \(or .gz\) in "):
        padchest.read(tmp_path)
    root = make(tmp_path)
    (root / "1" / "b_1.png").unlink()
    with pytest.raises(InputError, match=r"^1 of 4 images are not in .*folders 0 to 54: b_1.png\. "):
        padchest.read(root)
    (root / "0.zip").write_bytes(b"")
    with pytest.raises(InputError, match=r"found the archive 0.zip: unpack it"):
        padchest.read(root)
    labels = next(root.glob("*.csv"))
    text = labels.read_text()
    labels.write_text(text.replace("['normal']", "normal", 1))
    with pytest.raises(InputError, match=r"has the labels 'normal'; expected a list in brackets"):
        padchest.read(root)
    labels.write_text(text.replace("MethodLabel", "Method"))
    with pytest.raises(InputError, match=r"has no column 'MethodLabel'"):
        padchest.read(root)


def test_explain_lists_terms_and_what_was_left_out(tmp_path):
    root = make(tmp_path)
    assert padchest.explain(root, "Atelectasis") == [("laminar atelectasis", 1, True)]
    assert padchest.explain(root, "Nodule") == [("nodule", 1, True), ("pseudonodule", 1, False)]


@pytest.fixture(scope="module")
def rows():
    """Labels of the default filters, and the terms of each image as a plain reader sees them."""
    table = padchest.read(LABELS, classes="native", images=False)
    frame = pd.read_csv(FILE, usecols=["ImageID", "Labels"], dtype=str)
    lists = frame.set_index("ImageID")["Labels"].loc[table.ids.tolist()]
    return table, [{term.strip() for term in ast.literal_eval(text)} for text in lists]


@real
@pytest.mark.slow
def test_published_counts(rows):
    start = time.process_time()
    pd.read_csv(FILE, dtype=str, keep_default_na=False)
    plain = time.process_time() - start
    everything = padchest.read(LABELS, images=False, **ALL_ROWS)
    assert time.process_time() - start - plain < 15 * plain  # parsed, checked and compact, against parsed alone
    assert len(everything) == 160861
    assert len(np.unique(everything.patients)) == 67625
    filtered = padchest.read(LABELS, classes="native", labelled_only=False, images=False)
    assert len(filtered) == 22261
    assert int(np.isnan(filtered.values).all(axis=1).sum()) == 52
    table, _ = rows
    assert len(narrow(table, "nih")) == 14529  # the paper has 14,714, substrings 14,578
    assert len(narrow(table, "chexpert")) == 12952  # the paper has 12,885


@real
def test_labels_equal_a_plain_loop_over_the_lists(rows):
    table, lists = rows
    for column, name in enumerate(padchest.TERMS):
        wanted = {term.lower() for term in padchest.TERMS[name]}
        expected = [any(term.lower() in wanted for term in terms) for terms in lists]
        np.testing.assert_array_equal(table.values[:, column], expected)
        known = {term.lower() for terms in lists for term in terms}
        assert wanted <= known, "a misspelt term would never match"


@real
@pytest.mark.parametrize(
    ("class_name", "trap"),
    [
        ("Effusion", "pericardial effusion"),
        ("Emphysema", "subcutaneous emphysema"),
        ("Nodule", "pseudonodule"),
        ("Mass", "mediastinal mass"),
        ("Mass", "breast mass"),
        ("Mass", "soft tissue mass"),
    ],
)
def test_traps_on_real_rows(rows, class_name, trap):
    table, lists = rows
    column = table.classes.index(class_name)
    only = [
        row
        for row, terms in enumerate(lists)
        if trap in terms and not any(class_name.lower() in term for term in terms - {trap})
    ]
    assert only
    assert (table.values[only, column] == 0).all()


@real
@pytest.mark.slow
def test_explain_on_real_rows():
    found = padchest.explain(LABELS, "Nodule", classes="native")
    assert [row for row in found if not row[2]] == [("pseudonodule", 456, False)]
