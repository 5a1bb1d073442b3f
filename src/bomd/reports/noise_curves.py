"""Methods against kinds of noise: the scores of each, how sure its distance from plain training is, and curves."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bomd.experiments.summary import (
    BASELINE,
    BEFORE_NOISE,
    VALIDATION,
    Finished,
    Group,
    held_out,
    number,
    spread,
    summarise,
    test_head,
)
from bomd.measure import paired
from bomd.measure.gap import Gap
from bomd.measure.significance import Sample, verdict
from bomd.reports import figures
from bomd.reports.figures import Dots, Look

if TYPE_CHECKING:
    from bomd.tables import LabelTable

LEADING = 6  # methods that fit into one figure
WORK = 1_000_000_000  # images x findings x runs x draws of all bootstraps of a page: about ten seconds
FAR = 0.05  # a difference in AUC that gets the full colour, unless there are larger ones
DRAWS, FEWER_DRAWS = 500, 200  # of patients; fewer where many pairs are compared


@dataclass(frozen=True)
class Grid:
    """The groups of the same images: methods down, kinds of noise across.

    Attributes:
        methods: Labels, the best first.
        noises: Names, from none to strong.
        tests: Test sets; held-out patients come last.
        seeds: All that occur.
        rows: What `summarise` says of each group.
        gaps: Distance from the baseline by method, noise and test set, where both ran.
        limits: What was not computed to save time, as sentences.
    """

    data: str
    methods: tuple[str, ...]
    noises: tuple[str, ...]
    tests: tuple[str, ...]
    seeds: tuple[int, ...]
    groups: dict[tuple[str, str], Group]
    rows: dict[tuple[str, str], dict[str, Any]]
    gaps: dict[tuple[str, str, str], Gap] = field(default_factory=dict)
    limits: list[str] = field(default_factory=list)

    @property
    def headline(self) -> tuple[str, ...]:
        """The test sets to judge by: real ones, else held-out patients, by their labels before noise if known."""
        real = tuple(test for test in self.tests if not held_out(test))
        return real or tuple(test for test in (BEFORE_NOISE, VALIDATION) if test in self.tests)[:1]

    @property
    def baselines(self) -> list[str]:
        """Methods that are plain training."""
        plain = {key[0] for key, group in self.groups.items() if group.first.config["method"] == BASELINE}
        return [method for method in self.methods if method in plain]

    @property
    def leading(self) -> list[str]:
        """Methods to show where only a few can be: plain training, BoMD, and the best of the others."""
        known = [method for method in (*self.baselines[:1], "bomd") if method in self.methods]
        chosen = list(dict.fromkeys([*known, *self.methods]))[:LEADING]
        return [method for method in self.methods if method in chosen]

    def score(self, method: str, noise: str, test: str) -> dict[str, Any] | None:
        """Mean AUC over seeds, or None where it is not known."""
        row = self.rows.get((method, noise))
        found: dict[str, Any] | None = row["tests"].get(test) if row else None
        return found

    def missing(self) -> dict[str, list[str]]:
        """Per method the kinds of noise that lack seeds which other entries have."""
        found: dict[str, list[str]] = {}
        for method in self.methods:
            for noise in self.noises:
                group = self.groups.get((method, noise))
                gaps = [seed for seed in self.seeds if group is None or seed not in group.seeds]
                if gaps:
                    what = "not run" if group is None else f"without seed {', '.join(map(str, gaps))}"
                    found.setdefault(method, []).append(f"{noise} {what}")
        return found


def arrange(groups: Sequence[Group]) -> list[Grid]:
    """One grid for each set of images, with the distances from plain training."""
    grids = []
    for data in dict.fromkeys(group.data for group in groups):
        same = [group for group in groups if group.data == data]
        rows = {(group.label, group.noise): summarise(group) for group in same}
        tests = sorted(dict.fromkeys(test for row in rows.values() for test in row["tests"]), key=held_out)
        grids.append(
            Grid(
                data,
                tuple(dict.fromkeys(group.label for group in same)),
                tuple(dict.fromkeys(group.noise for group in same)),
                tuple(tests),
                tuple(sorted({seed for group in same for seed in group.seeds})),
                {(group.label, group.noise): group for group in same},
                rows,
            )
        )
    work = WORK / len(grids)
    return [_measure(_ranked(grid), work) for grid in grids]


def compare(one: Group, other: Group, test: str, draws: int | None = DRAWS, most: int | None = None) -> Gap | None:
    """How far one group is ahead of another that saw the same data.

    Args:
        draws: Of test patients; None leaves the interval out.
        most: Seeds that the interval is computed from, to save time; None takes all.

    Returns:
        None where no seed that both have was scored.
    """
    shared = _shared(one, other, test)
    if not shared:
        return None
    pairs = [(_auc(mine, test), _auc(yours, test)) for mine, yours in shared]
    gaps = [mine - yours for mine, yours in pairs]
    over_seeds = verdict(*(Sample.of(scores) for scores in zip(*pairs, strict=True))) if len(pairs) > 1 else None
    found = spread(gaps)
    assert found is not None
    ends = None if draws is None else _interval(shared[:most], test, draws)
    low, high = ends if ends else (None, None)
    return Gap(found["mean"], found["std"], sum(gap > 0 for gap in gaps), len(gaps), low, high, over_seeds)


def score_table(grid: Grid, look: dict[str, Look], columns: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Methods against kinds of noise or test sets, as plain values for the template.

    Args:
        columns: Noise and test set of each.
    """
    scores = {(m, *column): grid.score(m, *column) for m in grid.methods for column in columns}
    best = {
        column: max((s["mean"] for m in grid.methods if (s := scores[m, *column])), default=None) for column in columns
    }
    largest = max([FAR, *(abs(gap.mean) for gap in grid.gaps.values())])
    lines: list[dict[str, Any]] = []
    for method in grid.methods:
        cells = []
        for noise, test in columns:
            score, gap = scores[method, noise, test], grid.gaps.get((method, noise, test))
            group = grid.groups.get((method, noise))
            cells.append(
                {
                    "auc": score,
                    "ap": group and _over_seeds(group, test, "mean_ap"),
                    "best": score is not None and score["mean"] == best[noise, test] and len(grid.methods) > 1,
                    "gap": gap,
                    "shade": round(30 * abs(gap.mean) / largest) if gap else 0,
                    "few": score is not None and score["count"] < len(grid.seeds) and score["count"],
                }
            )
        seeds = sorted({seed for group in grid.groups.values() if group.label == method for seed in group.seeds})
        lines.append({"look": look[method], "seeds": seeds, "cells": cells, "plain": method in grid.baselines})
    return {
        "columns": columns,
        "lines": lines,
        "test": columns[0][1],
        "folded": all(held_out(test) for _, test in columns) and columns[0][1] not in grid.headline,
        "gaps": any(cell["gap"] for line in lines for cell in line["cells"]),
    }


