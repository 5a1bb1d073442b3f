"""CheXpert on a tiny copy of its layout and on the real label files."""

from __future__ import annotations

import runpy
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bomd.data.datasets import chexpert
from bomd.data.datasets.classes import CHEXPERT, CHEXPERT_NATIVE
from bomd.errors import InputError

make = runpy.run_path(str(Path(__file__).parents[1] / "chexpert" / "make.py"))["make"]
LABELS = Path(__file__).parents[3] / "../shared/data/labels"
real = pytest.mark.skipif(not LABELS.is_dir(), reason="needs the label files in ../shared/data/labels")
ALL_ROWS = {"classes": "native", "frontal": False, "minimum_age": 0}


@pytest.mark.parametrize("name", ["CheXpert-v1.0", "CheXpert-v1.0-small"])
def test_root_is_the_folder_or_the_one_above(tmp_path, name):
    folder = make(tmp_path, name=name)
    above, itself = chexpert.read(tmp_path, "all", **ALL_ROWS), chexpert.read(folder, "all", **ALL_ROWS)
    assert above.ids.tolist() == itself.ids.tolist()
    assert above.paths.tolist() == itself.paths.tolist()
    assert above.ids[0] == "train/patient00001/study1/view1_frontal.jpg"  # the same in both sizes of the set
    assert all(Path(path).is_file() for path in above.paths)
    assert above.patients.tolist()[:4] == ["patient00001"] * 3 + ["patient00002"]
    assert above.views.tolist()[:4] == ["AP", "AP", "Lateral", "PA"]
    assert above.classes == CHEXPERT_NATIVE


def test_authors_rule(tmp_path):
    """Row 2 shows Lung Opacity, row 4 only an uncertain label, patient 3 has age 0, one image is lateral."""
    make(tmp_path)
    table = chexpert.read(tmp_path, "all")
    assert table.classes == CHEXPERT
    kept = {
        name.split("/", 1)[1]: set(np.array(CHEXPERT)[row == 1])
        for name, row in zip(table.ids, table.values, strict=True)
    }
    assert kept == {
        "patient00001/study1/view1_frontal.jpg": {"No Finding"},
        "patient00001/study2/view1_frontal.jpg": {"Cardiomegaly"},
        "patient00005/study1/view1_frontal.jpg": {"Effusion"},
    }
    assert chexpert.read(tmp_path, "all", drop="columns").patients.tolist()[2:] == ["patient00002", "patient00005"]


@pytest.mark.parametrize(
    ("uncertain", "edema", "cardiomegaly"),
    [("zeros", 0, 0), ("ones", 1, 1), ("ignore", np.nan, np.nan), ({"Edema": "ones"}, 1, 0)],
)
def test_uncertain_labels(tmp_path, uncertain, edema, cardiomegaly):
    make(tmp_path)
    table = chexpert.read(tmp_path, "all", classes="native", uncertain=uncertain)
    row = table.align(["Edema", "Cardiomegaly", "Fracture"]).values[table.patients == "patient00002"][0]
    np.testing.assert_array_equal(row, [edema, cardiomegaly, 1])


def test_an_uncertain_class_can_be_named_as_in_the_paper_or_as_in_the_file(tmp_path):
    folder = make(tmp_path)
    labels = folder / "train.csv"
    labels.write_text(labels.read_text().replace("0.0,,,,,,,,1.0,,,", "0.0,,,,,,,,-1.0,,,"))
    for name in ("Effusion", "Pleural Effusion"):
        table = chexpert.read(tmp_path, "all", uncertain={name: "ones"})
        assert table.align(["Effusion"]).values[table.patients == "patient00005"].tolist() == [[1]]
    with pytest.raises(InputError, match="uncertain: no class 'Oedema'"):
        chexpert.read(tmp_path, "all", uncertain={"Oedema": "ones"})
    with pytest.raises(InputError, match="uncertain: 'maybe'"):
        chexpert.read(tmp_path, "all", uncertain="maybe")


