"""What one shared score of abnormality is worth: alone for every finding, and added to each finding's own.

    python -m evidence.studies.abnormality RUNS --results results/abnormality.csv

A single score, how little an image looks like "No Finding", stands for every class: a table of AUCs that this row
nearly reaches says little about findings. Added to each finding's own score, both of the same spread, it may help.
Reads finished runs; nothing is trained.
"""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd import runs
from bomd.experiments.noise_names import noise_name
from bomd.experiments.records import load_predictions
from bomd.files import read_arrays, write_text
from bomd.measure.metrics import classification
from bomd.tables import NO_FINDING

COLUMNS = ("recipe", "method", "noise", "seed", "test", "auc", "with_shared", "single")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", type=Path, nargs="+")
    parser.add_argument("--results", type=Path, default=Path("results/abnormality.csv"))
    given = parser.parse_args()
    rows = [row for run in runs.find(given.places) for row in measure(run)]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(rows, key=lambda row: [str(row[name]) for name in COLUMNS]))
    write_text(given.results, stream.getvalue())


def measure(run: runs.Run) -> list[dict[str, Any]]:
    """One row for each test set of a run; none where there is no class of healthy images."""
    config = run.config()
    record = read_arrays(run.directory / "labels.npz")
    classes = [str(name) for name in record["classes"]]
    if NO_FINDING not in classes or "classifier" not in record:
        return []
    spread = dict(zip(classes, logits(record["classifier"]).std(axis=0), strict=True))
    facts = {"recipe": config["name"], "method": config["method"], "seed": config["seed"]}
    facts["noise"] = noise_name(config["noise"])
    found = []
    for test, (truth, scores) in load_predictions(run.directory / "predictions.npz").items():
        own = logits(scores.values)
        healthy = own[:, scores.classes.index(NO_FINDING)] / spread[NO_FINDING]
        sizes = np.array([spread.get(name, np.nan) for name in scores.classes])
        ways = {
            "auc": own,
            "with_shared": own / np.where(np.isnan(sizes), own.std(axis=0), sizes) - healthy[:, None],
            "single": np.repeat(-healthy[:, None], own.shape[1], axis=1),
        }
        aucs = {}
        for name, values in ways.items():
            table = scores.replace(1 / (1 + np.exp(-np.clip(values, -50, 50))))
            kept = classification(truth, table, bootstrap=0, minimum_positives=config["minimum_positives"])
            aucs[name] = round(float(kept.mean_auc), 4)
        found.append({**facts, "test": test, **aucs})
    return found


def logits(probabilities: NDArray[Any]) -> NDArray[np.float64]:
    sure = np.clip(probabilities.astype(np.float64), 1e-7, 1 - 1e-7)
    return np.asarray(np.log(sure) - np.log1p(-sure))


if __name__ == "__main__":
    main()
