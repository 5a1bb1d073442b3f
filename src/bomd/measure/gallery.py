"""Flagged images for people to judge: given, proposed and true labels, and the images that voted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError
from bomd.measure.figures import thumbnail

if TYPE_CHECKING:
    from bomd.measure.records import Examples, LabelRecord

SHOWN_CLASSES, SHOWN_NEIGHBOURS = 7, 5
NOTICEABLE = 0.1  # a proposed probability below this is not worth a line
KINDS = {
    "most suspect": "Lowest margin first. These flatter the method: look at the random ones too.",
    "random": "Drawn at random from all other flagged images: what a flag is worth on average.",
}


def pages(record: LabelRecord, examples: Examples, most: int) -> list[dict[str, Any]]:
    """At most this many examples of each kind, as plain values for the template; kinds are never mixed."""
    if len(examples.flagged) and max(examples.flagged.max(), examples.rows.max()) >= len(record.given):
        raise InputError("examples.npz names rows that labels.npz does not have. Run it again.")
    pictures = {int(row): pixels for row, pixels in zip(examples.rows, examples.pixels, strict=True)}
    truth, changed = known_truth(record), truly_changed(record)
    found = []
    for kind, meaning in KINDS.items():
        rows = examples.flagged[examples.chosen == kind]
        cards = [_card(record, int(row), pictures) for row in rows[:most]]
        for card, row in zip(cards, rows, strict=False):
            card["wrong"] = bool(changed[row]) if truth[row] else None
        if len(rows):
            found.append(
                {
                    "kind": kind,
                    "meaning": meaning,
                    "count": len(rows),
                    "judged": int(truth[rows].sum()),
                    "wrong": int((truth & changed)[rows].sum()),
                    "cards": cards,
                }
            )
    return found


def known_truth(record: LabelRecord) -> NDArray[np.bool_]:
    """(N) rows whose right labels are known, because noise was added to them on purpose."""
    if record.clean is None or record.exposed is None:
        return np.zeros(len(record.given), dtype=bool)
    return np.asarray(record.exposed, dtype=bool)


def truly_changed(record: LabelRecord) -> NDArray[np.bool_]:
    """(N) whether any given label differs from the right one; meaningful where the truth is known."""
    different = record.given.values != _clean(record)
    unknown = np.isnan(record.given.values) | np.isnan(_clean(record))
    changed: NDArray[np.bool_] = (different & ~unknown).any(axis=1)
    return changed


def _clean(record: LabelRecord) -> NDArray[np.float32]:
    return record.given.values if record.clean is None else record.clean.values


def _card(record: LabelRecord, row: int, pictures: dict[int, NDArray[np.uint8]]) -> dict[str, Any]:
    truth = bool(known_truth(record)[row])
    flags = record.flags
    margin = float(flags.margin[row]) if flags is not None else float("nan")
    given, proposed, clean = record.given.values[row], record.proposed.values[row], _clean(record)[row]
    lines: list[dict[str, Any]] = [
        {
            "name": name,
            "given": bool(given[column] >= 0.5),
            "proposed": None if np.isnan(proposed[column]) else float(proposed[column]),
            "truth": bool(clean[column] >= 0.5) if truth else None,
        }
        for column, name in enumerate(record.given.classes)
        if given[column] >= 0.5 or proposed[column] >= NOTICEABLE or (truth and clean[column] >= 0.5)
    ]
    lines.sort(key=lambda line: (not (line["given"] or line["truth"]), -(line["proposed"] or 0)))
    voters = () if record.neighbours is None else record.neighbours[row, :SHOWN_NEIGHBOURS]
    return {
        "id": str(record.given.ids[row]),
        "image": thumbnail(pictures[row]) if row in pictures else None,
        "margin": None if np.isnan(margin) else margin,
        "lines": lines[:SHOWN_CLASSES],
        "hidden": max(0, len(lines) - SHOWN_CLASSES),
        "truth": truth,
        "neighbours": [
            {
                "id": str(record.given.ids[voter]),
                "image": thumbnail(pictures[int(voter)]) if int(voter) in pictures else None,
                "labels": _positive(record.given.classes, record.given.values[voter]),
            }
            for voter in voters
            if voter >= 0
        ],
    }


def _positive(classes: Sequence[str], values: NDArray[np.float32]) -> str:
    names = [name for name, value in zip(classes, values, strict=True) if value >= 0.5]
    return ", ".join(names) if names else "no positive label"
