"""Hold out patients so that every class keeps its share on both sides."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError
from bomd.tables import LabelTable

Rows = NDArray[np.intp]


def split_by_patient(table: LabelTable, fraction: float, seed: int) -> tuple[Rows, Rows]:
    """Split a table so that no patient is on both sides and each class is held out in about the same share.

    Greedy iterative stratification over patients. The class with the fewest positives among the patients not
    yet placed goes first, while there is most freedom to place them; its patients are taken from those with
    most positives to those with fewest, at random where equal, and each goes to the side that brings the
    class's share nearer to the fraction. Patients without any positive come last and even out the number of
    images. The result depends on ids, patients, labels and seed, not on the order of the rows.

    NaN counts as no label, a soft label by its value. Where patients are unknown every image is its own.

    Returns:
        Rows that are kept and rows that are held out, both ascending; fraction 0 holds out nothing.
    """
    if not 0 <= fraction < 1:
        raise InputError(f"Cannot hold out a fraction of {fraction:g}: it must be at least 0 and below 1.")
    N = len(table)
    if fraction == 0:
        return np.arange(N), np.zeros(0, dtype=np.intp)
    by_id = np.argsort(table.ids)  # sums of soft labels round the same way whatever the order of the rows
    patients, patient_of = np.unique(table.groups[by_id], return_inverse=True)
    images_and_classes = np.column_stack([np.ones(N), np.nan_to_num(table.values[by_id].astype(np.float64))])
    columns = [np.bincount(patient_of, column, len(patients)) for column in images_and_classes.T]
    amounts = np.stack(columns, axis=1).astype(np.float64)
    held_out = _choose(amounts, fraction, np.random.default_rng(seed))
    if N and (held_out.all() or not held_out.any()):
        raise InputError(
            f"Holding out {fraction:g} of {len(patients)} patients leaves one side empty: "
            f"use another fraction or more patients."
        )
    rows_held_out = np.zeros(N, dtype=np.bool_)
    rows_held_out[by_id] = held_out[patient_of]
    return np.flatnonzero(~rows_held_out), np.flatnonzero(rows_held_out)


def _choose(amounts: NDArray[np.float64], fraction: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which of G patients to hold out, given (G, 1 + C) their images and their positives of each class."""
    G, columns = amounts.shape
    shuffled = rng.permutation(G)
    amounts = amounts[shuffled]
    held_out, placed = np.zeros(G, dtype=np.bool_), np.zeros(G, dtype=np.bool_)
    # Plain lists: for a dozen numbers a loop is several times faster than an array.
    held, seen = [0.0] * columns, [0.0] * columns

    def place(members: Rows, column: int) -> None:
        """Put each patient where this column's share comes nearer to the fraction; images decide ties."""
        placed[members] = True
        members = members[np.argsort(-amounts[members, column], kind="stable")]
        for member, own in zip(members.tolist(), amounts[members].tolist(), strict=True):
            gain = fraction * (seen[column] + own[column]) - held[column] - own[column] / 2
            if gain == 0:
                gain = fraction * (seen[0] + own[0]) - held[0] - own[0] / 2
            seen[:] = [total + amount for total, amount in zip(seen, own, strict=True)]
            if gain > 0:
                held_out[shuffled[member]] = True
                held[:] = [total + amount for total, amount in zip(held, own, strict=True)]

    classes = set(range(1, columns))
    while classes:
        left = amounts[~placed].sum(axis=0)
        column = min(classes, key=lambda candidate: (left[candidate], candidate))
        classes.remove(column)
        place(np.flatnonzero(~placed & (amounts[:, column] > 0)), column)
    place(np.flatnonzero(~placed), 0)
    return held_out
