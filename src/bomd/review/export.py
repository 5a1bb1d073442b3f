"""Reviewed labels as a table: the user's own with what was decided in it, and beside it who decided what and when."""

from __future__ import annotations

import filecmp
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bomd import progress
from bomd.audits import kept
from bomd.audits.columns import joined
from bomd.audits.kept import as_decided, rewrite
from bomd.data.cells import csv_text
from bomd.data.datasets.corrected import DETAILS, details_beside, read_details
from bomd.errors import InputError
from bomd.experiments.records import load_record, patients_of
from bomd.files import is_stream
from bomd.review import outputs
from bomd.review.decisions import FILE, JUDGEMENTS, Event, Journal, current, only_server, read_events
from bomd.review.outputs import Output
from bomd.tables import NO_FINDING, LabelTable

REASON = "reason"  # a column of the details that those of earlier versions lack
PLACES = ("id", "patient")  # columns of a table that no user gave, before those of the classes


class Judged(NamedTuple):
    """Who decided on an image, when and why."""

    people: tuple[str, ...] = ()
    when: str = ""  # the last of their decisions, in UTC
    reasons: Mapping[str, str] = {}  # what some of them wrote, by name

    def reason_cell(self) -> str:
        """Their words in one cell of a table, with names where several people judged the image."""
        if len(self.people) == 1:
            return "".join(self.reasons.values())
        return joined([f"{name}: {words}" for name, words in self.reasons.items()])


@dataclass(frozen=True, eq=False)
class Reviewed:
    """Labels after a review."""

    labels: LabelTable  # decided where somebody decided, given elsewhere; `confirmed` says where people decided
    given: LabelTable
    standing: Mapping[str, Mapping[str, Event]]  # what each person has said of an image, by name and id
    reviewers: NDArray[np.int64]  # (N) how many people judged the image
    split: NDArray[np.bool_]  # (N, C) labels on which they were evenly split; those are as given
    judged: Mapping[int, Judged]  # by row
    follows: Collection[int] = ()  # rows in which "No Finding" follows from the other labels, whatever was said of it


def reviewed_labels(run: Path) -> LabelTable:
    """The labels of all training images of a run, with decisions in place of the given labels where there are any."""
    return read_reviewed(run).labels


def read_reviewed(run: Path) -> Reviewed:
    """Labels and decisions of a run directory."""
    if not (run / "labels.npz").is_file():
        raise InputError(f"No run in {run}: expected a run directory with labels.npz.")
    given = load_record(run).given
    standing = current(read_events(run / FILE, given.classes))
    unknown = {image for events in standing.values() for image in events} - set(given.ids.tolist())
    if unknown:
        raise InputError(f"{run / FILE} holds a decision on {min(unknown)!r}, an image that the run does not have.")
    return merge(given, standing)


def take_in(run: Path, copy: Path) -> None:
    """Add what people decided on a copy of a run to the run's own decisions, with the times at which they did so.

    Of two decisions by one name on one image the later counts; what was taken back, here or there, does not return.
    """
    new = read_reviewed(copy)
    if not filecmp.cmp(run / "labels.npz", copy / "labels.npz", shallow=False):
        raise InputError(f"{copy} is no copy of {run}: it has other labels or evidence.")
    theirs = {event.number: event for event in read_events(copy / FILE, new.given.classes)}
    with only_server(run, "bomd decisions"), closing(Journal(run / FILE, new.given.classes)) as journal:
        here, there = _not_undone(journal.events()), _not_undone(theirs.values())
        for event in theirs.values():  # first, or what stood before on the copy would seem to be older than what stands
            taken_back = theirs.get(event.undoes or 0)
            if taken_back is None:
                continue
            numbers = here[_what(taken_back)]
            if len(numbers) > len(there[_what(taken_back)]):  # else it was made again in the same second
                journal.submit(replace(event, undoes=numbers.pop())).result()
        events = journal.events()
        own, known = current(events), {_what(event) for event in events}
        for name, image, event in ((name, *pair) for name, said in new.standing.items() for pair in said.items()):
            before = own.get(name, {}).get(image)
            if _what(event) not in known and (before is None or before.time < event.time):
                journal.submit(event).result()


