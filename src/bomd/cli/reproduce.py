"""The command that makes the paper's tables and figures anew."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from bomd.cli.options import Jobs, Seeds, flag, option, setting
from bomd.errors import InputError

CHECKOUTS = (Path(__file__).parents[3], Path())  # around this file, or where the command is given
COMMAND = "evidence.reproduce.command"


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Tables or figures, as --list names them, or all.")
    ] = None,
    recipe: Annotated[str, option("A TOML file, or the name of a recipe that ships with bomd.")] = "phantom",
    seeds: Seeds = "0,1,2",
    jobs: Jobs = 1,
    root: Annotated[Path, option("Where runs and their stages are kept.", None, "--runs")] = Path("runs"),
    results: Annotated[
        Path, option("The folder of RECIPE.jsonl.xz, the records, and of reproduced/RECIPE, what is made.")
    ] = Path("results"),
    overrides: Annotated[
        list[str] | None, setting("Override a setting of all runs, such as --set train.root=DIR.")
    ] = None,
    planning: Annotated[bool, flag("--plan", "Show which runs are missing and what they would cost.")] = False,
    show: Annotated[bool, flag("--list", "Show every table and figure; with --plan, how much is recorded.")] = False,
    from_records: Annotated[bool, flag("--from-records", "Run nothing: make what can be made of the records.")] = False,
) -> None:
    """Make a table or figure of the paper anew: do the runs that are missing, then write it.

    Runs are recorded as each finishes, and a recorded run is not repeated, so that the same command continues after an
    interruption. What is missing is called missing. `bomd reproduce all --from-records` makes everything anew. This
    needs a checkout of the project, whose folder evidence/ knows the tables and figures.
    """
    done = _command().reproduce(
        names or [],
        recipe,
        numbers(seeds),
        jobs=jobs,
        runs=root,
        results=results,
        overrides=tuple(overrides or ()),
        planning=planning,
        show=show,
        from_records=from_records,
    )
    if not done:
        raise typer.Exit(1)


def _command() -> ModuleType:
    """The part of the checkout that knows what to do; it is not installed with the package."""
    for place in CHECKOUTS:
        if place.joinpath(*COMMAND.split(".")).with_suffix(".py").is_file():
            sys.path.insert(0, str(place.resolve()))
            return importlib.import_module(COMMAND)
    raise InputError(
        "bomd reproduce needs a checkout of the project: clone it, and give the same command in its folder."
    )


def numbers(seeds: str) -> tuple[int, ...]:
    """Seeds as the option --seeds has them."""
    try:
        return tuple(int(seed) for seed in seeds.split(","))
    except ValueError:
        raise InputError(f"--seeds {seeds!r}: write whole numbers separated by commas.") from None
