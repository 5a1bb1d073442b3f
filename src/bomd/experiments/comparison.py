"""Methods side by side from records: the score of each under each kind of noise, how sure its distance from a reference
is, what it cost, and which runs are missing.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bomd.experiments.benchmark import Record, add_records, effective, write_csv, write_tables
from bomd.experiments.noise import NO_NOISE, noise_name
from bomd.experiments.plan import REFERENCE as REFERENCE
from bomd.experiments.summary import differing, flatten, number, show_seconds
from bomd.files import beside, locked, write_text
from bomd.measure.significance import SURE, Sample, verdict, welch_test, z_test
from bomd.runs import Run

BASELINE = "bce"  # the row whose image presentations are the unit
HELD_OUT = "held-out patients"
HELD_OUT_TESTS = ("validation before noise", "validation")  # labels before noise was added, where it was
MISSING, UNDEFINED = "missing", "–"


@dataclass(frozen=True)
class Comparison:
    """The records of one experiment as a grid.

    Attributes:
        name: Of the experiment.
        rows: Methods; a setting is added where the same method ran with several.
        columns: Kinds of noise, and settings of the data or the training where they differ.
        seeds: Those that every entry should have.
        tests: Test sets; the held-out patients come last.
        entries: Records by row, column and seed.
        reference: The row that others are tested against.
    """

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    seeds: tuple[int, ...]
    tests: tuple[str, ...]
    entries: dict[tuple[str, str, int], Record]
    reference: str = REFERENCE

    def records(self, row: str, column: str | None = None) -> list[Record]:
        """The records of a row, of all columns or one."""
        places = [(one, seed) for one in self.columns if column in (None, one) for seed in self.seeds]
        return [self.entries[row, one, seed] for one, seed in places if (row, one, seed) in self.entries]

    def sample(self, row: str, column: str, test: str) -> Sample | None:
        """Mean AUC over seeds."""
        return Sample.of(known for record in self.records(row, column) if (known := auc(record, test)) is not None)

    def missing(self, row: str, column: str) -> list[int]:
        """Seeds that are not there."""
        return [seed for seed in self.seeds if (row, column, seed) not in self.entries]

    def presented(self, row: str) -> float | None:
        """Images that went through networks, as a factor of the baseline's in the same column and seed."""
        shares = []
        for column in self.columns:
            for seed in self.seeds:
                pair = [self.entries.get((one, column, seed)) for one in (row, BASELINE)]
                known = [record["result"]["images_presented"] for record in pair if record is not None]
                if len(known) == 2 and known[1]:
                    shares.append(known[0] / known[1])
        return statistics.fmean(shares) if shares else None


def compare(
    records: Sequence[Record],
    methods: Iterable[str] = (),
    columns: Iterable[str] = (),
    seeds: Iterable[int] = (),
    reference: str = REFERENCE,
) -> list[Comparison]:
    """Arrange records by experiment; what is asked for here and not in the records counts as missing.

    Args:
        reference: The method that others are tested against, where an experiment has it.
    """
    named: dict[str, list[Record]] = {}
    for record in records:
        named.setdefault(record["config"]["name"], []).append(record)
    return [_compare(name, group, methods, columns, seeds, reference) for name, group in named.items()]


def auc(record: Record, test: str) -> float | None:
    """Mean AUC on a test set; held-out patients are judged by their labels before noise was added."""
    tests = record["result"]["tests"]
    names = [name for name in HELD_OUT_TESTS if name in tests] if test == HELD_OUT else [test]
    return number(tests.get(names[0]), "mean_auc") if names else None


def write_results(records: Sequence[Record], path: Path, reference: str = REFERENCE) -> None:
    """Write the tables of a file of records beside it, and, where it has several methods, their comparison.

    Args:
        reference: The method that others are tested against.
    """
    write_tables(records, path)
    if len({record["config"]["method"] for record in records}) > 1:
        name = f"{beside(path, '').name}-comparison.csv"
        write_comparison(compare(records, reference=reference), path.with_name(name))


