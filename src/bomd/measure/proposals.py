"""Hard labels out of a run: what its flags and neighbours would have a person change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bomd.tables import NO_FINDING

if TYPE_CHECKING:
    from bomd.measure.records import LabelRecord


def propose(record: LabelRecord) -> NDArray[np.float32]:
    """(N, C) a yes (1) or no (0) for every label of a flagged image; other images keep what was given.

    Where neighbours voted, more than half of them decide, and at exactly half the given label stays. The soft label
    is no use for that: it keeps 40 % of a given positive, so that hardly any label would ever be taken away at 0.5.
    An image that is left without any finding gets "No Finding" where there is such a class, and one with a finding
    loses it. What is not labelled stays so, and so does what a person decided on.
    """
    from bomd.clean.relabel import neighbour_mean  # brings PyTorch, which a report can do without

    given = np.where(np.isnan(record.given.values), np.nan, record.given.values >= 0.5).astype(np.float32)
    if record.flags is None or record.neighbours is None:
        return given
    votes = neighbour_mean(record.given.values, record.neighbours)
    decided = ~(np.isnan(votes) | (votes == 0.5) | np.isnan(given)) & record.flags.noisy[:, None]
    hard = np.where(decided, votes > 0.5, given).astype(np.float32)
    if NO_FINDING in record.given.classes:
        nothing = record.given.classes.index(NO_FINDING)
        settled = record.flags.noisy & ~np.isnan(hard[:, nothing])
        hard[settled, nothing] = ~(hard[settled][:, record.given.findings] == 1).any(axis=1)
    return hard if record.given.confirmed is None else np.where(record.given.confirmed, given, hard)
