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
from bomd.experiments.noise import noise_level, noise_name
from bomd.methods.describe import tables_of
from bomd.runs import Run

VALIDATION = "validation"  # patients held out of the training set: their labels may be wrong
BEFORE_NOISE = "validation before noise"  # the same patients with their labels before noise was added
BASELINE = "bce"  # plain training, which every other method must beat
DATA = (  # settings that decide which images are learnt from and how they are tested, noise aside
    "name",
    "images",
    "train",
    "test",
    "validation",
    "hold_out_test_patients",
    "minimum_positives",
)


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
        data: Name of the images, unique in the report.
        noise: What was done to their labels, unique for the data; "no noise" where nothing was.
        experiment: Both in one name; only groups that share it may be compared.
        label: Name of the method, unique for the data.
        runs: By seed.
    """

    data: str
    noise: str
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

    @property
    def level(self) -> tuple[bool, str, float, float]:
        """Sorts kinds of noise: none first, then by kind, rows and labels."""
        return noise_level(self.first.config.get("noise") or {})


def gather(runs: Sequence[Run]) -> list[Group]:
    """Read finished runs and group them; an unfinished or damaged one is an error."""
    if not runs:
        raise InputError("No run to report: give at least one finished run directory.")
    read = {_key(run.config): run for run in sorted((_read(run) for run in runs), key=lambda run: run.place)}
    by_data: dict[str, list[Finished]] = {}
    for run in sorted(read.values(), key=lambda run: run.seed):  # the same settings and seed count once
        by_data.setdefault(_key(_data_settings(run)), []).append(run)
    names = _labels({key: _data_settings(same[0]) for key, same in by_data.items()}, "name")
    gathered = [group for key, same in by_data.items() for group in _gather_data(names[key], same)]
    return sorted(gathered, key=lambda group: (group.data, group.level, group.label))


def _gather_data(data: str, runs: Sequence[Finished]) -> list[Group]:
    """Group the runs of the same images by noise and method."""
    settings = {_key(_method_settings(run)): _method_settings(run) for run in runs}
    labels = _labels(settings, "method")
    found: dict[tuple[str, str], list[Finished]] = {}
    for run in runs:
        noise = noise_name(run.config.get("noise") or {})
        found.setdefault((noise, labels[_key(_method_settings(run))]), []).append(run)
    several = len({noise for noise, _ in found}) > 1
    return [
        Group(data, noise, f"{data}, {noise}" if several else data, label, tuple(members))
        for (noise, label), members in found.items()
    ]


def summary_rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One row per method and data, averaged over seeds.

    A number is None where no run has it, else {"mean", "std", "low", "high", "count"}: the sample standard
    deviation over several runs, or the bootstrap interval of a single one where there is one.

    Returns:
        Rows with the keys experiment, data, noise, method, seeds, tests (number by test set; "validation" comes last),
        flagged (share of images; with the mean counts as "images" and "of"), detection (number by name),
        labels (number by name), seconds, images.
    """
    return [summarise(group) for group in gather(runs)]


def summarise(group: Group) -> dict[str, Any]:
    """The row of one group; see `summary_rows`."""
    results = [run.result for run in group.runs]
    tests = dict.fromkeys(test for result in results for test in result["tests"])
    ordered = sorted(tests, key=held_out)
    return {
        "experiment": group.experiment,
        "data": group.data,
        "noise": group.noise,
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


def by_finding(group: Group, test: str, classes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """AUC and average precision of each class over the runs of a group."""
    tests = [run.result["tests"].get(test, {"classes": []}) for run in group.runs]
    runs = [{item["name"]: item for item in found["classes"]} for found in tests]
    found = {}
    for name in classes:
        items = [run.get(name) for run in runs]
        found[name] = {
            key: spread(
                [number(item, key) for item in items], number(items[0], f"{key}_low"), number(items[0], f"{key}_high")
            )
            for key in ("auc", "ap")
        }
    return found


def held_out(test: str) -> bool:
    """Whether a test set is made of patients held out of the training set."""
    return test in (VALIDATION, BEFORE_NOISE)


def test_name(test: str) -> str:
    """A test set as people call it, inside a sentence."""
    names = {VALIDATION: "held-out patients", BEFORE_NOISE: "held-out patients, labels before noise"}
    return names.get(test, f"test set {test}")


def test_head(test: str) -> str:
    """The same without the words "test set", for a table or an axis."""
    return test_name(test).removeprefix("test set ")


def summary_table(runs: Sequence[Run]) -> Table:
    """The rows as a table for the terminal."""
    rows = summary_rows(runs)
    every = list(dict.fromkeys(test for row in rows for test in row["tests"]))
    tests = [test for test in every if not held_out(test)] or every
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
    names = [test_head(test).replace(", ", ",\n") for test in tests]
    headings = ["method", "seeds", *names, "flagged"]
    headings += ["flag\nAUROC"] * detected + ["label\nAUC"] * relabelled + ["time"]
    for heading in ["data"] * several + headings:
        side: Literal["left", "right"] = "left" if heading in ("data", "method") else "right"
        whole = 13 if heading in names else None  # an interval is of use only whole
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
    missing = [key for key in ("seed", "method", "name") if key not in config]
    if missing:
        raise InputError(f"{run.directory / 'config.json'} has no {missing[0]!r}. Run it again.")
    return Finished(run, config, result)


def _without_seeds(settings: Any) -> Any:
    if isinstance(settings, Mapping):
        return {key: _without_seeds(value) for key, value in settings.items() if key != "seed"}
    return settings


def _data_settings(run: Finished) -> dict[str, Any]:
    return {key: _without_seeds(run.config.get(key)) for key in DATA}


def _method_settings(run: Finished) -> dict[str, Any]:
    """Settings that the method sees; those of other methods in the same recipe do not matter."""
    kept = {key: value for key, value in run.config.items() if key not in (*DATA, "noise", "settings")}
    method, tables = str(run.config["method"]), run.config.get("settings") or {}
    own = {key: value for table in tables_of(method) for key, value in tables.get(table, {}).items()}
    settings: dict[str, Any] = _without_seeds({**kept, method: own})
    return settings


def _key(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, default=str)


def _labels(settings: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, str]:
    """A short name for each of these settings; where names clash, what differs is added."""
    named: dict[str, list[str]] = {}
    for key, values in settings.items():
        named.setdefault(str(values[name]), []).append(key)
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
