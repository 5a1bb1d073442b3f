"""PadChest: 160,861 images, of which physicians labelled about a quarter.

As downloaded: `PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv` (or with `.gz`) and 16-bit PNG images,
unpacked into one folder (`root` or its `images`) or into the numbered folders `0` to `54` of the archives.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from bomd.data.datasets.classes import CHEXPERT, NIH, ClassList, narrow
from bomd.data.datasets.finding_terms import ImageTerms, normalise, terms_behind, whole_terms, with_no_finding
from bomd.data.datasets.layout import Missing, check_folder, find_file, index_images, read_csv, texts, with_paths
from bomd.errors import InputError
from bomd.tables import NO_FINDING, LabelTable, rows_of
from bomd.typed import convert

Split = Literal["test"]
Others = Literal["listed", "any", "ignore"]
LABELS = ("PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv",)
PHYSICIAN = "Physician"
REVIEWED = "Manual review of DICOM fields"

TERMS = whole_terms("""
Atelectasis: atelectasis; atelectasis basal; laminar atelectasis; lobar atelectasis; round atelectasis; segmental
  atelectasis; total atelectasis
Cardiomegaly: cardiomegaly
Effusion: pleural effusion; loculated pleural effusion; loculated fissural effusion
Infiltration: infiltrates; interstitial pattern; ground glass pattern; reticular interstitial pattern; reticulonodular
  interstitial pattern; alveolar pattern; consolidation; air bronchogram
Mass: mass; pulmonary mass
Nodule: nodule; multiple nodules
Pneumonia: pneumonia; atypical pneumonia
Pneumothorax: pneumothorax; hydropneumothorax
Edema: pulmonary edema
Emphysema: emphysema
Fibrosis: pulmonary fibrosis
Pleural_Thickening: pleural thickening; apical pleural thickening; calcified pleural thickening
Hernia: hiatal hernia
Fracture: fracture; rib fracture; callus rib fracture; clavicle fracture; humeral fracture; vertebral fracture
Consolidation: consolidation; air bronchogram
Granuloma: granuloma; calcified granuloma
Flattened Diaphragm: flattened diaphragm
Bronchiectasis: bronchiectasis
Aortic Elongation: aortic elongation; ascendent aortic elongation; descendent aortic elongation; supra aortic
  elongation
Scoliosis: scoliosis
Hilar Enlargement: hilar enlargement; vascular hilar enlargement; pulmonary artery enlargement; adenopathy
Tuberculosis: tuberculosis; tuberculosis sequelae
Air Trapping: air trapping
Costophrenic Angle Blunting: costophrenic angle blunting
Aortic Atheromatosis: aortic atheromatosis
Hemidiaphragm Elevation: hemidiaphragm elevation
Support Devices: pacemaker; dai; electrical device; single chamber device; dual chamber device
Tube: NSG tube; endotracheal tube; tracheostomy tube; chest drain tube; gastrostomy tube; ventriculoperitoneal drain
  tube; nephrostomy tube; double J stent