def add_results(done: Sequence[Run], path: Path, reference: str = REFERENCE) -> list[Record]:
    """Add finished runs to a file of records and write its tables anew; processes that do so at once take turns."""
    with locked(path):
        found = add_records(done, path)
        write_results(found, path, reference)
    return found


def write_comparison(found: Sequence[Comparison], path: Path) -> None:
    """Write every entry as CSV, and tables for people as Markdown beside it."""
    write_csv(path.with_suffix(".csv"), [row for comparison in found for row in entry_rows(comparison)])
    write_text(path.with_suffix(".md"), "\n".join(markdown(comparison) for comparison in found))


def entry_rows(found: Comparison) -> list[dict[str, Any]]:
    """One row for every method, column and test set, also where nothing is there."""
    return [_entry(found, row, column, test) for test in found.tests for column in found.columns for row in found.rows]


def markdown(found: Comparison) -> str:
    """Scores, tests against the reference, costs and what is missing, as Markdown."""
    parts = [f"## {found.name}\n"]
    for test in found.tests:
        parts += [f"### AUC on {test}\n", _table(found, test, _score, found.rows)]
        others = [row for row in found.rows if row != found.reference]
        if others != list(found.rows):
            words = f"One-sided p that {found.reference} is no better, by the paper's z-test / by Welch's t-test:\n"
            parts += [words, _table(found, test, _p_values, others), _verdicts(found, test)]
    parts += ["### Cost\n", _costs(found), "### Missing runs\n", _missing(found)]
    return "\n".join(parts)


def _compare(
    name: str,
    records: Sequence[Record],
    methods: Iterable[str],
    columns: Iterable[str],
    seeds: Iterable[int],
    reference: str,
) -> Comparison:
    settings = [effective(record["config"]) for record in records]
    data = [{key: item for key, item in one.items() if key not in ("settings", "method", "seed")} for one in settings]
    own = [_own(one) for one in settings]
    data_keys = [key for key in differing(data) if not key.startswith("noise.")]
    own_keys = {
        method: differing([item for item, one in zip(own, settings, strict=True) if one["method"] == method])
        for method in dict.fromkeys(one["method"] for one in settings)
    }
    entries = {}
    for record, one, around, inside in zip(records, settings, data, own, strict=True):
        row = " ".join([one["method"], *_chosen(inside, own_keys[one["method"]])])
        column = ", ".join([noise_name(one["noise"]), *_chosen(around, data_keys)])
        entries[row, column, int(one["seed"])] = record
    rows = {method: [method] for method in methods} | {
        method: list(dict.fromkeys(row for row, _, _ in entries if row.split(" ")[0] == method)) for method in own_keys
    }
    levels = sorted({column for _, column, _ in entries}, key=lambda column: (not column.startswith(NO_NOISE), column))
    tests = dict.fromkeys(test for record in records for test in record["result"]["tests"])
    held_out = [HELD_OUT] if any(test in tests for test in HELD_OUT_TESTS) else []
    return Comparison(
        name,
        tuple(row for same in rows.values() for row in same),
        tuple(dict.fromkeys([*columns, *levels])),
        tuple(sorted({*seeds, *(seed for _, _, seed in entries)})),
        (*(test for test in tests if test not in HELD_OUT_TESTS), *held_out),
        entries,
        reference,
    )


def _own(settings: dict[str, Any]) -> dict[str, Any]:
    """What was set for the method itself, its base's table first."""
    merged: dict[str, Any] = {}
    for table in sorted(settings["settings"], key=lambda table: table == settings["method"]):
        merged |= settings["settings"][table]
    return merged


def _chosen(settings: dict[str, Any], keys: Sequence[str]) -> list[str]:
    flat = flatten(settings)
    return [f"{key.rsplit('.', 1)[-1]}={flat[key]}" for key in keys if flat.get(key) is not None]