def test_blank_cells_can_stay_unknown(tmp_path):
    make(tmp_path)
    table = chexpert.read(tmp_path, "all", classes="native", blank="ignore")
    row = dict(zip(table.classes, table.values[table.patients == "patient00005"][0], strict=True))
    assert row["Pleural Effusion"] == 1
    assert row["Cardiomegaly"] == 0
    assert np.isnan(row["Edema"])


def test_beside_no_finding_a_blank_finding_is_known_to_be_absent(tmp_path):
    """The first image has No Finding = 1 and nothing else but a negative pneumothorax."""
    make(tmp_path)
    table = chexpert.read(tmp_path, "all", classes="native", blank="ignore")
    row = dict(zip(table.classes, table.values[0], strict=True))
    assert np.isnan(row.pop("Support Devices"))
    assert row.pop("No Finding") == 1
    assert set(row.values()) == {0}
    for values in table.values[1:]:  # nowhere else
        assert np.isnan(values[table.classes.index("No Finding")])
        assert np.isnan(values[table.classes.index("Fracture")]) or values[table.classes.index("Fracture")] == 1


def test_an_image_whose_labels_are_all_unknown_is_removed(tmp_path):
    """The only label of patient 4 is an uncertain Atelectasis, and all its other cells are blank."""
    make(tmp_path)
    table = chexpert.read(tmp_path, "all", blank="ignore", uncertain="ignore")
    assert "patient00004" not in table.patients
    assert "patient00004" in chexpert.read(tmp_path, "all", uncertain="ignore").patients


def test_the_list_of_nih_has_nan_where_chexpert_has_no_label(tmp_path):
    make(tmp_path)
    table = chexpert.read(tmp_path, "all", classes="nih")
    unknown = {name for name, column in zip(table.classes, table.values.T, strict=True) if np.isnan(column).all()}
    assert unknown == {"Infiltration", "Mass", "Nodule", "Emphysema", "Fibrosis", "Pleural_Thickening", "Hernia"}


def test_expert_labels(tmp_path):
    make(tmp_path)
    table = chexpert.read(tmp_path, "expert")
    assert table.patients.tolist() == ["patient64541"]
    assert table.align(["Cardiomegaly", "No Finding"]).values.tolist() == [[1, 0]]


def test_errors_are_one_line(tmp_path):
    with pytest.raises(InputError, match=r"^No train.csv or chexpert_train.csv .* in .* Pass the folder CheXpert-v1.0"):
        chexpert.read(tmp_path)
    folder = make(tmp_path)
    (folder / "train/patient00005/study1/view1_frontal.jpg").unlink()
    with pytest.raises(InputError, match=r"^1 of 3 images are not in .*patient00005/study1/view1_frontal.jpg\. "):
        chexpert.read(tmp_path, "all")
    labels = folder / "train.csv"
    text = labels.read_text()
    labels.write_text(text.replace("0.0,,,,,,,,1.0,,,", "0.0,,,,,,,,2.0,,,"))
    with pytest.raises(InputError, match="has the label 2; expected 1, 0, -1 or nothing"):
        chexpert.read(tmp_path, "all")
    labels.write_text(text.replace("Pleural Effusion", "Effusion"))
    with pytest.raises(InputError, match="has no column 'Pleural Effusion'"):
        chexpert.read(tmp_path, "all")
    labels.write_text(text.replace("patient00005/study1/", ""))
    with pytest.raises(InputError, match="is not of the form SET/SPLIT/PATIENT/STUDY/IMAGE"):
        chexpert.read(tmp_path, "all")
    labels.write_text(text)
    with pytest.raises(InputError, match="held_out is 1"):
        chexpert.read(tmp_path, held_out=1.0)


def test_no_finding_beside_a_finding_is_refused(tmp_path):
    folder = make(tmp_path)
    labels = folder / "train.csv"
    labels.write_text(labels.read_text().replace("1.0,,,,,,,,,0.0,,,,", "1.0,,1.0,,,,,,,0.0,,,,"))
    with pytest.raises(
        InputError, match="1 images carry 'No Finding' beside a finding, the first is 'train/patient00001"
    ):
        chexpert.read(tmp_path, "all")
    assert len(chexpert.read(tmp_path, "all", classes="native")) == 5  # the file's own columns stay as they are


