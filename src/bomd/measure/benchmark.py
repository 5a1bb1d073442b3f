"""Many runs side by side: do what is missing, keep one record per run, and make tables from the records alone.

A record is one line of JSON with the settings, the result and the environment of a run. Tables are made from a file of
records, so that runs of several sittings and machines fill one table, and every number leads to the run that made it.
"""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import os
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from bomd import progress, runs
from bomd.config import Config
from bomd.errors import InputError
from bomd.files import read_json, write_text
from bomd.measure import experiment

Record = dict[str, Any]


def run_all(configs: Sequence[Config], root: Path, jobs: int = 1) -> list[runs.Run]:
    """Do every run that is not finished yet, several at once if asked; small runs leave a GPU mostly idle.

    Names and settings of all are checked before the first starts. A run that fails does not stop the others.
    """
    for config in configs:
        experiment.make_method(config)
    if jobs <= 1:
        return [experiment.run(config, root) for config in progress.track(configs, "runs")]
    finished, problems = {}, []
    fresh = multiprocessing.get_context("spawn")  # a fork of a process that uses a GPU cannot use it
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with (
        ProcessPoolExecutor(jobs, mp_context=fresh, initializer=_limit_threads, initargs=(threads,)) as pool,
        progress.bar("runs", len(configs)) as advance,
    ):
        waiting = {pool.submit(experiment.run, config, root): place for place, config in enumerate(configs)}
        for future in as_completed(waiting):
            try:
                finished[waiting[future]] = future.result()
            except Exception as error:
                problems.append(f"{configs[waiting[future]].method}, seed {configs[waiting[future]].seed}: {error}")
                progress.say(f"failed: {problems[-1]}")
            advance()
    if not finished:
        raise InputError(f"No run finished. The first problem: {problems[0]}")
    return [finished[place] for place in sorted(finished)]


def add_records(done: Sequence[runs.Run], path: Path) -> list[Record]:
    """Add finished runs to a file of records, replacing older records of the same run; return all that it holds."""
    records = {_key(record): record for record in read_records(path)} if path.exists() else {}
    for run in done:
        record = {
            "run": run.directory.name,
            "config": _without_folders(run.config()),
            "result": _rounded(run.result()),
            "environment": read_json(run.directory / "environment.json"),
        }
        records[_key(record)] = record
    write_text(path, "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records.values()))
    return list(records.values())


def read_records(path: Path) -> list[Record]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"Cannot read {path}: {error}.") from error


def write_tables(records: Sequence[Record], path: Path) -> None:
    """Write one CSV row per run and test set, and beside it the mean and spread over seeds as Markdown."""
    rows = [row for record in records for row in _rows(record)]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path.with_suffix(".csv"), stream.getvalue())
    write_text(path.with_suffix(".md"), summary(rows))


COLUMNS = {
    "mean_auc": "AUC",
    "detection_auroc": "detection AUROC",
    "detection_auroc_by_count": "AUROC of counting labels",
    "label_auc_before": "label AUC before",
    "label_auc_after": "label AUC after",
}


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Mean and sample standard deviation over seeds, as Markdown; empty columns are left out."""
    columns = {key: title for key, title in COLUMNS.items() if any(row[key] is not None for row in rows)}
    noisy = any(row["noise"] != "none" for row in rows)
    heads = ["method", *(["noise"] if noisy else []), "test set", "seeds", *columns.values()]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["method"], row["noise"], row["test"]), []).append(row)
    for (method, noise, test), group in groups.items():
        cells = [method, *([noise] if noisy else []), test, str(len(group))]
        cells += [_spread([row[column] for row in group]) for column in columns]
        lines.append("| " + " | ".join(cells) + " |")
    devices = sorted({f"{row['device']}, torch {row['torch']}" for row in rows})
    lines += [
        "",
        "AUC is the mean over findings; the test set `validation` is the held-out training patients, whose labels are "
        "as noisy as the training labels. Mean ± sample standard deviation over seeds. "
        f"Run on: {'; '.join(devices)}.",
        "",
    ]
    return "\n".join(lines)


def _rows(record: Record) -> list[dict[str, Any]]:
    result, environment = record["result"], record["environment"]
    detection, labels = result["detection"] or {}, result["labels"] or {}
    return [
        {
            "name": result["name"],
            "method": result["method"],
            "noise": _noise(record["config"]["noise"]),
            "seed": result["seed"],
            "test": test,
            "images": result["images"][test],
            "mean_auc": scores["mean_auc"],
            "mean_auc_low": scores["mean_auc_low"],
            "mean_auc_high": scores["mean_auc_high"],
            "findings_in_mean": len(scores["averaged"]),
            "detection_auroc": detection.get("auroc"),
            "detection_precision": detection.get("precision"),
            "detection_recall": detection.get("recall"),
            "detection_base_rate": detection.get("base_rate"),
            "detection_auroc_by_count": detection.get("auroc_by_count"),
            "label_auc_before": labels.get("before"),
            "label_auc_after": labels.get("after"),
            "flagged": result["flagged"]["images"] if result["flagged"] else None,
            "seconds": result["seconds"],
            "images_presented": result["images_presented"],
            "peak_memory_mb": environment["peak_memory_mb"],
            "device": environment["device"],
            "torch": environment["versions"]["torch"],
            "commit": environment["commit"],
            "run": record["run"],
        }
        for test, scores in result["tests"].items()
    ]


def _noise(noise: dict[str, Any]) -> str:
    """A short name for the noise of a run, such as "symmetric rows=0.4 labels=0.4"."""
    kind = noise.get("kind", "none")
    return " ".join([kind, *(f"{key}={value}" for key, value in noise.items() if key != "kind")])


def _without_folders(value: Any) -> Any:
    """The same settings with file names in place of paths: where somebody kept the data is nobody's business."""
    if isinstance(value, dict):
        return {key: _without_folders(item) for key, item in value.items()}
    return Path(value).name if isinstance(value, str) and "/" in value else value


def _rounded(value: Any) -> Any:
    """The same numbers with four decimals, which is more than any of them is certain to."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return round(value, 4) if isinstance(value, float) else value


def _key(record: Record) -> tuple[str, ...]:
    config = record["config"]
    return (config["name"], config["method"], record["run"])


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    spread = f" ± {statistics.stdev(known):.3f}" if len(known) > 1 else ""
    return f"{statistics.fmean(known):.3f}{spread}"


def _limit_threads(count: int) -> None:
    import torch

    torch.set_num_threads(count)
