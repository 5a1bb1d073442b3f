"""Open a run for review: its labels, its packed images, and what speaks for and against every label."""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bomd.clean.relabel import neighbour_mean
from bomd.data.datasets import DATASETS
from bomd.data.images import Pixels
from bomd.data.store import Store, open_store
from bomd.errors import InputError
from bomd.files import read_json
from bomd.measure.proposals import propose
from bomd.measure.records import LabelRecord
from bomd.measure.suspicion import suspicion_of
from bomd.tables import LabelTable, Text

UNKNOWN = -1  # a label that nobody has given
SHOWN_NEIGHBOURS = 10

Labels = NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Evidence:
    """A finished run as reviewers see it.

    Attributes:
        directory: The run.
        record: Its labels, flags, neighbours and scores.
        store: Its packed images.
        places: (N) row of each image in the store.
        given: (N, C) 1, 0 or `UNKNOWN`.
        proposed: (N, C) likewise; it differs from `given` on queued images alone.
        votes: (N, C) share of the neighbours that have the class; NaN where there is none.
        rows: (Q) the images to review.
        suspicion: (N) at least 0; the most suspect image has the highest.
        originals: Whether the image files that the record names are shown where they are there.
    """

    directory: Path
    record: LabelRecord
    store: Store
    places: NDArray[np.intp]
    given: Labels
    proposed: Labels
    votes: NDArray[np.float32] | None
    rows: NDArray[np.intp]
    suspicion: NDArray[np.float32]
    originals: bool = True

    def __len__(self) -> int:
        return len(self.given)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.record.given.classes

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        """Row of each id."""
        return {name: row for row, name in enumerate(self.record.given.ids.tolist())}

    @functools.cached_property
    def patients(self) -> Text | None:
        """(N) who the images show."""
        return patients_of(self.record.given)

    @property
    def added(self) -> NDArray[np.bool_]:
        """(N, C) labels that the proposal adds."""
        return np.asarray((self.proposed == 1) & (self.given == 0))

    @property
    def removed(self) -> NDArray[np.bool_]:
        """(N, C) labels that the proposal takes away."""
        return np.asarray((self.proposed == 0) & (self.given == 1))

    def packed(self, row: int) -> Pixels:
        """(size, size) the packed picture, which networks have seen."""
        return np.asarray(self.store.images[self.places[row]])

    def patient(self, row: int) -> str | None:
        """Who an image shows, where the table says so; else every image counts as its own patient."""
        return None if self.patients is None else str(self.patients[row])

    def neighbours(self, row: int) -> list[int]:
        """Rows of the images that voted on this one, nearest first."""
        if self.record.neighbours is None:
            return []
        return [int(other) for other in self.record.neighbours[row, :SHOWN_NEIGHBOURS] if other >= 0]

    def facts(self, row: int) -> dict[str, Any]:
        """All that is known about one image, as plain values; a number that is not known is None."""
        record, flags = self.record, self.record.flags
        scores = None if record.scores is None else record.scores[row]
        ranks = None if scores is None else (np.argsort(np.argsort(-scores, kind="stable")) + 1).tolist()
        labels = [
            {
                "given": int(self.given[row, column]),
                "proposed": int(self.proposed[row, column]),
                "soft": _number(record.proposed.values, row, column),
                "votes": _number(self.votes, row, column),
                "score": _number(record.scores, row, column),
                "rank": None if ranks is None else ranks[column],
                "classifier": _number(record.classifier, row, column),
                "suspicion": None if flags is None else _number(flags.entry, row, column),
            }
            for column in range(len(self.classes))
        ]
        return {
            "number": row,
            "id": str(record.given.ids[row]),
            "patient": self.patient(row),
            "margin": None if flags is None else _number(flags.margin[:, None], row, 0),
            "labels": labels,
            "neighbours": [
                {
                    "number": other,
                    "id": str(record.given.ids[other]),
                    "labels": np.flatnonzero(self.given[other] == 1).tolist(),
                    "same_patient": bool(record.given.groups[other] == record.given.groups[row]),
                }
                for other in self.neighbours(row)
            ],
        }


def only_run(place: Path) -> Path:
    """The run directory that is meant: this one, the latest of an audit, or the only one below it."""
    if (place / "labels.npz").exists() or not place.is_dir():
        return place
    if (place / "audit.json").is_file():
        facts = read_json(place / "audit.json")
        run = place / str(facts.get("run")) if isinstance(facts, dict) else place
        if (run / "labels.npz").is_file() and run.resolve().is_relative_to(place.resolve()):
            return run
    found = sorted(file.parent for file in place.glob("**/labels.npz") if (file.parent / "result.json").exists())
    if len(found) > 1:
        raise InputError(f"{len(found)} runs are in {place}, such as {found[0]} and {found[1]}: name one of them.")
    return found[0] if found else place


def load_record(directory: Path) -> LabelRecord:
    """The labels of a run, with patients as its table names them.

    A run puts the name of the dataset or the folder of the table before the names of its patients, to tell those of
    several tables apart. That says nothing to a reviewer and has no place in a file that is passed on.
    """
    record = LabelRecord.load(directory / "labels.npz")
    if record.given.patients is None or not (directory / "config.json").is_file():
        return record
    try:
        train = read_json(directory / "config.json")["config"]["train"]
        people = DATASETS[train["dataset"]].people or str(train["root"])
    except (KeyError, TypeError):  # such as a mixture, whose patients need their origin
        return record
    folder = f"{people}:"
    patients = [str(patient).removeprefix(folder) for patient in record.given.patients]
    return replace(record, given=replace(record.given, patients=np.asarray(patients, dtype=np.str_)))


