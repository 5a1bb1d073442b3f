"""NIH ChestX-ray14: 112,120 frontal images whose labels were mined from reports.

As downloaded: `Data_Entry_2017_v2020.csv` (or `Data_Entry_2017.csv`, or either with `.gz`), the lists
`train_val_list.txt` and `test_list.txt`, and PNG images in `images/` or in `images_001/images/` to
`images_012/images/`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bomd.data.datasets.classes import NIH_NATIVE, ClassList, Drop, narrow
from bomd.data.datasets.finding_terms import ImageTerms
from bomd.data.datasets.layout import Missing, check_folder, find_file, index_images, read_csv, texts, with_paths
from bomd.errors import InputError
from bomd.tables import LabelTable
from bomd.typed import convert

Split = Literal["train", "test", "all"]
LABELS = ("Data_Entry_2017_v2020.csv", "Data_Entry_2017.csv")
LISTS = {"train": "train_val_list.txt", "test": "test_list.txt"}


def read(
    root: Path,
    split: Split = "train",
    *,
    classes: ClassList = "nih",
    drop: Drop = "rows",
    lists: Path | None = None,
    images: bool = True,
    missing: Missing = "error",
) -> LabelTable:
    """Read the labels, patients, views and image paths of ChestX-ray14.

    Args:
        root: the folder as downloaded.
        split: `train` and `test` are the official lists (86,524 and 25,596 images); `all` needs no list.
        classes: `nih`: the paper's 14 columns; `chexpert`: its 8, of which Fracture is NaN here; `native`:
            the 15 of the file, with no row dropped.
        drop: `rows`, as in the paper, drops every image with Consolidation (86,524 -> 83,672 in `train`);
            `columns` drops the column and only the images that are then left without a label.
        lists: folder of the official lists, where it is not `root`.
        images: False reads labels alone and leaves `paths` out.
        missing: `error` refuses a set of which images are missing; `drop` goes on with those that are there.
    """
    root = check_folder(root)
    path = find_file([root], LABELS, "Pass the folder that holds it as root.")
    frame = read_csv(path, ["Image Index", "Finding Labels", "Patient ID", "View Position"])
    if convert(split, Split, "split") != "all":
        frame = frame[_in_list(frame["Image Index"], split, path, check_folder(lists or root))]
    index, listed = pd.factorize(frame["Finding Labels"])
    terms = ImageTerms(tuple(frozenset(text.split("|")) for text in listed), index)
    unknown = sorted(set(terms.count()) - set(NIH_NATIVE))
    if unknown:
        raise InputError(f"{path} has the finding {unknown[0]!r}, which ChestX-ray14 does not have.")
    ids, patients, views = texts(frame, "Image Index", "Patient ID", "View Position")
    values = terms.positives({name: [name] for name in NIH_NATIVE})
    native = LabelTable(ids, NIH_NATIVE, values, patients=patients, views=views)
    table = narrow(native, classes, drop)
    return add_images(table, root, missing) if images else table


def add_images(table: LabelTable, root: Path, missing: Missing) -> LabelTable:
    """The table with the image files in `root`, whose names are the ids."""
    folders = [folder for folder in sorted(root.glob("images*")) if folder.is_dir()]
    nested = [folder / "images" if (folder / "images").is_dir() else folder for folder in folders]
    where = f"{root}/images or {root}/images_001/images and so on"
    return with_paths(table, table.ids.tolist(), index_images(nested), where, missing, root)


def _in_list(names: pd.Series[str], split: str, labels: Path, folder: Path) -> NDArray[np.bool_]:
    """(N) the image is in the official list; the label file may hold fewer images than the list."""
    remedy = 'Pass the folder of the official lists as lists, or split="all".'
    path = find_file([folder], [LISTS[split]], remedy)
    listed = names.isin(frozenset(path.read_text(encoding="utf-8").split())).to_numpy(dtype=bool)
    if not listed.any():
        raise InputError(f"No image of {labels} is in {path}: is it the right list?")
    return listed