def _entry(found: Comparison, row: str, column: str, test: str) -> dict[str, Any]:
    sample, records = found.sample(row, column, test), found.records(row, column)
    z, welch = _tests(found, row, column, test)
    return {
        "name": found.name,
        "test": test,
        "noise": column,
        "method": row,
        "seeds": sample.count if sample else 0,
        "missing_seeds": " ".join(map(str, found.missing(row, column))),
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


def _score(found: Comparison, row: str, column: str, test: str) -> str:
    sample = found.sample(row, column, test)
    if sample is None:
        return UNDEFINED if found.records(row, column) else MISSING
    spread = "" if sample.std is None else f" ± {sample.std:.3f}"
    few = "" if sample.count == len(found.seeds) else f" ({sample.count} of {len(found.seeds)})"
    return f"{sample.mean:.3f}{spread}{few}"


def _p_values(found: Comparison, row: str, column: str, test: str) -> str:
    if not (found.records(row, column) and found.records(found.reference, column)):
        return MISSING
    return " / ".join(UNDEFINED if p is None else f"{p:.2g}" for p in _tests(found, row, column, test))


def _tests(found: Comparison, row: str, column: str, test: str) -> tuple[float | None, float | None]:
    """The p of both tests of the reference against a row; None where they cannot be computed."""
    sample, reference = found.sample(row, column, test), found.sample(found.reference, column, test)
    if sample is None or reference is None or row == found.reference:
        return None, None
    return z_test(reference, sample), welch_test(reference, sample)


def _verdicts(found: Comparison, test: str) -> str:
    """Which methods differ surely from the reference and from plain training, by the rule that every page goes by."""
    lines = []
    for against in dict.fromkeys([found.reference, BASELINE]):
        for word, sign in (("Better", 1), ("Worse", -1)) if against in found.rows else ():
            places: dict[str, list[str]] = {}
            for row, column in itertools.product(found.rows, found.columns):
                if verdict(found.sample(row, column, test), found.sample(against, column, test)) == sign:
                    places.setdefault(row, []).append(column)
            named = "; ".join(f"{row} at {', '.join(columns)}" for row, columns in places.items())
            lines.append(f"- {word} than {against} over seeds, by Welch's p < {SURE:g}: {named or 'none'}.")
    return "\n".join(lines) + "\n"


def _table(found: Comparison, test: str, cell: Callable[[Comparison, str, str, str], str], rows: Sequence[str]) -> str:
    body = [[row, *(cell(found, row, column, test) for column in found.columns)] for row in rows]
    return _lines(["method", *found.columns], body)


def _costs(found: Comparison) -> str:
    body = []
    for row in found.rows:
        records, factor = found.records(row), found.presented(row)
        seconds = _mean(records, "seconds")
        time = show_seconds(None if seconds is None else {"mean": seconds})
        at_once, memory, gpu = (
            _plain(_largest(records, key)) for key in ("runs_at_once", "peak_memory_mb", "peak_gpu_memory_mb")
        )
        body.append([row, time, at_once, UNDEFINED if factor is None else f"{factor:.2f}", memory, gpu])
    heads = [
        "method",
        "training time",
        "runs at once",
        f"images presented / {BASELINE}",
        "memory, MB",
        "GPU memory, MB",
    ]
    return _lines(heads, body)


def _missing(found: Comparison) -> str:
    together: dict[tuple[str, str], list[str]] = {}
    for row in found.rows:
        for column in found.columns:
            if gaps := found.missing(row, column):
                together.setdefault((row, ", ".join(map(str, gaps))), []).append(column)
    lines = [f"- {row}: {'; '.join(columns)} (seeds {seeds})" for (row, seeds), columns in together.items()]
    return "\n".join(lines or ["None."]) + "\n"


def _lines(heads: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in body)]) + "\n"


def _mean(records: Sequence[Record], key: str) -> float | None:
    known = [value for record in records if (value := number(record["result"], key)) is not None]
    return statistics.fmean(known) if known else None


def _largest(records: Sequence[Record], key: str) -> float | None:
    known = [value for record in records if (value := number(record["environment"], key)) is not None]
    return max(known, default=None)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _significant(p: float | None) -> float | None:
    return None if p is None else float(f"{p:.3g}")


def _plain(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:,.0f}"
