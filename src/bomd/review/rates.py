"""How often labels are wrong by what people decided, as a table that the next audit takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bomd.clean.calibrate import calibrate
from bomd.clean.opinion import ONE_LABEL_RATES
from bomd.clean.rates import estimate_rates
from bomd.clean.reviewed import rates_from_decisions
from bomd.data.cells import csv_text
from bomd.errors import InputError
from bomd.experiments.records import load_record
from bomd.files import write_text
from bomd.review.export import Reviewed
from bomd.tables import NO_FINDING


def write_rates(run: Path, reviewed: Reviewed, file: Path) -> None:
    """Write `class,miss,false_alarm` of every finding that somebody decided on, for `bomd audit --rates`."""
    record = load_record(run)
    if record.given.exclusive:
        raise InputError(ONE_LABEL_RATES)
    scores = record.scores if record.scores is not None else record.classifier
    fixed = reviewed.labels.confirmed
    if scores is None:
        raise InputError(f"{run} holds no scores of its labels, so that decisions cannot be compared with them.")
    if fixed is None or not fixed.any():
        raise InputError("Nobody has decided on a label yet, so there are no rates to learn.")
    given = record.given
    evidence = calibrate(scores, given.values)
    rates = estimate_rates(evidence, given.values, None, given.findings)
    alarm, miss = rates_from_decisions(evidence, given.values, np.where(fixed, reviewed.labels.values, np.nan), rates)
    lines = [("class", "miss", "false_alarm")]
    for column, name in enumerate(given.classes):
        if name != NO_FINDING and fixed[:, column].any():
            lines.append((name, f"{miss[column]:.5f}", f"{alarm[column]:.5f}"))
    write_text(file, csv_text(lines))
