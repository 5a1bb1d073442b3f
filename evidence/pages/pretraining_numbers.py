"""The numbers of docs/pretraining.md: AUC by setting and seed, differences of two starts, and what they come to."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scipy.stats import t as student  # type: ignore[import-untyped]

from bomd.experiments.noise_names import noise_name
from bomd.experiments.recorded import Record
from bomd.measure.result import HELD_OUT

COLUMNS = ("backbone", "start", "method", "noise", "seed", "test", "auc")
USUAL, SIDE = "efficientnet_lite0", 64  # the backbone and the pixels of all but the smaller comparisons
METHODS = ("bce", "bomd", "bomd-plus")
STARTS = ("none", "imagenet", "phantom", "imagenet+phantom")
NOISES = {
    "no noise": "none",
    "(0.2, 0.2)": "(.2, .2)",
    "(0.4, 0.4)": "(.4, .4)",
    "report_mining share=0.2": "report mining, 20 %",
}
TESTS = {HELD_OUT: "held-out NIH patients", "openi": "OpenI", "google": "Google's labels (one finding)"}
MISSING = "not run"
Scores = Mapping[tuple[str, str, str, str, str], Mapping[int, float]]  # backbone, start, method, noise, test -> seed


def rows_of(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One row for each run and test set."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in records:
        config = record.config
        facts = {
            "backbone": config.fit["backbone"],
            "start": start_name(str(config.fit["weights"]), config.images.get("size", SIDE)),
            "method": config.method,
            "noise": noise_name(config.noise),
            "seed": config.seed,
        }
        found = {test: record.result.auc(test) for test in TESTS}
        for test, value in found.items():
            if value is not None:  # of the same run in several files the last counts
                rows[(*facts.values(), test)] = {**facts, "test": test, "auc": value}
    return sorted(rows.values(), key=lambda row: [str(row[name]) for name in COLUMNS])


def start_name(weights: str, size: int) -> str:
    """What the trial calls a start, whose folders tell apart what the backbone and the images' size say, too."""
    name = weights.replace("densenet-phantom", "phantom").removesuffix(f"-{size}px")
    return name if size == SIDE else f"{name}, {size} px"


def read_scores(path: Path) -> Scores:
    """The table by setting and seed; nothing where there is no table yet."""
    scores: dict[tuple[str, str, str, str, str], dict[int, float]] = defaultdict(dict)
    if path.exists():
        with path.open(encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                key = (row["backbone"], row["start"], row["method"], row["noise"], row["test"])
                scores[key][int(row["seed"])] = float(row["auc"])
    return scores


def spread(values: Mapping[int, float]) -> str:
    """Mean and standard deviation over seeds."""
    if not values:
        return MISSING
    found = list(values.values())
    return f"{mean(found):.3f}" + (f" ± {stdev(found):.3f}" if len(found) > 1 else " (one seed)")


def gap(found: Sequence[float]) -> str:
    """Mean of paired differences over seeds with its 95 % interval; a star where that leaves out 0."""
    if not found:
        return MISSING
    if len(found) < 3:  # an interval of two says nothing
        return f"{mean(found):+.3f} ({'one seed' if len(found) == 1 else 'two seeds'})"
    return f"{mean(found):+.3f} ± {half_interval(found):.3f}{' *' if certain(found) else ''}"


def half_interval(found: Sequence[float]) -> float:
    """Half of the 95 % interval of a mean of three or more."""
    return float(student.ppf(0.975, len(found) - 1)) * stdev(found) / math.sqrt(len(found))


def certain(found: Sequence[float]) -> bool:
    """Whether the interval of their mean leaves out 0."""
    return len(found) >= 3 and abs(mean(found)) > half_interval(found)


def paired(scores: Scores, backbone: str, one: str, other: str, method: str, noise: str, test: str) -> list[float]:
    """Differences of two starts in the seeds that both have."""
    ours, theirs = (scores.get((backbone, start, method, noise, test), {}) for start in (one, other))
    return [ours[seed] - theirs[seed] for seed in sorted(set(ours) & set(theirs))]


def shared(scores: Scores, backbone: str, starts: Sequence[str], noise: str, test: str) -> dict[str, dict[int, float]]:
    """Plain training from these starts, with the seeds that all of them have that were run."""
    found = {start: scores.get((backbone, start, "bce", noise, test), {}) for start in starts}
    seeds = set.intersection(*(set(values) for values in found.values() if values)) if any(found.values()) else set()
    return {start: {seed: values[seed] for seed in sorted(seeds)} for start, values in found.items() if values}


@dataclass(frozen=True)
class Tally:
    """Two starts over methods and noises.

    Attributes:
        settings: How many there are.
        higher: In how many of them the first is higher on average; likewise `lower`.
        clearly_higher: In how many the interval leaves out 0 as well; likewise `clearly_lower`.
        average: Mean of the settings' differences.
        seeds: The fewest that a setting has, and the most.
    """

    settings: int
    higher: int
    clearly_higher: int
    clearly_lower: int
    average: float
    seeds: tuple[int, int]


def tally(scores: Scores, one: str, other: str, test: str) -> Tally | None:
    """What comes of two starts in all settings; those with the very same numbers count once.

    Without noise bomd-plus may find nothing to change, and then is plain training.
    """
    every = [paired(scores, USUAL, one, other, method, noise, test) for noise in NOISES for method in METHODS]
    cells = list(dict.fromkeys(tuple(cell) for cell in every if cell))
    if not cells:
        return None
    means = [mean(cell) for cell in cells]
    sure = [value for value, cell in zip(means, cells, strict=True) if certain(cell)]
    counts = [len(cell) for cell in cells]
    return Tally(
        len(cells),
        sum(value > 0 for value in means),
        sum(value > 0 for value in sure),
        sum(value < 0 for value in sure),
        mean(means),
        (min(counts), max(counts)),
    )
