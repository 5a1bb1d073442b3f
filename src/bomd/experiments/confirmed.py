"""Labels that people decided on are fixed in what a method prepares; `methods/confirmed.py` sees to its training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bomd.data.datasets.corrected import Corrections
from bomd.methods.base import Prepared
from bomd.tables import Flags, LabelTable

LEARNT = "learnt in full and never flagged"


def after_noise(noisy: LabelTable, before: LabelTable) -> LabelTable:
    """Labels with noise, which spares what people decided about a part of the set, such as one of a mixture."""
    if before.confirmed is None:
        return noisy
    values = np.where(before.confirmed, before.values, noisy.values)
    return replace(noisy, values=values, confirmed=before.confirmed)


def count_decided(labels: LabelTable) -> dict[str, int]:
    """How many labels of how many images people decided on."""
    confirmed = np.zeros((0, 0), np.bool_) if labels.confirmed is None else labels.confirmed
    return {"labels": int(confirmed.sum()), "images": int(confirmed.any(axis=1).sum())}


def decided_note(labels: LabelTable, decided: Corrections | None = None, so: str = LEARNT) -> str:
    """How many labels people decided on, where that stands, and what follows, for a reader of the run."""
    count, images = count_decided(labels).values()
    told = f"{count} label{'s' * (count != 1)} of {images} image{'s' * (images != 1)} {'is' if count == 1 else 'are'}"
    return f"{told} as people decided{'' if decided is None else f' ({decided.file.name})'}: {so}."


def keep_confirmed(prepared: Prepared, given: LabelTable) -> Prepared:
    """What a method prepared, with the labels that people decided on as they are: learnt in full and never flagged.

    An image stays flagged only if it has a label that nobody decided on.
    """
    fixed = given.confirmed
    if fixed is None or not fixed.any():
        return prepared
    flags = prepared.flags
    if flags is not None:
        entry = np.where(fixed, np.nan, flags.entry).astype(np.float32)
        undecided = ~(fixed | np.isnan(given.values)).all(axis=1)
        margin = np.where(undecided, flags.margin, np.nan).astype(np.float32)
        flags = Flags(flags.ids, flags.noisy & undecided, margin, entry)
    targets = np.where(fixed, given.values, prepared.targets)
    return replace(prepared, targets=targets, flags=flags)
