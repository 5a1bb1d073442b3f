"""What to run: recipes, cells, methods and seeds as a list of experiments, and roughly what they cost."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bomd.config import Config, load
from bomd.errors import InputError
from bomd.experiments.inputs import code_of_run
from bomd.experiments.recorded import Record, read_records
from bomd.measure.significance import show_seconds
from bomd.methods import METHODS
from bomd.methods.describe import describe, tables_of
from bomd.recipes import find_recipe
from bomd.runs import Run
from bomd.typed import arguments, nearest

REFERENCE = "bomd"  # the method that others are compared with, unless another is asked for


def configure(recipe: str, method: str | None = None, seed: int | None = None, overrides: Sequence[str] = ()) -> Config:
    """One experiment, without the settings of other methods: changing theirs must not make this another run.

    `recipe` is a file or the name of one that ships; method, seed and "dotted.key=value" take the place of its own.
    """
    given = [f'method="{method}"'] if method is not None else []
    given += [f"seed={seed}"] if seed is not None else []
    config = load(find_recipe(recipe), METHODS, [*overrides, *given])
    for name, settings in config.settings.items():
        arguments(METHODS.outline(name), settings, name)
    own = {name: config.settings[name] for name in tables_of(config.method) if name in config.settings}
    return replace(config, settings=own)


def grid(
    recipes: Sequence[str],
    methods: Sequence[str] | None,
    seeds: Sequence[int],
    cells: Sequence[str] = ("",),
    overrides: Sequence[str] = (),
) -> list[Config]:
    """Every combination once; a cell with settings of one method is the same experiment for all others.

    Args:
        methods: Their names; None takes all that there are.
        cells: Each a column of the comparison, as "key=value" separated by spaces.
    """
    configs = [
        configure(recipe, method, seed, [*overrides, *cell.split()])
        for recipe in recipes
        for cell in cells
        for method in (METHODS if methods is None else methods)
        for seed in seeds
    ]
    return list({config.key: config for config in configs}.values())


def check_reference(name: str, methods: Iterable[str], results: Path | None, usual: str = REFERENCE) -> None:
    """Refuse a method to compare with that is neither run nor in the file of records; the `usual` one need not be."""
    if name == usual:
        return
    recorded = read_records(results) if results is not None and results.exists() else []
    known = {*methods, *(record.config.method for record in recorded)}
    if name not in known:
        there = f" or recorded in {results}" if recorded else ""
        raise InputError(f"--reference {name!r} is none of the methods that are run{there}.{nearest(name, known)}")


def cost(config: Config) -> float:
    """How long a run takes compared with others; the number of images is not known before they are read."""
    return factor(config) * config.fit.epochs * config.images.size**2


def factor(config: Config) -> float:
    """What the method costs as a factor of plain training."""
    return describe(config.method).cost or 1.0


def announce(configs: Sequence[Config], finished: Mapping[int, Run], jobs: int) -> str:
    """What is about to be done and roughly what it costs, as lines for people; finished runs by their place."""
    left = [config for place, config in enumerate(configs) if place not in finished]
    stale = [configs[place] for place, run in finished.items() if run.code != code_of_run(configs[place].method)]
    older = ", ".join(f"{name} {count}" for name, count in Counter(config.method for config in stale).items())
    first = f"{len(configs)} runs, of which {len(finished)} are finished already"
    first += f", {len(stale)} by other code than today's ({older}): delete them to run them again" if older else ""
    if not left:
        return first
    work = sum(factor(config) for config in left)
    second = f"{len(left)} to do, as much work as {work:.4g} of bce"
    known = [Record.of(run).result.seconds / factor(configs[place]) for place, run in finished.items()]
    if known:
        guess = statistics.fmean(known) * work / min(jobs, len(left))
        second += f"; going by those that are finished, about {show_seconds(guess)} of training"
    costs = {config.method: factor(config) for config in left}
    counts = Counter(config.method for config in left)
    dearest = sorted(costs, key=lambda method: -costs[method])
    third = "Runs and cost of each: " + ", ".join(f"{name} {counts[name]} x {costs[name]:g}" for name in dearest)
    return "\n".join([first, second, third])
