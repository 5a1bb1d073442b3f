"""What `bomd reproduce` does: runs that are missing, then tables and figures; or what it would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bomd.errors import InputError
from bomd.files import beside
from evidence.reproduce.artefact import Artefact, Material, Setting
from evidence.reproduce.facts import estimate, listed
from evidence.reproduce.work import ALL, Made, Place, adopt, choose, do_missing, gather, make, plan, to_do


def reproduce(
    names: Sequence[str],
    recipe: str,
    seeds: Sequence[int],
    *,
    jobs: int,
    runs: Path,
    results: Path,
    overrides: Sequence[str],
    planning: bool,
    show: bool,
    from_records: bool,
) -> bool:
    """False where a run failed or nothing could be made. The arguments are the options of the command."""
    if not (names or show):
        raise InputError("Name a table or figure, or all. See: bomd reproduce --list")
    chosen = choose(names or [ALL])
    if show and not planning:  # at once: neither plans nor records are looked at
        Console().print(_overview(chosen))
        return True
    setting = Setting(recipe, seeds, overrides)
    place = Place.of(setting, runs, results)
    made, failed = Made(), {}
    plans = plan(chosen, setting, made)
    found = gather(plans, setting, place)
    if show:
        Console().print(_overview(chosen, found, title=f"Recipe {recipe}, records in {place.records}"))
        return True
    if planning:
        _print_plan(found, jobs, Console())
        return True
    if not from_records:
        if adopt(found, place):
            found = gather(plans, setting, place)
        if missing := to_do(found):
            _print_plan(found, jobs, Console(stderr=True))
            failed = do_missing(missing, place, jobs, Console(stderr=True))
            found = gather(plans, setting, place)
    _print_made(make(found, place.folder, made))
    if failed:
        reasons = [f"\n{name}: {reason}" for name, reason in failed.items()]
        error = Console(stderr=True, soft_wrap=True)
        error.print(f"{len(failed)} runs failed:{''.join(reasons)}", style="red", markup=False, highlight=False)
    return bool(made.files) and not failed


def _overview(
    artefacts: Sequence[Artefact], found: Mapping[str, Material] | None = None, title: str | None = None
) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=title)
    table.add_column("name", no_wrap=True)
    for heading in () if found is None else ("runs", "recorded"):
        table.add_column(heading, justify="right")
    table.add_column("what it is, and its label in the paper")
    for artefact in artefacts:
        counts = []
        if found is not None:
            material = found.get(artefact.name)
            counts = ["not for it", ""] if material is None else [str(len(material.planned)), str(len(material.done))]
        table.add_row(artefact.name, *counts, Text.assemble(artefact.what, " ", (artefact.paper, "dim")))
    return table


def _print_plan(found: Mapping[str, Material], jobs: int, console: Console) -> None:
    lines = []
    for name, material in found.items():
        missing = to_do({name: material})
        lines.append(f"{name}: {len(material.planned)} runs, {len(missing)} to do")
        lines += [f"  {line}" for line in listed(missing, material.planned)]
    records = next(iter(found.values())).records.values()  # all have those of the whole experiment
    lines.append(f"Together: {estimate(to_do(found), records, jobs)}.")
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def _print_made(made: Made) -> None:
    console = Console(soft_wrap=True)
    for name, files in made.files.items():
        stems = dict.fromkeys(beside(file, "") for file in files)
        for stem in stems:
            forms = [file.name.removeprefix(f"{stem.name}.") for file in files if beside(file, "") == stem]
            console.print(f"{name}: {stem}.{{{','.join(forms)}}}", highlight=False, markup=False)
    for name, reason in made.reasons.items():
        console.print(f"{name}: not made: {reason}", highlight=False, markup=False, style="yellow")
