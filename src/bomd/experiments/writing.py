"""What a finished run leaves: its numbers, and all its files, the result last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bomd import runs
from bomd.config import Config
from bomd.data.store import Store
from bomd.experiments.records import REVIEWED, SUSPECTS, LabelRecord, choose_examples, save_predictions
from bomd.files import write_json
from bomd.learn.learner import History
from bomd.measure import quality
from bomd.measure.metrics import classification
from bomd.measure.result import Flagged, Labels, LabelSums, Result
from bomd.measure.space import measure_space, save_sample
from bomd.measure.votes import judge_votes
from bomd.methods.base import Space
from bomd.tables import LabelTable


def write_run(
    run: runs.Run,
    config: Config,
    record: LabelRecord,
    store: Store,
    facts: Mapping[str, Any],
    environment: Mapping[str, Any],
    *,
    truths: Mapping[str, LabelTable] | None = None,
    predictions: Mapping[str, LabelTable] | None = None,
    history: History | None = None,
    space: Space | None = None,
    save_model: Callable[[Result], None] | None = None,
) -> None:
    """Write a run directory; what nobody trained or tested is empty.

    Args:
        facts: What else the result says, such as "notes".
        space: The descriptors that new labels come from.
        save_model: Keeps the trained networks, told the numbers of the run.
    """
    truths, predictions, place = truths or {}, predictions or {}, run.directory
    record.save(place / "labels.npz")
    runs.remember_images(run, store.directory, store.size, store.fingerprint)
    if space is not None:
        save_sample(place / "space.npz", space.descriptors, space.vectors, record.clean or record.given, config.seed)
    most = SUSPECTS if truths else REVIEWED  # where nobody is tested, people go through what is flagged
    choose_examples(record, store, config.seed, most).save(place / "examples.npz")
    save_predictions(place / "predictions.npz", truths, predictions)
    runs.write_lines(place / "metrics.jsonl", history or [])
    write_json(place / "environment.json", environment)
    result = replace(
        evaluate(record, truths, predictions, config.minimum_positives, space, config.seed),
        format=runs.FORMAT,
        name=config.name,
        method=config.method,
        seed=config.seed,
        images={"train": len(record.given), **{name: len(truth) for name, truth in truths.items()}},
        **facts,
    )
    if save_model is not None:
        save_model(result)
    write_json(place / "result.json", result.to_dict())


def evaluate(
    record: LabelRecord,
    truths: Mapping[str, LabelTable],
    predictions: Mapping[str, LabelTable],
    minimum_positives: int,
    space: Space | None = None,
    seed: int = 0,
) -> Result:
    """Score every test set, and, where the method flagged or noise was added on purpose, flags and labels.

    Distances and votes are judged by the descriptors that new labels come from.
    """
    flags, votes = record.flags, None
    if space is not None and record.clean is not None and record.exposed is not None:
        votes = judge_votes(space.voters, record.given, record.clean, record.exposed, seed)
    return Result(
        tests={
            name: classification(truth, predictions[name], minimum_positives=minimum_positives)
            for name, truth in truths.items()
        },
        flagged=None if flags is None else Flagged(int(flags.noisy.sum()), len(flags)),
        composition=None if flags is None else quality.clean_set_composition(flags, record.given),
        detection=_detection(record),
        labels=_labels(record),
        votes=votes,
        space=None if space is None else measure_space(space.descriptors, space.vectors, record.clean or record.given),
    )


def _detection(record: LabelRecord) -> quality.Detection | None:
    if record.clean is None or record.flags is None:
        return None
    changed = ~np.isnan(record.clean.values) & (record.given.values != record.clean.values)
    return quality.detection(record.flags, changed, record.given, rows=record.exposed)


def _labels(record: LabelRecord) -> Labels | None:
    """Judged on the rows that noise could fall on; elsewhere the truth is not known."""
    if record.clean is None or record.exposed is None:
        return None
    clean, given, targets = (table.take(record.exposed) for table in (record.clean, record.given, record.targets))
    sums = [quality.label_histogram(table) for table in (clean, given, targets)]
    sums.append(quality.label_histogram(targets, threshold=0.5))
    return Labels(
        **vars(quality.label_auc(clean, given, targets)),
        distance_before=quality.histogram_distance(sums[0], sums[1]),
        distance_after=quality.histogram_distance(sums[0], sums[2]),
        histograms=tuple(
            LabelSums(name, *(float(values[column]) for values in sums)) for column, name in enumerate(clean.classes)
        ),
    )
