"""The change log of a review: which labels people changed, confirmed or could not agree on, with who, when and why.

It is written as a table, and as a page to print, check and sign.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.audits import kept
from bomd.audits.columns import joined
from bomd.audits.given import Source
from bomd.data.cells import csv_text
from bomd.errors import InputError
from bomd.experiments.records import LabelRecord, load_record, patients_of
from bomd.files import checksum, is_stream, packed, read_json
from bomd.reports.gate import rendered
from bomd.review import outputs
from bomd.review.decisions import JUDGEMENTS
from bomd.review.evidence import hard, votes_of
from bomd.review.export import Judged, Reviewed, as_listed, label_cells
from bomd.review.outputs import Output
from bomd.tables import NO_FINDING
from bomd.version import VERSION

PAGES = Path(__file__).parent / "pages"
COLUMNS = ("image", "patient", "finding", "from", "to", "who", "when", "evidence", "note", "reason")
KINDS = ("changed", "confirmed", "unresolved")
STRONGEST = ("changed", "unresolved", "confirmed")  # what several lines make of one label
TITLE = "<title>Changes to labels"  # of the page
PROBABLE = "given as a probability"  # in the note of a label that people confirmed although nothing was proposed


@dataclass(frozen=True)
class Entry:
    """One line of the log."""

    kind: str
    image: str
    patient: str  # empty where the table names none
    finding: str
    before: str  # the given label as a cell of a table: 0, 1, a probability, or empty for unknown
    after: str
    judged: Judged
    evidence: str
    note: str  # a proposal that was taken, a change of one's own, a confirmation, a split

    def cells(self) -> tuple[str, ...]:
        """In the order of `COLUMNS`."""
        who, when, why = joined(self.judged.people), self.judged.when, self.judged.reason_cell()
        place = (self.image, self.patient, self.finding, self.before, self.after)
        return (*place, who, when, self.evidence, self.note, why)


def change_log(record: LabelRecord, reviewed: Reviewed, own: NDArray[np.bool_] | None = None) -> list[Entry]:
    """Every label that is not as it was given, and every question that people answered by leaving it as it was.

    A label of a judged image has a line if it differs from the given one, if another label was proposed for it, or if
    people were evenly split on it. The other labels of the image were seen, too, but nothing was asked about them.
    Lines are in the order of time, then of images and classes.

    Args:
        own: (C) classes that the user's table has; labels of others were never given, and have no line.
    """
    given, labels = record.given, reviewed.labels
    patients = patients_of(given)
    both_unknown = np.isnan(given.values) & np.isnan(labels.values)
    told = record.added | record.removed | reviewed.split | ((given.values != labels.values) & ~both_unknown)
    told &= True if own is None else own
    shares = votes_of(record)
    entries = []
    for row, judged in sorted(reviewed.judged.items(), key=lambda found: (found[1].when, found[0])):
        image = str(given.ids[row])
        before, after = label_cells(given.values[row]), label_cells(labels.values[row])
        for column in np.flatnonzero(told[row]).tolist():
            votes = {name: (reviewed.standing[name][image].labels or ())[column] for name in judged.people}
            asked = record.added[row, column] or record.removed[row, column] or given.values[row, column] >= 0.5
            if given.exclusive and not asked and 1 not in votes.values():
                continue  # the one label is not of this class, and nobody thought so
            kind, note = _judgement(record, reviewed, row, column, votes)
            patient = "" if patients is None else str(patients[row])
            cells = (image, patient, given.classes[column], before[column], after[column])
            said = _evidence(record, row, column, np.nan if shares is None else shares[row, column])
            entries.append(Entry(kind, *cells, judged, said, note))
    return entries


def as_log(entries: Sequence[Entry]) -> str:
    """The log as a table; what a spreadsheet would run as a formula has an apostrophe before it."""
    return csv_text([COLUMNS, *(entry.cells() for entry in entries)])


def write_log(run: Path, reviewed: Reviewed, file: Path) -> tuple[list[Entry], Path]:
    """Write the change log as a table, and beside it the page to sign, which names the table's checksum."""
    own = kept.find(run)
    entries, files = log_files(run, as_listed(reviewed, own), own, file)
    outputs.write(files, None if own is None else own.source)
    return entries, files[-1].path


def log_files(run: Path, reviewed: Reviewed, own: kept.Kept | None, file: Path) -> tuple[list[Entry], list[Output]]:
    """The lines of the change log, and its two files: the table and the page."""
    page = file.with_suffix(".html")
    if is_stream(file) or page == file:
        raise InputError(f"--log takes a table such as changes.csv, not {file}: the page to sign goes beside it.")
    classes = reviewed.labels.classes
    has = np.ones(len(classes), dtype=np.bool_) if own is None else own.has(classes)
    entries = change_log(load_record(run), reviewed, has)
    table = as_log(entries)
    people = {
        name: [event.time for event in events.values() if event.action in JUDGEMENTS]
        for name, events in sorted(reviewed.standing.items())
    }
    text = rendered(
        PAGES / "changes.html.j2",
        {"thousands": "{:,}".format},
        run="/".join(run.resolve().parts[-3:]),
        identity=identity(run, None if own is None else own.source),
        added=[name for name, there in zip(classes, has, strict=True) if not there],
        written=datetime.now(UTC).isoformat(timespec="seconds"),
        images=len(reviewed.labels),
        judged=int((reviewed.reviewers > 0).sum()),
        people=[{"name": name, "images": len(times), "last": max(times)} for name, times in people.items() if times],
        totals=_totals(entries, each_image=reviewed.labels.exclusive),
        probable=any(entry.note.startswith(PROBABLE) for entry in entries),
        findings=_by_finding(entries, reviewed.labels.classes),
        each_image=reviewed.labels.exclusive,
        entries=entries,
        table=file.name,
        checksum=hashlib.sha256(packed(file, table)).hexdigest(),
    )
    header = ",".join(COLUMNS) + "\n"
    files = [Output("--log", file, table, header), Output("place for the page of --log", page, text, TITLE)]
    return entries, files


