"""Audit a table of labels: train or take features, flag, propose, and write it all down beside the given labels."""

from __future__ import annotations

import csv
import io
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bomd import progress
from bomd.audits import show
from bomd.audits.choose import NEIGHBOURS, SMALLEST, Choice, choose, explain
from bomd.audits.columns import LAST, cells, names
from bomd.audits.features import METHOD, read_features, run_on_features
from bomd.audits.given import Given, read_given
from bomd.audits.kept import keep
from bomd.config import LARGEST_SIZE, Config, ImageSettings
from bomd.data.datasets import folder
from bomd.data.datasets.corrected import confirmed_details, details_beside, digest_of
from bomd.data.images import read_image
from bomd.data.store import Store, open_store
from bomd.data.verify import verify_tables
from bomd.errors import InputError
from bomd.files import fingerprint, make_private, read_json, write_json, write_text
from bomd.measure import experiment
from bomd.measure.records import LabelRecord
from bomd.measure.report import write_report
from bomd.measure.suspicion import Suspicion, suspicion_of
from bomd.runs import Run
from bomd.tables import NO_FINDING, Flags, Floats, LabelTable
from bomd.typed import check_keywords

FORMAT = 1
FACTS, TABLE, PAGE = "audit.json", "labels_clean.csv", "report.html"
PICTURES = 128  # pixels of the images that are packed to be looked at, where nothing is trained

