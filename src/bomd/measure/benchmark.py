"""Methods and seeds side by side: run what is missing, then write one CSV row per run and a summary table."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bomd import progress, runs
from bomd.config import Config
from bomd.files import read_json, write_text
from bomd.measure import experiment


def run_all(configs: Sequence[Config], root: Path) -> list[runs.Run]:
    """Do every run that is not finished yet; names and settings of all are checked before the first starts."""
    for config in configs:
        experiment.make_method(config)
    return [experiment.run(config, root) for config in progress.track(configs, "runs")]


def write_results(done: Sequence[runs.Run], path: Path) -> None:
    """Write `path` (one row per run and test set) and, beside it, the same as a Markdown summary."""
    rows = [row for run in done for row in result_rows(run)]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, stream.getvalue())
    write_text(path.with_suffix(".md"), summary(rows))


def result_rows(run: runs.Run) -> list[dict[str, Any]]:
    """The numbers of a run, one row per test set, with what is needed to find and repeat it."""
    result, environment = run.result(), read_json(run.directory / "environment.json")
    detection, labels = result["detection"] or {}, result["labels"] or {}
    return [
        {
            "name": result["name"],
            "method": result["method"],
            "seed": result["seed"],
            "test": test,
            "images": result["images"][test],
            "mean_auc": scores["mean_auc"],
            "mean_auc_low": scores["mean_auc_low"],
            "mean_auc_high": scores["mean_auc_high"],
            "classes_in_mean": len(scores["classes"]) - len(scores["left_out"]),
            "detection_auroc": detection.get("auroc"),
            "detection_precision": detection.get("precision"),
            "detection_recall": detection.get("recall"),
            "detection_base_rate": detection.get("base_rate"),
            "detection_auroc_by_count": detection.get("auroc_by_count"),
            "label_auc_before": labels.get("before"),
            "label_auc_after": labels.get("after"),
            "seconds": result["seconds"],
            "images_presented": result["images_presented"],
            "peak_memory_mb": environment["peak_memory_mb"],
            "device": environment["device"],
            "torch": environment["versions"]["torch"],
            "commit": environment["commit"],
            "run": run.directory.name,
        }
        for test, scores in result["tests"].items()
    ]


COLUMNS = {
    "mean_auc": "clean-test AUC",
    "detection_auroc": "detection AUROC",
    "detection_auroc_by_count": "AUROC of counting labels",
    "label_auc_before": "label AUC before",
    "label_auc_after": "label AUC after",
}


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Mean and sample standard deviation over seeds, as Markdown; held-out noisy patients are not listed."""
    lines = [
        "| method | test set | seeds | " + " | ".join(COLUMNS.values()) + " |",
        "|---" * (3 + len(COLUMNS)) + "|",
    ]
    tests = [row for row in rows if row["test"] != experiment.HELD_OUT]
    for method, test in dict.fromkeys((row["method"], row["test"]) for row in tests):
        group = [row for row in tests if (row["method"], row["test"]) == (method, test)]
        cells = [_spread([row[column] for row in group]) for column in COLUMNS]
        lines.append(f"| {method} | {test} | {len(group)} | " + " | ".join(cells) + " |")
    devices = sorted({f"{row['device']}, torch {row['torch']}" for row in rows})
    lines += ["", f"Mean ± sample standard deviation over seeds; run on: {'; '.join(devices)}.", ""]
    return "\n".join(lines)


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    spread = f" ± {statistics.stdev(known):.3f}" if len(known) > 1 else ""
    return f"{statistics.fmean(known):.3f}{spread}"
