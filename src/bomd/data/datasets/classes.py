"""The class lists of the paper, in its column order, and the way to them from what a set labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from bomd.errors import InputError
from bomd.tables import NO_FINDING, LabelTable
from bomd.typed import convert

# fmt: off
CHEXPERT = ("Cardiomegaly", "Edema", "Pneumonia", "Atelectasis", "Pneumothorax", "Effusion", "Fracture", NO_FINDING)
NIH_NATIVE = (
    "Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia", "Pneumothorax",
    "Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening", "Hernia", NO_FINDING,
)
NIH = tuple(name for name in NIH_NATIVE if name != "Consolidation")
CHEXPERT_NATIVE = (
    NO_FINDING, "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema", "Consolidation",
    "Pneumonia", "Atelectasis", "Pneumothorax", "Pleural Effusion", "Pleural Other", "Fracture", "Support Devices",
)
# fmt: on

ClassList = Literal["nih", "chexpert", "native"]
Drop = Literal["rows", "columns"]

SYNONYMS = {"Pleural Effusion": "Effusion"}  # what a set's own header calls a class of the paper


def narrow(table: LabelTable, classes: ClassList, drop: Drop = "rows") -> LabelTable:
    """Bring a set's own observations to a class list.

    A class that the set does not label is NaN. An observation outside the list, such as Consolidation, takes
    with it every image that shows it (`drop="rows"`, as in the paper) or only its column (`drop="columns"`).
    Either way an image that is left without any label is removed, and "No Finding" beside a finding is an
    error. `classes="native"` changes nothing: the file's own columns stay as they are.
    """
    if convert(classes, ClassList, "classes") == "native":
        return table
    listed = NIH if classes == "nih" else CHEXPERT
    table = replace(table, classes=tuple(SYNONYMS.get(name, name) for name in table.classes))
    if convert(drop, Drop, "drop") == "rows":
        outside = [column for column, name in enumerate(table.classes) if name not in listed]
        table = table.take(np.all(table.values[:, outside] != 1, axis=1))
    known = [name for name in listed if name in table.classes]
    labels = table.align(known).values
    unknown = np.isnan(labels)
    positive, partly = np.any(labels > 0, axis=1), np.any(unknown, axis=1) & ~np.all(unknown, axis=1)
    kept = table.take(positive | partly).align(listed)
    _refuse_contradictions(kept)
    return kept


def _refuse_contradictions(table: LabelTable) -> None:
    positive = table.values == 1
    beside = positive[:, table.classes.index(NO_FINDING)] & positive[:, table.findings].any(axis=1)
    if beside.any():
        raise InputError(
            f"{int(beside.sum())} images carry {NO_FINDING!r} beside a finding, "
            f"the first is {str(table.ids[int(np.argmax(beside))])!r}; correct the label file."
        )


def positives_of(table: LabelTable, class_name: str) -> int:
    """Number of images that carry the class."""
    if class_name not in table.classes:
        raise InputError(f"No class {class_name!r}. Known: {', '.join(table.classes)}.")
    return int((table.values[:, table.classes.index(class_name)] == 1).sum())
