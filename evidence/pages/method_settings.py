"""Which settings stand behind the rows of a comparison: the recipe's, those that follow the noise, older ones."""

from __future__ import annotations

import re
import tomllib

from bomd.experiments.grid import Grid
from bomd.experiments.plan import REFERENCE
from bomd.methods.describe import describe, in_use
from bomd.reports.sheet import MISSING, markdown_table
from evidence.studies import tuning

FOLLOWING = {"co-teaching": "noise", "gls": "smoothing", "mentornet": "percentile"}  # settings that follow the noise
SINCE = {"stored": "float32"}  # settings that came after runs were recorded, and what was done before there was one
USED = re.compile(r"(?P<method>\S+): (?P<setting>\w+) = (?P<value>-?[\d.]+), ")  # how a run says which value it took


def following(found: Grid) -> str:
    """The values that settings took which follow the noise, as the runs noted them."""
    body = []
    for row in found.methods:
        method = row.split(" ")[0]
        if method in FOLLOWING:
            cells = [used(found, row, column) for column in found.noises]
            body.append([f"{row}: {FOLLOWING[method]}", *cells])
    table = markdown_table(["setting", *found.noises], body)
    return f"{table}\n" + (
        "The level of noise is that of the training labels, which the papers of these methods take as known; no test "
        'set is looked at. "Fixed" is a run whose setting did not follow the noise.\n'
    )


def used(found: Grid, row: str, column: str) -> str:
    """The mean over seeds of a value that runs noted."""
    records = found.records(row, column)
    said = [USED.match(note) for record in records for note in record.result.notes]
    values = [float(one["value"]) for one in said if one and one["setting"] == FOLLOWING.get(one["method"])]
    if not records:
        return MISSING
    return f"{sum(values) / len(values):.2f}" if values else "fixed"


def chosen(found: Grid, fair: bool) -> str:
    """What the recipe sets for each method; the rest are defaults.

    Args:
        fair: Whether methods should have what they chose in their tuning.
    """
    lines = []
    if fair:
        others = unfair(found)
        lines.append(
            "Every method with settings tried three at each level of noise, on generated X-rays of another seed; "
            "`results/tuning.md` has all of them. The best are the fair settings, listed below where that is not what "
            f"the method has anyway; {REFERENCE} had settings of its own before. Of a method that ran with several, "
            "the newest count." + (f" Rows with others than the fair ones: {', '.join(others)}." if others else "")
        )
        lines.append("")
    silent = [
        row
        for row in found.methods
        if any(one.result.settings is None and describe(one.config.method).settings for one in found.records(row))
    ]
    if silent:
        lines.append(
            "Rows whose runs did not record their defaults yet, some of which (warm-ups, noise levels) have changed "
            f"since: {', '.join(silent)}.\n"
        )
    lines += [f"Another default was in force for {one}.\n" for one in outdated(found)]
    for row in found.methods:
        tables = [record.config.settings for record in found.records(row)[:1]]
        own = {key: value for table in tables for settings in table.values() for key, value in settings.items()}
        if own:
            lines.append(f"- {row}: {', '.join(f'{key} = {value}' for key, value in own.items())}")
    told = any(line.startswith("- ") for line in lines)
    return "\n".join(lines if told else [*lines, "None: every method has its defaults."]) + "\n"


def unfair(found: Grid) -> list[str]:
    """Rows whose runs had another value, as far as they recorded it, of the setting that their method chose."""
    best = tuning.best(tuning.read(tuning.TABLE))
    told = []
    for row in found.methods:
        for record in found.records(row)[:1]:
            had = record.result.settings or in_use(record.config.method, record.config.settings)
            wanted = tomllib.loads(best.get(record.config.method, tuning.AS_IT_IS))
            told += [row] if any(not same(had.get(key), value) for key, value in wanted.items()) else []
    return told


def outdated(found: Grid) -> list[str]:
    """Rows whose runs had other settings than the same recipe would give them today."""
    told = []
    for row in found.methods:
        for record in found.records(row)[:1]:
            now = in_use(record.config.method, record.config.settings)
            then = SINCE | (record.result.settings or now)
            other = [f"{key} = {then.get(key, 'none yet')}" for key in now if not same(then.get(key), now[key])]
            told += [f"{row}: {', '.join(other)}"] if other else []
    return told


def same(then: object, now: object) -> bool:
    """Whether two values of a setting are alike; records round numbers."""
    return then == now or (isinstance(then, float) and isinstance(now, float) and abs(then - now) < 1e-4)


def notes(found: Grid, row: str) -> list[str]:
    """What the runs of a row noted, each thing once."""
    return list(dict.fromkeys(note for record in found.records(row) for note in record.result.notes))
