"""What one run thinks of the labels, for people to judge: proposals, training targets, and flagged images."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError
from bomd.experiments.recorded import Record
from bomd.experiments.records import Examples, LabelRecord
from bomd.files import reading
from bomd.reports import figures
from bomd.reports.figures import thumbnail
from bomd.tables import NO_FINDING

SHOWN_CLASSES, SHOWN_NEIGHBOURS = 7, 5
NOTICEABLE = 0.1  # a probability of being wrong below this is not worth a line
KINDS = {
    "most suspect": "The first flagged images in the order of review, where a flag is worth most.",
    "random": "Drawn at random from all other flagged images: what a flag is worth on average.",
}


def read_pages(run: Path, record: LabelRecord, most: int) -> list[dict[str, Any]]:
    """At most this many examples of each kind that a run directory holds, in the order of review; never mixed."""
    examples = Examples.load(run / "examples.npz")
    if len(examples.flagged) and max(examples.flagged.max(), examples.rows.max()) >= len(record.given):
        raise InputError("examples.npz names rows that labels.npz does not have. Run it again.")
    pictures = {int(row): pixels for row, pixels in zip(examples.rows, examples.pixels, strict=True)}
    truth, changed = known_truth(record), truly_changed(record)
    found = []
    for kind, meaning in KINDS.items():
        rows = examples.flagged[examples.chosen == kind]
        rows = rows[np.argsort(record.opinion.rank[rows])]
        cards = [card_of(record, int(row), pictures) for row in rows[:most]]
        for card, row in zip(cards, rows, strict=False):
            card["wrong"] = bool(changed[row]) if truth[row] else None
        if len(rows):
            counts = {"judged": int(truth[rows].sum()), "wrong": int((truth & changed)[rows].sum())}
            found.append({"kind": kind, "meaning": meaning, "count": len(rows), "cards": cards} | counts)
    return found


def known_truth(record: LabelRecord) -> NDArray[np.bool_]:
    """(N) rows whose right labels are known, because noise was added to them on purpose."""
    if record.clean is None or record.exposed is None:
        return np.zeros(len(record.given), dtype=bool)
    return np.asarray(record.exposed, dtype=bool)


def truly_changed(record: LabelRecord) -> NDArray[np.bool_]:
    """(N) whether any given label differs from the right one; meaningful where the truth is known."""
    given, clean = record.given.values, _clean(record)
    return np.asarray(((given != clean) & ~np.isnan(given) & ~np.isnan(clean)).any(axis=1))


def relabels(record: LabelRecord) -> bool:
    """Whether any label is learnt otherwise than given."""
    return not np.array_equal(record.given.values, record.targets.values, equal_nan=True)


def margins(record: LabelRecord, name: str) -> Any:
    """The histogram of margins, where it is known which labels were changed; else None."""
    flags, truth = record.flags, known_truth(record)
    if flags is None or not truth.any():
        return None
    known = truth & np.isfinite(flags.margin)
    changed = truly_changed(record)
    flagged, passed = flags.margin[known & flags.noisy], flags.margin[known & ~flags.noisy]
    separate = len(flagged) and len(passed) and flagged.max() <= passed.min()
    border = float(flagged.max() + passed.min()) / 2 if separate else None
    return figures.histogram(flags.margin[known & changed], flags.margin[known & ~changed], border, name)


def composition(run: Record, name: str) -> dict[str, Any]:
    """Positive labels of each class among all images and among those kept as clean."""
    items = run.result.composition or ()
    counts = [(figures.PALETTE[4], [item.given for item in items]), (figures.PALETTE[0], [item.kept for item in items])]
    return {"figure": figures.bars([item.name for item in items], counts, "positive labels", name), "items": items}


def changes(run: Record, record: LabelRecord, name: str) -> dict[str, Any]:
    """How much label mass each class has, and how well its labels tell right from wrong, before and after."""
    truth = known_truth(record)
    rows = truth if truth.any() else np.ones(len(record.given), dtype=bool)
    masses = [("given", figures.PALETTE[4], record.given), ("training target", figures.PALETTE[0], record.targets)]
    if truth.any() and record.clean is not None:
        masses.insert(0, ("true", figures.PALETTE[2], record.clean))
    sums = [(colour, np.nansum(table.values[rows], axis=0).tolist()) for _, colour, table in masses]
    classes = [item.to_dict() for item in run.result.labels.classes] if run.result.labels else []
    names, before, after = ([item[key] for item in classes] for key in ("name", "before", "after"))
    return {
        "images": int(rows.sum()),
        "masses": [(title, colour) for title, colour, _ in masses],
        "histogram": figures.bars(record.given.classes, sums, "sum of labels", f"{name}h"),
        "auc": figures.change_plot(names, before, after, "label AUC", f"{name}l") if classes else None,
        "classes": classes,
    }


def questions(record: LabelRecord) -> dict[str, Any]:
    """How many images and labels are in doubt, in all and for each class.

    A positive label is questioned where it would be removed, a negative one where it would be added.
    """
    values, flagged, opinion = record.given.values, record.flagged, record.opinion
    positive, negative = values >= 0.5, values < 0.5  # what is not labelled is neither
    removed, added = record.removed, record.added
    counts = {"positives": positive, "negatives": negative, "flagged": positive & flagged[:, None]}
    counts |= {"removed": removed, "added": added}
    classes: list[dict[str, Any]] = [
        {"name": name, **{key: int(found[:, column].sum()) for key, found in counts.items()}}
        for column, name in enumerate(record.given.classes)
    ]
    for column, item in enumerate(classes):
        item["after"] = item["positives"] - item["removed"] + item["added"]
        item["wrong"] = float(np.nansum(opinion.wrong[:, column]))
        item["learnt"] = bool(opinion.learnt[column]) or item["name"] == NO_FINDING
    return {
        "images": len(record.given),
        "flagged": int(flagged.sum()),
        "changed": int((removed | added).any(axis=1).sum()),
        "labels": int((positive | negative).sum()),
        "removed": int(removed.sum()),
        "added": int(added.sum()),
        "expected": float(opinion.expected.sum(dtype=np.float64)),
        "reasons": opinion.reasons,
        "one_label": record.given.exclusive,
        "classes": classes,
    }


def course(run: Path) -> Iterator[tuple[tuple[str, str], list[int], list[float]]]:
    """Epochs and values of every stage and number of training that was measured more than never."""
    path = run / "metrics.jsonl"
    with reading(path, ValueError):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    stages = dict.fromkeys(str(line["stage"]) for line in lines)
    for stage, key in [(stage, key) for stage in stages for key in ("loss", "validation")]:
        passes: list[tuple[list[int], list[float]]] = []
        for line in lines:
            epoch, value = line.get("epoch"), line.get(key)
            if line["stage"] == stage and isinstance(value, int | float) and math.isfinite(value):
                if not passes or epoch <= passes[-1][0][-1]:  # the same stage again, such as a second opinion
                    passes.append(([], []))
                passes[-1][0].append(epoch)
                passes[-1][1].append(value)
        yield from (((stage, key), *one) for one in passes)


def _clean(record: LabelRecord) -> NDArray[np.float32]:
    return record.given.values if record.clean is None else record.clean.values


def card_of(record: LabelRecord, row: int, pictures: dict[int, NDArray[np.uint8]]) -> dict[str, Any]:
    truth = bool(known_truth(record)[row])
    opinion = record.opinion
    given, clean, wrong = record.given.values[row], _clean(record)[row], opinion.wrong[row]
    removed, added = record.removed[row], record.added[row]
    chances = np.nan_to_num(wrong)
    lines: list[dict[str, Any]] = [
        {
            "name": name,
            "given": None if np.isnan(given[column]) else bool(given[column] >= 0.5),
            "proposed": None if np.isnan(given[column]) else bool(opinion.proposed[row, column] == 1),
            "changes": bool(removed[column] or added[column]),
            "wrong": None if np.isnan(wrong[column]) else float(wrong[column]),
            "truth": bool(clean[column] >= 0.5) if truth else None,
        }
        for column, name in enumerate(record.given.classes)
        if given[column] >= 0.5 or added[column] or chances[column] >= NOTICEABLE or (truth and clean[column] >= 0.5)
    ]
    lines.sort(key=lambda line: (not line["changes"], -(line["wrong"] or 0)))
    voters = () if record.neighbours is None else record.neighbours[row, :SHOWN_NEIGHBOURS]
    return {
        "id": str(record.given.ids[row]),
        "image": thumbnail(pictures[row]) if row in pictures else None,
        "place": int(opinion.rank[row]),
        "of": len(record.given),
        "expected": float(opinion.expected[row]),
        "doubt": float(chances.max(initial=0)),
        "columns": {"added": np.flatnonzero(added).tolist(), "removed": np.flatnonzero(removed).tolist()},
        "removed": _named(record, row, removed),
        "added": _named(record, row, added),
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


def _named(record: LabelRecord, row: int, chosen: NDArray[np.bool_]) -> list[str]:
    """Classes of one image with the probability that their given label is wrong; "No Finding" follows from others."""
    names, wrong = record.given.classes, record.opinion.wrong[row]
    return [
        names[column] if names[column] == NO_FINDING else f"{names[column]} ({wrong[column]:.2f})"
        for column in np.flatnonzero(chosen)
    ]


def _positive(classes: Sequence[str], values: NDArray[np.float32]) -> str:
    names = [name for name, value in zip(classes, values, strict=True) if value >= 0.5]
    return ", ".join(names) if names else "no positive label"
