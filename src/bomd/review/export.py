"""Reviewed labels as a table and as CSV: what was decided, and beside it what was given."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bomd.data.cells import harmless
from bomd.errors import InputError
from bomd.files import write_text
from bomd.measure.records import load_record
from bomd.review.decisions import FILE, JUDGEMENTS, Event, current, read_events
from bomd.tables import LabelTable

COLUMNS = ("id", "patient", "reviewers", "unresolved")
GIVEN = "given:"  # before the name of a class in the header: its label before the review


@dataclass(frozen=True, eq=False)
class Reviewed:
    """Labels after a review.

    Attributes:
        labels: Decided where somebody decided, given elsewhere.
        given: As the run got them.
        reviewers: (N) how many people judged the image.
        unresolved: (N) on how many of its labels they were evenly split; those are as given.
    """

    labels: LabelTable
    given: LabelTable
    reviewers: NDArray[np.int64]
    unresolved: NDArray[np.int64]


def reviewed_labels(run: Path) -> LabelTable:
    """The labels of all training images of a run, with decisions in place of the given labels where there are any."""
    return read_reviewed(run).labels


def read_reviewed(run: Path) -> Reviewed:
    """Labels and decisions of a run directory."""
    if not (run / "labels.npz").is_file():
        raise InputError(f"No run in {run}: expected a run directory with labels.npz.")
    given = load_record(run).given
    standing = current(read_events(run / FILE, given.classes))
    known = set(given.ids.tolist())
    for events in standing.values():
        for image in events:
            if image not in known:
                raise InputError(f"{run / FILE} holds a decision on {image!r}, an image that the run does not have.")
    return merge(given, standing)


def merge(given: LabelTable, standing: Mapping[str, Mapping[str, Event]]) -> Reviewed:
    """Put decisions of any number of reviewers together.

    The majority decides on each label. Evenly split, the given label stays and counts as unresolved. A decision
    that confirms a soft label, such as 0.7, leaves it as soft as it was.

    Args:
        given: Labels before the review.
        standing: What stands, by reviewer and id; skipped images do not count.
    """
    numbers = {name: row for row, name in enumerate(given.ids.tolist())}
    judgements: dict[int, list[tuple[int | None, ...]]] = {}
    for events in standing.values():
        for image, event in events.items():
            if event.action in JUDGEMENTS and event.labels is not None:
                judgements.setdefault(numbers[image], []).append(event.labels)
    values = given.values.copy()
    reviewers = np.zeros(len(given), dtype=np.int64)
    unresolved = np.zeros(len(given), dtype=np.int64)
    for row, labels in judgements.items():
        said = np.asarray([[np.nan if value is None else value for value in one] for one in labels], dtype=np.float32)
        yes, no = (said == 1).sum(axis=0), (said == 0).sum(axis=0)
        old = given.values[row]
        decided = np.where(yes > no, 1, np.where(no > yes, 0, np.nan))
        split = (yes == no) & (yes > 0)
        confirmed = split | ((decided == 1) & (old >= 0.5)) | ((decided == 0) & (old < 0.5))
        values[row] = np.where(confirmed, old, decided)
        reviewers[row], unresolved[row] = len(labels), split.sum()
    return Reviewed(given.replace(values), given, reviewers, unresolved)


def to_csv(reviewed: Reviewed) -> str:
    """One line per image: id, patient, people who judged it, labels they were split on, labels, given labels.

    Every class has a column of its name with the labels to use and one with `given:` before its name. A label that
    is not known is blank. A text that a spreadsheet would run as a formula has an apostrophe before it, which
    `bomd run --labels` knows.
    """
    classes = reviewed.labels.classes
    header = [*COLUMNS, *classes, *(f"{GIVEN}{name}" for name in classes)]
    if len(set(header)) < len(header):
        raise InputError("A class has the name of another column of the reviewed labels: rename the class.")
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([harmless(name) for name in header])
    given = reviewed.given
    columns = zip(given.ids, given.groups, reviewed.reviewers, reviewed.unresolved, strict=True)
    for (name, patient, *counts), labels, old in zip(columns, reviewed.labels.values, given.values, strict=True):
        writer.writerow([harmless(name), harmless(patient), *counts, *_cells(labels), *_cells(old)])
    return stream.getvalue()


def write_csv(run: Path, path: Path) -> Reviewed:
    """Write the reviewed labels of a run."""
    reviewed = read_reviewed(run)
    write_text(path, to_csv(reviewed))
    return reviewed


def _cells(values: Sequence[np.float32] | NDArray[np.float32]) -> list[str]:
    """Shortest texts that read back as the same numbers; whole numbers without a point."""
    return ["" if np.isnan(value) else str(int(value)) if value in (0, 1) else str(value) for value in values]
