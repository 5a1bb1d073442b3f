"""Sets in which every image has one class and no other: told from the labels, or by whoever knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from bomd.errors import InputError
from bomd.tables import LabelTable

Labels = Literal["auto", "single", "multi"]
EXPECTED = 3.0  # images with two findings that chance would have to bring about before it counts that there are none


def with_kind(table: LabelTable, labels: Labels = "auto", where: str = "The labels") -> LabelTable:
    """The table marked as one with a single label per image, or not.

    "single" or "multi" decides, and is refused where an image has several positive labels or a probability; "auto"
    takes them for single where every image has exactly one positive label, no label is unknown or a probability, and
    that is not to be expected of findings that come by chance. `where` names the table in errors.
    """
    if labels == "multi" or (labels == "auto" and not _looks_exclusive(table)):
        return replace(table, exclusive=False)
    if len(table.classes) < 2:
        raise InputError(f"{where}: one label per image needs at least two classes, and there is {len(table.classes)}.")
    positive = table.values == 1
    wrong = (positive.sum(axis=1) > 1) | ((table.values > 0) & ~positive).any(axis=1)
    if wrong.any():
        row = int(np.argmax(wrong))
        names = ", ".join(table.classes[column] for column in np.flatnonzero(table.values[row] > 0))
        raise InputError(
            f'{where}: image {str(table.ids[row])!r} has {names}, and labels = "single" allows one class, for certain '
            f"({int(wrong.sum())} such images)."
        )
    known = positive.any(axis=1)[:, None]  # an image without a class is not labelled
    return replace(table, values=np.where(known, positive, np.nan).astype(np.float32), exclusive=True)


def like_training(test: LabelTable, train: LabelTable, name: str) -> LabelTable:
    """A test set of the same kind as the training set; an error where it cannot be."""
    if not train.exclusive:
        return replace(test, exclusive=False)
    unknown = [one for one in test.classes if one not in train.classes]
    if unknown:
        raise InputError(
            f"Test set {name!r} has a class {unknown[0]!r} that the training set does not have; "
            f"with one label per image its classes must be among {', '.join(train.classes)}."
        )
    return with_kind(test.align(train.classes), "single", f"Test set {name!r}")


def _looks_exclusive(table: LabelTable) -> bool:
    positive = table.values == 1
    if not len(table) or not ((positive | (table.values == 0)).all() and (positive.sum(axis=1) == 1).all()):
        return False
    # "No Finding" excludes the others in any set, so that it says nothing.
    chance = positive[:, table.findings].mean(axis=0, dtype=np.float64)
    none = np.prod(1 - chance)
    one = sum(chance[column] * np.prod(np.delete(1 - chance, column)) for column in range(len(chance)))
    return bool(len(table) * (1 - none - one) >= EXPECTED)
