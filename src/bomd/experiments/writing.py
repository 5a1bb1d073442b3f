"""The files of a finished run, all written here: labels, pictures, predictions, where it ran, and last the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from bomd import runs
from bomd.config import Config
from bomd.data.store import Store
from bomd.experiments.evaluate import evaluate
from bomd.experiments.records import REVIEWED, SUSPECTS, LabelRecord, choose_examples, save_predictions
from bomd.files import write_json
from bomd.learn.learner import History
from bomd.measure.result import Result
from bomd.measure.space import save_sample
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
        run: Started, and not finished.
        record: The training labels, and what the run thinks of them.
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
