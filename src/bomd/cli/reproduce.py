"""The command that makes the paper's tables and figures anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bomd.errors import InputError

if TYPE_CHECKING:
    from bomd.reproduce.artefact import Artefact, Material
    from bomd.reproduce.work import Made


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Tables or figures, as --list names them, or all.")
    ] = None,
    recipe: Annotated[str, typer.Option(help="A TOML file, or the name of a recipe that ships with bomd.")] = "phantom",
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "0,1,2",
    jobs: Annotated[int, typer.Option(min=1, help="Runs at the same time, one for each core at most.")] = 1,
    root: Annotated[Path, typer.Option("--runs", help="Where runs and their stages are kept.")] = Path("runs"),
    results: Annotated[
        Path, typer.Option(help="The folder of the records, RECIPE.jsonl, and of reproduced/RECIPE with what is made.")
    ] = Path("results"),
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override a setting of all runs, such as --set train.root=DIR."
        ),
    ] = None,
    planning: Annotated[
        bool, typer.Option("--plan", help="Show which runs are missing and what they would cost.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--list", help="Show every table and figure, and how much is recorded.")
    ] = False,
    from_records: Annotated[
        bool, typer.Option("--from-records", help="Run nothing: make what can be made of the records.")
    ] = False,
) -> None:
    """Make a table or figure of the paper anew: do the runs that are missing, then write it.

    Runs are recorded as each finishes, and a recorded run is not repeated, so that the same command continues after an
    interruption. What is missing is called missing. `bomd reproduce all --from-records` makes everything anew.
    """
    from bomd.reproduce.artefact import Setting
    from bomd.reproduce.work import ALL, Made, Place, adopt, choose, do_missing, gather, make, plan, to_do

    try:
        numbers = tuple(int(seed) for seed in seeds.split(","))
    except ValueError:
        raise InputError(f"--seeds {seeds!r}: write whole numbers separated by commas.") from None
    setting = Setting(recipe, numbers, tuple(overrides or ()))
    place = Place.of(setting, root, results)
    if not (names or show):
        raise InputError("Name a table or figure, or all. See: bomd reproduce --list")
    made, failed = Made(), {}
    chosen = choose(names or [ALL])
    plans = plan(chosen, setting, made)
    found = gather(plans, setting, place)
    if show:
        Console().print(_overview(chosen, found, f"Recipe {recipe}, records in {place.records}"))
        return
    if planning:
        _print_plan(found, jobs, Console())
        return
    if not from_records:
        if adopt(found, place):
            found = gather(plans, setting, place)
        if missing := to_do(found):
            _print_plan(found, jobs, Console(stderr=True))
            failed = do_missing(missing, place, jobs, Console(stderr=True))
            found = gather(plans, setting, place)
    _print_made(make(found, place, made))
    if failed:
        reasons = [f"\n{name}: {reason}" for name, reason in failed.items()]
        error = Console(stderr=True, soft_wrap=True)
        error.print(f"{len(failed)} runs failed:{''.join(reasons)}", style="red", markup=False, highlight=False)
    if failed or not made.files:
        raise typer.Exit(1)


def _overview(artefacts: Sequence[Artefact], found: Mapping[str, Material], title: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=title)
    table.add_column("name", no_wrap=True)
    for heading in ("runs", "recorded"):
        table.add_column(heading, justify="right")
    table.add_column("what it is, and its label in the paper")
    for artefact in artefacts:
        material = found.get(artefact.name)
        counts = ["not for it", ""] if material is None else [str(len(material.planned)), str(len(material.done))]
        table.add_row(artefact.name, *counts, Text.assemble(artefact.what, " ", (artefact.paper, "dim")))
    return table


def _print_plan(found: Mapping[str, Material], jobs: int, console: Console) -> None:
    from bomd.reproduce.facts import estimate, listed
    from bomd.reproduce.work import to_do

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
        stems = dict.fromkeys(file.with_suffix("") for file in files)
        for stem in stems:
            forms = [file.suffix[1:] for file in files if file.with_suffix("") == stem]
            console.print(f"{name}: {stem}.{{{','.join(forms)}}}", highlight=False, markup=False)
    for name, reason in made.reasons.items():
        console.print(f"{name}: not made: {reason}", highlight=False, markup=False, style="yellow")
