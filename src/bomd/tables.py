"""What flows between the rooms: labels, descriptors, flags and opinions, each checked when it is made.

Rows match by id and columns by class name, never by position. Nothing is edited in place, so the labels
that were given always survive beside the new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError
from bomd.files import read_arrays, write_arrays

NO_FINDING = "No Finding"  # the class that excludes all others and is left out of mean AUCs

Text = NDArray[np.str_]
Floats = NDArray[np.float32]


def brief(thing: Any) -> str:
    """A dataclass in one line, with arrays as their shape and type: what a reader at a prompt wants to see of it."""
    shown = []
    for item in fields(thing):
        value = getattr(thing, item.name)
        if isinstance(value, np.ndarray):
            shown.append(f"{item.name}={value.shape} {value.dtype}")
        elif value is not None:
            text = repr(value)
            shown.append(f"{item.name}={text if len(text) <= 100 else text[:99] + '…'}")
    return f"{type(thing).__name__}({', '.join(shown)})"


class Rows:
    """Something about each of N images, by their names: unique, and shown at a prompt without its numbers."""

    ids: Text

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", _text(self.ids))
        _refuse_duplicates(self.ids, "id")

    def __repr__(self) -> str:
        return brief(self)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False, repr=False)
class LabelTable(Rows):
    """Labels of N images for C classes: given, re-labelled or predicted.

    Attributes:
        ids: (N) unique names.
        classes: C unique names.
        values: (N, C) in [0, 1]; NaN means "not labelled".
        paths: (N) image files, where the images are files.
        patients: (N) who the image shows; without it every image counts as its own patient.
        views: (N) projection such as PA or AP.
        origins: (N) which set a row came from, where several were put together.
        confirmed: (N, C) labels that a person decided on: no method flags, changes or softens them.
        exclusive: Whether an image has one of the classes and no other; see `bomd.data.one_label`.

    Examples:
        >>> table = LabelTable(["a", "b"], ("Mass", "Edema"), [[1, 0], [0, float("nan")]], patients=["p1", "p2"])
        >>> table.select(["b"]).values.tolist()
        [[0.0, nan]]
    """

    ids: Text
    classes: tuple[str, ...]
    values: Floats
    paths: Text | None = None
    patients: Text | None = None
    views: Text | None = None
    origins: Text | None = None
    confirmed: NDArray[Any] | None = None
    exclusive: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "classes", tuple(map(str, self.classes)))
        object.__setattr__(self, "values", np.asarray(self.values, dtype=np.float32))
        object.__setattr__(self, "exclusive", bool(self.exclusive))
        for name, extra in self.extras().items():
            object.__setattr__(self, name, _text(extra))
            if len(extra) != len(self.ids):
                raise InputError(f"{len(extra)} {name} for {len(self.ids)} ids.")
        if self.values.shape != (len(self.ids), len(self.classes)):
            raise InputError(
                f"Labels have shape {self.values.shape}, expected {len(self.ids)} ids by {len(self.classes)} classes."
            )
        if self.confirmed is not None:
            object.__setattr__(self, "confirmed", np.asarray(self.confirmed, dtype=np.bool_))
            if self.confirmed.shape != self.values.shape:
                raise InputError(f"Confirmed labels have shape {self.confirmed.shape}, labels {self.values.shape}.")
        _refuse_duplicates(np.asarray(self.classes, dtype=np.str_), "class")
        if np.fmin.reduce(self.values, None, initial=0) < 0 or np.fmax.reduce(self.values, None, initial=1) > 1:
            wrong = (self.values < 0) | (self.values > 1)
            row, column = (int(index[0]) for index in np.nonzero(wrong))
            raise InputError(
                f"Label {self.values[row, column]:g} of image {str(self.ids[row])!r}, "
                f"class {self.classes[column]!r} is outside [0, 1] ({int(wrong.sum())} such labels)."
            )

    def __repr__(self) -> str:
        positive, unknown = int((self.values >= 0.5).sum()), int(np.isnan(self.values).sum())
        shown = ", ".join([*self.classes[:3], *(["…"] if len(self.classes) > 3 else [])])
        rest = f", {unknown:,} not labelled" if unknown else ""
        return f"LabelTable: {len(self):,} images, {len(self.classes)} classes ({shown}), {positive:,} positive{rest}"

    @property
    def findings(self) -> NDArray[np.intp]:
        """Columns of the findings, that is of every class but "No Finding"."""
        return np.asarray([i for i, name in enumerate(self.classes) if name != NO_FINDING], dtype=np.intp)

    @property
    def groups(self) -> Text:
        """(N) what must stay together in a split: the patient, or the image where patients are unknown."""
        return self.ids if self.patients is None else self.patients

    def extras(self) -> dict[str, Text]:
        """The optional columns of text that are there, by name."""
        columns = {name: getattr(self, name) for name in ("paths", "patients", "views", "origins")}
        return {name: column for name, column in columns.items() if column is not None}

    def marks(self) -> dict[str, NDArray[np.bool_]]:
        """What a file has to say of the table as a whole, by name; nothing of most."""
        return {"exclusive": np.asarray(True)} if self.exclusive else {}

    def take(self, rows: NDArray[Any] | Sequence[int]) -> LabelTable:
        """The table of these rows, in this order; a boolean mask works too."""
        index = np.asarray(rows)
        if not index.size:
            index = index.astype(np.intp)  # an empty list has no type of its own
        extras = {name: column[index] for name, column in self.extras().items()}
        confirmed = None if self.confirmed is None else self.confirmed[index]
        return replace(self, ids=self.ids[index], values=self.values[index], confirmed=confirmed, **extras)

    def select(self, ids: Sequence[str] | Text) -> LabelTable:
        """The rows with these ids, in this order."""
        return self.take(rows_of(self.ids, _text(ids)))

    def align(self, classes: Sequence[str]) -> LabelTable:
        """The same rows with exactly these classes; a class that is not here becomes NaN."""
        known = [column for column, name in enumerate(classes) if name in self.classes]
        own = [self.classes.index(classes[column]) for column in known]
        values = np.full((len(self), len(classes)), np.nan, dtype=np.float32)
        values[:, known] = self.values[:, own]
        confirmed = None if self.confirmed is None else np.zeros(values.shape, dtype=np.bool_)
        if confirmed is not None and self.confirmed is not None:
            confirmed[:, known] = self.confirmed[:, own]
        return replace(self, classes=tuple(classes), values=values, confirmed=confirmed)

    def replace(self, values: NDArray[Any]) -> LabelTable:
        """The same images and classes with other values."""
        return replace(self, values=np.asarray(values, dtype=np.float32))

    def save(self, path: Path) -> None:
        columns = {"ids": self.ids, "classes": np.asarray(self.classes, dtype=np.str_), "values": self.values}
        if self.confirmed is not None:
            columns["confirmed"] = self.confirmed
        write_arrays(path, columns | self.extras() | self.marks())

    @classmethod
    def load(cls, path: Path) -> LabelTable:
        columns: dict[str, Any] = dict(read_arrays(path))
        try:
            ids, classes, values = (columns.pop(name) for name in ("ids", "classes", "values"))
            return cls(ids, tuple(classes), values, **columns)
        except (KeyError, TypeError) as error:
            raise InputError(f"{path} is not a label table: {error}.") from error


@dataclass(frozen=True, eq=False, repr=False)
class Descriptors(Rows):
    """M vectors of D numbers for each of N images; `values` may be a memory map.

    Attributes:
        ids: (N) unique names.
        values: (N, M, D) float32, finite.
    """

    ids: Text
    values: Floats

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.values.ndim != 3 or len(self.values) != len(self.ids):
            raise InputError(f"Descriptors have shape {self.values.shape}, expected ({len(self.ids)}, M, D).")
        for start in range(0, len(self.ids), 4096):  # a chunk at a time: the array may be larger than memory
            finite = np.isfinite(self.values[start : start + 4096]).all(axis=(1, 2))
            if not finite.all():
                first = str(self.ids[start + int(np.argmin(finite))])
                raise InputError(f"Descriptors of image {first!r} are not finite.")


@dataclass(frozen=True, eq=False, repr=False)
class Flags(Rows):
    """Which images and which single labels look wrong; lower scores are more suspect.

    Attributes:
        ids: (N) unique names.
        noisy: (N) the image breaks the rank rule.
        margin: (N) lowest positive score minus highest negative score; NaN where the rule cannot be applied.
        entry: (N, C) the same for each label on its own; NaN where it cannot be applied.
    """

    ids: Text
    noisy: NDArray[np.bool_]
    margin: Floats
    entry: Floats

    def __post_init__(self) -> None:
        super().__post_init__()
        if not len(self.ids) == len(self.noisy) == len(self.margin) == len(self.entry):
            raise InputError("Flags need one row per id in every column.")

    def __repr__(self) -> str:
        return f"Flags: {int(self.noisy.sum()):,} of {len(self):,} images look wrong"


@dataclass(frozen=True, eq=False, repr=False)
class Opinion(Rows):
    """What a run thinks of every given label: the one answer that tables, pages and exports show.

    Attributes:
        ids: (N) unique names.
        wrong: (N, C) probability that the given label is wrong; NaN where it was not judged.
        proposed: (N, C) what a person is asked to accept, 0 or 1; NaN where nothing is labelled.
        expected: (N) how many labels of findings are expected to be wrong.
        rank: (N) place in the order of review, from 1: images in which most is likely wrong come first.
        learnt: (C) whether the evidence tells this class apart at all; nothing is proposed for others.
        reasons: What was decided and why, in sentences.
    """

    ids: Text
    wrong: Floats
    proposed: Floats
    expected: Floats
    rank: NDArray[np.int64]
    learnt: NDArray[np.bool_]
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wrong.shape != self.proposed.shape or self.wrong.shape != (len(self.ids), len(self.learnt)):
            raise InputError(f"An opinion needs one row per id and one column per class, not {self.wrong.shape}.")
        if not len(self.ids) == len(self.expected) == len(self.rank):
            raise InputError("An opinion needs one number per image.")


def rows_of(ids: Text, wanted: Text) -> NDArray[np.intp]:
    """Row in `ids` of each wanted id; one that is not there is an error that names it."""
    order = np.argsort(ids, kind="stable")
    place = np.searchsorted(ids, wanted, sorter=order)
    place[place == len(ids)] = 0
    rows = order[place] if len(ids) else place  # of nothing, nothing is wanted, or it is missing
    missing = ids[rows] != wanted if len(ids) else np.ones(len(wanted), dtype=bool)
    if missing.any():
        first = str(wanted[np.argmax(missing)])
        raise InputError(f"No row for id {first!r} ({int(missing.sum())} ids are missing).")
    return rows


def _text(column: Any) -> Text:
    return np.asarray(column).astype(np.str_, copy=False)


def _refuse_duplicates(names: Text, what: str) -> None:
    unique, counts = np.unique(names, return_counts=True)
    if len(unique) != len(names):
        repeated = int((counts > 1).sum())
        raise InputError(f"Duplicate {what} {str(unique[np.argmax(counts)])!r} ({repeated} occur more than once).")
