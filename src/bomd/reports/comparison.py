"""Methods side by side from records: the score of each under each kind of noise, how sure its distance from a reference
is, what it cost, and which runs are missing.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from bomd.experiments.grid import BASELINE, Grid, Group
from bomd.experiments.recorded import Record
from bomd.measure.significance import SURE, UNDEFINED, show_seconds, welch_test, z_test
from bomd.reports.sheet import MISSING, Cell, Mean, best, latex_table, markdown_table, rows_to_csv, write_forms


def write_comparison(found: Sequence[Grid], path: Path) -> list[Path]:
    """Write every entry as CSV, and beside it tables for people as Markdown, those of the scores as LaTeX, too."""
    rows = rows_to_csv([row for grid in found for row in entry_rows(grid)])
    latex = "\n".join(chain.from_iterable(map(scores_as_latex, found)))
    return write_forms(path, rows, "\n".join(map(markdown, found)), latex)


def entry_rows(grid: Grid) -> list[dict[str, Any]]:
    """One row for every method, kind of noise and test set, also where nothing is there."""
    places = [(label, noise, test) for test in grid.judged for noise in grid.noises for label in grid.methods]
    return [_entry(grid, *place) for place in places]


def markdown(grid: Grid) -> str:
    """Scores, tests against the reference, costs and what is missing, as Markdown."""
    parts = [f"## {grid.name}\n"]
    for test in grid.judged:
        heads, scores = _cells(grid, test, score_cell, grid.methods)
        parts += [f"### AUC on {test}\n", markdown_table(heads, scores, bold=best(scores))]
        own = {group.label for group in grid.groups.values() if group.method == grid.reference}
        others = [label for label in grid.methods if label not in own]
        if own:
            words = f"One-sided p that {grid.reference} is no better, by the paper's z-test / by Welch's t-test:\n"
            parts += [words, markdown_table(*_cells(grid, test, _p_values, others)), _verdicts(grid, test)]
    parts += ["### Cost\n", costs_table(grid), "### Missing runs\n", missing_runs(grid)]
    return "\n".join(parts)


def scores_as_latex(grid: Grid) -> list[str]:
    """A table of each test set, under a remark that says which it is."""
    found = []
    for test in grid.judged:
        heads, scores = _cells(grid, test, score_cell, grid.methods)
        about = " ".join(f"{grid.name}: AUC on {test}, mean and standard deviation over seeds".split())
        found.append(f"% {about}\n{latex_table(heads, scores, best(scores))}")
    return found


def score_cell(grid: Grid, label: str, noise: str, test: str) -> Mean:
    """Mean AUC over seeds, or that it is missing."""
    return Mean(grid.score(label, noise, test), len(grid.records(label, noise)), len(grid.seeds))


def _entry(grid: Grid, label: str, noise: str, test: str) -> dict[str, Any]:
    sample, records = grid.score(label, noise, test), grid.records(label, noise)
    z, welch = _tests(grid, grid.groups.get((label, noise)), test)
    return {
        "name": grid.name,
        "test": test,
        "noise": noise,
        "method": label,
        "seeds": sample.count if sample else 0,
        "missing_seeds": " ".join(map(str, grid.missing(label, noise))),
        "mean_auc": _rounded(sample.mean if sample else None, 4),
        "std": _rounded(sample.std if sample else None, 4),
        "z_test_p": _significant(z),
        "welch_p": _significant(welch),
        "seconds": _rounded(_mean(records, "seconds"), 1),
        "runs_at_once": _largest(records, "runs_at_once"),
        "images_presented": _rounded(_mean(records, "images_presented"), 0),
        "peak_memory_mb": _largest(records, "peak_memory_mb"),
        "peak_gpu_memory_mb": _largest(records, "peak_gpu_memory_mb"),
    }


def _p_values(grid: Grid, label: str, noise: str, test: str) -> str:
    group = grid.groups.get((label, noise))
    if group is None or not any(one.noise == noise and one.method == grid.reference for one in grid.groups.values()):
        return MISSING
    return " / ".join(UNDEFINED if p is None else f"{p:.2g}" for p in _tests(grid, group, test))


def _tests(grid: Grid, group: Group | None, test: str) -> tuple[float | None, float | None]:
    """The p of both tests of the reference against a group; None where they cannot be computed."""
    other = grid.opposite(group, grid.reference) if group else None
    reference, sample = (one.score(test) if one else None for one in (other, group))
    if reference is None or sample is None:
        return None, None
    return z_test(reference, sample), welch_test(reference, sample)


def verdicts(grid: Grid, test: str, method: str) -> list[str]:
    """Which methods are surely better than another over seeds, and which worse, as sentences for every page.

    Where nothing was compared they say that instead.
    """
    found: dict[int, dict[str, list[str]]] = {1: {}, -1: {}, 0: {}}
    for label, noise in [(label, noise) for label in sorted(grid.methods) for noise in grid.noises]:
        group = grid.groups.get((label, noise))
        if group is not None:
            found[grid.verdict(group, method, test)].setdefault(label, []).append(noise)
    told = [[f"{label} at {', '.join(noises)}" for label, noises in found[sign].items()] for sign in (1, -1)]
    sentences = [
        f"{word} than {method} over seeds, by Welch's p < {SURE:g}: {'; '.join(named) or 'none'}."
        for word, named in zip(("Better", "Worse"), told, strict=True)
    ]
    places = unclear(grid, method)
    compared = any(group.method == method and group.noise not in places for group in grid.groups.values())
    return sentences * compared + not_compared(grid, method)


def unclear(grid: Grid, method: str) -> list[str]:
    """Kinds of noise where a method ran with several settings, so that none of them is the one to compare with."""
    counts = Counter(group.noise for group in grid.groups.values() if group.method == method)
    return [noise for noise in grid.noises if counts[noise] > 1]


def not_compared(grid: Grid, method: str) -> list[str]:
    """The same as a sentence, if there are any."""
    places = unclear(grid, method)
    return [f"Not compared with {method} at {', '.join(places)}, where it ran with several settings."] * bool(places)


def _verdicts(grid: Grid, test: str) -> str:
    """The same against the reference and against plain training."""
    there = {group.method for group in grid.groups.values()}
    against = dict.fromkeys(method for method in (grid.reference, BASELINE) if method in there)
    lines = [f"- {sentence}" for method in against for sentence in verdicts(grid, test, str(method))]
    return "\n".join(lines) + "\n"


def _cells(
    grid: Grid, test: str, cell: Callable[[Grid, str, str, str], Cell], labels: Sequence[str]
) -> tuple[list[str], list[list[Cell]]]:
    """Heads and rows of a table with a row for each method and a column for each kind of noise."""
    rows = [[label, *(cell(grid, label, noise, test) for noise in grid.noises)] for label in labels]
    return ["method", *grid.noises], rows


def costs_table(grid: Grid) -> str:
    body = []
    for label in grid.methods:
        records, factor = grid.records(label), grid.presented(label)
        largest = [_largest(records, key) for key in ("runs_at_once", "peak_memory_mb", "peak_gpu_memory_mb")]
        at_once, memory, gpu = (None if value is None else f"{value:,.0f}" for value in largest)
        time = show_seconds(_mean(records, "seconds"))
        body.append([label, time, at_once, None if factor is None else f"{factor:.2f}", memory, gpu])
    presented = f"images presented / {BASELINE}"
    return markdown_table(["method", "training time", "runs at once", presented, "memory, MB", "GPU memory, MB"], body)


def missing_runs(grid: Grid) -> str:
    together: dict[tuple[str, str], list[str]] = {}
    for label in grid.methods:
        for noise in grid.noises:
            if gaps := grid.missing(label, noise):
                together.setdefault((label, ", ".join(map(str, gaps))), []).append(noise)
    lines = [f"- {label}: {'; '.join(noises)} (seeds {seeds})" for (label, seeds), noises in together.items()]
    return "\n".join(lines or ["None."]) + "\n"


def _mean(records: Sequence[Record], key: str) -> float | None:
    return statistics.fmean(getattr(record.result, key) for record in records) if records else None


def _largest(records: Sequence[Record], key: str) -> float | None:
    values = [getattr(record.environment, key) for record in records]
    return max((float(value) for value in values if value is not None), default=None)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _significant(p: float | None) -> float | None:
    return None if p is None else float(f"{p:.3g}")