def _not_undone(events: Collection[Event]) -> dict[tuple[str, str, str, str], list[int]]:
    """The numbers of the events that nobody took back, by what they are; several of one second may be the same."""
    undone, found = {event.undoes for event in events}, defaultdict(list)
    for event in events:
        if event.action != "undo" and event.number not in undone:
            found[_what(event)].append(event.number)
    return found


def _what(event: Event) -> tuple[str, str, str, str]:
    """What an event has in common with itself on a copy of the run, where its number may be another."""
    return event.reviewer, event.image, event.time, event.action


def merge(given: LabelTable, standing: Mapping[str, Mapping[str, Event]]) -> Reviewed:
    """Put decisions of any number of reviewers together.

    The majority decides on each label. Evenly split, the given label stays and counts as unresolved, even if it was
    confirmed before. A decided label is 0 or 1, also where a probability was given: somebody has looked. Skipped images
    do not count.
    """
    numbers = {name: row for row, name in enumerate(given.ids.tolist())}
    judgements: dict[int, list[Event]] = {}
    for events in standing.values():
        for image, event in events.items():
            if event.action in JUDGEMENTS and event.labels is not None:
                judgements.setdefault(numbers[image], []).append(event)
    values, split = given.values.copy(), np.zeros(given.values.shape, dtype=np.bool_)
    confirmed = split.copy() if given.confirmed is None else given.confirmed.copy()
    reviewers = np.zeros(len(given), dtype=np.int64)
    judged: dict[int, Judged] = {}
    for row, events_on in judgements.items():
        said = np.asarray([event.labels for event in events_on], dtype=np.float64)  # unknown is NaN
        yes, no = (said == 1).sum(axis=0), (said == 0).sum(axis=0)
        split[row] = (yes == no) & (yes > 0)
        values[row] = np.where(split[row], values[row], np.where(yes > no, 1, np.where(no > yes, 0, np.nan)))
        confirmed[row] = yes != no
        if given.exclusive and (values[row] == 1).sum() != 1:  # no class has a majority, so that nothing is decided
            values[row], confirmed[row], split[row] = given.values[row], False, True
        reviewers[row] = len(events_on)
        words = {event.reviewer: event.reason for event in sorted(events_on, key=lambda event: event.reviewer)}
        reasons = {name: reason for name, reason in words.items() if reason}
        judged[row] = Judged(tuple(words), max(event.time for event in events_on), reasons)
    return Reviewed(replace(given, values=values, confirmed=confirmed), given, standing, reviewers, split, judged)


def as_listed(reviewed: Reviewed, own: kept.Kept | None) -> Reviewed:
    """The labels as the user's own table can say them, so that every file of a review says the same.

    Where a column lists classes and people took the last one away, "No Finding" stands in it, also if nobody said so: a
    blank cell would say that nobody looked.
    """
    nothing = np.zeros(0, dtype=np.bool_) if own is None else own.says_nothing(reviewed.labels)
    rows = np.flatnonzero(nothing & (reviewed.reviewers > 0)) if nothing.any() else np.zeros(0, dtype=np.intp)
    if not len(rows):
        return reviewed
    labels, split, place = reviewed.labels, reviewed.split.copy(), reviewed.labels.classes.index(NO_FINDING)
    assert labels.confirmed is not None
    values, confirmed = labels.values.copy(), labels.confirmed.copy()
    values[rows, place], confirmed[rows, place], split[rows, place] = 1, True, False
    labels = replace(labels, values=values, confirmed=confirmed)
    return replace(reviewed, labels=labels, split=split, follows=frozenset(rows.tolist()))


