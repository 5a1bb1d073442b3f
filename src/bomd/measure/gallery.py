"""What one run did to the labels, for people to judge: its flags, its new labels, and flagged images with voters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError
from bomd.measure import figures
from bomd.measure.figures import thumbnail
from bomd.measure.proposals import propose
from bomd.measure.summary import Finished, number

if TYPE_CHECKING:
    from bomd.measure.records import Examples, LabelRecord

SHOWN_CLASSES, SHOWN_NEIGHBOURS = 7, 5
NOTICEABLE = 0.1  # a proposed probability below this is not worth a line
KINDS = {
    "most suspect": "Lowest margin first. These flatter the method: look at the random ones too.",
    "random": "Drawn at random from all other flagged images: what a flag is worth on average.",
}


REVIEW = {
    "most suspect": "The beginning of the order of review.",
    "random": "Drawn at random from all other flagged images: what a flag is worth on average.",
}


def read_pages(run: Path, record: LabelRecord, most: int, audit: bool) -> list[dict[str, Any]]:
    """The examples that a run directory holds; see `pages`. Those of an audit are in the order of review."""
    from bomd.measure.records import Examples  # here, since it brings PyTorch along

    return pages(record, Examples.load(run / "examples.npz"), most, review_rank(record) if audit else None)


def review_rank(record: LabelRecord) -> NDArray[np.int64]:
    """(N) place in the order of review, from 1; by margin where a method has nothing but flags."""
    from bomd.measure.suspicion import suspicion_of  # here, since it brings PyTorch along

    if record.neighbours is not None:
        return suspicion_of(record).rank
    assert record.flags is not None
    return np.argsort(np.argsort(record.flags.margin, kind="stable")) + 1


def pages(
    record: LabelRecord, examples: Examples, most: int, rank: NDArray[np.int64] | None = None
) -> list[dict[str, Any]]:
    """At most this many examples of each kind, as plain values for the template; kinds are never mixed.

    Args:
        record: Labels, flags and neighbours.
        examples: Flagged images with pictures.
        most: Of each kind.
        rank: (N) place of each image in the order of review; cards then say it, and what would change.
    """
    if len(examples.flagged) and max(examples.flagged.max(), examples.rows.max()) >= len(record.given):
        raise InputError("examples.npz names rows that labels.npz does not have. Run it again.")
    pictures = {int(row): pixels for row, pixels in zip(examples.rows, examples.pixels, strict=True)}
    truth, changed = known_truth(record), truly_changed(record)
    hard = None if rank is None else propose(record)
    found = []
    for kind, meaning in (KINDS if rank is None else REVIEW).items():
        rows = examples.flagged[examples.chosen == kind]
        rows = rows if rank is None else rows[np.argsort(rank[rows])]
        cards = [_card(record, int(row), pictures) for row in rows[:most]]
        for card, row in zip(cards, rows, strict=False):
            card["wrong"] = bool(changed[row]) if truth[row] else None
            card["review"] = None if rank is None or hard is None else _review(record, int(row), rank, hard[row])
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


def relabels(record: LabelRecord) -> bool:
    """Whether any label is learnt otherwise than given."""
    return not np.array_equal(record.given.values, record.proposed.values, equal_nan=True)


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


def composition(run: Finished, name: str) -> dict[str, Any]:
    """Positive labels of each class among all images and among those kept as clean."""
    items = run.result["composition"]
    counts = [
        (figures.PALETTE[4], [item["given"] for item in items]),
        (figures.PALETTE[0], [item["kept"] for item in items]),
    ]
    return {"figure": figures.bars([item["name"] for item in items], counts, "positive labels", name), "items": items}


def changes(run: Finished, record: LabelRecord, name: str) -> dict[str, Any]:
    """How much label mass each class has, and how well its labels tell right from wrong, before and after."""
    truth = known_truth(record)
    rows = truth if truth.any() else np.ones(len(record.given), dtype=bool)
    masses = [("given", figures.PALETTE[4], record.given), ("proposed", figures.PALETTE[0], record.proposed)]
    if truth.any() and record.clean is not None:
        masses.insert(0, ("true", figures.PALETTE[2], record.clean))
    sums = [(colour, np.nansum(table.values[rows], axis=0).tolist()) for _, colour, table in masses]
    found = run.result["labels"]
    classes = found["classes"] if found else []
    before, after = ([number(item, key) for item in classes] for key in ("before", "after"))
    names = [item["name"] for item in classes]
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
    noisy = np.zeros(len(record.given), dtype=bool) if record.flags is None else record.flags.noisy
    values, hard = record.given.values, propose(record)
    positive, negative = values >= 0.5, values < 0.5  # what is not labelled is neither
    removed, added = positive & (hard == 0), negative & (hard == 1)
    counts = {
        "positives": positive,
        "negatives": negative,
        "flagged": positive & noisy[:, None],
        "removed": removed,
        "added": added,
    }
    classes: list[dict[str, Any]] = [
        {"name": name, **{key: int(found[:, column].sum()) for key, found in counts.items()}}
        for column, name in enumerate(record.given.classes)
    ]
    for column, item in enumerate(classes):
        item["after"] = item["positives"] - item["removed"] + item["added"]
        item["soft"] = float(np.nansum(record.proposed.values[:, column]))
    return {
        "images": len(record.given),
        "flagged": int(noisy.sum()),
        "changed": int((removed | added).any(axis=1).sum()),
        "labels": int((positive | negative).sum()),
        "removed": int(removed.sum()),
        "added": int(added.sum()),
        "classes": classes,
    }


def course(run: Path) -> Iterator[tuple[tuple[str, str], list[int], list[float]]]:
    """Epochs and values of every stage and number of training that was measured more than never."""
    path = run / "metrics.jsonl"
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    except (OSError, ValueError) as error:
        raise InputError(f"Cannot read {path}: {error}.") from error
    for stage in dict.fromkeys(str(line["stage"]) for line in lines):
        for key in ("loss", "validation"):
            points = [
                (int(line["epoch"]), value)
                for line in lines
                if line["stage"] == stage and (value := number(line, key)) is not None
            ]
            if points:
                yield (stage, key), [epoch for epoch, _ in points], [value for _, value in points]


def _review(record: LabelRecord, row: int, rank: NDArray[np.int64], hard: NDArray[np.float32]) -> dict[str, Any]:
    """The place of a flagged image among all that are flagged, and which of its labels are questioned."""
    assert record.flags is not None
    given = record.given.values[row]
    names = np.asarray(record.given.classes, dtype=object)
    return {
        "place": int((rank[record.flags.noisy] <= rank[row]).sum()),
        "of": int(record.flags.noisy.sum()),
        "removed": names[(given >= 0.5) & (hard == 0)].tolist(),
        "added": names[(given < 0.5) & (hard == 1)].tolist(),
    }


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