def noise_figures(grid: Grid, look: dict[str, Look], test: str, name: str) -> list[dict[str, Any]]:
    """Mean AUC over noise; the leading methods by colour, the others as thin lines."""
    found = panels(grid, test)
    known = [score for m in grid.methods for noise in grid.noises if (score := grid.score(m, noise, test))]
    ends = [end for score in known for end in (score["mean"], *_ends(score)) if end is not None]
    if not found or not ends:
        return []
    margin = 0.04 * (max(ends) - min(ends)) or 0.01
    limits = (min(ends) - margin, max(ends) + margin)
    drawn = []
    for place, panel in enumerate(found):
        series = [dots(look[m], [grid.score(m, noise, test) for noise in panel["noises"]]) for m in grid.leading]
        others = [
            [score["mean"] if (score := grid.score(m, noise, test)) else None for noise in panel["noises"]]
            for m in grid.methods
            if m not in grid.leading
        ]
        axes = (panel["axis"], f"mean AUC, {test_head(test)}")
        figure = figures.noise_plot(
            panel["places"], panel["ticks"], series, others, limits, axes, f"{name}-{grid.data}-{place}"
        )
        drawn.append({"title": panel["title"], "figure": figure})
    return drawn


def dots(look: Look, values: Sequence[dict[str, Any] | None]) -> Dots:
    """Means with their spread over seeds, or the interval of a single run, ready to be drawn."""
    ends = [_ends(value) for value in values]
    return Dots(
        look,
        [value["mean"] if value else None for value in values],
        [low for low, _ in ends],
        [high for _, high in ends],
    )


def panels(grid: Grid, test: str) -> list[dict[str, Any]]:
    """Where each kind of noise lies on the axis of a noise curve; a panel for each share of labels.

    Returns:
        Dictionaries of title, axis, noises, places (x of each kind of noise) and ticks; none for a single noise.
    """
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
        if len(along) > 1:
            found.append(
                {
                    "title": f"labels flip with probability {share:g}",
                    "axis": "share of images with noise",
                    "noises": along,
                    "places": places,
                    "ticks": [f"{place:g}" for place in places],
                }
            )
    return found


def _over_seeds(group: Group, test: str, key: str) -> dict[str, Any] | None:
    return spread([number(run.result["tests"].get(test), key) for run in group.runs])


def _ends(value: dict[str, Any] | None) -> tuple[float | None, float | None]:
    if value is None:
        return None, None
    if value["std"] is not None:
        return value["mean"] - value["std"], value["mean"] + value["std"]
    return value["low"], value["high"]


