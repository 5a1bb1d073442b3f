"""Open a run for review: its labels, its packed images, and what speaks for and against every label."""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bomd.clean.vote import vote
from bomd.data.images import Pixels
from bomd.data.store import Store
from bomd.errors import InputError
from bomd.experiments.records import LabelRecord, load_record, patients_of, store_of
from bomd.progress import say
from bomd.review.decisions import FILE, anybody_decided
from bomd.runs import run_of_audit
from bomd.tables import LabelTable, Text

UNKNOWN = -1  # a label that nobody has given
SHOWN_NEIGHBOURS = 10

Labels = NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Evidence:
    """A finished run as reviewers see it."""

    directory: Path
    record: LabelRecord
    store: Store
    places: NDArray[np.intp]  # (N) row of each image in the store
    given: Labels  # (N, C) 1, 0 or `UNKNOWN`
    proposed: Labels  # (N, C) likewise, by the opinion of the run
    votes: NDArray[np.float64] | None  # (N, C) share of the neighbours that have the class; NaN where there is none
    rows: NDArray[np.intp]  # (Q) the images to review
    originals: bool = True  # whether the image files that the record names are shown where they are there

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

    @functools.cached_property
    def suspicion(self) -> NDArray[np.float32]:
        """(N) above 0, strictly falling along the order of review: place k gets the k-th highest number expected.

        Equal numbers would lose the order, so each is at least the next smaller float below the one before.
        """
        rank, N = self.record.opinion.rank, len(self)
        falling = np.sort(self.record.opinion.expected.astype(np.float32))[::-1].copy()
        bits = falling.view(np.int32).astype(np.int64) + N  # of floats from 0 on, these grow with them
        strict = np.minimum.accumulate(bits + np.arange(N)) - np.arange(N)
        return np.asarray(strict.astype(np.int32).view(np.float32)[rank - 1])

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
        record = self.record
        labels = [
            {
                "given": int(self.given[row, column]),
                "proposed": int(self.proposed[row, column]),
                "wrong": _number(record.opinion.wrong, row, column),
                "learnt": bool(record.opinion.learnt[column]),
                "votes": _number(self.votes, row, column),
                "classifier": _number(record.classifier, row, column),
            }
            for column in range(len(self.classes))
        ]
        return {
            "number": row,
            "id": str(record.given.ids[row]),
            "patient": self.patient(row),
            "place": int(record.opinion.rank[row]),
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
    run = run_of_audit(place)
    if run is not None and (run / "labels.npz").is_file():
        earlier = sorted(file.parent for file in place.glob(f"**/{FILE}") if anybody_decided(file))
        if earlier and run not in earlier:
            say(f"People decided on an earlier audit, which stays in {earlier[-1]}: name that folder to use it.")
        return run
    found = sorted(file.parent for file in place.glob("**/labels.npz") if (file.parent / "result.json").exists())
    if len(found) > 1:
        raise InputError(f"{len(found)} runs are in {place}, such as {found[0]} and {found[1]}: name one of them.")
    return found[0] if found else place


def open_evidence(directory: Path, *, originals: bool | None = None) -> Evidence:
    """Open a finished run; by default original files, not packed images, are shown where the record names some."""
    if not (directory / "labels.npz").is_file():
        raise InputError(f"No run to review in {directory}: expected a run directory with labels.npz.")
    record = load_record(directory)
    if originals and record.given.paths is None:
        raise InputError(f"{directory} names no image files: leave out --originals.")
    store = store_of(directory)
    near, count = record.neighbours, len(record.given)
    if near is not None and (near.ndim != 2 or len(near) != count or not ((near >= -1) & (near < count)).all()):
        raise InputError(f"{directory / 'labels.npz'} is damaged: neighbours {near.shape} do not fit.")
    given = hard(record.given.values)
    votes = votes_of(record)
    proposed = hard(record.opinion.proposed)
    rows = np.flatnonzero(record.flagged | (proposed != given).any(axis=1))
    if not len(rows):
        raise InputError(f"Nothing to review in {directory}: no image is flagged and no label is to change.")
    places = store.rows(record.given.ids)
    return Evidence(directory, record, store, places, given, proposed, votes, rows, originals is not False)


def most_doubtful(wrong: NDArray[np.float32], given: LabelTable, column: int | None) -> NDArray[np.float32]:
    """(R) of (R, C) probabilities of being wrong, the largest of a finding, or that of one class."""
    columns = given.findings if column is None else [column]
    return np.asarray(np.nan_to_num(wrong[:, columns]).max(axis=1, initial=0))


def votes_of(record: LabelRecord) -> NDArray[np.float64] | None:
    """(N, C) share of the nearest images that have each class; None where the run has no neighbours."""
    near = record.neighbours
    return None if near is None else vote(record.given.values, near, np.ones(len(near)))


def png(pixels: NDArray[np.uint8]) -> bytes:
    """A picture, (H, W) grey or (H, W, 4) colour with transparency, as a PNG file."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="png", compress_level=1)
    return stream.getvalue()


def tint(heat: NDArray[Any]) -> NDArray[np.uint8]:
    """(H, W, 4) a heat map in [0, 1] as a layer: nothing where it is cold, amber to red where it is hot."""
    warm = np.clip(np.nan_to_num(np.asarray(heat, dtype=np.float32)), 0, 1)
    even = np.ones_like(warm)
    return np.stack([255 * even, np.round(200 - 150 * warm), 40 * even, np.round(170 * warm)], axis=-1).astype(np.uint8)


def hard(values: NDArray[np.float32]) -> Labels:
    """(N, C) 1 for at least 0.5, 0 below, `UNKNOWN` for NaN."""
    return np.where(np.isnan(values), UNKNOWN, values >= 0.5).astype(np.int8)


def _number(columns: NDArray[Any] | None, row: int, column: int) -> float | None:
    if columns is None or not np.isfinite(columns[row, column]):
        return None
    return round(float(columns[row, column]), 4)
