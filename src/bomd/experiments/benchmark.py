"""Many runs side by side: do what is missing, keep one record per run, and make tables from the records alone.

A record is one line of JSON with the settings, the result and the environment of a run. Tables are made from a file of
records, so that runs of several sittings and machines fill one table, and every number leads to the run that made it.
"""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bomd import outside, progress, runs, threads
from bomd.config import Config
from bomd.errors import InputError
from bomd.experiments import workers
from bomd.experiments.live import Board
from bomd.experiments.plan import announce, cost
from bomd.files import beside, fingerprint, locked, read_text, write_text
from bomd.methods.describe import tables_of

Record = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What came of many runs: those that finished, in the order asked for, and why the others did not."""

    done: list[runs.Run]
    failed: dict[str, str]  # name of the run -> reason


def run_all(
    configs: Sequence[Config],
    root: Path,
    jobs: int = 1,
    console: Console | None = None,
    results: Path | None = None,
    command: Sequence[str] = workers.COMMAND,
) -> Outcome:
    """Do every run that is not finished yet, several at once if asked; small runs leave a GPU mostly idle.

    Names and settings of all are checked before the first starts, and that every dataset is there. The most expensive
    runs start first, so that none of them is left over at the end. A run that fails does not stop the others.

    Args:
        jobs: Runs at the same time; never more than there are cores.
        console: Where to show how far it is.
        results: A file of records to add each run to as soon as it is finished.
        command: Starts a process that does runs; see `bomd.experiments.workers`.
    """
    from bomd.experiments import experiment  # PyTorch with it, which tables of records can do without

    if jobs > threads.cores():  # more would only wait for one another
        jobs = threads.cores()
        progress.say(f"{jobs} at a time, one for each core that may be used here.")
    for config in configs:
        experiment.make_method(config)
    states = _states(configs)
    located = {place: runs.locate(root, config, states[_data_of(config)]) for place, config in enumerate(configs)}
    finished = {place: run for place, run in located.items() if run.finished}
    waiting = [place for place in located if place not in finished]
    waiting.sort(key=lambda place: -cost(configs[place]))
    for place in waiting:
        if states[_data_of(configs[place])] is None:
            experiment.read_labels(configs[place])  # says why it cannot be read
    board, failed = Board(configs, console), {}
    for place, run in finished.items():
        board.run_finished(place, run.result(), already=True)
    if console is not None:
        console.print(announce(configs, finished, jobs), highlight=False, markup=False, soft_wrap=True)
    before = read_records(results) if results is not None and results.exists() else []
    records = {place: record_of(run) for place, run in finished.items() if results is not None}
    with board.shown(), closing(workers.work([configs[place] for place in waiting], root, jobs, command)) as events:
        for event in events:
            place = waiting[event.place]
            if event.state == "running":
                board.run_started(place)
            elif event.state == "failed":
                failed[board.name(place)] = event.reason
                board.run_failed(place, event.reason)
            else:
                run = runs.locate(root, configs[place], states[_data_of(configs[place])])
                finished[place] = run
                board.run_finished(place, run.result())
                if results is not None:
                    records[place] = record_of(run)
                    merge(before, [records[known] for known in sorted(records)], results)
    return Outcome([finished[place] for place in sorted(finished)], failed)


def _data_of(config: Config) -> str:
    return fingerprint(config.train, config.test, config.hold_out_test_patients)


def _states(configs: Sequence[Config]) -> dict[str, runs.Data | None]:
    """The present state of each data set; None where it cannot be read, which only matters to runs not done yet."""
    from bomd.experiments import experiment

    states: dict[str, runs.Data | None] = {}
    for config in configs:
        if _data_of(config) not in states:
            try:
                states[_data_of(config)] = experiment.data_of(config)
            except InputError:
                states[_data_of(config)] = None
    return states


def add_records(done: Sequence[runs.Run], path: Path) -> list[Record]:
    """Add finished runs to a file of records, replacing older records of the same run; return all that it holds."""
    return merge(None, [record_of(run) for run in done], path)


def merge(before: Sequence[Record] | None, new: Sequence[Record], path: Path) -> list[Record]:
    """Write a file of records with those it holds and new ones, which take the place of older ones of the same run.

    Args:
        before: Records that come first, as far as the file has no later ones of their runs; by default its own.
        new: What to add, in this order.
    """
    ours = {_key(record): record for record in new}
    with locked(path):  # another process may be adding its own
        held = {_key(record): record for record in (read_records(path) if path.exists() else [])}
        first = held if before is None else {_key(record): record for record in before}
        unique = first | ours | {key: record for key, record in held.items() if key not in ours}
        if not unique:
            raise InputError(f"There is no run in {path}: name finished runs to add, or folders of them.")
        write_text(path, "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in unique.values()))
    return list(unique.values())


def record_of(run: runs.Run) -> Record:
    """What is kept of a finished run."""
    return {
        "run": run.directory.name,
        "config": _without_folders(run.config()),
        "result": _rounded(run.result()),
        "environment": run.environment(),
    }


def read_records(path: Path) -> list[Record]:
    """The records of a file, which may be compressed (.bz2 or .gz), each with settings, result and environment."""
    text = read_text(path)
    try:
        records = [json.loads(line) for line in text.splitlines()]
    except (ValueError, RecursionError) as error:  # bad JSON, or JSON nested without end
        raise InputError(f"Cannot read {path}: {error}.") from error
    for number, record in enumerate(records, start=1):
        if not isinstance(record, dict) or any(not isinstance(record.get(part), dict) for part in _PARTS):
            raise InputError(f"Line {number} of {path} is not the record of a run: delete it.")
    return records


_PARTS = ("config", "result", "environment")


def write_tables(records: Sequence[Record], path: Path) -> None:
    """Write one CSV row per run and test set, and beside it the mean and spread over seeds as Markdown."""
    rows = [row for record in records for row in _checked_rows(record)]
    if not rows:
        raise InputError(f"No run in {path} was tested on anybody: there is nothing to put into a table.")
    unknown = [key for key in NEWER if all(row[key] is None for row in rows)]
    write_csv(beside(path, ".csv"), [_without(row, unknown) for row in rows])
    write_text(beside(path, ".md"), summary(rows))


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows of the same keys, which are the head of the table."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, stream.getvalue())


NEWER = ("runs_at_once", "peak_gpu_memory_mb")  # columns that records of the first version do not have


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
    noisy, several = any(row["noise"] != "none" for row in rows), len({row["name"] for row in rows}) > 1
    heads = [*["data"] * several, "method", *["noise"] * noisy, "test set", "seeds", *columns.values()]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["name"], row["method"], row["noise"], row["test"]), []).append(row)
    for (name, method, noise, test), group in groups.items():
        cells = [*[name] * several, method, *[noise] * noisy, test, str(len(group))]
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


def _checked_rows(record: Record) -> list[dict[str, Any]]:
    try:
        return _rows(record)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"The record of run {record.get('run')} is damaged ({error}): make it again.") from error


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
            "runs_at_once": environment.get("runs_at_once"),
            "peak_memory_mb": environment["peak_memory_mb"],
            "peak_gpu_memory_mb": environment.get("peak_gpu_memory_mb"),
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


def effective(config: Mapping[str, Any]) -> dict[str, Any]:
    """The saved settings that decide about a run: not those of other methods, nor where the data lay."""
    method, own = config["method"], config["settings"]
    if not outside.names(method):  # of one from outside, which may not be here, a run keeps no other settings anyway
        own = {name: settings for name, settings in own.items() if name in tables_of(method)}
    settings: dict[str, Any] = _without_roots({**config, "settings": own})
    fit = settings.get("fit")
    if isinstance(fit, dict) and not fit.get("abnormality"):  # older records do not know it
        settings["fit"] = {key: value for key, value in fit.items() if key != "abnormality"}
    if not settings.get("rates"):
        settings.pop("rates", None)
    return settings


def _without_roots(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_roots(item) for key, item in value.items() if not key.endswith("root")}
    return value


def _without(row: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in keys}


def _key(record: Record) -> str:
    missing = [key for key in ("method", "settings") if key not in record["config"]]
    if missing:
        raise InputError(f"The record of run {record.get('run')} is damaged: its settings have no {missing[0]!r}.")
    return fingerprint(effective(record["config"]))


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    spread = f" ± {statistics.stdev(known):.3f}" if len(known) > 1 else ""
    return f"{statistics.fmean(known):.3f}{spread}"
