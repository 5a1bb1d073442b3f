"""Every source of images and labels by name. To add one, write its `read` and add a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bomd.data.datasets import folder, phantom
from bomd.errors import InputError
from bomd.tables import LabelTable
from bomd.typed import arguments, nearest


@dataclass(frozen=True)
class Dataset:
    """How to get the labels, and, where images are not files, how to draw them.

    Attributes:
        read: `read(root, split, ...)` returns the labels; its arguments are the settings of the dataset.
        render: `render(ids, size)` returns (N, size, size) uint8 pixels.
    """

    read: Callable[..., LabelTable]
    render: Callable[..., Any] | None = None


DATASETS: dict[str, Dataset] = {
    "phantom": Dataset(phantom.read, phantom.render),
    "folder": Dataset(folder.read),
}


def read(source: Mapping[str, Any], where: str) -> tuple[LabelTable, Dataset]:
    """Read the labels of a recipe's `[train]` or `[test.*]` table: a dataset's name and its settings."""
    options = dict(source)
    name = options.pop("dataset", None)
    if name is None:
        raise InputError(f"{where}: 'dataset' is needed. Known: {', '.join(sorted(DATASETS))}.")
    if name not in DATASETS:
        raise InputError(f"{where}: unknown dataset {name!r}.{nearest(str(name), DATASETS)}")
    dataset = DATASETS[name]
    return dataset.read(**arguments(dataset.read, options, where)), dataset