def patients_of(table: LabelTable) -> Text | None:
    """(N) patients, where they are known; a run puts the names of the images in their place where they are not."""
    return None if table.patients is None or (table.patients == table.ids).all() else table.patients


def open_evidence(directory: Path, *, originals: bool | None = None) -> Evidence:
    """Open a finished run.

    Args:
        directory: The run directory.
        originals: Show the image files that the record names instead of the packed images; by default where there
            are such files.

    Raises:
        InputError: It is no run, it has no packed images, or there is nothing to review in it.
    """
    if not (directory / "labels.npz").is_file():
        raise InputError(f"No run to review in {directory}: expected a run directory with labels.npz.")
    if not (directory / "images.json").is_file():
        raise InputError(f"{directory} does not say where its images are: run it again with this version of bomd.")
    record = load_record(directory)
    if originals and record.given.paths is None:
        raise InputError(f"{directory} names no image files: leave out --originals.")
    facts = read_json(directory / "images.json")
    if not isinstance(facts, dict) or not isinstance(facts.get("store"), str):
        raise InputError(f"{directory / 'images.json'} does not name a store of images: run it again.")
    store = open_store(directory / facts["store"], expected=facts.get("fingerprint"))
    _check(record, directory)
    given = _hard(record.given.values)
    votes = None
    if record.neighbours is not None:
        votes = neighbour_mean(record.given.values, record.neighbours).astype(np.float32)
    proposed = _propose(record, given)
    queued = record.flags.noisy if record.flags is not None else (proposed != given).any(axis=1)
    rows = np.flatnonzero(queued)
    if not len(rows):
        raise InputError(f"Nothing to review in {directory}: no image is flagged and no label is to change.")
    suspicion = _suspicion(record)
    places = store.rows(record.given.ids)
    return Evidence(directory, record, store, places, given, proposed, votes, rows, suspicion, originals is not False)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """A picture, (H, W) grey or (H, W, 4) colour with transparency, as a PNG file."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="png", compress_level=1)
    return stream.getvalue()


def tint(heat: NDArray[Any]) -> NDArray[np.uint8]:
    """(H, W, 4) a heat map in [0, 1] as a layer: nothing where it is cold, amber to red where it is hot."""
    warm = np.clip(np.nan_to_num(np.asarray(heat, dtype=np.float32)), 0, 1)
    layer = np.empty((*warm.shape, 4), dtype=np.uint8)
    layer[..., 0] = 255
    layer[..., 1] = np.round(200 - 150 * warm)
    layer[..., 2] = 40
    layer[..., 3] = np.round(170 * warm)
    return layer


def _hard(values: NDArray[np.float32]) -> Labels:
    """(N, C) 1 for at least 0.5, 0 below, `UNKNOWN` for NaN."""
    return np.where(np.isnan(values), UNKNOWN, values >= 0.5).astype(np.int8)


def _propose(record: LabelRecord, given: Labels) -> Labels:
    """(N, C) a yes or no for every label of a flagged image, the same as in the table of an audit.

    Without neighbours nobody voted, and a soft label of at least 0.5 is a yes. An unknown label stays unknown.
    """
    if record.neighbours is not None and record.flags is not None:
        return _hard(propose(record))
    proposed = _hard(record.proposed.values)
    proposed[given == UNKNOWN] = UNKNOWN
    if record.flags is not None:
        proposed[~record.flags.noisy] = given[~record.flags.noisy]
    return proposed


def _suspicion(record: LabelRecord) -> NDArray[np.float32]:
    """(N) at least 0, as `bomd audit` orders images: by label scores if there are any, else by votes.

    Without both: how far the margin is below 0; without flags: how far given and proposed labels are apart.
    """
    if (record.scores is not None and record.classifier is not None) or record.neighbours is not None:
        return suspicion_of(record).image
    if record.flags is not None:
        return np.clip(-np.nan_to_num(record.flags.margin), 0, None).astype(np.float32)
    return np.asarray(np.nansum(np.abs(record.given.values - record.proposed.values), axis=1), dtype=np.float32)


def _check(record: LabelRecord, directory: Path) -> None:
    shape = record.given.values.shape
    for name, column in (("scores", record.scores), ("classifier", record.classifier)):
        if column is not None and column.shape != shape:
            raise InputError(f"{directory / 'labels.npz'} is damaged: {name} have shape {column.shape}, not {shape}.")
    rows = record.neighbours
    if rows is None:
        return
    if rows.ndim != 2 or len(rows) != shape[0] or (rows.size and not -1 <= rows.min() <= rows.max() < shape[0]):
        raise InputError(f"{directory / 'labels.npz'} is damaged: neighbours {rows.shape} do not fit.")


def _number(columns: NDArray[Any] | None, row: int, column: int) -> float | None:
    if columns is None or not np.isfinite(columns[row, column]):
        return None
    return round(float(columns[row, column]), 4)
