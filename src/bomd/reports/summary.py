"""Finished runs for the terminal: a row for each method and data, averaged over seeds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from bomd.errors import InputError
from bomd.experiments.grid import BASELINE, Grid, Group, arrange
from bomd.experiments.recorded import Record
from bomd.measure.result import BEFORE_NOISE, VALIDATION, held_out
from bomd.measure.significance import UNDEFINED, show, show_seconds
from bomd.runs import Run


def gather(runs: Sequence[Run], reference: str = BASELINE) -> list[Grid]:
    """Read finished runs and arrange them; an unfinished or damaged one is an error."""
    if not runs:
        raise InputError("No run to report: give at least one finished run directory.")
    records = sorted((Record.of(run) for run in runs), key=lambda record: record.place)
    return sorted(arrange(records, reference=reference), key=lambda grid: grid.name)


def groups_of(grids: Iterable[Grid]) -> list[Group]:
    """All groups, those of the same data and noise together."""
    return [
        grid.groups[label, noise]
        for grid in grids
        for noise in grid.noises
        for label in sorted(grid.methods)
        if (label, noise) in grid.groups
    ]


def test_name(test: str) -> str:
    """A test set as people call it, inside a sentence."""
    names = {VALIDATION: "held-out patients", BEFORE_NOISE: "held-out patients, labels before noise"}
    return names.get(test, f"test set {test}")


def test_head(test: str) -> str:
    """The same without the words "test set", for a table or an axis."""
    return test_name(test).removeprefix("test set ")


def summary_table(runs: Sequence[Run]) -> Table:
    """Means over seeds as a table for the terminal."""
    grids = gather(runs)
    groups = groups_of(grids)
    every = list(dict.fromkeys(test for grid in grids for test in grid.tests))
    tests = [test for test in every if not held_out(test)] or every
    several = len({group.experiment for group in groups}) > 1
    detected = any(group.detection for group in groups)
    relabelled = any(group.labels for group in groups)
    told = [spread_meaning(groups)] if tests or any(len(group.runs) > 1 for group in groups) else []
    told += [f"Not all seeds are by the same code: {'; '.join(found)}."] if (found := mixed(groups)) else []
    table = Table(
        title="Mean AUC over findings" if tests else None,
        caption=escape(" ".join(told)) if told else None,
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    names = [test_head(test).replace(", ", ",\n") for test in tests]
    right = [test for test in tests if any(group.score(test, "accuracy") for group in groups)]
    headings = ["method", "seed", *names, *(f"{test_head(test)}\naccuracy" for test in right), "flagged"]
    headings += ["flag\nAUROC"] * detected + ["label\nAUC"] * relabelled + ["time"]
    least = 13 if any(len(group.runs) == 1 for group in groups) else 7  # an interval is of use only whole
    for heading in ["data"] * several + headings:
        side: Literal["left", "right"] = "left" if heading in ("data", "method") else "right"
        whole = max(least, *map(len, heading.split())) if heading in names else None
        table.add_column(heading, justify=side, overflow="fold", width=whole)
    for group in groups:
        before, after = group.labels.get("before"), group.labels.get("after")
        cells = [group.experiment] * several + [group.label, ", ".join(map(str, group.seeds))]
        cells += [show(group.score(test)) for test in tests]
        cells += [show(group.score(test, "accuracy")) for test in right] + [show(group.flagged, percent=True)]
        cells += [show(group.detection.get("auroc"))] * detected
        cells += [f"{show(before)} → {show(after)}" if before and after else UNDEFINED] * relabelled
        cells.append(show_seconds(group.seconds.mean if group.seconds else None))
        # The spread goes below its number, so that the table fits a terminal of 80 columns.
        table.add_row(*(Text(re.sub(r" (?=[±(→])", "\n", cell)) for cell in cells))
    return table


def mixed(groups: Iterable[Group]) -> list[str]:
    """Methods that were edited between their seeds, so that a mean over these is of no method that there is."""
    found = {(group.label, group.by_code): None for group in groups if len(group.by_code) > 1}
    return [f"{label} (seeds {' | '.join(', '.join(map(str, same)) for same in parts)})" for label, parts in found]


def spread_meaning(groups: Iterable[Group]) -> str:
    """One sentence on what stands behind ± and inside brackets of these groups."""
    counts = [len(group.runs) for group in groups]
    parts = ["± is the sample standard deviation over seeds"] * any(count > 1 for count in counts)
    parts += ["brackets hold the 95 % bootstrap interval over the test patients of one run"] * (1 in counts)
    sentence = "; ".join(parts)
    return sentence[0].upper() + sentence[1:] + "."
