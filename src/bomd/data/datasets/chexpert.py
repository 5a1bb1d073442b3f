"""CheXpert: 223,414 images whose labels were mined from reports, with "uncertain" as a label of its own.

As downloaded: a folder `CheXpert-v1.0` or `CheXpert-v1.0-small` with `train.csv`, `valid.csv` and the images
under the names that these files give; `root` is that folder or the one above it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bomd.data.datasets.classes import CHEXPERT_NATIVE, SYNONYMS, ClassList, Drop, narrow, positives_of
from bomd.data.datasets.layout import Missing, check_folder, find_file, read_csv, with_paths
from bomd.errors import InputError
from bomd.tables import NO_FINDING, LabelTable, Text
from bomd.typed import convert

Split = Literal["train", "validation", "all", "expert"]
Uncertain = Literal["zeros", "ones", "ignore"]
Blank = Literal["zeros", "ignore"]
FOLDERS = ("CheXpert-v1.0-small", "CheXpert-v1.0")
TRAIN = ("train.csv", "chexpert_train.csv")
EXPERT = ("valid.csv", "CheXpert_valid_official.csv")
DEVICES = "Support Devices"  # may lie beside No Finding
VALUES = {"zeros": 0.0, "ones": 1.0, "ignore": np.nan}


def read(
    root: Path,
    split: Split = "train",
    *,
    classes: ClassList = "chexpert",
    drop: Drop = "rows",
    uncertain: Uncertain | Mapping[str, Uncertain] = "zeros",
    blank: Blank = "zeros",
    frontal: bool = True,
    minimum_age: int = 1,
    held_out: float = 0.1,
    seed: int = 0,
    images: bool = True,
    missing: Missing = "error",
) -> LabelTable:
    """Read the labels, patients, views and image paths of CheXpert.

    The defaults are the authors' rule on images that each occur once: 32,010 over `all`. The paper's 170,958
    most likely comes from rows that its preparation repeats.

    Args:
        root: the folder as downloaded, or the one above it.
        split: `train` and `validation` are disjoint patients of `train.csv`, `all` is the whole of it,
            `expert` is `valid.csv`, 234 images that radiologists labelled.
        classes: `chexpert`: the paper's 8 columns; `nih`: its 14, NaN where CheXpert has no such label;
            `native`: the 14 of the file, with no row dropped for what it shows.
        drop: `rows`, the authors' rule, drops every image with an observation outside the list (32,010 of
            `all` remain); `columns` drops the columns and only images then left without a label (150,993).
        uncertain: what -1 becomes: `zeros` as in the paper, `ones`, `ignore` (NaN), or one of these for each
            class that is named and `zeros` for the rest.
        blank: what an empty cell becomes: `zeros` as in the paper, or `ignore` (NaN). Beside No Finding = 1 the
            empty cells of findings are 0 either way (213,120 of `train.csv`), since that label says so; Support
            Devices is no finding and stays unknown.
        frontal: keep frontal images alone, as in the paper (191,027 of 223,414).
        minimum_age: drop younger patients; 1, as in the paper, drops the 3 frontal images with age 0.
        held_out: fraction of the patients that form `validation`; the authors also hold out a tenth.
        seed: which patients these are; independent of every other argument.
        images: False reads labels alone and leaves `paths` out.
        missing: `error` refuses a set of which images are missing; `drop` goes on with those that are there.
    """
    root = check_folder(root)
    folders = [root, *(root / name for name in FOLDERS)]
    names = EXPERT if convert(split, Split, "split") == "expert" else TRAIN
    path = find_file(folders, names, "Pass the folder CheXpert-v1.0 or CheXpert-v1.0-small as root.")
    frame = read_csv(path, ["Path", "Frontal/Lateral", "AP/PA"], ["Age", *CHEXPERT_NATIVE])
    kept = frame["Age"].to_numpy() >= minimum_age
    if frontal:
        kept &= (frame["Frontal/Lateral"] == "Frontal").to_numpy()
    patients = _patients(frame["Path"].tolist(), path)
    if split in ("train", "validation"):
        kept &= _held_out(patients, held_out, seed) == (split == "validation")
    frame = frame[kept]
    ids = [name.partition("/")[2] for name in frame["Path"].tolist()]
    native = LabelTable(
        np.asarray(ids, dtype=np.str_),
        CHEXPERT_NATIVE,
        _labels(frame, uncertain, blank, path),
        patients=patients[kept],
        views=frame["AP/PA"].where(frame["Frontal/Lateral"] == "Frontal", "Lateral").to_numpy(dtype=np.str_),
    )
    table = narrow(native, classes, drop)
    if not images:
        return table
    ids = table.ids.tolist()
    files = {name: f"{path.parent}/{name}" for name in ids}
    found = {name: file for name, file in files.items() if os.path.exists(file)}  # noqa: PTH110  (much faster)
    return with_paths(table, ids, found, str(path.parent), missing, root)


def explain(root: Path, class_name: str, split: Split = "train", **options: Any) -> list[tuple[str, int, bool]]:
    """The file's own column behind a class, the images it brings, and that it counts; options as for `read`."""
    own = {synonym: name for name, synonym in SYNONYMS.items()}.get(class_name, class_name)
    return [(own, positives_of(read(root, split, images=False, **options), class_name), True)]


