"""How the demo's page begins: errors found, three hits and a false alarm, and what training is worth, as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bomd.experiments.noise_names import noise_name
from bomd.experiments.recorded import Record
from bomd.experiments.records import THUMBNAIL, LabelRecord
from bomd.reports import figures, gallery
from bomd.reports.figures import OWN, PALETTE
from bomd.reports.outcome import LEARNT, NOISY, OURS, RIGHT, TESTS, Outcome, curves, facts_of, labels_of
from bomd.reports.report import write_report
from bomd.runs import Run

POINTS = 150  # of a curve; more cannot be seen
READABLE = 5  # given labels; a picture with more takes long to read
COLOURS = {**{learnt: PALETTE[OWN[method]] for method, learnt in LEARNT.items()}, RIGHT: "#7f8994"}
Values = dict[str, Any]


def write_demo(
    runs: Sequence[Run], path: Path, record: Mapping[str, Any] | None, commands: Sequence[tuple[str, str]]
) -> Outcome:
    """Write the demo's page: what came of its runs, one for each method, and then their report; return the former.

    Args:
        record: What was recorded with the same settings; None where they are others.
        commands: What to type next, as pairs of purpose and command.
    """
    records = [Record.of(run) for run in runs]
    today, labels = Outcome.over([facts_of(records)]), labels_of(records)
    opening = {
        "noise": noise_name(records[0].config.noise),
        "found": {name: f"{count.mean:,.0f}" for name, count in today.found.items()},
        "seeds": len(record["seeds"]) if record else 0,
        "lines": _lines(labels, record),
        "cards": _cards(labels) if records[0].config.train.get("dataset") == "phantom" else [],
        "bars": _bars(today, Outcome.over(record["seeds"]) if record else None),
        "commands": commands,
        "looks": figures.FOUND_LINES,
    }
    write_report(runs, path, opening=opening)
    return today


def examples(labels: LabelRecord, hits: int = 3) -> list[int]:
    """The first images in the order of review that are wrong and can be read, and the first false alarm."""
    if labels.clean is None:
        return []
    wrong, changes = gallery.truly_changed(labels), (labels.removed | labels.added).any(axis=1)
    seen = (labels.clean.values[:, labels.given.findings] == 1).any(axis=1)  # what is there can be looked for
    readable = (np.nansum(labels.given.values, axis=1) <= READABLE) & changes & seen
    order = np.argsort(labels.opinion.rank)
    found = [int(row) for row in order if wrong[row] and readable[row]]
    return found[:hits] + [int(row) for row in order if labels.flagged[row] and not wrong[row]][:1]


def _lines(labels: LabelRecord, record: Mapping[str, Any] | None) -> list[Values]:
    """The curves of this run, and those of the record where errors are hard to find."""
    drawn: list[Values] = []
    title = "Wrong images found against images looked at"
    if own := curves(labels):
        looked = np.unique(np.linspace(0, len(own[OURS]) - 1, POINTS).astype(int))
        lines = {order: line[looked].tolist() for order, line in own.items()}
        drawn.append({"figure": figures.found_plot(lines, looked.tolist(), f"{title}, this run", "found-now")})
    if record:
        sparse = {name: [0, *line] for name, line in record["sparse"].items() if isinstance(line, list)}
        title += ", one wrong label in an image, as recorded"
        figure = figures.found_plot(sparse, sparse["looked"], title, "found-sparse")
        drawn.append({"figure": figure, "seeds": record["sparse"]["seeds"]})
    return drawn


def _cards(labels: LabelRecord) -> list[Values]:
    from bomd.data.datasets import phantom

    rows, wrong = examples(labels), gallery.truly_changed(labels)
    pixels = phantom.render(labels.given.ids[rows], THUMBNAIL).numpy() if rows else ()
    pictures = dict(zip(rows, pixels, strict=True))
    return [gallery.card_of(labels, row, pictures) | {"wrong": bool(wrong[row]), "neighbours": []} for row in rows]


def _bars(today: Outcome, past: Outcome | None) -> list[Values]:
    found = []
    for test, words in TESTS.items():
        rows = []
        for learnt in (NOISY, OURS, RIGHT):
            scores = [(one.scores.get((learnt, test)), one is today) for one in (past, today) if one]
            if known := [(score, pale) for score, pale in scores if score]:
                rows.append((learnt, COLOURS[learnt], known))
        title = f"Mean AUC on {words}, by the labels learnt from"
        if rows:
            found.append({"test": words, "figure": figures.score_bars(rows, title, f"worth-{test}")})
    return found
