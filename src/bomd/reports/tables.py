"""The tables beside a file of records: a row per run as CSV, means over seeds as Markdown and LaTeX, comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bomd.config import Config
from bomd.errors import InputError
from bomd.experiments.grid import Grid, Group, arrange
from bomd.experiments.noise_names import NO_NOISE
from bomd.experiments.plan import REFERENCE
from bomd.experiments.recorded import COMPARISON, Record, add_records
from bomd.files import beside, locked
from bomd.measure.quality import Detection
from bomd.measure.result import Labels
from bomd.measure.significance import Sample
from bomd.reports.comparison import write_comparison
from bomd.reports.sheet import Cell, Mean, Place, best, latex_table, markdown_table, rows_to_csv, write_forms
from bomd.reports.summary import groups_of
from bomd.runs import Run

NEWER = ("accuracy", "runs_at_once", "peak_gpu_memory_mb")  # columns that not all records have
DETECTION = ("auroc", "precision", "recall", "base_rate", "auroc_by_count")
MACHINE = ("runs_at_once", "peak_memory_mb", "peak_gpu_memory_mb", "device")
COLUMNS: dict[str, Callable[[Group, str], Sample | None]] = {
    "AUC": lambda group, test: group.score(test),
    "accuracy": lambda group, test: group.score(test, "accuracy"),
    "detection AUROC": lambda group, _: group.detection.get("auroc"),
    "AUROC of counting labels": lambda group, _: group.detection.get("auroc_by_count"),
    "label AUC before": lambda group, _: group.labels.get("before"),
    "label AUC after": lambda group, _: group.labels.get("after"),
}


def add_results(
    done: Sequence[Run], path: Path, reference: str = REFERENCE, planned: Sequence[Config] = ()
) -> tuple[list[Record], list[Path]]:
    """Add finished runs to a file of records and write its tables anew; processes that do so at once take turns.

    Args:
        planned: Runs that were to be done; those that failed are missing in the comparison.

    Returns:
        All its records, and the files of tables.
    """
    with locked(path):
        found = add_records(done, path)
        return found, write_results(found, path, reference, planned)


def write_results(
    records: Sequence[Record], path: Path, reference: str = REFERENCE, planned: Sequence[Config] = ()
) -> list[Path]:
    """Write the tables of a file of records beside it, and, where it has several methods, their comparison."""
    written = write_tables(records, path)
    if len({*(config.method for config in planned), *(record.config.method for record in records)}) > 1:
        place = path.with_name(f"{beside(path, '').name}{COMPARISON}.csv")
        written += write_comparison(
            arrange(records, reference=reference, planned=[config.to_dict() for config in planned]), place
        )
    return written


def write_tables(records: Sequence[Record], path: Path) -> list[Path]:
    """Write one CSV row per run and test set, and the mean and spread over seeds as Markdown and LaTeX beside it."""
    rows = run_rows(records)
    if not rows:
        raise InputError(f"No run in {path} was tested on anybody: there is nothing to put into a table.")
    unknown = [key for key in NEWER if all(row[key] is None for row in rows)]
    known = [{key: value for key, value in row.items() if key not in unknown} for row in rows]
    latex = latex_table(*means(arrange(records)))
    return write_forms(beside(path, ".csv"), rows_to_csv(known), summary(records), latex)


def summary(records: Sequence[Record]) -> str:
    """Mean and sample standard deviation over seeds, as Markdown."""
    heads, body, bold = means(arrange(records))
    devices = sorted({record.environment.place for record in records})
    return markdown_table(heads, body, bold=bold) + (
        "\nAUC is the mean over findings; the test set `validation` is the held-out training patients, whose labels "
        "are as noisy as the training labels. Mean ± sample standard deviation over seeds; the highest is bold. "
        f"Run on: {'; '.join(devices)}.\n"
    )


def means(grids: Sequence[Grid]) -> tuple[list[str], list[list[Cell]], set[Place]]:
    """Heads, a row for each group of runs and test set, and where the best are; empty columns are left out."""
    rows = [
        (grid.name, group, test)
        for grid in grids
        for group in groups_of([grid])
        for test in grid.tests
        if any(run.result.scores(test) for run in group.runs)
    ]
    columns = {title: of for title, of in COLUMNS.items() if any(of(group, test) for _, group, test in rows)}
    noisy, several = any(group.noise != NO_NOISE for _, group, _ in rows), len(grids) > 1
    heads = [*["data"] * several, "method", *["noise"] * noisy, "test set", "seeds", *columns]
    body: list[list[Cell]] = []
    for name, group, test in rows:
        count = len(group.runs)
        samples = [of(group, test) for of in columns.values()]
        cells: list[Cell] = [*[name] * several, group.label, *[group.noise] * noisy, test, count]
        body.append([*cells, *(Mean(sample, count, count) if sample else "" for sample in samples)])
    return heads, body, best(body, [(name, group.noise, test) for name, group, test in rows])


def run_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """A row for each run and test set; data, method and noise have the names of the group that the run counts in."""
    groups = [(grid.name, group) for grid in arrange(records) for group in grid.groups.values()]
    places = {run.identity: (name, group.label, group.noise) for name, group in groups for run in group.runs}
    return [row for record in records for row in _rows_of(record, *places[record.identity])]


def _rows_of(record: Record, name: str, label: str, noise: str) -> list[dict[str, Any]]:
    """One run as rows, one for each test set."""
    result, environment = record.result, record.environment
    found, labels = result.detection or Detection(), result.labels or Labels()
    return [
        {
            "name": name,
            "method": label,
            "noise": noise,
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
