"""Paired bootstraps over test patients between one method and all others, for every cell of many runs.

`python -m bomd.measure.paired_runs RUNS results/NAME-paired.csv` needs the predictions in the run directories, which
are not in the records; its table is kept beside them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bomd import runs
from bomd.measure.benchmark import write_csv
from bomd.measure.comparison import REFERENCE, noise_name
from bomd.measure.paired import over_seeds
from bomd.measure.records import load_predictions
from bomd.measure.summary import Group, gather

DRAWS = 2000


def compare_runs(found: Sequence[runs.Run], processes: int | None = None) -> list[dict[str, Any]]:
    """One row per data, other method and test set: the reference minus the other, over the seeds that both have."""
    groups = gather(found)
    tasks = []
    for reference in groups:
        if reference.first.config["method"] != REFERENCE:
            continue
        others = [group for group in groups if group.experiment == reference.experiment and group is not reference]
        tasks += [(reference, other, test) for other in others for test in reference.first.result["tests"]]
    workers = min(processes or os.cpu_count() or 1, len(tasks) or 1)
    if workers == 1:
        rows = [_compare(*task) for task in tasks]
    else:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            rows = list(pool.map(_compare, *zip(*tasks, strict=True)))
    return [row for row in rows if row is not None]


def _compare(reference: Group, other: Group, test: str) -> dict[str, Any] | None:
    seeds = [seed for seed in reference.seeds if seed in other.seeds]
    sides = []
    for group in (reference, other):
        chosen = [run for run in group.runs if run.seed in seeds and test in run.result["tests"]]
        sides.append([load_predictions(run.run.directory / "predictions.npz")[test] for run in chosen])
    if not seeds or len(sides[0]) != len(seeds) or len(sides[1]) != len(seeds):
        return None
    truths = [truth for side in sides for truth, _ in side]
    if any(truth.ids.tolist() != truths[0].ids.tolist() for truth in truths):
        return None  # held-out patients differ from seed to seed, and so cannot be drawn together
    found = over_seeds(
        truths[0],
        [scores for _, scores in sides[0]],
        [scores for _, scores in sides[1]],
        draws=DRAWS,
        minimum_positives=int(reference.first.config["minimum_positives"]),
    )
    if found is None:
        return None
    return {
        "name": reference.first.config["name"],
        "noise": noise_name(reference.first.config["noise"]),
        "test": test,
        "reference": reference.label,
        "method": other.label,
        "seeds": ";".join(map(str, seeds)),
        "draws": DRAWS,
        "difference": round(found.difference, 4),
        "low": round(found.low, 4),
        "high": round(found.high, 4),
        "p": float(f"{found.p:.3g}"),
    }


def main(arguments: Sequence[str]) -> None:
    *places, output = map(Path, arguments)
    rows = compare_runs(runs.find(list(places)))
    if rows:
        write_csv(output, rows)
    print(f"{len(rows)} comparisons: {output}")


if __name__ == "__main__":
    main(sys.argv[1:])
