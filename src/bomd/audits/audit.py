"""Audit a table of labels: judge them, propose others, and write it all down beside the given ones."""

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
from bomd.audits.arrays import read_rates
from bomd.audits.choose import SMALLEST, Choice, choose, explain
from bomd.audits.columns import LAST, cells, names, number
from bomd.audits.doubtful import doubtful_labels
from bomd.audits.given import Given, read_given
from bomd.audits.kept import keep
from bomd.audits.stand_in import PICTURES, StandIn, at_most_one, find_stand_in
from bomd.audits.untrained import run_untrained
from bomd.config import LARGEST_SIZE, Config, ImageSettings
from bomd.data.cells import harmless
from bomd.data.datasets import folder
from bomd.data.datasets.corrected import confirmed_details, details_beside, digest_of
from bomd.data.images import read_image
from bomd.data.store import Store, open_store
from bomd.data.verify import verify_tables
from bomd.errors import InputError
from bomd.experiments import experiment
from bomd.experiments.records import LabelRecord, load_record
from bomd.files import fingerprint, make_private, read_json, write_json, write_text
from bomd.reports.report import write_report
from bomd.runs import Run
from bomd.tables import NO_FINDING, Flags, LabelTable, Opinion
from bomd.typed import check_keywords

FORMAT = 1
FACTS, TABLE, LONG, PAGE = "audit.json", "labels_clean.csv", "doubtful_labels.csv", "report.html"
FEWEST = 4  # patients: two networks learn from two each

_ID, _PATIENT = "audit id", "audit patient"  # columns of the table that a run reads; no class is called so


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found.

    Attributes:
        directory: Where `labels_clean.csv`, `doubtful_labels.csv` and `report.html` are.
        run: The run directory, for `bomd review` and `bomd report`.
        record: Given labels, opinion, flags and neighbours of every image that could be read.
        left_out: Why an image could not be judged, by id.
        notes: What a reader should know.
    """

    directory: Path
    run: Run
    record: LabelRecord
    left_out: dict[str, str]
    notes: tuple[str, ...]

    @property
    def flags(self) -> Flags:
        """Which images look wrong."""
        assert self.record.flags is not None
        return self.record.flags

    @property
    def opinion(self) -> Opinion:
        """What is probably wrong, what is proposed, and in which order to look."""
        return self.record.opinion

    @property
    def labels(self) -> LabelTable:
        """(N, C) proposed labels, 0 or 1; the given ones are in `record.given`."""
        return self.record.given.replace(self.record.opinion.proposed)

    def table(self) -> pd.DataFrame:
        """One row for each judged image, the most suspect first, with the columns of `labels_clean.csv`."""
        headings = names(self.record.given.classes)
        frame = pd.DataFrame(cells(self.record), columns=headings)
        numbers = [name for name in headings if name != LAST]
        frame[numbers] = frame[numbers].apply(pd.to_numeric)
        frame.insert(0, "id", self.record.given.ids)
        return frame.iloc[np.argsort(self.record.opinion.rank)].reset_index(drop=True)

    def doubtful(self) -> pd.DataFrame:
        """One row for each doubtful label, the most doubtful first, with the columns of `doubtful_labels.csv`."""
        return doubtful_labels(self.record)

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
        choice: How to train; None where nothing is trained.
        stand_in: What judges then.
        rates: How often labels are wrong, by class, where somebody measured it.
        notes: What a reader should know.
    """

    given: Given
    labels: LabelTable
    output: Path
    request: str
    choice: Choice | None
    stand_in: StandIn | None
    rates: dict[str, dict[str, float]]
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
    probabilities: str | Path | None = None,
    backbone: str | None = None,
    rates: str | Path | None = None,
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
            "features"; no network is trained then.
        probabilities: Of the labels by a model of your own that never saw the image, likewise, with one column per
            class; `.npz` may name its columns in "classes". No network is trained then.
        backbone: A network that somebody trained, such as "hf:microsoft/rad-dino" or "hf:" and a folder: its features
            are computed once and judge the labels. No network is trained then.
        rates: A CSV with the columns class, miss and false_alarm, where somebody measured how often labels are wrong.
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
            probabilities=probabilities,
            backbone=backbone,
            rates=rates,
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
    probabilities: str | Path | None = None,
    backbone: str | None = None,
    rates: str | Path | None = None,
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
    people, least = len(np.unique(labels.groups)), 2 if at_most_one(features, probabilities, backbone) else FEWEST
    if people < least:
        raise InputError(f"{given.name} shows {people} patients: others judge each of them, so {least} are needed.")
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
    measured = {} if rates is None else read_rates(Path(rates), labels.classes)
    request = fingerprint(request, measured) if measured else request
    choice, stand_in = None, find_stand_in(given, labels, features, probabilities, backbone)
    if stand_in is not None:
        request = fingerprint(request, stand_in.key)
    else:
        request = fingerprint(request, size, minutes)
        choice = _earlier_choice(place, request) or choose(len(labels), _largest(labels), minutes=minutes, size=size)
        for line in explain(choice, len(labels)):
            progress.say(line)
    side = choice.size if choice is not None else size or (stand_in.side if stand_in is not None else PICTURES)
    if not SMALLEST <= side <= LARGEST_SIZE:
        raise InputError(f"--size is {side}, but images need at least {SMALLEST} and at most {LARGEST_SIZE} pixels.")
    for note in notes:
        progress.say(f"Note: {note}")
    return Plan(given, labels, place, request, choice, stand_in, measured, seed, side, tuple(notes))


