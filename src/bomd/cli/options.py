"""What several commands share: options, how the next command is typed, and how something is said."""

from __future__ import annotations

import shlex
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console


class Mode(StrEnum):
    """As in the setting `images.mode`."""

    auto = "auto"
    grey = "grey"
    colour = "colour"


def setting(what: str) -> Any:
    """The option --set of a command."""
    return typer.Option("--set", metavar="KEY=VALUE", help=what)


def option(what: str, metavar: str | None = None, *names: str) -> Any:
    """An option that takes a value, called like its argument unless names are given."""
    return typer.Option(*names, metavar=metavar, help=what)


def flag(name: str, what: str) -> Any:
    """An option that is there or not."""
    return typer.Option(name, help=what)


def output(what: str, metavar: str | None = None) -> Any:
    """The option --output of a command."""
    return typer.Option("--output", "-o", metavar=metavar, help=what)


ImageMode = Annotated[
    Mode, typer.Option("--mode", help="Keep images in grey or colour; auto: colour if a sample of them has any.")
]
RunDirectory = Annotated[
    Path, typer.Argument(metavar="RUN", help="A finished run, or a folder with one, such as that of an audit.")
]
Root = Annotated[Path, typer.Option("--runs", help="Where runs, packed images and finished stages are kept.")]
Overrides = Annotated[list[str] | None, setting("Override one setting, e.g. --set fit.epochs=5 (repeatable).")]
Seeds = Annotated[str, typer.Option(help="Seeds, separated by commas.")]
Jobs = Annotated[int, typer.Option(min=1, help="Runs at the same time, one for each core at most.")]


def typed(name: str, *rest: object) -> str:
    """Another command as it can be typed: `bomd`, or the path of this one where a shell would not find it."""
    path = sys.argv[0] if sys.argv else ""
    command = path if Path(path).stem == "bomd" and shutil.which("bomd") is None else "bomd"
    return shlex.join([command, name, *map(str, rest)])


def say(text: str) -> None:
    """A line as it is, however long."""
    Console(emoji=False, highlight=False, soft_wrap=True, markup=False).print(text)


def complain(text: str) -> None:
    """The same in red, beside what a command prints."""
    Console(emoji=False, stderr=True, highlight=False, soft_wrap=True, markup=False).print(text, style="red")
