"""What a run leaves behind for people and reports: labels, predictions and a few pictures, without any model.

labels.npz       given, clean (where known) and proposed labels, flags, neighbours
predictions.npz  truth and scores of every test set and of the held-out patients
examples.npz     thumbnails of flagged images and of their neighbours
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bomd.data.images import fit_square
from bomd.data.noise import NoisyLabels
from bomd.data.store import Store
from bomd.errors import InputError
from bomd.files import read_arrays, write_arrays
from bomd.tables import Flags, LabelTable, brief, rows_of

if TYPE_CHECKING:  # reports read records without PyTorch
    from bomd.methods.base import Prepared

THUMBNAIL = 128  # pixels; enough to see a finding, small enough for a page of them
SUSPECTS, RANDOM = 12, 12  # examples from the top of the list, and drawn from all of it to be fair
REVIEWED = 24  # examples from the top of the order of review, where people go through it
SHOWN_NEIGHBOURS = 5


@dataclass(frozen=True)
class LabelRecord:
    """The labels of the training images before and after.

    Attributes:
        given: As the method got them.
        proposed: As the classifier learnt them.
        clean: The truth, where noise was added on purpose.
        exposed: (N) whether noise could fall on the row, where it was added on purpose.
        neighbours: (N, K) rows of the images that voted; -1 where there are fewer.
        scores: (N, C) how well each label fits, on the method's own scale.
        classifier: (N, C) probabilities by the trained classifier, which has seen these images.
    """

    given: LabelTable
    proposed: LabelTable
    clean: LabelTable | None = None
    exposed: NDArray[np.bool_] | None = None
    flags: Flags | None = None
    neighbours: NDArray[np.int64] | None = None
    scores: NDArray[np.float32] | None = None
    classifier: NDArray[np.float32] | None = None

    def __repr__(self) -> str:
        return brief(self)

    def save(self, path: Path) -> None:
        columns: dict[str, NDArray[Any]] = {
            "ids": self.given.ids,
            "classes": np.asarray(self.given.classes, dtype=np.str_),
            "patients": self.given.groups,
            "given": self.given.values,
            "proposed": self.proposed.values,
        }
        if self.clean is not None and self.exposed is not None:
            columns |= {"clean": self.clean.values, "exposed": self.exposed}
        if self.flags is not None:
            columns |= {"noisy": self.flags.noisy, "margin": self.flags.margin, "entry": self.flags.entry}
        if self.neighbours is not None:
            columns["neighbours"] = self.neighbours
        if self.scores is not None:
            columns["scores"] = self.scores
        if self.classifier is not None:
            columns["classifier"] = self.classifier
        if self.given.paths is not None:
            columns["paths"] = self.given.paths
        if self.given.confirmed is not None:
            columns["confirmed"] = self.given.confirmed
        write_arrays(path, columns)

    @classmethod
    def load(cls, path: Path) -> LabelRecord:
        columns = read_arrays(path)
        try:
            names = tuple(str(name) for name in columns["classes"])
            given = LabelTable(
                columns["ids"],
                names,
                columns["given"],
                paths=columns.get("paths"),
                patients=columns["patients"],
                confirmed=columns.get("confirmed"),
            )
            return cls(
                given=given,
                proposed=given.replace(columns["proposed"]),
                clean=given.replace(columns["clean"]) if "clean" in columns else None,
                exposed=columns.get("exposed"),
                flags=Flags(given.ids, columns["noisy"], columns["margin"], columns["entry"])
                if "noisy" in columns
                else None,
                neighbours=columns.get("neighbours"),
                scores=columns.get("scores"),
                classifier=columns.get("classifier"),
            )
        except KeyError as error:
            raise InputError(f"{path} is not a label record: it has no {error}.") from error


def label_record(
    given: LabelTable,
    prepared: Prepared,
    noise: NoisyLabels | None,
    classifier: NDArray[np.float32] | None = None,
) -> LabelRecord:
    """Gather what a method found out about the training labels."""
    return LabelRecord(
        given=given,
        proposed=given.replace(np.clip(prepared.targets, 0, 1)),
        clean=None if noise is None else noise.clean.select(given.ids),
        exposed=None if noise is None else noise.exposed[rows_of(noise.clean.ids, given.ids)],
        flags=prepared.flags,
        neighbours=None if prepared.neighbours is None else prepared.neighbours.indices,
        scores=prepared.scores,
        classifier=classifier,
    )


def save_predictions(path: Path, truths: Mapping[str, LabelTable], scores: Mapping[str, LabelTable]) -> None:
    """Save truth and scores of each test set under its name."""
    columns: dict[str, NDArray[Any]] = {}
    for name, truth in truths.items():
        columns |= {
            f"{name}/ids": truth.ids,
            f"{name}/classes": np.asarray(truth.classes, dtype=np.str_),
            f"{name}/patients": truth.groups,
            f"{name}/truth": truth.values,
            f"{name}/scores": scores[name].values,
        }
    write_arrays(path, columns)


def load_predictions(path: Path) -> dict[str, tuple[LabelTable, LabelTable]]:
    """Truth and scores of each test set by name."""
    columns = read_arrays(path)
    loaded = {}
    for name in [key.removesuffix("/ids") for key in columns if key.endswith("/ids")]:
        classes = tuple(str(item) for item in columns[f"{name}/classes"])
        truth = LabelTable(
            columns[f"{name}/ids"], classes, columns[f"{name}/truth"], patients=columns[f"{name}/patients"]
        )
        loaded[name] = (truth, truth.replace(columns[f"{name}/scores"]))
    return loaded


@dataclass(frozen=True)
class Examples:
    """Flagged images to look at, with the images that voted on them.

    Attributes:
        flagged: (F) rows of the label record, the most suspect first.
        chosen: (F) "most suspect" or "random".
        rows: (E) rows of the label record that have a thumbnail.
        pixels: (E, size, size) uint8 thumbnails.
    """

    flagged: NDArray[np.int64]
    chosen: NDArray[np.str_]
    rows: NDArray[np.int64]
    pixels: NDArray[np.uint8]

    def save(self, path: Path) -> None:
        write_arrays(path, {"flagged": self.flagged, "chosen": self.chosen, "rows": self.rows, "pixels": self.pixels})

    @classmethod
    def load(cls, path: Path) -> Examples:
        columns = read_arrays(path)
        return cls(columns["flagged"], columns["chosen"], columns["rows"], columns["pixels"])


def choose_examples(record: LabelRecord, store: Store, seed: int, rank: NDArray[np.int64] | None = None) -> Examples:
    """Take the most suspect images and some drawn at random from all others that are flagged.

    Args:
        record: Labels, flags and neighbours.
        store: The packed images.
        seed: Of the draw.
        rank: (N) place of each image in the order of review, whose beginning is then taken; else the lowest margins.
    """
    flags = record.flags
    rows = np.flatnonzero(flags.noisy) if flags is not None else np.zeros(0, dtype=np.int64)
    if flags is not None:
        rows = rows[np.argsort((flags.margin if rank is None else rank)[rows], kind="stable")]
    first, rest = np.split(rows, [SUSPECTS if rank is None else REVIEWED])
    drawn = np.random.default_rng(seed).choice(rest, size=min(RANDOM, len(rest)), replace=False)
    flagged = np.concatenate([first, drawn]).astype(np.int64)
    chosen = np.asarray(["most suspect"] * len(first) + ["random"] * len(drawn), dtype="<U12")
    wanted = [flagged]
    if record.neighbours is not None:
        wanted.append(record.neighbours[flagged, :SHOWN_NEIGHBOURS].ravel())
    pictured = np.unique(np.concatenate(wanted))
    pictured = pictured[pictured >= 0].astype(np.int64)
    size = min(THUMBNAIL, store.size)
    pixels = np.zeros((len(pictured), size, size), dtype=np.uint8)
    for place, row in enumerate(store.rows(record.given.ids[pictured])):
        pixels[place] = fit_square(np.asarray(store.images[row]), size)
    return Examples(flagged, chosen, pictured, pixels)
