"""An audit without training: a file of features or probabilities, or a network as it is, judges the labels."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from bomd import progress, runs
from bomd.audits.arrays import Rows, read_features, read_probabilities
from bomd.audits.frozen import open_frozen
from bomd.audits.given import Given
from bomd.clean.calibrate import LEAST, logistic
from bomd.clean.features import Features
from bomd.clean.heads import FOLDS, cross_fit_heads
from bomd.clean.neighbours import nothing
from bomd.clean.opinion import form_opinion
from bomd.clean.rates import known_rates
from bomd.config import Config, FitSettings
from bomd.data.datasets import DATASETS
from bomd.errors import InputError
from bomd.experiments.packing import Source, pack_images, skipped_images
from bomd.experiments.records import LabelRecord
from bomd.experiments.writing import write_run
from bomd.files import fingerprint, read_array, write_array
from bomd.methods.bomd_plus import as_flags
from bomd.methods.nearest import LOOKED_AT, find_nearest
from bomd.sources import code_of
from bomd.tables import Floats, LabelTable, rows_of

Kind = Literal["features", "probabilities", "frozen"]  # where a run says how it was made, instead of a method
NEIGHBOURS = 10  # images with the nearest features, to be looked at
PICTURES = 128  # pixels of the images that are packed to be looked at

Values = Callable[[Source, runs.Stages], Features]  # (n, D) features or (n, C) probabilities of packed images


@dataclass(frozen=True, eq=False)
class StandIn:
    """What judges instead of a trained network."""

    kind: Kind
    values: Values
    key: str
    side: int = PICTURES  # pixels along a side of the images that the values want
    fit: FitSettings = field(default_factory=FitSettings)  # names the network, where there is one
    explain: Callable[[int], tuple[str, ...]] = lambda images: ()  # what to know first of judging so many images

    def config(self, name: str, train: dict[str, Any], images: int, seed: int) -> Config:
        """The experiment, as `Choice.config` has it."""
        return Config(name=name, method=self.kind, seed=seed, validation=0.0, train=train, fit=self.fit)


def find_stand_in(
    given: Given,
    labels: LabelTable,
    features: str | Path | None,
    probabilities: str | Path | None,
    backbone: str | None,
    size: int | None,
) -> StandIn | None:
    """What the options of an audit name, read and checked; None where a network is to be trained."""
    if at_most_one(features, probabilities, backbone) is None:
        return None
    if backbone is not None:
        frozen = open_frozen(backbone, size)
        side, fit = size or max(frozen.side, PICTURES), FitSettings(backbone=backbone)
        return StandIn("frozen", frozen.features, frozen.fingerprint, side, fit, frozen.explain)
    where = (given.labels.ids, given.rows, len(given.records.rows))
    if features is not None:
        rows = read_features(Path(features), *where)
        key, side = fingerprint("features", rows.values, rows.rows), size or PICTURES
        plan = f"Logistic heads on the {rows.shape[1]} features of {features} judge the labels; no network is trained."
        return StandIn("features", _of(rows, labels), key, side, explain=lambda images: (plan,))
    values = read_probabilities(Path(str(probabilities)), *where, given.labels.classes, labels.classes)
    rows = Rows(values, np.arange(len(values)))
    key, side = fingerprint("probabilities", values), size or PICTURES
    plan = f"The probabilities of {probabilities} judge the labels; nothing is trained."
    return StandIn("probabilities", _of(rows, labels), key, side, explain=lambda images: (plan,))


def at_most_one(features: str | Path | None, probabilities: str | Path | None, backbone: str | None) -> str | None:
    """The option that is set; an error where several are."""
    ways = {"--features": features, "--probabilities": probabilities, "--backbone": backbone}
    chosen = [name for name, way in ways.items() if way is not None]
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(chosen)}: one of them judges the labels, so pass one.")
    return chosen[0] if chosen else None


def _of(rows: Rows, labels: LabelTable) -> Values:
    """Those of a file, which may stay on disk, for the images that could be packed."""
    return lambda source, stages: rows.take(rows_of(labels.ids, source.labels.ids))


def run_untrained(config: Config, labels: LabelTable, values: Values, root: Path) -> runs.Run:
    """Judge labels by what is given, and leave a run directory like any other; the method is the kind of values."""
    started = time.time()
    this = runs.start(root, config, code=code_of(__name__, "bomd.data.store"))
    if this.finished:
        progress.say(f"{this.directory} is finished already; delete it to run again")
        return this
    stages = runs.Stages(root / "stages")
    source = pack_images(labels, DATASETS["folder"], config, stages, torch.device("cpu"))
    given, own = source.labels, values(source, stages)
    judged = (config.train, config.seed, given.ids)
    if config.method != "probabilities":
        with stages.enter("judged", *judged, by=(__name__,)) as stage:
            scores = judge_by_features(own, given, config.seed, stage)
        which = f"frozen features of {config.fit.backbone}" if config.method == "frozen" else "features that were given"
        note = f"Logistic heads on the {which}, fitted on {FOLDS - 1} of {FOLDS} parts of the patients"
        note += ", judge the labels of the part left out."
    else:
        clipped = np.clip(own[:].astype(np.float64), LEAST, 1 - LEAST)
        scores = (np.log(clipped) if given.exclusive else logistic(clipped)).astype(np.float32)
        note = "Probabilities that were given judge the labels, as if their model never saw them."
    opinion, posterior, _ = form_opinion(scores, given, known=known_rates(config.rates, given.classes))
    targets, flags, neighbours = given.replace(posterior.truth), as_flags(opinion), None
    if config.method != "probabilities":
        count, first = min(NEIGHBOURS, len(given) - 1), np.flatnonzero(opinion.rank <= LOOKED_AT)
        nearest = nothing(len(given), count)
        nearest.put(first, find_nearest(own, count, first, stages, judged, by_angle=True))
        neighbours = nearest.indices
    record = LabelRecord(given, targets, opinion, flags=flags, neighbours=neighbours, scores=scores)
    notes = [note, *opinion.reasons, *skipped_images({"train": source})]
    facts = {"notes": notes, "seconds": round(time.time() - started, 1), "images_presented": 0}
    write_run(this, config, record, source.store, facts, runs.environment("cpu", started))
    return this


def judge_by_features(features: Features, given: LabelTable, seed: int, stage: runs.Stage) -> Floats:
    """(N, C) scores by heads that never saw the patient; the stage keeps them."""
    path = stage.directory / "scores.npy"
    if not stage.finished:
        write_array(path, cross_fit_heads(features, given.values, given.groups, seed=seed, exclusive=given.exclusive))
        stage.finish(images=len(given))
    return read_array(path)
