"""A dataset chosen by its name, with arguments for its reader: what is verified, packed and counted."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bomd.data import verify as checks
from bomd.data.datasets import DATASETS, Dataset, folder
from bomd.data.datasets.classes import positives_of
from bomd.data.datasets.declared import DECLARED, OPTIONS
from bomd.data.datasets.layout import check_folder
from bomd.errors import InputError
from bomd.tables import LabelTable
from bomd.typed import arguments, nearest

# Arguments of readers that say where files are, and so do not change what the published labels must count.
PLACES = ("root", "images", "lists", "images_root", "reports", "projections")
WHOLE = "all"  # what a set without splits is called in a table


@dataclass(frozen=True)
class Chosen:
    """A dataset and how to read it."""

    name: str
    options: Mapping[str, Any]  # arguments of its reader, checked, without the split
    splits: tuple[str | None, ...]  # the one that was asked for or all that the set has; None reads the whole set

    @property
    def dataset(self) -> Dataset:
        return DATASETS[self.name]

    @property
    def reads_labels_alone(self) -> bool:
        """Whether the reader can do without images, and go on where some are missing."""
        return "missing" in self._parameters

    @property
    def incomparable(self) -> str | None:
        """The first argument with which the published counts cannot be expected, as `key=value`."""
        if self.name not in DECLARED:
            return None
        usual = {key: parameter.default for key, parameter in self._parameters.items()} | self._as_declared
        changed = (key for key, value in self.options.items() if key not in PLACES and value != usual[key])
        return next((f"{key}={self.options[key]}" for key in changed), None)

    def tables(self, *, images: bool = True) -> dict[str, LabelTable]:
        """The labels of each split; without images where they are not wanted and the reader can do without."""
        alone = {} if images or not self.reads_labels_alone else {"images": False}
        return {split or WHOLE: self.dataset.read(split=split, **{**self.options, **alone}) for split in self.splits}

    def verify(self, *, deep: bool = False) -> checks.Verification:
        """Check labels and images, and the counts against the published ones where these can be expected."""
        if "missing" in self.options:
            raise InputError("verify looks for every image, so 'missing' cannot be set.")
        declared = None
        if self.name in DECLARED and self.incomparable is None:
            declared = {split: DECLARED[self.name][split] for split in self.splits if split in DECLARED[self.name]}
        options = {**self._as_declared, **self.options}
        if not self.reads_labels_alone or not options.get("images", True):
            return checks.verify_tables(replace(self, options=options).tables(), declared=declared, deep=deep)
        splits = [split for split in self.splits if split is not None]
        return checks.verify(self.dataset.read, splits=splits, declared=declared, deep=deep, **options)

    def terms_behind(self, class_name: str, split: str | None) -> list[tuple[str, int, bool]]:
        """Raw terms of a class, the images each brings, and whether it counts or only sounds like the class."""
        explain = getattr(inspect.getmodule(self.dataset.read), "explain", None)  # beside `read` where labels are terms
        if explain is None:
            (table,) = replace(self, splits=(split,)).tables(images=False).values()
            return [(class_name, positives_of(table, class_name), True)]
        options = {key: value for key, value in self.options.items() if key not in ("images", "missing")}
        found: list[tuple[str, int, bool]] = explain(class_name=class_name, split=split, **options)
        return found

    @property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.dataset.read).parameters

    @property
    def _as_declared(self) -> dict[str, Any]:
        """Arguments with which the published counts were read, in columns whose contradictions no reader refuses."""
        return {"classes": "native", **OPTIONS.get(self.name, {})} if self.name in DECLARED else {}


def choose(name: str, root: Path | None = None, options: Mapping[str, Any] | None = None) -> Chosen:
    """Find a dataset by name and check the arguments for its reader; `split` among them limits the splits."""
    if name not in DATASETS:
        raise InputError(f"Unknown dataset {name!r}.{nearest(name, DATASETS)}")
    read = DATASETS[name].read
    given = {**(options or {}), **({} if root is None else {"root": str(check_folder(root))})}
    if "root" not in given and inspect.signature(read).parameters["root"].default is inspect.Parameter.empty:
        raise InputError(f"{name}: the folder of the dataset is needed (--root DIR).")
    chosen = arguments(read, given, name)
    if "split" in chosen:
        return Chosen(name, chosen, (chosen.pop("split"),))
    return Chosen(name, chosen, _all_splits(name, chosen))


def _all_splits(name: str, options: Mapping[str, Any]) -> tuple[str | None, ...]:
    read = DATASETS[name].read
    hint = typing.get_type_hints(read)["split"]
    if typing.get_origin(hint) is Literal:
        return tuple(split for split in typing.get_args(hint) if split != "all")
    if name == "folder":
        labels, images = options.get("labels"), options.get("images")
        layout = folder.describe(options["root"], labels, images, folder.Columns.among(options))
        if layout.split_column is not None:
            return tuple(sorted(set(layout.frame[layout.split_column].str.strip())))
    return (inspect.signature(read).parameters["split"].default,)


def count_labels(table: LabelTable) -> list[tuple[str, int, int, int]]:
    """Each class with its positives, its negatives and the images that are not labelled for it."""
    positives = (table.values >= 0.5).sum(axis=0).tolist()
    unlabelled = np.isnan(table.values).sum(axis=0).tolist()
    return [
        (name, positive, len(table) - positive - unknown, unknown)
        for name, positive, unknown in zip(table.classes, positives, unlabelled, strict=True)
    ]
