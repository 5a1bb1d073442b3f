"""What an audit is about to do: everything read and checked once, and nothing written yet."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bomd import progress
from bomd.audits.arrays import read_rates
from bomd.audits.choose import SMALLEST, Choice, choose, explain
from bomd.audits.found import FACTS, PAGE, RUNS, TABLE
from bomd.audits.given import Given, read_given
from bomd.audits.start import with_start
from bomd.audits.untrained import PICTURES, StandIn, at_most_one, find_stand_in
from bomd.clean.opinion import ONE_LABEL_RATES
from bomd.config import LARGEST_SIZE, Config, ImageSettings
from bomd.data.colour import Mode
from bomd.data.images import read_image
from bomd.data.one_label import Labels, with_kind
from bomd.data.verify import verify_tables
from bomd.data.wanted import file_state
from bomd.errors import InputError
from bomd.experiments.confirmed import decided_note
from bomd.experiments.one_label import HANDED, ONE_LABEL
from bomd.files import fingerprint, read_json, unpacked
from bomd.pretrain.provide import check_known
from bomd.runs import locate, run_of_audit
from bomd.tables import NO_FINDING, LabelTable

FEWEST = 4  # patients: two networks learn from two each


@dataclass(frozen=True, eq=False)
class Plan:
    """What an audit is about to do; nothing has been written yet."""

    given: Given
    labels: LabelTable  # what is judged: the given labels, and "No Finding" where they do not have it
    output: Path
    request: str  # changes with the labels, the images and the options
    choice: Choice | None  # how to train; None where nothing is trained
    stand_in: StandIn | None  # what judges then
    rates: dict[str, dict[str, float]]  # how often labels are wrong, by class, where somebody measured it
    seed: int
    size: int
    mode: Mode
    notes: tuple[str, ...]

    @property
    def done(self) -> bool:
        """Whether what lies in the folder is this audit, from beginning to end."""
        run = locate(self.output / RUNS, self.config())
        return run.finished and run_of_audit(self.output) == run.directory

    def config(self) -> Config:
        """The experiment; its labels are handed over, and `train` says what they are and not where to read them."""
        name = Path(self.given.name).name
        train = {"dataset": "folder", "labels": name, "images": str(self.given.folder), HANDED: self.request}
        judge = self.choice or self.stand_in
        assert judge is not None
        images = ImageSettings(size=self.size, skip_broken=True, mode=self.mode)
        return replace(judge.config("audit", train, len(self.labels), self.seed), rates=self.rates, images=images)


def plan(
    table: LabelTable | pd.DataFrame | str | Path,
    images: str | Path | None = None,
    *,
    output: str | Path | None = None,
    features: str | Path | None = None,
    probabilities: str | Path | None = None,
    backbone: str | None = None,
    rates: str | Path | None = None,
    size: int | None = None,
    mode: Mode = "auto",
    per_image: Labels = "auto",
    minutes: float | None = None,
    weights: str | None = None,
    seed: int = 0,
    skip_missing: bool = False,
    **layout: Any,
) -> Plan:
    """Read and check everything, and decide how to train; arguments as for `audit`."""
    stem = unpacked(Path(table)).stem if isinstance(table, str | Path) else "labels"
    place = Path(output) if output is not None else Path(f"{stem}-audit")
    _check_free(place, table)
    if weights is not None:
        check_known(weights, "--weights")  # before images are looked at and the machine is timed
    if size is not None and not SMALLEST <= size <= LARGEST_SIZE:
        raise InputError(f"--size is {size}, but images need at least {SMALLEST} and at most {LARGEST_SIZE} pixels.")
    given = read_given(table, images, skip_missing=skip_missing, **layout)
    labels, notes = complete(with_kind(given.labels, per_image, given.name), given.blank)
    if probabilities is None and not ((labels.values >= 0.5).any(axis=0) & (labels.values < 0.5).any(axis=0)).any():
        raise InputError(f"{given.name}: no class has both 1 and 0, to be compared; a blank means unknown, 0 absent.")
    people, least = len(np.unique(labels.groups)), 2 if at_most_one(features, probabilities, backbone) else FEWEST
    if people < least:
        raise InputError(f"{given.name} shows {people} patients: others judge each of them, so {least} are needed.")
    measured = {} if rates is None else read_rates(Path(rates), labels.classes)
    if measured and labels.exclusive:
        raise InputError(f"--rates: {ONE_LABEL_RATES} Every image here has one; with --multi-label it might have more.")
    stand_in = find_stand_in(given, labels, features, probabilities, backbone, size)
    if stand_in is not None and weights is not None:
        raise InputError("--weights is for networks that an audit trains, and here none is: leave it out.")
    # Options are refused above, since here every image file is asked for its length and time, which may take minutes.
    checks = verify_tables({"labels": labels}).checks
    notes += [f"{check.name}: {check.message}" for check in checks if not check.ok]
    notes += [] if labels.confirmed is None else [decided_note(labels, so="not questioned")]
    notes += [f"{len(given.missing)} rows have no image and are left out."] if given.missing else []
    notes += [f"{given.repeated} rows repeat an id and are left out."] if given.repeated else []
    state = np.stack(list(file_state(labels).values())[1:], axis=1) if labels.paths is not None else np.asarray([])
    request = fingerprint(labels.ids, list(labels.classes), labels.values, labels.groups, labels.paths, state, seed)
    for unusual in (labels.confirmed, measured or None, None if mode == "auto" else mode, *labels.marks()):
        request = request if unusual is None else fingerprint(request, unusual)
    choice: Choice | None = None
    lines: tuple[str, ...] = ()
    if stand_in is not None:
        request, side = fingerprint(request, stand_in.key), stand_in.side
    else:
        told = None if minutes is None else float(minutes)  # 1 in Python is the 1.0 of the command line
        request = fingerprint(request, size, told, *([weights] if weights else []))
        choice = _earlier_choice(place, request) or choose(len(labels), _largest(labels), minutes=minutes, size=size)
        choice, offered = with_start(choice, weights, labels)
        side, lines = choice.size, (*explain(choice, len(labels)), *offered)
    made = Plan(given, labels, place, request, choice, stand_in, measured, seed, side, mode, tuple(notes))
    if made.done:
        lines = (f"This audit is done already: its report is {place / PAGE}",)
    elif stand_in is not None:
        lines = stand_in.explain(len(labels))
    for line in (*lines, *(f"Note: {note}" for note in notes)):
        progress.say(line)
    return made


def complete(labels: LabelTable, blank: Sequence[str] = ()) -> tuple[LabelTable, list[str]]:
    """The labels with "No Finding" where no class is called so and an image may have several, and a note about it.

    BoMD compares the positive labels of an image with its negative ones, so it could say nothing about an image
    without a positive label, or about a set with one class. Where an image has no positive label and some are not
    known, "No Finding" is not known either.

    Args:
        blank: Columns of the table that may be classes, and that nobody has filled in.
    """
    if labels.exclusive:
        return labels, [f"{ONE_LABEL} --multi-label says otherwise."]
    if NO_FINDING in labels.classes:
        return labels, []
    positive, unknown = (labels.values >= 0.5).any(axis=1), np.isnan(labels.values).any(axis=1) | bool(blank)
    nothing = np.where(positive, 0, np.where(unknown, np.nan, 1)).astype(np.float32)
    values = np.concatenate([labels.values, nothing[:, None]], axis=1)
    note = f'"{NO_FINDING}" was added as a class, so that images without a positive label can be judged too.'
    if blank:
        which = f"{', '.join(blank)} {'is' if len(blank) == 1 else 'are'} blank in every row"
        note = f'{which}: whether an image without a positive label has "{NO_FINDING}" is not known.'
    confirmed = labels.confirmed
    if confirmed is not None:  # it follows from the others, so that it is as certain as they are
        settled = confirmed.all(axis=1) | (confirmed & (labels.values >= 0.5)).any(axis=1)
        confirmed = np.column_stack([confirmed, settled])
    return replace(labels, classes=(*labels.classes, NO_FINDING), values=values, confirmed=confirmed), [note]


def _check_free(place: Path, table: Any) -> None:
    """Refuse to write among files that are not of an audit, or over the given table."""
    if place.exists() and not place.is_dir():
        raise InputError(f"{place} is a file: pass another folder as --output.")
    if place.is_dir() and any(place.iterdir()) and not (place / FACTS).is_file():
        raise InputError(f"{place} holds files that are not of an audit: pass another folder as --output.")
    if isinstance(table, str | Path) and Path(table).resolve() in ((place / TABLE).resolve(), (place / PAGE).resolve()):
        raise InputError(f"{table} would be overwritten: audit the original, or pass another folder as --output.")


def _earlier_choice(place: Path, request: str) -> Choice | None:
    """What an interrupted audit of the same labels chose, since times never measure the same twice."""
    facts: Any = read_json(place / FACTS) if (place / FACTS).is_file() else None
    try:
        return Choice(**facts["choice"]) if facts["request"] == request else None
    except (TypeError, KeyError):  # none, of an audit that trained nothing, or of another version
        return None


def _largest(labels: LabelTable) -> int:
    """Side of the largest of a few images."""
    sides = []
    for path in labels.paths[:: max(1, len(labels) // 5)] if labels.paths is not None else []:
        with suppress(InputError):  # unreadable images are listed when all are packed
            sides.append(max(read_image(Path(str(path))).shape))
    return max(sides, default=PICTURES)