def test_held_out_patients_are_a_tenth_and_depend_on_nothing_but_the_seed(tmp_path):
    folder = make(tmp_path)
    row = "CheXpert-v1.0-small/train/patient{:05}/study1/view1_frontal.jpg,Male,50,Frontal,AP,1.0,,,,,,,,,,,,,\n"
    with (folder / "train.csv").open("a") as stream:
        stream.writelines(row.format(number) for number in range(100, 4100))

    def patients(split, **options):
        return set(chexpert.read(tmp_path, split, images=False, **options).patients.tolist())

    train, validation = patients("train"), patients("validation")
    assert not train & validation
    assert train | validation == patients("all")
    assert 0.08 < len(validation) / 4002 < 0.12  # five standard deviations
    assert validation <= patients("validation", classes="native", frontal=False, minimum_age=0)
    other = patients("validation", seed=1)
    assert 0.04 < len(validation & other) / len(other) < 0.17


@real
@pytest.mark.slow
def test_published_counts():
    start = time.process_time()
    pd.read_csv(LABELS / "chexpert_train.csv.gz", dtype=str, keep_default_na=False)
    plain = time.process_time() - start
    everything = chexpert.read(LABELS, "all", images=False, **ALL_ROWS)
    assert time.process_time() - start - plain < 15 * plain  # parsed, checked and compact, against parsed alone
    assert len(everything) == 223414
    assert len(np.unique(everything.patients)) == 64540
    assert int((everything.views != "Lateral").sum()) == 191027
    assert len(chexpert.read(LABELS, "expert", images=False, **ALL_ROWS)) == 234


@real
@pytest.mark.slow
def test_authors_rule_on_the_real_file_equals_a_plain_one():
    frame = pd.read_csv(LABELS / "chexpert_train.csv.gz")
    frame = frame[(frame["Frontal/Lateral"] == "Frontal") & (frame["Age"] > 0)]
    inside = [{"Effusion": "Pleural Effusion"}.get(name, name) for name in CHEXPERT]
    outside = [name for name in CHEXPERT_NATIVE if name not in inside]
    positive = frame[list(CHEXPERT_NATIVE)] == 1
    for drop, expected in (("rows", 32010), ("columns", 150993)):
        kept = positive[inside].any(axis=1)
        if drop == "rows":
            kept &= ~positive[outside].any(axis=1)
        table = chexpert.read(LABELS, "all", drop=drop, images=False)
        assert len(table) == expected == int(kept.sum())
        assert table.ids.tolist() == [path.partition("/")[2] for path in frame["Path"][kept]]
        np.testing.assert_array_equal(table.values, positive.loc[kept, inside].to_numpy())


@real
@pytest.mark.slow
def test_blanks_beside_no_finding_on_the_real_file():
    """Every blank of a finding there becomes 0, and no such row has a positive or uncertain finding."""
    frame = pd.read_csv(LABELS / "chexpert_train.csv.gz")
    findings = [name for name in CHEXPERT_NATIVE if name not in ("No Finding", "Support Devices")]
    cells = frame[list(CHEXPERT_NATIVE)].to_numpy()
    nothing = (frame["No Finding"] == 1).to_numpy()
    assert not frame.loc[nothing, findings].isin([1, -1]).to_numpy().any()
    table = chexpert.read(LABELS, "all", images=False, blank="ignore", uncertain="ones", **ALL_ROWS)
    filled = np.isnan(cells) & ~np.isnan(table.values)
    assert int(filled.sum()) == 213120
    assert set(table.values[filled]) == {0}
    assert not filled[~nothing].any()
    assert not filled[:, CHEXPERT_NATIVE.index("Support Devices")].any()
    np.testing.assert_array_equal(np.isnan(table.values) | filled, np.isnan(cells))
