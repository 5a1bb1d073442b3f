"""Run directories in, one HTML page out that opens offline; nothing here loads a model or trains anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

from bomd.errors import InputError
from bomd.experiments.grid import BASELINE, Group
from bomd.experiments.identity import differing, flatten
from bomd.experiments.records import LabelRecord
from bomd.files import spare, write_text
from bomd.measure.significance import Sample, show, show_seconds
from bomd.reports import figures, gallery, gate
from bomd.reports.figures import Dots, Look
from bomd.reports.noise_curves import Judged, judge, noise_figures, score_table
from bomd.reports.summary import gather, groups_of, spread_meaning, test_head
from bomd.reports.words import audit_in_words, in_words, margin_words, overview, show_gap, subject
from bomd.runs import Run
from bomd.tables import NO_FINDING

LARGEST = 9_500_000  # bytes: a page that can still be sent by mail
EXAMPLES = (12, 6, 3, 1, 0)  # of each kind and method; the first number that keeps the page small enough
AUDITED = (24, *EXAMPLES)  # the same where people go through what is flagged
CARDS = 24  # examples of each kind on the whole page, so that it stays quick to open
DETAILED, ALIKE = 6, 3  # groups whose flags, labels and examples are shown in detail, and those of one method
DRAWN = 8  # tables of findings that also have a figure
WIDE = 6  # methods whose settings fit beside each other
LINES = 18  # runs in a figure of training
VARIES = ("seconds", "peak_memory_mb", "peak_gpu_memory_mb", "runs_at_once")  # in an environment from run to run
DROPPED = (  # what a page gives up after its examples, in this order
    ("training", "the curves of training"),
    ("margins", "the histograms of margins"),
    ("composition", "what the clean sets are made of"),
    ("changes", "the new labels class by class"),
    ("findings", "the numbers of each finding"),
    ("whole", "the complete settings"),
    ("notes", "the notes of the runs"),
)
OURS = r"\s*<!doctype html>.{,2000}?<title>(Which labels look wrong|Learning from noisy labels): "  # how pages begin
Values = dict[str, Any]


def check_place(path: Path) -> None:
    """Refuse to put a page over anything but an earlier one; before what it tells of is done, which may take days."""
    spare(path, OURS)


def write_report(
    runs: Sequence[Run],
    path: Path,
    reference: str = BASELINE,
    opening: Mapping[str, Any] | None = None,
    failed: Mapping[str, str] | None = None,
) -> Path:
    """Write one self-contained HTML page about finished runs of any methods, noise and seeds; return its path.

    Args:
        runs: Finished runs; those that differ only in seeds are averaged, and methods are compared only
            where they saw the same data.
        path: The page; it appears whole or not at all, and over nothing but an earlier one.
        reference: The method that others are compared with; plain training where it is not there.
        opening: What `opening.write_demo` has to say before everything else.
        failed: Runs that were asked for and failed, and why: means are those of the others.
    """
    grids = judge(gather(runs, reference))
    leading = [method for grid in grids for method in grid.leading]  # first, so that their colours differ
    labels = list(dict.fromkeys([*leading, *(method for grid in grids for method in grid.methods)]))
    look = dict(zip(labels, figures.looks(labels), strict=True))
    parts: Parts = {}
    for grid in grids:
        data = f"{grid.name}: " if len(grids) > 1 else ""
        for group in groups_of([grid]):
            place = (grid.name, group.label, group.noise)
            parts[place] = _Part(grid, group, look[group.label], f"g{len(parts)}", data)
    detailed = _detailed(grids, parts)
    page = _page(grids, parts, detailed, look) | {"opening": opening, "failed": failed or {}}
    for version in _versions(page, lambda most: _galleries(detailed, most, path), len(detailed)):
        text = _render(version)
        if len(text.encode()) <= LARGEST:
            check_place(path)
            write_text(path, text)
            return path
    raise InputError(f"A report of {len(runs)} runs is larger than 10 MB. Report fewer runs at once.")


@dataclass(frozen=True)
class _Part:
    """A group with what its sections need."""

    grid: Judged
    group: Group
    look: Look
    name: str  # unique in the page, for ids inside figures
    data: str  # before the name of its method, where there are several sets of images

    @property
    def title(self) -> str:
        return f"{self.data}{self.group.label}" + (f", {self.group.noise}" if len(self.grid.noises) > 1 else "")

    @property
    def directory(self) -> Path:
        """Of the run that stands for all."""
        return self.group.first.directory or Path()

    @cached_property
    def record(self) -> LabelRecord:
        return LabelRecord.load(self.directory / "labels.npz")

    @cached_property
    def relabels(self) -> bool:
        """Whether the method changes labels; asked of its numbers where they say so, since they are read faster."""
        result = self.group.first.result
        if result.labels is not None and str(result.labels.before) != str(result.labels.after):  # both may be NaN
            return True
        return bool(result.flagged or result.labels is None) and gallery.relabels(self.record)


Parts = dict[tuple[str, str, str], _Part]  # by set of images, method and noise


def _page(grids: Sequence[Judged], parts: Parts, detailed: Sequence[_Part], look: dict[str, Look]) -> Values:
    groups = [part.group for part in parts.values()]
    ordered = [parts[place] for place in sorted(parts, key=lambda place: place[:2])]  # the noise of a method together
    flagging = [part for part in ordered if part.group.flagged]
    margins = [(part, gallery.margins(part.record, f"{part.name}m")) for part in detailed]
    audit = not any(grid.tests for grid in grids) and bool(flagging)
    asked = {part: gallery.questions(part.record) for part in parts.values() if audit and part in detailed}
    relabelling = [part for part in ordered if part.relabels or (part in asked and asked[part]["changed"])]
    said = {reason for found in asked.values() for reason in found["reasons"]}
    notes = dict.fromkeys(note for group in groups for run in group.runs for note in run.result.notes)
    members = _members(grids, parts)

    def points(grid: Judged) -> list[dict[str, str]]:
        found = {(part.group.label, part.group.noise): told for part, told in asked.items() if part.grid is grid}
        return audit_in_words(grid, found) if found else in_words(grid)

    return {
        "audit": audit,
        "subjects": [subject(grid) if audit else grid.name for grid in grids],
        "grids": [
            _grid(grid, look, f"n{place}") | {"points": points(grid), "overview": None if audit else overview(grid)}
            for place, grid in enumerate(grids)
        ],
        "several": len({group.experiment for group in groups}) > 1,
        "runs": sum(len(group.runs) for group in groups),
        "looks": list(look.values()),
        "seeds": sorted({seed for group in groups for seed in group.seeds}),
        "findings": _findings(grids, parts),
        "detection": flagging,
        "known": {key for part in flagging for key in part.group.detection},
        "margin_words": margin_words([part.group for part in flagging]),
        "margins": [{"part": part, "figure": figure} for part, figure in margins if figure],
        "composition": [
            {"part": part} | gallery.composition(part.group.first, f"{part.name}c")
            for part in detailed
            if part.group.first.result.composition
        ],
        "relabelled": relabelling,
        "changes": [
            gallery.changes(part.group.first, part.record, part.name)
            | {"part": part, "questions": asked.get(part), "soft": gallery.relabels(part.record)}
            for part in detailed
            if part in relabelling
        ],
        "training": _training(grids, parts),
        "cost": _cost(members),
        "settings": _settings(members),
        "whole": [
            {
                "title": title,
                "runs": [run.place for part in same for run in part.group.runs],
                "text": _json(same[0].group.first.written["config"]),
            }
            for title, same in members.items()
        ],
        "environments": _environments(groups),
        "notes": [note for note in notes if note not in said],  # what the summary says already
        "colours": figures.PALETTE,
        "galleries": [],
        "script": gate.script("find.js"),
        "left_out": [],
    }


def _versions(page: Values, galleries: Callable[[int], list[Values]], count: int) -> Iterator[Values]:
    """The page, and then with ever less on it, until it is small enough; each says what it leaves out."""
    steps = AUDITED if page["audit"] else EXAMPLES
    usual = max(2, min(steps[0], CARDS // max(count, 1)))
    left: list[str] = []
    for most in (usual, *(fewer for fewer in steps if fewer < usual)):
        if most < usual:
            left = [f"all but {most} example{'' if most == 1 else 's'} of each kind" if most else "all examples"]
        page = {**page, "galleries": galleries(most), "left_out": left}
        yield page
    for key, words in DROPPED:
        if page[key]:
            page = {**page, key: [], "left_out": [*page["left_out"], words]}
            yield page


def _render(page: Values) -> str:
    filters = {"show": show, "gap": show_gap, "duration": show_seconds, "test": test_head}
    return gate.rendered(gate.TEMPLATES / "report.html.j2", filters, **page)


def _detailed(grids: Sequence[Judged], parts: Parts) -> list[_Part]:
    """The groups to look at closely: every set of images, then several methods, then several kinds of noise."""
    queues = []
    for grid in grids:
        noisy = [noise for noise in grid.noises if any(g.noise == noise and g.level[0] for g in grid.groups.values())]
        order = list(dict.fromkeys([*noisy[len(noisy) // 2 :][:1], *noisy[-1:], *noisy, *grid.noises]))[:ALIKE]
        methods = dict.fromkeys(["bomd", *grid.methods])
        found = [parts.get((grid.name, method, noise)) for noise in order for method in methods]
        queues.append([part for part in found if part and (part.group.first.result.flagged or part.relabels)])
    return [part for same in zip_longest(*queues) for part in same if part is not None][:DETAILED]


def _grid(grid: Judged, look: dict[str, Look], name: str) -> Values:
    """Tables of methods and curves of one set of images, beside what the grid says of itself."""
    single = len(grid.noises) == 1
    tables = [[(noise, test) for noise in grid.noises] for test in grid.tests]
    if single and tables:  # all test sets fit into one
        tables = [[column for (column,) in tables]]
    return {
        **vars(grid),
        "single": single,
        "tables": [score_table(grid, look, columns) for columns in tables],
        "counted": any(group.level[2] for group in grid.groups.values()),
        "meaning": spread_meaning(grid.groups.values()),
        "images": _images(grid),
        "missing": grid.lacking(),
        "curves": [
            {"test": test, "looks": [look[m] for m in grid.leading], "faint": len(grid.methods) - len(grid.leading)}
            | {"panels": found}
            for place, test in enumerate(grid.headline)
            if (found := noise_figures(grid, look, test, f"{name}-{place}"))
        ],
    }


def _images(grid: Judged) -> dict[str, str]:
    """How many images each set has: seeds and noise decide who is held out, so that training sets differ a little."""
    found: dict[str, list[int]] = {}
    for group in grid.groups.values():
        for run in group.runs:
            for name, count in run.result.images.items():
                found.setdefault(name, []).append(count)
    ends = {name: sorted({min(counts), max(counts)}) for name, counts in found.items()}
    return {name: " to ".join(f"{count:,}" for count in both) for name, both in ends.items()}


def _findings(grids: Sequence[Judged], parts: Parts) -> list[Values]:
    """Numbers per finding, one block for each data and test set; the first ones are drawn."""
    blocks: list[Values] = []
    places = [(grid, test, noise) for grid in grids for test in grid.headline for noise in grid.noises]
    for grid, test, noise in places:
        same = [parts.get((grid.name, method, noise)) for method in grid.methods]
        scored = [part for part in same if part and test in part.group.first.result.tests]
        if scored:
            blocks.append(_block(scored, test, f"f{len(blocks)}" if len(blocks) < DRAWN else None))
    return blocks


def _block(parts: Sequence[_Part], test: str, name: str | None) -> Values:
    scores = parts[0].group.first.result.tests[test]
    classes = [item.name for item in scores.classes]
    leading = [part for part in parts if part.group.label in part.grid.leading]
    cells = {
        part.name: {item: {key: part.group.finding(test, item, key) for key in ("auc", "ap")} for item in classes}
        for part in parts
    }
    shown = [item for item in classes if any(cells[part.name][item]["auc"] for part in leading)]
    series = [
        Dots(part.look, [part.group.score(test), *(cells[part.name][item]["auc"] for item in shown)])
        for part in leading
    ]
    absent = {NO_FINDING: "it is the absence of all findings"} if NO_FINDING in classes else {}
    return {
        "experiment": parts[0].group.experiment,
        "test": test,
        "figure": figures.dot_plot(["mean of findings", *shown], series, "AUC", name) if shown and name else None,
        "classes": scores.classes,
        "cells": cells,
        "confusions": [part for part in leading if part.group.first.result.tests[test].confusion],
        "leading": leading,
        "all": parts,
        "left_out": scores.left_out | absent,
    }


def _galleries(parts: Sequence[_Part], most: int, path: Path) -> list[Values]:
    found = []
    for part in parts:
        pages = gallery.read_pages(part.directory, part.record, most) if part.record.flags is not None else []
        if pages:
            facts = {"classes": part.record.given.classes, "review": gate.link_to_review(part.directory, path)}
            found.append({"group": part.group, "pages": pages} | facts)
    return found


def _training(grids: Sequence[Judged], parts: Parts) -> list[Values]:
    """Loss of every stage, and the score on held-out patients, of a few methods under one kind of noise."""
    found: list[Values] = []
    axis = {"loss": "loss", "validation": "AUC on held-out patients"}
    for grid in grids:
        noise = grid.noises[len(grid.noises) // 2]
        there = [parts.get((grid.name, method, noise)) for method in sorted(grid.leading)]
        members = [part for part in there if part]
        all_runs = sum(len(part.group.runs) for part in members) <= LINES
        lines: dict[tuple[str, str], list[tuple[Look, list[int], list[float]]]] = {}
        for part in members:
            for run in part.group.runs if all_runs else part.group.runs[:1]:
                for place, epochs, values in gallery.course(run.directory or Path()):
                    lines.setdefault(place, []).append((part.look, epochs, values))
        drawn = [
            {"stage": stage, "what": axis[key], "figure": figures.curves(same, axis[key], f"t{len(found)}-{place}")}
            for place, ((stage, key), same) in enumerate(lines.items())
        ]
        if drawn:
            seeds = "a line each time it ran" if all_runs else "the first seed of each"
            told = {"experiment": members[0].group.experiment, "looks": [part.look for part in members]}
            found.append(told | {"figures": drawn, "seeds": seeds})
    return found


def _members(grids: Sequence[Judged], parts: Parts) -> dict[str, list[_Part]]:
    """The parts of each method and set of images, over all kinds of noise, by title."""
    places = [(grid.name, method) for grid in grids for method in grid.methods]
    found = [[part for place, part in parts.items() if place[:2] == one] for one in places]
    return {f"{same[0].data}{same[0].group.label}": same for same in found}


def _cost(members: Mapping[str, Sequence[_Part]]) -> list[Values]:
    """What a run of each method took, over all kinds of noise and seeds."""
    lines = []
    for title, same in members.items():
        runs = [run for part in same for run in part.group.runs]
        places = [run.environment for run in runs]
        lines.append(
            {
                "title": title,
                "look": same[0].look,
                "runs": len(runs),
                "seconds": Sample.of(run.result.seconds for run in runs),
                "images": Sample.of(run.result.images_presented for run in runs),
                "memory": Sample.of(place.peak_memory_mb for place in places),
                "gpu": Sample.of(place.peak_gpu_memory_mb for place in places),
                "at_once": max(place.runs_at_once or 1 for place in places),
                "devices": list(dict.fromkeys(place.device for place in places)),
            }
        )
    return lines


def _settings(members: Mapping[str, Sequence[_Part]]) -> Values:
    """What differs between methods, noise and seeds aside."""
    configs = [same[0].group.first.written["config"] for same in members.values()]
    flat = [flatten(config) for config in configs]
    keys = [key for key in differing(configs) if key not in ("seed", "method") and not key.startswith("noise.")]
    return {
        "titles": list(members),
        "different": [(key, [_written(item.get(key)) for item in flat]) for key in keys],
        "wide": len(configs) > WIDE,
    }


def _written(value: Any) -> str:
    return "–" if value is None else json.dumps(value, ensure_ascii=False, default=str).strip('"')


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _environments(groups: Sequence[Group]) -> list[Values]:
    """Distinct environments with the runs that were made in them."""
    made: dict[str, list[str]] = {}
    for run in [run for group in groups for run in group.runs]:
        shared = {key: value for key, value in run.written["environment"].items() if key not in VARIES}
        made.setdefault(_json(shared), []).append(run.place)
    return [{"text": text, "facts": json.loads(text), "runs": places} for text, places in made.items()]
