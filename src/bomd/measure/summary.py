"""Runs gathered for comparison: seeds of the same settings are one row, rows on the same data comparable."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table

from bomd.errors import InputError
from bomd.runs import Run

VALIDATION = "validation"  # patients held out of the training set: their labels may be wrong
DATA = ("name", "images", "train", "test", "noise", "validation")  # settings that decide which data is used


@dataclass(frozen=True)
class Finished:
    """A finished run with its settings and numbers."""

    run: Run
    config: dict[str, Any]
    result: dict[str, Any]

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def place(self) -> str:
        """Enough of the directory to find the run, without the path of somebody's home."""
        return "/".join(self.run.directory.resolve().parts[-3:])


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but seeds.

    Attributes:
        experiment: Name of the data, unique in the report; only groups that share it may be compared.
        label: Name of the method, unique in the experiment.
        runs: By seed.
    """

    experiment: str
    label: str
    runs: tuple[Finished, ...]

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    @property
    def first(self) -> Finished:
        """The run that stands for all where only one can be shown."""
        return self.runs[0]


def gather(runs: Sequence[Run]) -> list[Group]:
    """Read finished runs and group them; an unfinished or damaged one is an error."""
    if not runs:
        raise InputError("No run to report: give at least one finished run directory.")
    unique = {run.directory.resolve(): run for run in runs}
    read = sorted((_read(run) for run in unique.values()), key=lambda run: run.seed)
    data = {_key(_data_settings(run)): _data_settings(run) for run in read}
    experiments = _labels(data, lambda settings: str(settings["name"]))
    methods: dict[str, dict[str, list[Finished]]] = {}
    for run in read:
        groups = methods.setdefault(_key(_data_settings(run)), {})
        groups.setdefault(_key(_method_settings(run)), []).append(run)
    gathered = []
    for data_key, groups in methods.items():
        settings = {key: _method_settings(members[0]) for key, members in groups.items()}
        labels = _labels(settings, lambda settings: str(settings["method"]))
        gathered += [Group(experiments[data_key], labels[key], tuple(members)) for key, members in groups.items()]
    return sorted(gathered, key=lambda group: (group.experiment, group.label))


def summary_rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One row per method and data, averaged over seeds.

    A number is None where no run has it, else {"mean", "std", "low", "high", "count"}: the sample standard
    deviation over several runs, or the bootstrap interval of a single one where there is one.

    Returns:
        Rows with the keys experiment, method, seeds, tests (number by test set; "validation" comes last),
        flagged (share of images; with the mean counts as "images" and "of"), detection (number by name),
        labels (number by name), seconds, images.
    """
    return [summarise(group) for group in gather(runs)]


def summarise(group: Group) -> dict[str, Any]:
    """The row of one group; see `summary_rows`."""
    results = [run.result for run in group.runs]
    tests = dict.fromkeys(test for result in results for test in result["tests"])
    ordered = sorted(tests, key=lambda test: test == VALIDATION)
    return {
        "experiment": group.experiment,
        "method": group.label,
        "seeds": group.seeds,
        "tests": {
            test: spread(
                [number(result["tests"].get(test), "mean_auc") for result in results],
                number(results[0]["tests"].get(test), "mean_auc_low"),
                number(results[0]["tests"].get(test), "mean_auc_high"),
            )
            for test in ordered
        },
        "flagged": _flagged([result["flagged"] for result in results]),
        "detection": _spreads(result["detection"] for result in results),
        "labels": _spreads(result["labels"] for result in results),
        "seconds": spread([number(result, "seconds") for result in results]),
        "images": spread([number(result, "images_presented") for result in results]),
    }


