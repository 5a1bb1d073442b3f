"""The single labels that are most probably wrong, one row each."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bomd.audits.columns import MOVED
from bomd.experiments.records import LabelRecord

LEAST = 0.2  # probability of being wrong below which a label is not listed
MOST = 100_000  # rows, so that the file opens anywhere


def doubtful_labels(record: LabelRecord) -> pd.DataFrame:
    """Labels of findings by falling probability of being wrong; "No Finding" follows from them.

    Returns:
        One row per label: image, patient (where patients are known), class, given and proposed label, the probability
        that the given one is wrong, and the places of label and image in their orders. Where an image has one label,
        one row at most, with the class that is proposed.
    """
    opinion, given = record.opinion, record.given
    findings = np.arange(len(given.classes)) if given.exclusive else given.findings
    wrong = np.nan_to_num(opinion.wrong[:, findings], nan=-1.0)
    if given.exclusive:  # where one class is wrong another is missing, so that the given one stands for both
        wrong[given.values < 0.5] = -1
    order = np.argsort(-wrong, axis=None, kind="stable")
    order = order[: min(MOST, int((wrong >= LEAST).sum()))]
    rows, columns = np.unravel_index(order, wrong.shape)
    places = findings[columns]
    table = pd.DataFrame(
        {
            "image": given.ids[rows].astype(object),
            "class": np.asarray(given.classes, dtype=object)[places],
            "given": given.values[rows, places],
            "proposed": opinion.proposed[rows, places].astype(np.int64),
            "wrong": opinion.wrong[rows, places],
            "label rank": np.arange(1, len(rows) + 1),
            "image rank": opinion.rank[rows],
        }
    )
    if given.exclusive:
        table.insert(4, MOVED, np.asarray(given.classes, dtype=object)[opinion.proposed[rows].argmax(axis=1)])
    if given.patients is not None and not np.array_equal(given.patients, given.ids):
        table.insert(1, "patient", given.patients[rows].astype(object))
    return table
