"""The tables beside a file of records: a row per run as CSV, means over seeds as Markdown and LaTeX, comparisons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bomd.errors import InputError
from bomd.experiments.grid import arrange
from bomd.experiments.noise_names import NO_NOISE, noise_name
from bomd.experiments.plan import REFERENCE
from bomd.experiments.recorded import Record, add_records
from bomd.files import beside, locked, write_text
from bomd.measure.quality import Detection
from bomd.measure.result import Labels
from bomd.measure.significance import Sample
from bomd.reports.comparison import write_comparison
from bomd.reports.sheet import Cell, Mean, Place, best, latex_table, markdown_table, rows_to_csv
from bomd.runs import Run

NEWER = ("accuracy", "runs_at_once", "peak_gpu_memory_mb")  # columns that not all records have
DETECTION = ("auroc", "precision", "recall", "base_rate", "auroc_by_count")
MACHINE = ("runs_at_once", "peak_memory_mb", "peak_gpu_memory_mb", "device")
COLUMNS = {
    "mean_auc": "AUC",
    "accuracy": "accuracy",
    "detection_auroc": "detection AUROC",
    "detection_auroc_by_count": "AUROC of counting labels",
    "label_auc_before": "label AUC before",
    "label_auc_after": "label AUC after",
}


def add_results(done: Sequence[Run], path: Path, reference: str = REFERENCE) -> list[Record]:
    """Add finished runs to a file of records and write its tables anew; processes that do so at once take turns."""
    with locked(path):
        found = add_records(done, path)
        write_results(found, path, reference)
    return found


def write_results(records: Sequence[Record], path: Path, reference: str = REFERENCE) -> None:
    """Write the tables of a file of records beside it, and, where it has several methods, their comparison."""
    write_tables(records, path)
    if len({record.config.method for record in records}) > 1:
        place = path.with_name(f"{beside(path, '').name}-comparison.csv")
        write_comparison(arrange(records, reference=reference), place)


def write_tables(records: Sequence[Record], path: Path) -> None:
    """Write one CSV row per run and test set, and the mean and spread over seeds as Markdown and LaTeX beside it."""
    rows = [row for record in records for row in run_rows(record)]
    if not rows:
        raise InputError(f"No run in {path} was tested on anybody: there is nothing to put into a table.")
    unknown = [key for key in NEWER if all(row[key] is None for row in rows)]
    known = [{key: value for key, value in row.items() if key not in unknown} for row in rows]
    write_text(beside(path, ".csv"), rows_to_csv(known))
    write_text(beside(path, ".md"), summary(rows))
    heads, body, bold = means(rows)
    write_text(beside(path, ".tex"), latex_table(heads, body, bold))


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Mean and sample standard deviation over seeds, as Markdown."""
    heads, body, bold = means(rows)
    devices = sorted({f"{row['device']}, torch {row['torch']}" for row in rows})
    return markdown_table(heads, body, bold=bold) + (
        "\nAUC is the mean over findings; the test set `validation` is the held-out training patients, whose labels "
        "are as noisy as the training labels. Mean ± sample standard deviation over seeds; the highest is bold. "
        f"Run on: {'; '.join(devices)}.\n"
    )


def means(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[Cell]], set[Place]]:
    """Heads, a row for each method and test set, and where the best are; empty columns are left out."""
    columns = {key: title for key, title in COLUMNS.items() if any(Sample.of([row[key]]) for row in rows)}
    noisy, several = any(row["noise"] != NO_NOISE for row in rows), len({row["name"] for row in rows}) > 1
    heads = [*["data"] * several, "method", *["noise"] * noisy, "test set", "seeds", *columns.values()]
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["name"], row["method"], row["noise"], row["test"]), []).append(row)
    body: list[list[Cell]] = []
    for (name, method, noise, test), group in groups.items():
        samples = [Sample.of(row[column] for row in group) for column in columns]
        cells: list[Cell] = [*[name] * several, method, *[noise] * noisy, test, len(group)]
        body.append([*cells, *(Mean(sample, sample.count, sample.count) if sample else "" for sample in samples)])
    return heads, body, best(body, [(name, noise, test) for name, _, noise, test in groups])


def run_rows(record: Record) -> list[dict[str, Any]]:
    """One run as rows, one for each test set."""
    result, environment = record.result, record.environment
    found, labels = result.detection or Detection(), result.labels or Labels()
    return [
        {
            "name": result.name,
            "method": result.method,
            "noise": noise_name(record.config.noise),
            "seed": result.seed,
            "test": test,
            "images": result.images.get(test),
            **{key: getattr(scores, key) for key in ("mean_auc", "mean_auc_low", "mean_auc_high")},
            "accuracy": None if math.isnan(scores.accuracy) else scores.accuracy,
            "findings_in_mean": len(scores.averaged),
            **{f"detection_{key}": getattr(found, key) for key in DETECTION},
            "label_auc_before": labels.before,
            "label_auc_after": labels.after,
            "flagged": result.flagged.images if result.flagged else None,
            "seconds": result.seconds,
            "images_presented": result.images_presented,
            **{key: getattr(environment, key) for key in MACHINE},
            "torch": environment.versions.get("torch"),
            "commit": environment.commit,
            "run": record.run,
        }
        for test, scores in result.tests.items()
    ]