def _patients(names: list[str], labels: Path) -> Text:
    """(N) patients, from paths such as `CheXpert-v1.0/train/patient00001/study1/view1_frontal.jpg`."""
    parts = [name.split("/") for name in names]
    wrong = next((name for name, part in zip(names, parts, strict=True) if len(part) != 5), None)
    if wrong is not None:
        raise InputError(f"{labels}: the path {wrong!r} is not of the form SET/SPLIT/PATIENT/STUDY/IMAGE.")
    return np.asarray([part[2] for part in parts], dtype=np.str_)


def _held_out(patients: Text, fraction: float, seed: int) -> NDArray[np.bool_]:
    """(N) the patient is held out: drawn from a hash of the name, so that no other patient matters."""
    if not 0 < fraction < 1:
        raise InputError(f"held_out is {fraction:g}; it must lie between 0 and 1.")
    unique, rows = np.unique(patients, return_inverse=True)
    drawn = [
        int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest(), "big") / 2**64
        for name in unique
    ]
    return (np.asarray(drawn) < fraction)[rows]


def _labels(
    frame: pd.DataFrame, uncertain: str | Mapping[str, Uncertain], blank: Blank, labels: Path
) -> NDArray[np.float32]:
    """(N, 14) labels in the file's columns with uncertain and blank cells replaced."""
    cells = frame[list(CHEXPERT_NATIVE)].to_numpy(dtype=np.float32)
    wrong = ~(np.isnan(cells) | np.isin(cells, (-1, 0, 1)))
    if wrong.any():
        raise InputError(f"{labels} has the label {cells[wrong][0]:g}; expected 1, 0, -1 or nothing.")
    values = np.where(np.isnan(cells), VALUES[convert(blank, Blank, "blank")], cells)
    findings = [name not in (NO_FINDING, DEVICES) for name in CHEXPERT_NATIVE]
    nothing = cells[:, [CHEXPERT_NATIVE.index(NO_FINDING)]] == 1
    values = np.where(np.isnan(cells) & nothing & findings, 0, values)
    return np.where(cells == -1, _policies(uncertain), values).astype(np.float32)


def _policies(uncertain: str | Mapping[str, Uncertain]) -> list[float]:
    """What an uncertain label becomes in each of the 14 columns."""
    if isinstance(uncertain, str):
        return [VALUES[convert(uncertain, Uncertain, "uncertain")]] * len(CHEXPERT_NATIVE)
    known = {name: name for name in CHEXPERT_NATIVE} | {synonym: name for name, synonym in SYNONYMS.items()}
    unknown = [name for name in uncertain if name not in known]
    if unknown:
        raise InputError(f"uncertain: no class {unknown[0]!r}. Known: {', '.join(sorted(known))}.")
    chosen = {known[name]: convert(value, Uncertain, f"uncertain.{name}") for name, value in uncertain.items()}
    return [VALUES[chosen.get(name, "zeros")] for name in CHEXPERT_NATIVE]
