"""Methods against kinds of noise: the scores of each, how sure its distance from the reference is, and curves."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bomd.experiments.grid import BASELINE, Grid, Group
from bomd.experiments.recorded import Record
from bomd.experiments.records import load_predictions
from bomd.measure import paired
from bomd.measure.result import BEFORE_NOISE, VALIDATION, held_out
from bomd.measure.significance import Gap, Sample, verdict
from bomd.reports import figures
from bomd.reports.figures import Dots, Look
from bomd.reports.summary import test_head
from bomd.tables import LabelTable

LEADING = 6  # methods that fit into one figure
WORK = 1_000_000_000  # images x findings x runs x draws of all bootstraps of a page: about ten seconds
FAR = 0.05  # a difference in AUC that gets the full colour, unless there are larger ones
DRAWS, FEWER_DRAWS = 500, 200  # of patients; fewer where many pairs are compared


@dataclass(frozen=True, eq=False)
class Judged(Grid):
    """A grid with the best methods first, and how far each is from the reference."""

    gaps: dict[tuple[str, str, str], Gap] = field(default_factory=dict)  # by method, noise and test set
    limits: list[str] = field(default_factory=list)  # what was not computed to save time, as sentences

    @property
    def headline(self) -> tuple[str, ...]:
        """The test sets to judge by: real ones, else held-out patients, by their labels before noise if known."""
        real = tuple(test for test in self.tests if not held_out(test))
        return real or tuple(test for test in (BEFORE_NOISE, VALIDATION) if test in self.tests)[:1]

    @property
    def leading(self) -> list[str]:
        """Methods to show where only a few can be: reference, plain training, BoMD, and the best of the others."""
        known = {group.method: group.label for group in reversed(self.groups.values())}
        first = [known[method] for method in (self.reference, BASELINE, "bomd") if method in known]
        chosen = list(dict.fromkeys([*first, *self.methods]))[:LEADING]
        return [label for label in self.methods if label in chosen]

    def lacking(self) -> dict[str, list[str]]:
        """Per method the kinds of noise that lack seeds which other entries have."""
        found: dict[str, list[str]] = {}
        for label in self.methods:
            for noise in self.noises:
                if gaps := self.missing(label, noise):
                    there = (label, noise) in self.groups
                    what = f"without seed {', '.join(map(str, gaps))}" if there else "not run"
                    found.setdefault(label, []).append(f"{noise} {what}")
        return found


def judge(grids: Sequence[Grid]) -> list[Judged]:
    """Rank the methods of each grid and measure their distances from the reference."""
    return [_measure(_ranked(grid), WORK / len(grids)) for grid in grids]


def compare(one: Group, other: Group, test: str, draws: int | None = DRAWS, most: int | None = None) -> Gap | None:
    """How far one group is ahead of another that saw the same data; None where no seed that both have was scored.

    Args:
        draws: Of test patients; None leaves the interval out.
        most: Seeds that the interval is computed from, to save time; None takes all.
    """
    shared = _shared(one, other, test)
    gaps = [left.result.tests[test].mean_auc - right.result.tests[test].mean_auc for left, right in shared]
    sample, scores = Sample.of(gaps), [group.score(test) for group in (one, other)]
    if sample is None:
        return None
    several = all(score is not None and score.count > 1 for score in scores)
    ends = None if draws is None else _interval(shared[:most], test, draws)
    low, high = ends if ends else (None, None)
    won = sum(gap > 0 for gap in gaps)
    return Gap(sample.mean, sample.std, won, len(gaps), low, high, verdict(*scores) if several else None)


def score_table(grid: Judged, look: dict[str, Look], columns: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Methods against columns of a kind of noise and a test set each, as plain values for the template."""
    means = {column: [score.mean for m in grid.methods if (score := grid.score(m, *column))] for column in columns}
    largest = max([FAR, *(abs(gap.mean) for gap in grid.gaps.values())])
    lines: list[dict[str, Any]] = []
    for method in grid.methods:
        cells = []
        for noise, test in columns:
            score, gap = grid.score(method, noise, test), grid.gaps.get((method, noise, test))
            group = grid.groups.get((method, noise))
            cells.append(
                {
                    "auc": score,
                    "ap": group and group.score(test, "mean_ap"),
                    "best": score and score.mean == max(means[noise, test]) and len(grid.methods) > 1,
                    "gap": gap,
                    "shade": round(30 * abs(gap.mean) / largest) if gap else 0,
                    "few": score and score.count < len(grid.seeds) and score.count,
                }
            )
        groups = [group for group in grid.groups.values() if group.label == method]
        kinds = {"plain": groups[0].method == BASELINE, "reference": groups[0].method == grid.reference}
        seeds = sorted({seed for group in groups for seed in group.seeds})
        lines.append({"look": look[method], "seeds": seeds, "cells": cells} | kinds)
    return {
        "columns": columns,
        "lines": lines,
        "test": columns[0][1],
        "folded": all(held_out(test) for _, test in columns) and columns[0][1] not in grid.headline,
        "gaps": any(cell["gap"] for line in lines for cell in line["cells"]),
    }


