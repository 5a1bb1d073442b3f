"""The numbers of one run: how good the classifier, the flags and the new labels are, as plain JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bomd.experiments.records import LabelRecord
from bomd.measure.metrics import classification
from bomd.measure.quality import (
    clean_set_composition,
    detection,
    histogram_distance,
    label_auc,
    label_histogram,
)
from bomd.measure.space import measure_space
from bomd.measure.votes import judge_votes
from bomd.methods.base import Space
from bomd.tables import LabelTable


def evaluate(
    record: LabelRecord,
    truths: Mapping[str, LabelTable],
    predictions: Mapping[str, LabelTable],
    minimum_positives: int,
    space: Space | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Score every test set, and, where the method flagged or noise was added on purpose, flags and labels.

    Args:
        space: The descriptors that new labels come from, to judge distances and votes.
        seed: Of the sample of images whose neighbours are asked.
    """
    flags = record.flags
    return {
        "tests": {name: _test(truths[name], predictions[name], minimum_positives) for name in truths},
        "flagged": None if flags is None else {"images": int(flags.noisy.sum()), "of": len(flags)},
        "composition": None
        if flags is None
        else [kept.to_dict() for kept in clean_set_composition(flags, record.given)],
        "detection": _detection(record),
        "labels": _labels(record),
        "votes": _votes(record, space, seed),
        "space": _space(record, space),
    }


def _test(truth: LabelTable, predicted: LabelTable, minimum_positives: int) -> dict[str, Any]:
    scores = classification(truth, predicted, minimum_positives=minimum_positives).to_dict()
    scores["left_out"] = [{"name": name, "reason": reason} for name, reason in scores["left_out"].items()]
    return scores


def _detection(record: LabelRecord) -> dict[str, Any] | None:
    if record.clean is None or record.flags is None:
        return None
    changed = ~np.isnan(record.clean.values) & (record.given.values != record.clean.values)
    return detection(record.flags, changed, record.given, rows=record.exposed).to_dict()


def _labels(record: LabelRecord) -> dict[str, Any] | None:
    """Judged on the rows that noise could fall on; elsewhere the truth is not known."""
    if record.clean is None or record.exposed is None:
        return None
    clean, given, targets = (table.take(record.exposed) for table in (record.clean, record.given, record.targets))
    quality = label_auc(clean, given, targets).to_dict()
    truth = label_histogram(clean)
    quality["distance_before"] = histogram_distance(truth, label_histogram(given))
    quality["distance_after"] = histogram_distance(truth, label_histogram(targets))
    sums = {
        "clean": truth,
        "given": label_histogram(given),
        "proposed": label_histogram(targets),  # as these two are called in the records of earlier runs
        "proposed_hard": label_histogram(targets, threshold=0.5),
    }
    quality["histograms"] = [
        {"name": name, **{key: float(values[column]) for key, values in sums.items()}}
        for column, name in enumerate(clean.classes)
    ]
    return quality


def _votes(record: LabelRecord, space: Space | None, seed: int) -> dict[str, Any] | None:
    if space is None or record.clean is None or record.exposed is None:
        return None
    return judge_votes(space.voters, record.given, record.clean, record.exposed, seed)


def _space(record: LabelRecord, space: Space | None) -> dict[str, Any] | None:
    if space is None:
        return None
    return measure_space(space.descriptors, space.vectors, record.clean or record.given)
