"""From a review to a classifier: the settings of the run, the labels that people decided on, and thresholds."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from bomd import config as settings
from bomd.audits import kept
from bomd.config import Config
from bomd.data.datasets import DATASETS
from bomd.data.datasets.corrected import Corrections, details_beside, digest_of
from bomd.errors import InputError
from bomd.experiments import experiment
from bomd.experiments.one_label import HANDED
from bomd.files import fingerprint
from bomd.methods import METHODS
from bomd.models.model import DESCRIPTION
from bomd.reports.report import check_place, write_report
from bomd.review import outputs
from bomd.review.evidence import only_run
from bomd.review.export import Reviewed, as_listed, as_table, read_reviewed, reviewed_files
from bomd.review.outputs import Output
from bomd.runs import Run

HELD_OUT = 0.2  # of the patients, where the run held out nobody, as an audit does
FOLDER, MODEL, PAGE = "retrained", "model", "report.html"


@dataclass(frozen=True, eq=False)
class Retrained:
    """What came of a review; the model folder is for `bomd predict`."""

    run: Run
    model: Path
    page: Path


def retrain(place: Path, output: Path | None = None, held_out: float | None = None) -> Retrained:
    """Train again as a run did, from the labels that people decided on, and choose thresholds on held-out patients.

    The same call continues where an earlier one stopped, and returns at once where it is done. After more decisions
    it trains anew.

    Args:
        place: The folder of an audit, or a run directory.
        output: Where model, report and reviewed labels go; by default `retrained` in that folder.
        held_out: Share of the patients whose labels choose the thresholds; by default that of the run, or a fifth.
    """
    run = only_run(place)
    folder = output or place / FOLDER
    if held_out is not None and not 0 < held_out < 1:
        raise InputError(f"--held-out is {held_out:g}, but must lie between 0 and 1.")
    own = kept.find(run)
    reviewed = as_listed(read_reviewed(run), own)
    labels, decided = reviewed.labels, reviewed.labels.confirmed
    config = _config_of(run)  # first, since no decision mends a run that trained nothing
    if decided is None or not decided.any():
        raise InputError(f"Nobody has decided anything yet: start with bomd review {shlex.quote(str(place))} --open")
    _check_model(folder / MODEL)
    check_place(folder / PAGE)
    folder.mkdir(parents=True, exist_ok=True)
    table = _write_labels(run, reviewed, own, folder, config)
    share = held_out or config.validation or HELD_OUT
    config = replace(config, name=f"{config.name}-{FOLDER}", validation=share)
    config = _with_fewer_neighbours(config, int((1 - share) * len(reviewed.labels)) - 1)
    shared = run.resolve().parents[2]  # where the run's packed images are, unless it was moved
    root = shared if (shared / "stages").is_dir() else folder / "runs"
    if HANDED in config.train:  # all labels of such a run are in its record
        tables = {"train": (reviewed.given, DATASETS["folder"])}
        named = (labels.ids, labels.classes, labels.values, decided, decided)
        fixed = Corrections(details_beside(table), *named, detailed=True)
        state = fingerprint(config.train[HANDED], labels.values, decided)
        config = replace(config, train=config.train | {HANDED: state})
        done = experiment.run_on(config, tables, fixed, root)
    else:
        done = _run_again(config, table, root)
    page = write_report([done], folder / PAGE)
    return Retrained(done, _copy_model(done, folder), page)


def _config_of(run: Path) -> Config:
    saved = Run(run).config()
    if saved.get("method") not in METHODS:
        way = "without --features, --probabilities or --backbone"
        raise InputError(f"{run} trained nothing (method {saved.get('method')}): audit {way} first.")
    return settings.parse(saved, METHODS, str(run / "config.json"))


def _check_model(model: Path) -> None:
    """Refuse to remove a folder of the user's own, found out before time is spent."""
    if model.exists() and not (model / DESCRIPTION).is_file() and (not model.is_dir() or any(model.iterdir())):
        raise InputError(f"{model} is there and holds something else: name another folder as --output.")


def _write_labels(run: Path, reviewed: Reviewed, own: kept.Kept | None, folder: Path, config: Config) -> Path:
    """The reviewed labels with their details, over nothing of the user's own."""
    files = reviewed_files(run, reviewed, own, folder / "reviewed.csv")
    table, details = files
    if "labels_from" in config.train:  # what the run learnt from beside the decisions of people is learnt from again
        labels, text = folder / "labels.csv", as_table(reviewed, None)
        beside = replace(details, path=details_beside(labels))
        files += [Output("--output", labels, text, text.partition("\n")[0] + "\n", told_by=beside.path), beside]
    outputs.write(files, None if own is None else own.source)
    return table.path


def _run_again(config: Config, table: Path, root: Path) -> Run:
    """Read the data of a recipe once more, and beside them what people decided."""
    labels = table.with_name("labels.csv") if "labels_from" in config.train else details_beside(table)
    train = config.train | {"labels_from": str(labels.resolve()), "labels_digest": digest_of(labels.resolve())}
    return experiment.run(replace(config, train=train), root)


def _with_fewer_neighbours(config: Config, most: int) -> Config:
    """A small set, of which some are held out, may have fewer images than the run had neighbours."""
    own = config.settings.get(config.method, {})
    if own.get("neighbours", 0) <= most:
        return config
    return replace(config, settings=config.settings | {config.method: own | {"neighbours": max(1, most)}})


def _copy_model(done: Run, folder: Path) -> Path:
    """The model beside the report, whole or not at all."""
    model, fresh = folder / MODEL, folder / f".{MODEL}"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(done.directory / MODEL, fresh)
    shutil.rmtree(model, ignore_errors=True)
    fresh.rename(model)
    return model