def noise_figures(grid: Judged, look: dict[str, Look], test: str, name: str) -> list[dict[str, Any]]:
    """Mean AUC over noise; the leading methods by colour, the others as thin lines."""
    found = panels(grid, test)
    known = [score for m in grid.methods for noise in grid.noises if (score := grid.score(m, noise, test))]
    ends = [end for score in known for end in (score.mean, *figures.ends(score)) if end is not None]
    if not found or not ends:
        return []
    margin = 0.04 * (max(ends) - min(ends)) or 0.01
    limits = (min(ends) - margin, max(ends) + margin)
    drawn = []
    for place, panel in enumerate(found):
        lines = {m: Dots(look[m], [grid.score(m, noise, test) for noise in panel["noises"]]) for m in grid.methods}
        named = [lines[m] for m in grid.leading]
        faint = [dots for m, dots in lines.items() if m not in grid.leading]
        axis, salt = f"mean AUC, {test_head(test)}", f"{name}-{grid.name}-{place}"
        drawn.append(panel | {"figure": figures.noise_plot(panel, named, faint, limits, axis, salt)})
    return drawn


def panels(grid: Judged, test: str) -> list[dict[str, Any]]:
    """Where each kind of noise lies on the axis of a noise curve, a panel for each share of labels; none for one."""
    noises = [noise for noise in grid.noises if any(grid.score(method, noise, test) for method in grid.methods)]
    if len(noises) < 2:
        return []
    levels = {group.noise: group.level for group in grid.groups.values()}
    clean = [noise for noise in noises if not levels[noise][0]]
    noisy = [noise for noise in noises if levels[noise][0]]
    shares = dict.fromkeys(levels[noise][3] for noise in noisy)
    same = {share: [noise for noise in noisy if levels[noise][3] == share] for share in shares}
    if len({levels[noise][1] for noise in noisy}) > 1 or all(len(members) < 2 for members in same.values()):
        places = [float(place) for place in range(len(noises))]
        return [{"title": "", "axis": "noise", "noises": noises, "places": places, "ticks": noises}]
    found = []
    for share, members in sorted(same.items()):
        along = [*clean, *members]
        places = [levels[noise][2] for noise in along]
        named = {"title": f"labels flip with probability {share:g}", "axis": "share of images with noise"}
        if len(along) > 1:
            found.append(named | {"noises": along, "places": places, "ticks": [f"{place:g}" for place in places]})
    return found


def _ranked(grid: Grid) -> Judged:
    """Order the methods by how far they lie above the average of each kind of noise, so that a gap is no loss."""
    judged = Judged(**vars(grid))
    test = judged.headline[0] if judged.headline else ""
    means = {key: score.mean for key in grid.groups if (score := grid.score(*key, test))}
    averages = {
        noise: statistics.fmean(value for (_, other), value in means.items() if other == noise)
        for noise in {noise for _, noise in means}
    }

    def standing(label: str) -> float:
        known = [means[label, noise] - averages[noise] for noise in grid.noises if (label, noise) in means]
        return statistics.fmean(known) if known else -1.0

    return replace(judged, methods=tuple(sorted(grid.methods, key=lambda label: (-standing(label), label))))


def _measure(grid: Judged, work: float) -> Judged:
    """Add the distances from the reference; intervals as far as the work allows, the leading methods first."""
    pairs = [
        (label, noise, test, group, other)
        for test in grid.headline
        for label in dict.fromkeys([*grid.leading, *grid.methods])
        for noise in grid.noises
        if (group := grid.groups.get((label, noise))) and (other := grid.opposite(group, grid.reference))
    ]
    draws, most = DRAWS, None
    costs = [_cost(group, other, test, most) for _, _, test, group, other in pairs]
    if sum(costs) * draws > work:
        draws = FEWER_DRAWS
    if sum(costs) * draws > work:
        most = 1
        costs = [_cost(group, other, test, most) for _, _, test, group, other in pairs]
    left = 0
    for (label, noise, test, group, other), cost in zip(pairs, costs, strict=True):
        work -= cost * draws
        gap = compare(group, other, test, draws if work >= 0 else None, most)
        if gap is not None:
            grid.gaps[label, noise, test] = gap
            left += work < 0
    if most is not None and left < len(pairs):
        grid.limits.append("Intervals over patients are those of the first seed alone, to save time.")
    if left:
        grid.limits.append(f"{left} of {len(pairs)} differences have no interval, to save time: report fewer runs.")
    return grid


def _cost(one: Group, other: Group, test: str, most: int | None) -> float:
    """Images times findings times runs."""
    scores = one.first.result.scores(test)
    classes = scores.classes if scores else ()
    images = classes[0].positives + classes[0].negatives if classes else 0
    return float(2 * len(_shared(one, other, test)[:most]) * len(classes) * images)


def _shared(one: Group, other: Group, test: str) -> list[tuple[Record, Record]]:
    """Runs of both with the same seed that have a mean AUC on this test set."""
    theirs = {run.seed: run for run in other.runs if run.result.auc(test) is not None}
    return [(run, theirs[run.seed]) for run in one.runs if run.result.auc(test) is not None and run.seed in theirs]


def _interval(pairs: Sequence[tuple[Record, Record]], test: str, draws: int) -> tuple[float, float] | None:
    """The paired bootstrap over test patients; None where not all of the runs scored the very same images."""
    loaded = [[_scores(run, test) for run in pair] for pair in pairs]
    if any(item is None for pair in loaded for item in pair):
        return None
    first = loaded[0][0][0]

    def alike(truth: LabelTable) -> bool:
        return truth.classes == first.classes and np.array_equal(truth.ids, first.ids)

    if not all(alike(truth) for pair in loaded for truth, _ in pair):  # held-out patients differ by seed
        return None
    ones, others = ([pair[side][1] for pair in loaded] for side in (0, 1))
    found = paired.over_seeds(first, ones, others, draws, minimum_positives=pairs[0][0].config.minimum_positives)
    return None if found is None else (found.low, found.high)


def _scores(run: Record, test: str) -> Any:
    return None if run.directory is None else load_predictions(run.directory / "predictions.npz").get(test)