def as_table(reviewed: Reviewed, own: kept.Kept | None) -> str:
    """The labels to use: the user's own table with decided labels in place of its own, or one that we make up.

    Without a table of the user's it has a column `id`, `patient` where patients are known, and one per class with 0,
    1, a probability, or blank for unknown.
    """
    labels = reviewed.labels
    if own is not None:
        assert labels.confirmed is not None
        # What an earlier review decided may be in another file than the table, if the run learnt from that.
        decided = ((reviewed.reviewers > 0)[:, None] & ~reviewed.split) | labels.confirmed
        return rewrite(own.records, own.form, as_decided(labels.values, decided, labels.ids.tolist(), labels.classes))
    patients = patients_of(labels)
    header = [*(PLACES if patients is not None else PLACES[:1]), *labels.classes]
    if len(set(header)) < len(header):
        raise InputError("A class has the name of another column of the reviewed labels: rename the class.")
    names = zip(*(column.tolist() for column in (labels.ids, patients) if column is not None), strict=True)
    return csv_text([header, *([*own, *label_cells(row)] for own, row in zip(names, labels.values, strict=True))])


def as_details(reviewed: Reviewed, earlier: Path | None = None) -> str:
    """One line for each label of a judged image: given, decided, by whom and when, whether they were evenly split, why.

    Labels that were confirmed before this review and that nobody judged anew keep their line of the earlier details.
    """
    labels, given = reviewed.labels, reviewed.given
    before: dict[tuple[str, str], list[str]] = {}
    if earlier is not None and earlier.is_file():
        found = read_details(earlier).reindex(columns=[*DETAILS, REASON], fill_value="")
        before = {(line[0], line[1]): line for line in found.values.tolist()}
    lines: list[list[str]] = []
    assert labels.confirmed is not None
    for row in np.flatnonzero((reviewed.reviewers > 0) | labels.confirmed.any(axis=1)).tolist():
        image, (old, new) = str(labels.ids[row]), (label_cells(given.values[row]), label_cells(labels.values[row]))
        judged = reviewed.judged.get(row, Judged())
        said = joined(judged.people), judged.when
        for column, name in enumerate(labels.classes):
            if judged.people:
                unresolved = str(int(reviewed.split[row, column]))
                lines.append([image, name, old[column], new[column], *said, unresolved, judged.reason_cell()])
            elif labels.confirmed[row, column]:
                kept_line = before.get((image, name))
                lines.append(kept_line or [image, name, "", new[column], "", "", "0", ""])
    return csv_text([(*DETAILS, REASON), *lines])


def unresolved(reviewed: Reviewed, own: kept.Kept | None) -> int:
    """On how many labels that were given people were evenly split; where an image has one label, on how many images."""
    split = reviewed.split if own is None else reviewed.split[:, own.has(reviewed.labels.classes)]
    return int(split.any(axis=1).sum() if reviewed.labels.exclusive else split.sum())


def write_reviewed(run: Path, path: Path | None = None) -> tuple[Reviewed, Path]:
    """Write the reviewed labels of a run, and their details beside them; by default into the run itself."""
    own = kept.find(run)
    reviewed = as_listed(read_reviewed(run), own)
    files = reviewed_files(run, reviewed, own, path)
    outputs.write(files, None if own is None else own.source)
    return reviewed, files[0].path


def reviewed_files(run: Path, reviewed: Reviewed, own: kept.Kept | None, path: Path | None = None) -> list[Output]:
    """The table of reviewed labels and its details; by default in the run itself."""
    path = path or run / f"reviewed{'.csv' if own is None else own.suffix}"
    if is_stream(path):
        raise InputError(f"--output takes a file such as reviewed.csv, not {path}: its details go beside it.")
    if own is None:
        progress.say(
            "There is no table of yours to put the labels into: the one that is written has a column per class."
        )
    text, details = as_table(reviewed, own), as_details(reviewed, None if own is None else own.details)
    header = text.partition("\n")[0] if own is None else f"{own.records.mark}{own.records.header}"
    line_end = "\n" if own is None else own.records.newline
    beside = details_beside(path)
    return [
        Output("--output", path, text, f"{header}{line_end}", told_by=beside),
        Output("place for the details of --output", beside, details, ",".join(DETAILS)),
    ]


def label_cells(values: Sequence[np.float32] | NDArray[np.float32]) -> list[str]:
    """Shortest texts that read back as the same numbers; whole numbers without a point."""
    return ["" if np.isnan(value) else str(int(value)) if value in (0, 1) else str(value) for value in values]
