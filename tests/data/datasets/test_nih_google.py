"""NIH-Google on a tiny copy of its layout and on the real labels."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from bomd.data.datasets import nih_google
from bomd.data.datasets.classes import CHEXPERT, NIH
from bomd.errors import InputError
from bomd.tables import LabelTable

make = runpy.run_path(str(Path(__file__).parents[1] / "nih_google" / "make.py"))["make"]
SHARED = Path(__file__).parents[3] / "../shared/data"
real = pytest.mark.skipif(not (SHARED / "labels").is_dir(), reason="needs the label files in ../shared/data/labels")


def test_reads_each_split(tmp_path):
    root = make(tmp_path)
    table = nih_google.read(root)
    assert table.classes == ("Fracture", "Pneumothorax", "Airspace opacity", "Nodule or mass")
    assert table.values.tolist() == [[0, 0, 1, 0], [0, 1, 0, 1]]
    assert table.patients.tolist() == ["13", "13"]
    assert all(Path(path).is_file() for path in table.paths)
    assert nih_google.read(root, "validation").ids.tolist() == ["00000211_006.png"]
    assert len(nih_google.read(root, "all")) == 3
    assert nih_google.read(root / "four_findings_expert_labels", images=False).ids.tolist() == table.ids.tolist()


def test_lists_of_the_paper_are_nan_but_for_what_was_adjudicated(tmp_path):
    root = make(tmp_path)
    for classes, columns, known in (
        ("nih", NIH, {"Pneumothorax"}),
        ("chexpert", CHEXPERT, {"Pneumothorax", "Fracture"}),
    ):
        table = nih_google.read(root, classes=classes)
        assert table.classes == columns
        assert {
            name for name, column in zip(columns, table.values.T, strict=True) if not np.isnan(column).any()
        } == known


def test_nodule_or_mass_is_scored_by_the_mean_of_both():
    predictions = LabelTable(["a", "b"], ("Nodule", "Mass", "Hernia"), [[0.2, 0.6, 0.1], [1.0, 0.0, 0.3]])
    scored = nih_google.score_nodule_or_mass(predictions)
    assert scored.classes == ("Nodule", "Mass", "Hernia", "Nodule or mass")
    np.testing.assert_allclose(scored.values[:, 3], [0.4, 0.5], rtol=1e-6)
    np.testing.assert_array_equal(scored.values[:, :3], predictions.values)


def test_an_answer_that_is_neither_yes_nor_no(tmp_path):
    labels = make(tmp_path) / "four_findings_expert_labels" / "test_labels.csv"
    labels.write_text(labels.read_text().replace("NO,YES,NO,YES", "NO,HEDGE,NO,YES"))
    with pytest.raises(InputError, match="have 'HEDGE'; expected YES or NO"):
        nih_google.read(tmp_path)


def test_a_folder_without_labels(tmp_path):
    with pytest.raises(
        InputError, match=r"^No test_labels.csv .* Pass the folder that holds four_findings_expert_labels"
    ):
        nih_google.read(tmp_path)


@real
def test_published_counts():
    test = nih_google.read(SHARED / "labels", images=False)
    assert len(test) == 1962
    assert test.values.sum(axis=0).tolist() == [72, 195, 1135, 295]
    validation = nih_google.read(SHARED / "labels", "validation", images=False)
    assert len(validation) == 2414
    assert not set(test.patients) & set(validation.patients)


@real
def test_images_come_from_a_part_of_chestxray14():
    table = nih_google.read(SHARED / "labels", "all", images_root=SHARED / "nih", missing="drop")
    assert len(table) == 282
    assert all(Path(path).name == name for path, name in zip(table.paths, table.ids, strict=True))