def summary_table(runs: Sequence[Run]) -> Table:
    """The rows as a table for the terminal."""
    rows = summary_rows(runs)
    tests = list(dict.fromkeys(test for row in rows for test in row["tests"] if test != VALIDATION))
    several = len({row["experiment"] for row in rows}) > 1
    detected = any(row["detection"] for row in rows)
    relabelled = any(row["labels"] for row in rows)
    table = Table(
        title="Mean AUC over findings",
        caption=spread_meaning(rows),
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    headings = ["method", "seeds", *tests, "flagged"]
    headings += ["flag\nAUROC"] * detected + ["label\nAUC"] * relabelled + ["time"]
    for heading in ["data"] * several + headings:
        side: Literal["left", "right"] = "left" if heading in ("data", "method") else "right"
        whole = 13 if heading in tests else None  # an interval is of use only whole
        table.add_column(heading, justify=side, overflow="fold", min_width=whole)
    for row in rows:
        cells = [row["experiment"]] * several + [row["method"], ", ".join(map(str, row["seeds"]))]
        cells += [show(row["tests"].get(test)) for test in tests]
        cells.append(show(row["flagged"], percent=True))
        cells += [show(row["detection"].get("auroc"))] * detected
        if relabelled:
            before, after = row["labels"].get("before"), row["labels"].get("after")
            cells.append(f"{show(before)} → {show(after)}" if before and after else "–")
        cells.append(show_seconds(row["seconds"]))
        # The spread goes below its number, so that the table fits a terminal of 80 columns.
        table.add_row(*(_plain(re.sub(r" (?=[±(→])", "\n", cell)) for cell in cells))
    return table


def spread(
    values: Iterable[float | None], low: float | None = None, high: float | None = None
) -> dict[str, Any] | None:
    """Mean and sample standard deviation of what is known; an interval counts only for a single value."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    single = len(known) == 1
    return {
        "mean": statistics.fmean(known),
        "std": None if single else statistics.stdev(known),
        "low": low if single else None,
        "high": high if single else None,
        "count": len(known),
    }


def show(value: Mapping[str, Any] | None, percent: bool = False) -> str:
    """A spread as people write it: 0.873 ± 0.004, or 0.873 (0.861–0.885)."""
    if value is None:
        return "–"
    scale, digits, unit = (100, 1, " %") if percent else (1, 3, "")
    mean = f"{value['mean'] * scale:.{digits}f}"
    if value["std"] is not None:
        return f"{mean} ± {value['std'] * scale:.{digits}f}{unit}"
    if value["low"] is not None and value["high"] is not None:
        return f"{mean} ({value['low'] * scale:.{digits}f}–{value['high'] * scale:.{digits}f}){unit}"
    return mean + unit


def show_seconds(value: Mapping[str, Any] | None) -> str:
    """A duration in the unit that suits it."""
    if value is None:
        return "–"
    seconds = value["mean"]
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"


def spread_meaning(rows: Sequence[Mapping[str, Any]]) -> str:
    """One sentence on what stands behind ± and inside brackets in these rows."""
    several = any(len(row["seeds"]) > 1 for row in rows)
    single = any(len(row["seeds"]) == 1 for row in rows)
    parts = ["± is the sample standard deviation over seeds"] * several
    parts += ["brackets hold the 95 % bootstrap interval over the test patients of one run"] * single
    sentence = "; ".join(parts)
    return sentence[0].upper() + sentence[1:] + "."


def number(place: Mapping[str, Any] | None, key: str) -> float | None:
    """A finite number of a result, or None where it is missing, null or not a number."""
    value = None if place is None else place.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted key."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Dotted keys that are not the same everywhere."""
    flat = [flatten(item) for item in settings]
    keys = dict.fromkeys(key for item in flat for key in item)
    return [key for key in keys if len({json.dumps(item.get(key), default=str) for item in flat}) > 1]


def _read(run: Run) -> Finished:
    config, result = run.config(), run.result()
    missing = [key for key in ("tests", "detection", "flagged", "labels", "composition") if key not in result]
    if missing:
        raise InputError(f"{run.directory / 'result.json'} has no {missing[0]!r}. Run it again.")
    return Finished(run, config, result)


def _without_seeds(settings: Any) -> Any:
    if isinstance(settings, Mapping):
        return {key: _without_seeds(value) for key, value in settings.items() if key != "seed"}
    return settings


def _data_settings(run: Finished) -> dict[str, Any]:
    return {key: _without_seeds(run.config.get(key)) for key in DATA}


def _method_settings(run: Finished) -> dict[str, Any]:
    """Settings that the method sees; those of other methods in the same recipe do not matter."""
    kept = {key: value for key, value in run.config.items() if key not in (*DATA, "settings")}
    method = run.config["method"]
    own = (run.config.get("settings") or {}).get(method, {})
    settings: dict[str, Any] = _without_seeds({**kept, str(method): own})
    return settings


def _key(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, default=str)


def _labels(settings: Mapping[str, Mapping[str, Any]], name: Any) -> dict[str, str]:
    """A short name for each of these settings; where names clash, what differs is added."""
    named: dict[str, list[str]] = {}
    for key, values in settings.items():
        named.setdefault(name(values), []).append(key)
    labels = {}
    for short, keys in named.items():
        different = differing([settings[key] for key in keys])
        for key in keys:
            flat = flatten(settings[key])
            details = ", ".join(f"{item.rsplit('.', 1)[-1]}={flat.get(item, 'unset')}" for item in different)
            labels[key] = f"{short} ({details})" if details else short
    return labels


def _flagged(places: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    known = [place for place in places if place and place["of"]]
    share = spread([place["images"] / place["of"] for place in known])
    return share and share | {key: statistics.fmean(place[key] for place in known) for key in ("images", "of")}


def _spreads(places: Iterable[Mapping[str, Any] | None]) -> dict[str, Any]:
    """The spread of every plain number that occurs in these parts of results."""
    known = [place for place in places if place is not None]
    keys = dict.fromkeys(key for place in known for key in place if number(place, key) is not None)
    return {key: spread([number(place, key) for place in known]) for key in keys}


def _plain(cell: str) -> Any:
    """Text that rich does not read as markup: class and run names are anybody's."""
    from rich.text import Text

    return Text(cell)
