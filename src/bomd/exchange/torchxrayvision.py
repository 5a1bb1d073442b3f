"""torchxrayvision's datasets and its order of 18 pathologies; there, too, NaN means "not labelled".

Its datasets are recognised by what they have, so the package need not be here: `labels`, (N, P) with NaN for unknown,
`pathologies`, their names, and `csv`, a data frame of N rows with a column that names the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bomd.errors import InputError
from bomd.exchange import table
from bomd.exchange.judgement import Judgement
from bomd.tables import Floats, LabelTable

PATHOLOGIES = (  # its default_pathologies, the outputs of its models
    "Atelectasis",
    "Consolidation",
    "Infiltration",
    "Pneumothorax",
    "Edema",
    "Emphysema",
    "Fibrosis",
    "Effusion",
    "Pneumonia",
    "Pleural_Thickening",
    "Cardiomegaly",
    "Nodule",
    "Mass",
    "Hernia",
    "Lung Lesion",
    "Fracture",
    "Lung Opacity",
    "Enlarged Cardiomediastinum",
)
THEIRS = {"Pleural Effusion": "Effusion", "Pleural Thickening": "Pleural_Thickening"}  # our other spellings
IDS = ("Image Index", "ImageID", "dicom_id", "DicomID", "imageid", "image_id", "Path", "ImageId", "filename")


def from_dataset(dataset: Any, id_column: str | None = None) -> LabelTable:
    """The labels of a dataset of torchxrayvision, also of a `SubsetDataset` or `MergeDataset`, as loaded or relabelled.

    Args:
        id_column: The column of its `csv` that names the images; by default the first of the usual ones.
    """
    labels, frame = np.asarray(dataset.labels, dtype=np.float32), dataset.csv
    names = tuple(str(name) for name in dataset.pathologies)
    if labels.shape != (len(frame), len(names)):
        raise InputError(
            f"The dataset has labels of shape {labels.shape} for {len(frame)} rows and {len(names)} names."
        )
    column = id_column or next((name for name in IDS if name in frame), None)
    if column is None or column not in frame:
        raise InputError(f"No column {id_column or 'with ids'!r}: pass id_column, one of {', '.join(frame.columns)}.")
    known = {"patients": "patientid", "views": "view"}
    extras: dict[str, Any] = {kind: frame[name].astype(str) for kind, name in known.items() if name in frame}
    return LabelTable(frame[column].astype(str).to_numpy(dtype=np.str_), names, labels, **extras)


def to_array(labels: LabelTable, pathologies: Sequence[str] = PATHOLOGIES) -> Floats:
    """(N, P) labels in torchxrayvision's order, NaN for a pathology that the table does not have."""
    return _renamed(labels).align(pathologies).values


def read(path: Path, classes: Sequence[str] | None = None) -> Judgement:
    """Read a CSV with torchxrayvision's columns, some or all of them."""
    return table.read(path, classes=classes)


def write(judgement: Judgement, path: Path) -> None:
    """Write a CSV with torchxrayvision's 18 columns in its order; classes it does not have are left out."""
    given, proposed, doubts = judgement.given, judgement.proposed, judgement.doubts
    if not set(PATHOLOGIES) & set(_renamed(given).classes):
        raise InputError(f"None of the classes is one of torchxrayvision's: {', '.join(given.classes)}.")
    if doubts is not None:
        doubts = replace(doubts, wrong=to_array(given.replace(doubts.wrong)))
    if proposed is not None:
        proposed = _renamed(proposed).align(PATHOLOGIES)
    table.write(Judgement(_renamed(given).align(PATHOLOGIES), proposed, doubts), path)


def _renamed(labels: LabelTable) -> LabelTable:
    names = set(labels.classes)
    spelled = {name: own for name, own in THEIRS.items() if own not in names}  # both spellings stay what they are
    return replace(labels, classes=tuple(spelled.get(name, name) for name in labels.classes))