""")
NATIVE = (*TERMS, NO_FINDING)
NO_LABELS = ("", "nan", "['']", "['exclude']")  # nothing was written, or that the study is not to be used
NOT_FINDINGS = ("", "normal", "unchanged")


def read(
    root: Path,
    split: Split = "test",
    *,
    classes: ClassList = "nih",
    others: Others = "listed",
    views: tuple[str, ...] = ("PA", "AP"),
    physician_only: bool = True,
    reviewed_view_only: bool = True,
    labelled_only: bool = True,
    one_per_patient: bool = True,
    minimum_age: int = 11,
    images: bool = True,
    missing: Missing = "error",
) -> LabelTable:
    """Read the labels, patients, views and image paths of PadChest.

    Terms count as a whole, where the released code matches substrings: a pseudonodule is not a Nodule. None
    of the images that the filters leave is among the files known to be broken.

    Args:
        root: the folder as downloaded.
        split: the physicians' part is a `test` set as a whole.
        classes: `nih`: the paper's 14 columns; `chexpert`: its 8; `native`: 28 observations and No Finding.
        others: an image is dropped if it shows one of the `listed` observations, that is one of the native
            classes outside the class list (closest to the paper's counts), or `any` finding outside it;
            `ignore` drops only images that are left without a label.
        views: projections to keep; the paper's are PA and AP, () keeps all.
        physician_only: keep labels that physicians gave, as in the paper; the others come from a network.
        reviewed_view_only: keep images whose projection was reviewed by hand, as in the paper.
        labelled_only: drop images that the annotators marked "exclude" or left without a label, which would
            else be NaN in every class (52 of the 22,261 that the other filters leave).
        one_per_patient: keep the first such image of each patient, as in the released code.
        minimum_age: drop younger patients and those of unknown age at the study; 11 as in the released code.
        images: False reads labels alone and leaves `paths` out.
        missing: `error` refuses a set of which images are missing; `drop` goes on with those that are there.
    """
    convert(split, Split, "split")
    root = check_folder(root)
    frame = _read_labels(root)
    if physician_only:
        frame = frame[frame["MethodLabel"] == PHYSICIAN]
    if reviewed_view_only:
        frame = frame[frame["MethodProjection"] == REVIEWED]
    if views:
        frame = frame[frame["Projection"].isin(views)]
    if minimum_age > 0:
        year = pd.to_numeric(frame["StudyDate_DICOM"].str[:4], errors="coerce")
        frame = frame[year - frame["PatientBirth"] >= minimum_age]
    if labelled_only:
        frame = frame[~frame["Labels"].isin(NO_LABELS)]
    if one_per_patient:
        frame = frame.drop_duplicates("PatientID")
    terms = _terms(frame, root)
    labels = with_no_finding(terms.positives(TERMS))
    labels[frame["Labels"].isin(NO_LABELS)] = np.nan
    ids, patients, projections = texts(frame, "ImageID", "PatientID", "Projection")
    native = LabelTable(ids, NATIVE, labels, patients=patients, views=projections)
    if convert(others, Others, "others") == "any":
        listed = {"nih": NIH, "chexpert": CHEXPERT, "native": NATIVE}[classes]
        known = frozenset(NOT_FINDINGS).union(*(TERMS[name] for name in listed if name != NO_FINDING))
        native = native.take(terms.where(known.issuperset))
    table = narrow(native, classes, "columns" if others == "ignore" else "rows")
    if not images:
        return table
    folders = [root, root / "images"]
    folders += [folder / str(number) for folder in folders for number in range(55)]
    found = index_images(folder for folder in folders if folder.is_dir())
    where = f"{root}, {root}/images or their folders 0 to 54"
    return with_paths(table, table.ids.tolist(), found, where, missing, root)


def explain(root: Path, class_name: str, split: Split = "test", **options: Any) -> list[tuple[str, int, bool]]:
    """Raw terms behind a class, as `terms_behind` has them; options as for `read`."""
    table = read(root, split, images=False, **options)
    frame = _read_labels(check_folder(root))
    frame = frame.iloc[rows_of(frame["ImageID"].to_numpy(dtype=np.str_), table.ids)]
    return terms_behind(table, _terms(frame, root), TERMS, class_name)


def _read_labels(root: Path) -> pd.DataFrame:
    path = find_file([root], LABELS, "Pass the folder that holds it as root.")
    image = ["ImageID", "PatientID", "StudyDate_DICOM", "Projection", "MethodProjection"]
    return read_csv(path, [*image, "MethodLabel", "Labels"], ["PatientBirth"])


def _terms(frame: pd.DataFrame, root: Path) -> ImageTerms:
    """The terms of each image, from lists as Python writes them; each distinct list is read once."""
    index, lists = pd.factorize(frame["Labels"])
    wrong = next((text for text in lists if text not in NO_LABELS and not re.fullmatch(r"\[.*\]", text)), None)
    if wrong is not None:
        raise InputError(f"The label file in {root} has the labels {wrong!r}; expected a list in brackets.")
    sets = (frozenset(normalise(term) for term in re.findall(r"'([^']*)'", text)) for text in lists)
    return ImageTerms(tuple(sets), index)