def _ranked(grid: Grid) -> Grid:
    """Order the methods by how far they lie above the average of each kind of noise, so that a gap is no loss."""
    test = grid.headline[0] if grid.headline else ""
    means = {key: score["mean"] for key in grid.groups if (score := grid.score(*key, test))}
    averages = {
        noise: statistics.fmean(value for (_, other), value in means.items() if other == noise)
        for noise in {noise for _, noise in means}
    }

    def standing(method: str) -> float:
        known = [means[method, noise] - averages[noise] for noise in grid.noises if (method, noise) in means]
        return statistics.fmean(known) if known else -1.0

    order = tuple(sorted(grid.methods, key=lambda method: (-standing(method), method)))
    return Grid(grid.data, order, grid.noises, grid.tests, grid.seeds, grid.groups, grid.rows)


def _measure(grid: Grid, work: float) -> Grid:
    """Add the distances from plain training; intervals as far as the work allows, the leading methods first."""
    pairs = [
        (method, noise, test, group, plain)
        for test in grid.headline
        for method in dict.fromkeys([*grid.leading, *grid.methods])
        for noise in grid.noises
        if (group := grid.groups.get((method, noise))) and (plain := _plain(grid, group))
    ]
    draws, most = DRAWS, None
    costs = [_cost(group, plain, test, most) for _, _, test, group, plain in pairs]
    if sum(costs) * draws > work:
        draws = FEWER_DRAWS
    if sum(costs) * draws > work:
        most = 1
        costs = [_cost(group, plain, test, most) for _, _, test, group, plain in pairs]
    left = 0
    for (method, noise, test, group, plain), cost in zip(pairs, costs, strict=True):
        work -= cost * draws
        gap = compare(group, plain, test, draws if work >= 0 else None, most)
        if gap is not None:
            grid.gaps[method, noise, test] = gap
            left += work < 0
    if most is not None and left < len(pairs):
        grid.limits.append("Intervals over patients are those of the first seed alone, to save time.")
    if left:
        grid.limits.append(f"{left} of {len(pairs)} differences have no interval, to save time: report fewer runs.")
    return grid


def _plain(grid: Grid, group: Group) -> Group | None:
    """Plain training on the same data, trained alike where there are several; None for plain training itself."""
    if group.label in grid.baselines:
        return None
    found = [grid.groups[label, group.noise] for label in grid.baselines if (label, group.noise) in grid.groups]
    alike = [plain for plain in found if plain.first.config.get("fit") == group.first.config.get("fit")]
    if len(alike) == 1 or len(found) == 1:
        return (alike or found)[0]
    return None


def _cost(one: Group, other: Group, test: str, most: int | None) -> float:
    """Images times findings times runs."""
    classes = one.first.result["tests"].get(test, {"classes": []})["classes"]
    images = classes[0]["positives"] + classes[0]["negatives"] if classes else 0
    return float(2 * len(_shared(one, other, test)[:most]) * len(classes) * images)


def _shared(one: Group, other: Group, test: str) -> list[tuple[Finished, Finished]]:
    """Runs of both with the same seed that have a mean AUC on this test set."""

    def scored(run: Finished) -> bool:
        return number(run.result["tests"].get(test), "mean_auc") is not None

    theirs = {run.seed: run for run in other.runs if scored(run)}
    return [(run, theirs[run.seed]) for run in one.runs if scored(run) and run.seed in theirs]


def _auc(run: Finished, test: str) -> float:
    return float(run.result["tests"][test]["mean_auc"])


def _interval(pairs: Sequence[tuple[Finished, Finished]], test: str, draws: int) -> tuple[float, float] | None:
    """The paired bootstrap over test patients; None where the runs did not score the very same images."""
    loaded = [[_scores(run.run.directory, test) for run in pair] for pair in pairs]
    tables = [item for pair in loaded for item in pair]
    if any(item is None for item in tables):
        return None
    truth = tables[0][0]
    alike = [all(_same(truth, item[0]) for item in pair) for pair in loaded]
    if not alike[0]:
        return None
    loaded = [pair for pair, same in zip(loaded, alike, strict=True) if same]  # held-out patients differ by seed
    least = int(pairs[0][0].config.get("minimum_positives") or 1)
    found = paired.over_seeds(
        truth, [pair[0][1] for pair in loaded], [pair[1][1] for pair in loaded], draws, minimum_positives=least
    )
    return None if found is None else (found.low, found.high)


def _scores(directory: Path, test: str) -> Any:
    from bomd.experiments.records import load_predictions  # here, since it brings PyTorch along

    return load_predictions(directory / "predictions.npz").get(test)


def _same(one: LabelTable, other: LabelTable) -> bool:
    return one.classes == other.classes and np.array_equal(one.ids, other.ids)