def carry_out(plan: Plan) -> Audit:
    """Train, or take what is given, and write labels, report and run directory."""
    root = plan.output / "runs"
    facts: dict[str, Any] = {"format": FORMAT, "given": plan.given.name, "request": plan.request}
    facts["choice"] = None if plan.choice is None else asdict(plan.choice)
    facts["rates"] = plan.rates
    write_json(plan.output / FACTS, facts)
    config = _config(plan, root)
    with progress.silence("table"):  # the plan has said what the table holds
        if plan.choice is not None:
            with plan.choice.at_work():
                run = experiment.run(config, root)
        else:
            assert plan.stand_in is not None
            run = run_untrained(config, plan.stand_in.values, root)
    keep(plan.given, run.directory)
    record = load_record(run.directory)
    left_out = dict.fromkeys(plan.given.missing, "There is no image of that name.")
    found = Audit(plan.output, run, record, left_out, plan.notes)
    left_out |= {broken["id"]: broken["reason"] for broken in found.store().broken}
    facts |= {"run": str(run.directory.relative_to(plan.output)), "left_out": left_out, "notes": list(plan.notes)}
    write_text(plan.output / TABLE, _clean_table(plan.given, found))
    write_text(plan.output / LONG, _long_table(found))
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
        return replace(plan.choice.config("audit", train, len(plan.labels), plan.seed), rates=plan.rates)
    assert plan.stand_in is not None
    return Config(
        name="audit",
        method=plan.stand_in.kind,
        seed=plan.seed,
        validation=0.0,
        images=ImageSettings(size=plan.size, skip_broken=True),
        train=train,
        fit=plan.stand_in.fit,
        rates=plan.rates,
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
    judged = dict(zip(found.record.given.ids.tolist(), cells(found.record), strict=True))
    added = [[""] * len(headings) for _ in given.records.rows]
    for place, name in zip(given.rows, given.labels.ids.tolist(), strict=True):
        added[place] = judged.get(name, added[place])
    return given.records.beside(headings, added)


def _long_table(found: Audit) -> str:
    """The most doubtful labels as CSV; names that a spreadsheet would run as a formula are made harmless."""
    table = found.doubtful()
    for name in table.columns.intersection(["image", "patient", "class"]):
        table[name] = [harmless(str(cell)) for cell in table[name]]
    table["given"], table["wrong"] = ([number(value) for value in table[name]] for name in ("given", "wrong"))
    return str(table.to_csv(index=False, lineterminator="\n"))


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