def _totals(entries: Sequence[Entry], *, each_image: bool) -> dict[str, int]:
    """How many labels are of each kind.

    Where an image has one label, its move from class to class is one change, and it is confirmed where it did not move
    and nobody was split: people who refuse one class for another refuse a proposal, but confirm no label.
    """
    kinds = [entry.kind for entry in entries]
    if each_image:
        found: dict[str, set[str]] = {}
        for entry in entries:
            found.setdefault(entry.image, set()).add(entry.kind)
        kinds = [next(kind for kind in STRONGEST if kind in own) for own in found.values()]
    return {kind: kinds.count(kind) for kind in KINDS}


def identity(run: Path, source: Source | None = None) -> list[tuple[str, str]]:
    """What tells this run and its model from all others; a run that does not say something leaves it out.

    Args:
        source: The user's file that labels came from, as it was then.
    """
    result, made, model = (_facts(run / name) for name in ("result.json", "environment.json", "model/model.json"))
    found = [("Run", str(run.resolve()))]
    if result is not None:
        found.append(("Method", f"{result.get('method', 'not known')}, seed {result.get('seed', 'not known')}"))
    if made is not None:
        version, commit = (made.get("versions") or {}).get("bomd"), made.get("commit")
        words = [f"bomd {version}"] if version else []
        words += [f"commit {str(commit)[:12]}{' with changes' if made.get('uncommitted') else ''}"] if commit else []
        found += [("Made with", ", ".join(words))] if words else []
    if source is not None:
        found.append(("Given labels", f"{Path(source.file).name}, SHA-256 {source.digest}"))
    files = {"The audit's copy of them": kept.TABLE, "Labels and evidence": "labels.npz"}
    there = [(name, run / file) for name, file in files.items() if (run / file).is_file()]
    found += [(name, f"{file.name}, SHA-256 {checksum(file)}") for name, file in there]
    if model is not None:
        weights = sorted((model.get("checksums") or {}).items())
        found += [("Model", f"{name}, SHA-256 {digest}") for name, digest in weights]
    return [*found, ("Log written with", f"bomd {VERSION}")]


def _facts(path: Path) -> dict[str, Any] | None:
    found = read_json(path) if path.is_file() else None
    return found if isinstance(found, dict) or found is None else {}


def _by_finding(entries: Sequence[Entry], classes: Sequence[str]) -> list[dict[str, Any]]:
    """Counts of each class that has a line."""
    ways = {"1": "added", "0": "removed", "": "unknown"}
    counts = {name: Counter[str]() for name in classes}
    for entry in entries:
        counts[entry.finding][ways[entry.after] if entry.kind == "changed" else entry.kind] += 1
    kinds = (*ways.values(), *KINDS[1:])
    return [{"name": name, **{kind: own[kind] for kind in kinds}} for name, own in counts.items() if own]


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


def _judgement(
    record: LabelRecord, reviewed: Reviewed, row: int, column: int, votes: Mapping[str, int | None]
) -> tuple[str, str]:
    """Which kind of line it is, and what is to be said about it."""
    given, value = record.given.values[row, column], reviewed.labels.values[row, column]
    proposed = record.opinion.proposed[row, column]
    dissent = [name for name, said in votes.items() if said is not None and said != value]
    earlier = record.given.confirmed is not None and record.given.confirmed[row, column]
    follows = row in reviewed.follows and record.given.classes[column] == NO_FINDING
    if reviewed.split[row, column]:
        kind = "unresolved"
        yes, no = ([name for name, said in votes.items() if said == side] for side in (1, 0))
        how = "evenly split" if len(yes) == len(no) else "no class has a majority"  # of one label
        sides = f", yes by {' | '.join(yes)} and no by {' | '.join(no)}" if yes and no else ""
        notes = [f"{how}{sides}: stays as given"]
    elif hard(given) == hard(value):
        kind = "confirmed"
        asked = bool(record.added[row, column] or record.removed[row, column])
        notes = ["given label confirmed against the proposal" if asked else PROBABLE]
    else:
        kind = "changed"
        notes = ["as proposed" if value == proposed else "the reviewer's own: not proposed"]
    if follows and dissent:
        notes = ["follows, since no other label is left: a blank cell would say that nobody looked"]
    elif dissent and kind != "unresolved":
        notes.append(f"against {' | '.join(dissent)}")
    if earlier:
        notes.append("had been decided in an earlier review")
    return kind, "; ".join(notes)
