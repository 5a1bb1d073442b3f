"""Every source of images and labels by name. To add one, write its `read` and add a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bomd.data.datasets import chexpert, corrected, folder, mixture, nih, nih_google, openi, padchest, phantom
from bomd.data.label_files import read_table
from bomd.errors import InputError
from bomd.tables import LabelTable
from bomd.typed import arguments, convert, nearest, table


@dataclass(frozen=True)
class Dataset:
    """How to get the labels, and, where images are not files, how to draw them."""

    read: Callable[..., LabelTable]  # `read(root, split, ...)`; its arguments are the settings of the dataset
    people: str | None = None  # a patient name stands for one person within these; without it, within one root
    render: Callable[..., Any] | None = None  # `render(ids, size)` returns (N, size, size) uint8 pixels
    any_images: bool = False  # whether it may hold photographs; the others are radiographs, and grey


DATASETS: dict[str, Dataset] = {
    "phantom": Dataset(phantom.read, "phantom", phantom.render),
    "folder": Dataset(folder.read, any_images=True),
    "nih": Dataset(nih.read, "nih"),
    "nih-google": Dataset(nih_google.read, "nih"),
    "chexpert": Dataset(chexpert.read, "chexpert"),
    "openi": Dataset(openi.read, "openi"),
    "padchest": Dataset(padchest.read, "padchest"),
}
CORRECTIONS = ("labels_from", "labels_digest")  # a file of labels, and what it held when the run was planned
MIXTURE = "mixture"  # two of the above, each with its own settings under `base` and `part`


def read(source: Mapping[str, Any], where: str) -> tuple[LabelTable, Dataset]:
    """Read the labels of a recipe's `[train]` or `[test.*]` table: a dataset's name and its settings.

    Patients come with the name of their people before their own, so that tables of several sets can be compared.
    `labels_from` names a CSV whose labels take the place of the set's own, and `labels_digest` its content.
    """
    options = {name: value for name, value in source.items() if name not in CORRECTIONS}
    if "labels_from" in source:
        labels, dataset = read(options, where)
        corrections = read_corrections(source, labels, where)
        return labels if corrections is None else corrections.over(labels), dataset
    name = options.pop("dataset", None)
    if name is None:
        raise InputError(f"{where}: 'dataset' is needed. Known: {', '.join(sorted([*DATASETS, MIXTURE]))}.")
    name = convert(name, str, f"{where}.dataset")
    if name == MIXTURE:
        return _read_mixture(options, where)
    if name not in DATASETS:
        raise InputError(f"{where}: unknown dataset {name!r}.{nearest(name, [*DATASETS, MIXTURE])}")
    dataset = DATASETS[name]
    labels = dataset.read(**arguments(dataset.read, options, where))
    people = dataset.people or str(options.get("root"))
    return replace(labels, patients=np.char.add(f"{people}:", labels.groups)), dataset


def read_corrections(source: Mapping[str, Any], labels: LabelTable, where: str) -> corrected.Corrections | None:
    """What the file that `labels_from` names says of these labels of the set; None where it names none."""
    if "labels_from" not in source:
        return None
    path = convert(source["labels_from"], Path, f"{where}.labels_from")
    digest = convert(source.get("labels_digest"), str | None, f"{where}.labels_digest")
    own = partial(_read_own_form, source, labels.classes) if source.get("dataset") == "folder" else None
    return corrected.read_corrections(labels, path, digest, own)


def _read_own_form(options: Mapping[str, Any], classes: Sequence[str], file: Path) -> LabelTable:
    """A table with the columns of the folder's own one; a class that no row lists any more is nowhere."""
    frame, said = read_table(file), folder.Columns.among(options)
    if not set(said.classes or ()) <= set(frame.columns):
        said = replace(said, classes=None)  # they are listed in a column, and not all of them need occur in it
    layout = folder.understand(frame, file, folder.index_of(options["root"], options.get("images")), said)
    labels = folder.labels_of(layout)
    gone = [] if layout.label_column is None else [name for name in classes if name not in labels.classes]
    labelled = np.where(np.isnan(labels.values).all(axis=1), np.nan, 0)
    values = np.column_stack([labels.values, *([labelled] * len(gone))])
    return replace(labels, classes=(*labels.classes, *gone), values=values)


def _read_mixture(options: dict[str, Any], where: str) -> tuple[LabelTable, Dataset]:
    keys = (mixture.BASE, mixture.PART)
    for key in options:
        if key not in keys:
            raise InputError(f"{where}: unknown key {key!r}.{nearest(key, keys)}")
    for key in keys:
        if key not in options:
            raise InputError(f"{where}: {key!r} is needed, a table with a dataset of its own.")
    (base, dataset), (part, _) = (read(table(options[key], f"{where}.{key}"), f"{where}.{key}") for key in keys)
    return mixture.read(base, part), dataset
