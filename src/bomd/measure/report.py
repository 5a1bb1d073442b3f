"""Run directories in, one HTML page out that opens offline; nothing here loads a model or trains anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bomd.errors import InputError
from bomd.files import read_json, write_text
from bomd.measure import figures, gallery, summary
from bomd.measure.figures import Look
from bomd.measure.summary import VALIDATION, Group, number, show, spread, summary_rows, summary_table
from bomd.measure.words import in_words
from bomd.runs import Run
from bomd.tables import NO_FINDING

if TYPE_CHECKING:
    from bomd.measure.records import LabelRecord

__all__ = ["summary_rows", "summary_table", "write_report"]

LARGEST = 9_500_000  # bytes: a page that can still be sent by mail
EXAMPLES = (12, 6, 3, 1, 0)  # of each kind and method; the first number that keeps the page small enough
Values = dict[str, Any]


def write_report(runs: Sequence[Run], path: Path) -> Path:
    """Write one self-contained HTML page about finished runs of any methods and seeds.

    Args:
        runs: Finished runs; those that differ only in seeds are averaged, and methods are compared only
            where they saw the same data.
        path: The page; it appears whole or not at all.

    Returns:
        The same path.
    """
    groups = summary.gather(runs)
    labels = list(dict.fromkeys(group.label for group in groups))
    look = dict(zip(labels, figures.looks(labels), strict=True))
    parts = [_Part(group, look[group.label], f"g{place}", _record(group)) for place, group in enumerate(groups)]
    page = _page(parts)
    for most in EXAMPLES:
        text = _render({**page, "galleries": _galleries(parts, most)})
        if len(text.encode()) <= LARGEST:
            write_text(path, text)
            return path
    raise InputError(f"A report of {len(runs)} runs is larger than 10 MB. Report fewer runs at once.")


@dataclass(frozen=True)
class _Part:
    """A group with what its sections need."""

    group: Group
    look: Look
    name: str  # unique in the page, for ids inside figures
    record: LabelRecord


def _record(group: Group) -> LabelRecord:
    from bomd.measure.records import LabelRecord  # here, since it brings PyTorch along

    return LabelRecord.load(group.first.run.directory / "labels.npz")


def _page(parts: Sequence[_Part]) -> Values:
    groups = [part.group for part in parts]
    rows = [summary.summarise(group) for group in groups]
    experiments = list(dict.fromkeys(group.experiment for group in groups))
    several = len(experiments) > 1

    def title(part: _Part) -> str:
        return f"{part.group.experiment}: {part.group.label}" if several else part.group.label

    return {
        "experiments": [
            {"name": name, "points": in_words([group for group in groups if group.experiment == name])}
            for name in experiments
        ],
        "several": several,
        "runs": sum(len(group.runs) for group in groups),
        "looks": list({part.look.label: part.look for part in parts}.values()),
        "methods": _methods(parts, rows),
        "findings": _findings(parts),
        "detection": [
            {"part": part, "title": title(part), "row": row, "figure": _margins(part)}
            for part, row in zip(parts, rows, strict=True)
            if row["flagged"]
        ],
        "composition": [
            {"title": title(part), "seed": part.group.first.seed, **_composition(part)}
            for part in parts
            if part.group.first.result["composition"]
        ],
        "changes": [
            {"title": title(part), "seed": part.group.first.seed, "row": row, **_changes(part)}
            for part, row in zip(parts, rows, strict=True)
            if _relabels(part.record)
        ],
        "curves": _curves(parts),
        "cost": [_cost(part, row) for part, row in zip(parts, rows, strict=True)],
        "settings": _settings(parts, title),
        "environments": _environments(groups),
        "notes": list(dict.fromkeys(note for g in groups for run in g.runs for note in run.result.get("notes") or [])),
        "colours": figures.PALETTE,
    }


def _render(page: Values) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,  # class names, ids and settings are anybody's text
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"show": show, "duration": summary.show_seconds}
    return environment.get_template("report.html.j2").render(**page)


def _methods(parts: Sequence[_Part], rows: Sequence[Values]) -> Values:
    """The table of methods against test sets."""
    tests = list(dict.fromkeys(test for row in rows for test in row["tests"]))
    tests.sort(key=lambda test: test == VALIDATION)
    best = {
        (row["experiment"], test): max(
            other["tests"][test]["mean"]
            for other in rows
            if other["experiment"] == row["experiment"] and other["tests"].get(test)
        )
        for row in rows
        for test in tests
        if row["tests"].get(test)
    }
    lines = []
    for part, row in zip(parts, rows, strict=True):
        cells = [
            {
                "auc": row["tests"].get(test),
                "ap": _over_seeds(part.group, test, "mean_ap"),
                "best": bool(value := row["tests"].get(test)) and value["mean"] == best[row["experiment"], test],
            }
            for test in tests
        ]
        lines.append({"look": part.look, "row": row, "cells": cells})
    images = [
        {
            "experiment": name,
            "counts": next(p.group.first.result["images"] for p in parts if p.group.experiment == name),
        }
        for name in dict.fromkeys(row["experiment"] for row in rows)
    ]
    return {"tests": tests, "lines": lines, "meaning": summary.spread_meaning(rows), "images": images}


def _over_seeds(group: Group, test: str, key: str) -> Values | None:
    return spread([number(run.result["tests"].get(test), key) for run in group.runs])


def _findings(parts: Sequence[_Part]) -> list[Values]:
    """Numbers per finding, one block per experiment and test set."""
    blocks: list[Values] = []
    for experiment in dict.fromkeys(part.group.experiment for part in parts):
        members = [part for part in parts if part.group.experiment == experiment]
        tests = list(dict.fromkeys(test for part in members for test in part.group.first.result["tests"]))
        for test in [name for name in tests if name != VALIDATION] or tests:
            scored = [part for part in members if test in part.group.first.result["tests"]]
            blocks.append({"experiment": experiment, "test": test, **_block(scored, test, f"f{len(blocks)}")})
    return blocks


def _block(parts: Sequence[_Part], test: str, name: str) -> Values:
    first = parts[0].group.first.result["tests"][test]
    left_out = {item["name"]: item["reason"] for item in first["left_out"]}
    classes = [item["name"] for item in first["classes"]]
    numbers = {part.name: {item: _finding(part.group, test, item) for item in classes} for part in parts}
    shown = [item for item in classes if any(numbers[part.name][item]["auc"] for part in parts)]
    overall = {part.name: summary.summarise(part.group)["tests"][test] for part in parts}
    lines = [
        {
            "name": item["name"],
            "positives": item["positives"],
            "total": item["positives"] + item["negatives"],
            "averaged": item["name"] not in left_out and item["name"] != NO_FINDING,
            "cells": [numbers[part.name][item["name"]] for part in parts],
        }
        for item in first["classes"]
    ]
    dots = []
    for part in parts:
        values = [overall[part.name], *(numbers[part.name][item]["auc"] for item in shown)]
        ends = [_ends(value) for value in values]
        means = [value["mean"] if value else None for value in values]
        dots.append(figures.Dots(part.look, means, [end[0] for end in ends], [end[1] for end in ends]))
    figure = figures.dot_plot(["mean of findings", *shown], dots, "AUC", name) if shown else None
    return {
        "figure": figure,
        "lines": lines,
        "looks": [part.look for part in parts],
        "left_out": [f"{item} ({reason})" for item, reason in left_out.items()]
        + [f"{NO_FINDING} (it is the absence of all findings)"] * (NO_FINDING in classes),
    }


def _finding(group: Group, test: str, name: str) -> dict[str, Values | None]:
    found = [
        item
        for run in group.runs
        for item in run.result["tests"].get(test, {"classes": []})["classes"]
        if item["name"] == name
    ]
    return {
        key: spread(
            [number(item, key) for item in found],
            number(found[0], f"{key}_low") if found else None,
            number(found[0], f"{key}_high") if found else None,
        )
        for key in ("auc", "ap")
    }


def _ends(value: Values | None) -> tuple[float | None, float | None]:
    if value is None:
        return None, None
    if value["std"] is not None:
        return value["mean"] - value["std"], value["mean"] + value["std"]
    return value["low"], value["high"]


def _margins(part: _Part) -> Any:
    """The histogram of margins, where it is known which labels were changed."""
    flags, truth = part.record.flags, gallery.known_truth(part.record)
    if flags is None or not truth.any():
        return None
    known = truth & np.isfinite(flags.margin)
    changed = gallery.truly_changed(part.record)
    flagged, passed = flags.margin[known & flags.noisy], flags.margin[known & ~flags.noisy]
    separate = len(flagged) and len(passed) and flagged.max() <= passed.min()
    border = float(flagged.max() + passed.min()) / 2 if separate else None
    return figures.histogram(flags.margin[known & changed], flags.margin[known & ~changed], border, f"{part.name}m")


def _composition(part: _Part) -> Values:
    items = part.group.first.result["composition"]
    counts = [
        (figures.PALETTE[4], [item["given"] for item in items]),
        (figures.PALETTE[0], [item["kept"] for item in items]),
    ]
    figure = figures.bars([item["name"] for item in items], counts, "positive labels", f"{part.name}c")
    return {"figure": figure, "items": items}


def _relabels(record: LabelRecord) -> bool:
    return not np.array_equal(record.given.values, record.proposed.values, equal_nan=True)


def _changes(part: _Part) -> Values:
    """How much label mass each class has, and how well its labels tell right from wrong, before and after."""
    record, truth = part.record, gallery.known_truth(part.record)
    rows = truth if truth.any() else np.ones(len(record.given), dtype=bool)
    masses = [("given", figures.PALETTE[4], record.given), ("proposed", figures.PALETTE[0], record.proposed)]
    if truth.any() and record.clean is not None:
        masses.insert(0, ("true", figures.PALETTE[2], record.clean))
    sums = [(colour, np.nansum(table.values[rows], axis=0).tolist()) for _, colour, table in masses]
    found = part.group.first.result["labels"]
    classes = found["classes"] if found else []
    before, after = ([number(item, key) for item in classes] for key in ("before", "after"))
    names = [item["name"] for item in classes]
    return {
        "images": int(rows.sum()),
        "masses": [(name, colour) for name, colour, _ in masses],
        "histogram": figures.bars(record.given.classes, sums, "sum of labels", f"{part.name}h"),
        "auc": figures.change_plot(names, before, after, "label AUC", f"{part.name}l") if classes else None,
        "classes": classes,
    }


def _galleries(parts: Sequence[_Part], most: int) -> list[Values]:
    from bomd.measure.records import Examples

    found = []
    for part in parts:
        if part.record.flags is None:
            continue
        examples = Examples.load(part.group.first.run.directory / "examples.npz")
        pages = gallery.pages(part.record, examples, most)
        if pages:
            found.append({"group": part.group, "pages": pages})
    return found


def _curves(parts: Sequence[_Part]) -> list[Values]:
    """Loss of every stage, and the score on held-out patients where it was measured."""
    lines: dict[tuple[str, str], list[tuple[Look, list[int], list[float]]]] = {}
    for part in parts:
        for run in part.group.runs:
            history = _history(run.run.directory / "metrics.jsonl")
            for stage in dict.fromkeys(str(record["stage"]) for record in history):
                for key in ("loss", "validation"):
                    points = [
                        (int(record["epoch"]), value)
                        for record in history
                        if record["stage"] == stage and (value := number(record, key)) is not None
                    ]
                    if points:
                        epochs, values = zip(*points, strict=True)
                        lines.setdefault((stage, key), []).append((part.look, list(epochs), list(values)))
    axis = {"loss": "loss", "validation": "AUC on held-out patients"}
    return [
        {"stage": stage, "what": axis[key], "figure": figures.curves(found, axis[key], f"t{place}")}
        for place, ((stage, key), found) in enumerate(lines.items())
    ]


def _history(path: Path) -> list[Values]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line]
    except (OSError, ValueError) as error:
        raise InputError(f"Cannot read {path}: {error}.") from error


def _cost(part: _Part, row: Values) -> Values:
    places = [read_json(run.run.directory / "environment.json") for run in part.group.runs]
    return {
        "look": part.look,
        "row": row,
        "memory": spread([number(place, "peak_memory_mb") for place in places]),
        "devices": list(dict.fromkeys(str(place.get("device")) for place in places)),
    }


def _settings(parts: Sequence[_Part], title: Any) -> Values:
    configs = [part.group.first.config for part in parts]
    flat = [summary.flatten(config) for config in configs]
    keys = [key for key in summary.differing(configs) if key != "seed"]
    return {
        "titles": [title(part) for part in parts],
        "different": [(key, [_written(item.get(key)) for item in flat]) for key in keys],
        "whole": [
            {
                "title": title(part),
                "runs": [run.place for run in part.group.runs],
                "text": json.dumps(part.group.first.config, indent=2, ensure_ascii=False, default=str),
            }
            for part in parts
        ],
    }


def _written(value: Any) -> str:
    return "–" if value is None else json.dumps(value, ensure_ascii=False, default=str).strip('"')


def _environments(groups: Sequence[Group]) -> list[Values]:
    """Distinct environments with the runs that were made in them."""
    made: dict[str, list[str]] = {}
    for group in groups:
        for run in group.runs:
            environment = read_json(run.run.directory / "environment.json")
            shared = {key: value for key, value in environment.items() if key not in ("seconds", "peak_memory_mb")}
            made.setdefault(json.dumps(shared, indent=2, ensure_ascii=False), []).append(run.place)
    return [{"text": text, "runs": places} for text, places in made.items()]
