"""From a review to a classifier: the settings of the run, the labels that people decided on, and thresholds."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from bomd import config as settings
from bomd.config import Config
from bomd.data.datasets import DATASETS
from bomd.data.datasets.corrected import Corrections, details_beside, digest_of
from bomd.errors import InputError
from bomd.experiments import experiment
from bomd.experiments.one_label import HANDED
from bomd.files import fingerprint, write_text
from bomd.methods import METHODS
from bomd.reports.report import write_report
from bomd.review.evidence import only_run
from bomd.review.export import Reviewed, as_table, read_reviewed, write_reviewed
from bomd.runs import Run

HELD_OUT = 0.2  # of the patients, where the run held out nobody, as an audit does
FOLDER = "retrained"


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
    decided = read_reviewed(run).labels.confirmed
    config = _config_of(run)  # first, since no decision mends a run that trained nothing
    if decided is None or not decided.any():
        raise InputError(f"Nobody has decided anything yet: start with bomd review {shlex.quote(str(place))} --open")
    folder.mkdir(parents=True, exist_ok=True)
    reviewed, table = write_reviewed(run, folder / "reviewed.csv")
    labels, decided = reviewed.labels, reviewed.labels.confirmed
    assert decided is not None
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
        done = _run_again(config, reviewed, table, root)
    page = write_report([done], folder / "report.html")
    return Retrained(done, _copy_model(done, folder), page)


def _config_of(run: Path) -> Config:
    saved = Run(run).config()
    if saved.get("method") not in METHODS:
        way = "without --features, --probabilities or --backbone"
        raise InputError(f"{run} trained nothing (method {saved.get('method')}): audit {way} first.")
    return settings.parse(saved, METHODS, str(run / "config.json"))


def _run_again(config: Config, reviewed: Reviewed, table: Path, root: Path) -> Run:
    """Read the data of a recipe once more, and beside them what people decided."""
    labels = details_beside(table).resolve()
    if "labels_from" in config.train:  # what the run learnt from beside the decisions of people is learnt from again
        labels = table.with_name("labels.csv").resolve()
        write_text(labels, as_table(reviewed, None))
        write_text(details_beside(labels), details_beside(table).read_text(encoding="utf-8"))
    train = config.train | {"labels_from": str(labels), "labels_digest": digest_of(labels)}
    return experiment.run(replace(config, train=train), root)


def _with_fewer_neighbours(config: Config, most: int) -> Config:
    """A small set, of which some are held out, may have fewer images than the run had neighbours."""
    own = config.settings.get(config.method, {})
    if own.get("neighbours", 0) <= most:
        return config
    return replace(config, settings=config.settings | {config.method: own | {"neighbours": max(1, most)}})


def _copy_model(done: Run, folder: Path) -> Path:
    """The model beside the report, whole or not at all."""
    model, fresh = folder / "model", folder / ".model"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(done.directory / "model", fresh)
    shutil.rmtree(model, ignore_errors=True)
    fresh.rename(model)
    return model