_ID, _PATIENT = "audit id", "audit patient"  # columns of the table that a run reads; no class is called so


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found.

    Attributes:
        directory: Where `labels_clean.csv` and `report.html` are.
        run: The run directory, for `bomd review` and `bomd report`.
        record: Given and proposed labels, flags and neighbours of every image that could be read.
        suspicion: How suspect each of these images and labels is.
        left_out: Why an image could not be judged, by id.
        notes: What a reader should know.
    """

    directory: Path
    run: Run
    record: LabelRecord
    suspicion: Suspicion
    left_out: dict[str, str]
    notes: tuple[str, ...]

    @property
    def flags(self) -> Flags:
        """Which images look wrong."""
        assert self.record.flags is not None
        return self.record.flags

    @property
    def labels(self) -> LabelTable:
        """(N, C) proposed labels as probabilities; the given ones are in `record.given`."""
        return self.record.proposed

    def table(self) -> pd.DataFrame:
        """One row for each judged image, the most suspect first, with the columns of `labels_clean.csv`."""
        headings = names(self.record.given.classes)
        frame = pd.DataFrame(cells(self.record, self.suspicion), columns=headings)
        numbers = [name for name in headings if name != LAST]
        frame[numbers] = frame[numbers].apply(pd.to_numeric)
        frame.insert(0, "id", self.record.given.ids)
        return frame.iloc[np.argsort(self.suspicion.rank)].reset_index(drop=True)

    def store(self) -> Store:
        """The packed images."""
        facts = read_json(self.run.directory / "images.json")
        return open_store(self.run.directory / facts["store"], expected=facts.get("fingerprint"))

    def show(self, count: int = 10) -> show.Suspects:
        """The most suspect images: pictures in a notebook, lines elsewhere."""
        return show.Suspects(self, count)

    def __repr__(self) -> str:
        return show.brief(self)

    def _repr_html_(self) -> str:
        return show.page(self, 10)


@dataclass(frozen=True, eq=False)
class Plan:
    """What an audit is about to do; nothing has been written yet.

    Attributes:
        given: The table and its images.
        labels: What is judged: the given labels, and "No Finding" where they do not have it.
        output: Where everything will be written.
        request: Changes with the labels, the images and the options.
        choice: How to train; None where features are given.
        vectors: (N, 1, D) features; None where a network is trained.
        notes: What a reader should know.
    """

    given: Given
    labels: LabelTable
    output: Path
    request: str
    choice: Choice | None
    vectors: Floats | None
    seed: int
    size: int
    notes: tuple[str, ...]


@progress.shown()
def audit(
    table: LabelTable | pd.DataFrame | str | Path,
    images: str | Path | None = None,
    *,
    output: str | Path | None = None,
    features: str | Path | None = None,
    size: int | None = None,
    minutes: float | None = None,
    seed: int = 0,
    skip_missing: bool = False,
    **layout: Any,
) -> Audit:
    """Find what looks mislabelled and propose better labels; the given ones are never changed.

    The same call continues where an earlier one stopped, and returns at once where it is done.

    Args:
        table: A CSV, TSV, Parquet or Excel file, a data frame with the same columns, or labels.
        images: The folder of the images.
        output: Where results are written; by default a folder named after the table, in the working directory.
        features: Embeddings of the images, `.npy` with one row per row of the table or `.npz` with "ids" and
            "features"; nothing is trained then.
        size: Side of the images in pixels; by default what fits the time.
        minutes: How long training may take; by default 10 on a CPU and 30 on a GPU.
        seed: Of everything that is drawn at random.
        skip_missing: Leave out rows whose image is not there, instead of refusing them.
        layout: What the columns are, as for the dataset `folder`, such as `id_column="file"`; `drop_duplicates=True`
            keeps the first row of an id that occurs again.
    """
    check_keywords("bomd.audit", layout, audit, folder.describe)
    return carry_out(
        plan(
            table,
            images,
            output=output,
            features=features,
            size=size,
            minutes=minutes,
            seed=seed,
            skip_missing=skip_missing,
            **layout,
        )
    )


def plan(
    table: LabelTable | pd.DataFrame | str | Path,
    images: str | Path | None = None,
    *,
    output: str | Path | None = None,
    features: str | Path | None = None,
    size: int | None = None,
    minutes: float | None = None,
    seed: int = 0,
    skip_missing: bool = False,
    **layout: Any,
) -> Plan:
    """Read and check everything, and decide how to train; arguments as for `audit`."""
    stem = Path(table).stem if isinstance(table, str | Path) else "labels"
    place = Path(output) if output is not None else Path(f"{stem}-audit")
    _check_free(place, table)
    with tempfile.TemporaryDirectory(prefix="bomd-audit-") as workplace:
        given = read_given(table, images, Path(workplace), skip_missing=skip_missing, **layout)
    labels, notes = complete(given.labels)
    if len(labels) < 2:
        raise InputError(f"{given.name} has {len(labels)} image: an audit compares images, so at least 2 are needed.")
    checks = verify_tables({"labels": labels}).checks
    notes += [f"{check.name}: {check.message}" for check in checks if not check.ok]
    notes += confirmed_note(labels)
    notes += [f"{len(given.missing)} rows have no image and are left out."] if given.missing else []
    notes += [f"{given.repeated} rows repeat an id and are left out."] if given.repeated else []
    files = [Path(str(path)).stat() for path in labels.paths] if labels.paths is not None else []
    state = np.asarray([(file.st_size, file.st_mtime_ns) for file in files])
    request = fingerprint(labels.ids, list(labels.classes), labels.values, labels.groups, labels.paths, state, seed)
    if labels.confirmed is not None:
        request = fingerprint(request, labels.confirmed)
    vectors, choice = None, None
    if features is not None:
        vectors = read_features(Path(features), given.labels.ids, given.rows, len(given.records.rows))
        request = fingerprint(request, vectors)
    else:
        request = fingerprint(request, size, minutes)
        choice = _earlier_choice(place, request) or choose(len(labels), _largest(labels), minutes=minutes, size=size)
        for line in explain(choice, len(labels)):
            progress.say(line)
    side = choice.size if choice is not None else size or PICTURES
    if not SMALLEST <= side <= LARGEST_SIZE:
        raise InputError(f"--size is {side}, but images need at least {SMALLEST} and at most {LARGEST_SIZE} pixels.")
    for note in notes:
        progress.say(f"Note: {note}")
    return Plan(given, labels, place, request, choice, vectors, seed, side, tuple(notes))


def carry_out(plan: Plan) -> Audit:
    """Train or compare features, and write labels, report and run directory."""
    root = plan.output / "runs"
    facts: dict[str, Any] = {"format": FORMAT, "given": plan.given.name, "request": plan.request}
    facts["choice"] = None if plan.choice is None else asdict(plan.choice)
    write_json(plan.output / FACTS, facts)
    config = _config(plan, root)
    with progress.silence("table"):  # the plan has said what the table holds
        if plan.choice is not None:
            with plan.choice.at_work():
                run = experiment.run(config, root)
        else:
            assert plan.vectors is not None
            run = run_on_features(config, plan.vectors, plan.labels.ids, root)
    keep(plan.given, run.directory)
    record = LabelRecord.load(run.directory / "labels.npz")
    left_out = dict.fromkeys(plan.given.missing, "There is no image of that name.")
    found = Audit(plan.output, run, record, suspicion_of(record), left_out, plan.notes)
    left_out |= {broken["id"]: broken["reason"] for broken in found.store().broken}
    facts |= {"run": str(run.directory.relative_to(plan.output)), "left_out": left_out, "notes": list(plan.notes)}
    write_text(plan.output / TABLE, _clean_table(plan.given, found))
    write_report([run], plan.output / PAGE)
    write_json(plan.output / FACTS, facts)
    return found


def complete(labels: LabelTable) -> tuple[LabelTable, list[str]]:
    """The labels with "No Finding" where no class is called so, and a note about it.

    BoMD compares the positive labels of an image with its negative ones, so it could say nothing about an image
    without a positive label, or about a set with one class. Where an image has no positive label and some are not
    known, "No Finding" is not known either.
    """
    if NO_FINDING in labels.classes:
        return labels, []
    positive, unknown = (labels.values >= 0.5).any(axis=1), np.isnan(labels.values).any(axis=1)
    nothing = np.where(positive, 0, np.where(unknown, np.nan, 1)).astype(np.float32)
    values = np.concatenate([labels.values, nothing[:, None]], axis=1)
    note = f'"{NO_FINDING}" was added as a class, so that images without a positive label can be judged too.'
    confirmed = labels.confirmed
    if confirmed is not None:  # it follows from the others, so that it is as certain as they are
        settled = confirmed.all(axis=1) | (confirmed & (labels.values >= 0.5)).any(axis=1)
        confirmed = np.column_stack([confirmed, settled])
    return replace(labels, classes=(*labels.classes, NO_FINDING), values=values, confirmed=confirmed), [note]


def confirmed_note(labels: LabelTable) -> list[str]:
    """How many labels people decided on, if any."""
    if labels.confirmed is None:
        return []
    images = int(labels.confirmed.any(axis=1).sum())
    return [f"{int(labels.confirmed.sum())} labels of {images} images are as people decided: they are not questioned."]


def _config(plan: Plan, root: Path) -> Config:
    """The experiment, whose labels are a file of its own: the given one may change while it runs."""
    tables = (root / "tables").absolute()
    name = f"{plan.request}.csv"
    make_private(tables)
    write_text(tables / name, _plain_table(plan.labels))
    train = {
        "dataset": "folder",
        "root": str(tables),
        "labels": name,
        "images": str(plan.given.folder),
        "classes": list(plan.labels.classes),
        "id_column": _ID,
        "patient_column": _PATIENT,
    }
    if plan.labels.confirmed is not None:
        file = details_beside(tables / name)
        write_text(file, confirmed_details(plan.labels))
        train |= {"labels_from": str(file), "labels_digest": digest_of(file)}
    if plan.choice is not None:
        return plan.choice.config("audit", train, len(plan.labels), plan.seed)
    return Config(
        name="audit",
        method=METHOD,
        seed=plan.seed,
        validation=0.0,
        images=ImageSettings(size=plan.size, skip_broken=True),
        train=train,
        settings={METHOD: {"neighbours": min(NEIGHBOURS, len(plan.labels) - 1)}},
    )


def _plain_table(labels: LabelTable) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow([_ID, _PATIENT, *labels.classes])
    for name, patient, values in zip(labels.ids, labels.groups, labels.values, strict=True):
        writer.writerow([name, patient, *("" if np.isnan(value) else repr(float(value)) for value in values)])
    return stream.getvalue()


def _clean_table(given: Given, found: Audit) -> str:
    """The given table with the columns of the audit; rows that were left out have blanks there."""
    headings = names(found.record.given.classes)
    judged = dict(zip(found.record.given.ids.tolist(), cells(found.record, found.suspicion), strict=True))
    added = [[""] * len(headings) for _ in given.records.rows]
    for place, name in zip(given.rows, given.labels.ids.tolist(), strict=True):
        added[place] = judged.get(name, added[place])
    return given.records.beside(headings, added)


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
    if not (place / FACTS).is_file():
        return None
    facts = read_json(place / FACTS)
    if not isinstance(facts, dict) or facts.get("request") != request or not facts.get("choice"):
        return None
    try:
        return Choice(**facts["choice"])
    except TypeError:
        return None


def _largest(labels: LabelTable) -> int:
    """Side of the largest of a few images."""
    sides = []
    for path in labels.paths[:: max(1, len(labels) // 5)] if labels.paths is not None else []:
        try:
            sides.append(max(read_image(Path(str(path))).shape))
        except InputError:
            continue  # unreadable images are listed when all are packed
    return max(sides, default=PICTURES)
