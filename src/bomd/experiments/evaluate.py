"""The numbers of one run: how good the classifier, the flags and the new labels are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bomd.experiments.records import LabelRecord
from bomd.measure.metrics import classification
from bomd.measure.quality import (
    Detection,
    clean_set_composition,
    detection,
    histogram_distance,
    label_auc,
    label_histogram,
)
from bomd.measure.result import Flagged, Labels, LabelSums, Result
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
) -> Result:
    """Score every test set, and, where the method flagged or noise was added on purpose, flags and labels.

    Args:
        space: The descriptors that new labels come from, to judge distances and votes.
        seed: Of the sample of images whose neighbours are asked.
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
        composition=None if flags is None else clean_set_composition(flags, record.given),
        detection=_detection(record),
        labels=_labels(record),
        votes=votes,
        space=None if space is None else measure_space(space.descriptors, space.vectors, record.clean or record.given),
    )


def _detection(record: LabelRecord) -> Detection | None:
    if record.clean is None or record.flags is None:
        return None
    changed = ~np.isnan(record.clean.values) & (record.given.values != record.clean.values)
    return detection(record.flags, changed, record.given, rows=record.exposed)


def _labels(record: LabelRecord) -> Labels | None:
    """Judged on the rows that noise could fall on; elsewhere the truth is not known."""
    if record.clean is None or record.exposed is None:
        return None
    clean, given, targets = (table.take(record.exposed) for table in (record.clean, record.given, record.targets))
    sums = [*(label_histogram(table) for table in (clean, given, targets)), label_histogram(targets, threshold=0.5)]
    return Labels(
        **vars(label_auc(clean, given, targets)),
        distance_before=histogram_distance(sums[0], sums[1]),
        distance_after=histogram_distance(sums[0], sums[2]),
        histograms=tuple(
            LabelSums(name, *(float(values[column]) for values in sums)) for column, name in enumerate(clean.classes)
        ),
    )
