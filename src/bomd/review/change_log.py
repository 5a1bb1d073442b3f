"""The change log of a review: which labels people changed, confirmed or could not agree on, with who, when and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bomd.audits.columns import joined
from bomd.clean.vote import vote
from bomd.data.cells import csv_text
from bomd.experiments.records import LabelRecord, patients_of
from bomd.review.decisions import JUDGEMENTS, Event
from bomd.review.export import Reviewed, label_cells

COLUMNS = ("image", "patient", "finding", "from", "to", "who", "when", "evidence", "note")
KINDS = ("changed", "confirmed", "unresolved")
WORDS = {None: "unknown", 0: "no", 1: "yes"}


@dataclass(frozen=True)
class Entry:
    """One line of the log.

    Attributes:
        patient: Empty where the table names none.
        before: The given label as a cell of a table: 0, 1, a probability, or empty for unknown.
        after: The label that stands, likewise.
        who: Everybody who judged the image, in the order of names.
        when: The last of their decisions, in UTC.
        evidence: What spoke for or against the given label.
        note: What it was: a proposal that was taken, a change of one's own, a confirmation, a split.
    """

    kind: str
    image: str
    patient: str
    finding: str
    before: str
    after: str
    who: tuple[str, ...]
    when: str
    evidence: str
    note: str

    def cells(self) -> tuple[str, ...]:
        """In the order of `COLUMNS`."""
        said = (self.before, self.after, joined(self.who), self.when, self.evidence, self.note)
        return (self.image, self.patient, self.finding, *said)


def change_log(record: LabelRecord, reviewed: Reviewed, standing: Mapping[str, Mapping[str, Event]]) -> list[Entry]:
    """Every label that is not as it was given, and every question that people answered by leaving it as it was.

    A label of a judged image has a line if it differs from the given one, if another label was proposed for it, or if
    people were evenly split on it. The other labels of the image were seen, too, but nothing was asked about them.

    Returns:
        By time, then in the order of the images and classes.
    """
    given, labels = record.given, reviewed.labels
    patients = patients_of(given)
    asked, changed = record.added | record.removed, ~_same(given.values, labels.values)
    shares = _shares(record, list(reviewed.names))
    entries: list[tuple[str, int, int, Entry]] = []
    for row, (people, when) in reviewed.names.items():
        image = str(given.ids[row])
        before, after = label_cells(given.values[row]), label_cells(labels.values[row])
        for column in np.flatnonzero(changed[row] | asked[row] | reviewed.split[row]).tolist():
            kind, note = _judgement(record, reviewed, row, column, _votes(standing, people, image, column))
            patient = "" if patients is None else str(patients[row])
            cells = (image, patient, given.classes[column], before[column], after[column])
            said = _evidence(record, row, column, shares[row][column] if shares else np.nan)
            entry = Entry(kind, *cells, people, when, said, note)
            entries.append((when, row, column, entry))
    return [entry for *_, entry in sorted(entries, key=lambda found: found[:3])]


def as_log(entries: Sequence[Entry]) -> str:
    """The log as a table; what a spreadsheet would run as a formula has an apostrophe before it."""
    return csv_text([COLUMNS, *(entry.cells() for entry in entries)])


def _evidence(record: LabelRecord, row: int, column: int, share: float) -> str:
    """What spoke for or against a given label, in words; what the run does not know is left out."""
    opinion, parts = record.opinion, []
    if np.isfinite(opinion.wrong[row, column]):
        parts.append(f"wrong with probability {opinion.wrong[row, column]:.2f}")
    if np.isfinite(share):
        parts.append(f"{share:.0%} of the nearest images have it")
    if record.classifier is not None and np.isfinite(record.classifier[row, column]):
        parts.append(f"classifier {record.classifier[row, column]:.2f}")
    return "; ".join([*parts, f"place {opinion.rank[row]} of {len(record.given)}"])


def _shares(record: LabelRecord, rows: Sequence[int]) -> dict[int, NDArray[np.float64]]:
    """(C) by row, how many of the nearest images have each class; nothing where the run has no neighbours."""
    if record.neighbours is None or not rows:
        return {}
    found = vote(record.given.values, record.neighbours[list(rows)], np.ones(len(record.given)))
    return dict(zip(rows, found, strict=True))


def _judgement(
    record: LabelRecord, reviewed: Reviewed, row: int, column: int, votes: Mapping[str, int | None]
) -> tuple[str, str]:
    """Which kind of line it is, and what is to be said about it."""
    given, value = record.given.values[row, column], reviewed.labels.values[row, column]
    proposed = record.opinion.proposed[row, column]
    dissent = [name for name, said in votes.items() if said is not None and said != value]
    earlier = record.given.confirmed is not None and record.given.confirmed[row, column]
    if reviewed.split[row, column]:
        kind = "unresolved"
        sides = [
            f"{WORDS[side]} by {joined([name for name, said in votes.items() if said == side])}" for side in (1, 0)
        ]
        notes = [f"evenly split, {' and '.join(sides)}: stays as given"]
    elif _same(_hard(given), _hard(value)):
        kind = "confirmed"
        asked = bool(record.added[row, column] or record.removed[row, column])
        notes = ["given label confirmed against the proposal" if asked else "given as a probability"]
    else:
        kind = "changed"
        notes = ["as proposed" if value == proposed else "the reviewer's own: not proposed"]
    if dissent and kind != "unresolved":
        notes.append(f"against {joined(dissent)}")
    if earlier:
        notes.append("had been decided in an earlier review")
    return kind, "; ".join(notes)


def _votes(
    standing: Mapping[str, Mapping[str, Event]], people: Sequence[str], image: str, column: int
) -> dict[str, int | None]:
    events = {name: standing[name][image] for name in people}
    return {name: (event.labels or ())[column] for name, event in events.items() if event.action in JUDGEMENTS}


def _hard(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(np.isnan(values), np.nan, values >= 0.5).astype(np.float32)


def _same(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Equal, or both unknown."""
    return np.asarray((one == other) | (np.isnan(one) & np.isnan(other)))
