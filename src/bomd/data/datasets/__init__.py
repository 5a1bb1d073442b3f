"""Every source of images and labels by name. To add one, write its `read` and add a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bomd.data.datasets import chexpert, corrected, folder, mixture, nih, nih_google, openi, padchest, phantom
from bomd.errors import InputError
from bomd.tables import LabelTable
from bomd.typed import arguments, convert, nearest, table


@dataclass(frozen=True)
class Dataset:
    """How to get the labels, and, where images are not files, how to draw them.

    Attributes:
        read: `read(root, split, ...)` returns the labels; its arguments are the settings of the dataset.
        people: Whom the set shows: a patient name stands for one person within it. Without it, within one root.
        render: `render(ids, size)` returns (N, size, size) uint8 pixels.
    """

    read: Callable[..., LabelTable]
    people: str | None = None
    render: Callable[..., Any] | None = None


DATASETS: dict[str, Dataset] = {
    "phantom": Dataset(phantom.read, "phantom", phantom.render),
    "folder": Dataset(folder.read),
    "nih": Dataset(nih.read, "nih"),
    "nih-google": Dataset(nih_google.read, "nih"),
    "chexpert": Dataset(chexpert.read, "chexpert"),
    "openi": Dataset(openi.read, "openi"),
    "padchest": Dataset(padchest.read, "padchest"),
}
MIXTURE = "mixture"  # two of the above, each with its own settings under `base` and `part`


def read(source: Mapping[str, Any], where: str) -> tuple[LabelTable, Dataset]:
    """Read the labels of a recipe's `[train]` or `[test.*]` table: a dataset's name and its settings.

    Patients come with the name of their people before their own, so that tables of several sets can be compared.
    `labels_from` names a CSV whose labels take the place of the set's own, and `labels_digest` its content.
    """
    options = dict(source)
    if "labels_from" in options:
        path = convert(options.pop("labels_from"), Path, f"{where}.labels_from")
        digest = convert(options.pop("labels_digest", None), str | None, f"{where}.labels_digest")
        labels, dataset = read(options, where)
        return corrected.correct(labels, path, digest), dataset
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
