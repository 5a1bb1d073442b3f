"""NIH-Google: four findings that radiologists adjudicated on 4,376 images of ChestX-ray14.

As downloaded: `four_findings_expert_labels/test_labels.csv` and `validation_labels.csv` (or these two files
themselves), or both sets in one file with a column `Set Id`. The images are those of ChestX-ray14.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from bomd.data.datasets import nih
from bomd.data.datasets.classes import CHEXPERT, NIH, ClassList
from bomd.data.datasets.layout import Missing, check_folder, find_file, read_csv, texts
from bomd.errors import InputError
from bomd.tables import LabelTable
from bomd.typed import convert

Split = Literal["test", "validation", "all"]
NODULE_OR_MASS = "Nodule or mass"
NATIVE = ("Fracture", "Pneumothorax", "Airspace opacity", NODULE_OR_MASS)
FOLDER = "four_findings_expert_labels"
FILES = {
    split: (f"{split}_labels.csv", f"{FOLDER}_{split}_labels.csv", "google2019_nih-chest-xray-labels.csv")
    for split in ("test", "validation")
}
SET_IDS = {"test": "test", "validation": "val"}  # how the file that holds both sets tells them apart


def read(
    root: Path,
    split: Split = "test",
    *,
    classes: ClassList = "native",
    images_root: Path | None = None,
    images: bool = True,
    missing: Missing = "error",
) -> LabelTable:
    """Read the adjudicated labels, patients, views and image paths of NIH-Google.

    Args:
        root: the folder with the label files.
        split: `test` (1,962 images), `validation` (2,414) or `all`. The paper scores `test`.
        classes: `native`: the four findings, of which Pneumothorax and "Nodule or mass" are scored; `nih` and
            `chexpert`: the columns of the paper's lists, NaN but for Pneumothorax and (`chexpert`) Fracture.
        images_root: folder of ChestX-ray14 as downloaded, where it is not `root`.
        images: False reads labels alone and leaves `paths` out.
        missing: `error` refuses a set of which images are missing; `drop` goes on with those that are there.
    """
    root = check_folder(root)
    wanted = ["test", "validation"] if convert(split, Split, "split") == "all" else [split]
    frame = pd.concat([_read_split(root, part) for part in wanted], ignore_index=True)
    answers = frame[list(NATIVE)].to_numpy(dtype=np.str_)
    wrong = answers[~np.isin(answers, ["YES", "NO"])]
    if len(wrong):
        raise InputError(f"The labels of NIH-Google in {root} have {str(wrong[0])!r}; expected YES or NO.")
    ids, patients, views = texts(frame, "Image Index", "Patient ID", "View Position")
    table = LabelTable(ids, NATIVE, (answers == "YES").astype(np.float32), patients=patients, views=views)
    if convert(classes, ClassList, "classes") != "native":
        table = table.align(NIH if classes == "nih" else CHEXPERT)
    return nih.add_images(table, check_folder(images_root or root), missing) if images else table


def score_nodule_or_mass(predictions: LabelTable) -> LabelTable:
    """Add the class "Nodule or mass": the mean of the probabilities of Mass and Nodule, as in the paper."""
    both = predictions.align(("Mass", "Nodule")).values
    return replace(
        predictions,
        classes=(*predictions.classes, NODULE_OR_MASS),
        values=np.column_stack([predictions.values, both.mean(axis=1)]),
    )


def _read_split(root: Path, split: str) -> pd.DataFrame:
    path = find_file([root, root / FOLDER], FILES[split], f"Pass the folder that holds {FOLDER} as root.")
    columns = ["Image Index", "Patient ID", "View Position", *NATIVE]
    if not path.name.startswith("google2019"):
        return read_csv(path, columns)
    frame = read_csv(path, [*columns, "Set Id"])
    return frame[frame["Set Id"] == SET_IDS[split]]
