"""What a table or figure of the paper is here: the runs that it needs, and what is made of their records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bomd.config import Config, parse
from bomd.errors import InputError
from bomd.experiments.identity import identity
from bomd.experiments.recorded import Record
from bomd.methods import METHODS
from bomd.reports.sheet import Cell
from bomd.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Sheet:
    """One table: strings and numbers as they are, for CSV; Markdown is written from the same cells.

    Attributes:
        name: Ends the names of its files.
        title: A sentence that can stand above it.
        notes: Lines below it; data, seeds, device and what is missing are added to them when it is written.
        ours: Whether runs are behind it; the paper's own numbers have none.
    """

    name: str
    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    ours: bool = True


class UnsuitableError(InputError):
    """Raised by a plan that a recipe cannot serve, such as one without the test set that the table is about."""


@dataclass(frozen=True)
class Setting:
    """The data and training that an artefact is made with.

    Attributes:
        recipe: A file, or the name of a recipe that ships with bomd.
        seeds: Every run is repeated with each.
        overrides: "key=value" for all runs, such as where the data lies.
    """

    recipe: str
    seeds: Sequence[int] = (0, 1, 2)
    overrides: Sequence[str] = ()


@dataclass(frozen=True)
class Material:
    """What an artefact is made from.

    Attributes:
        planned: Every run that belongs to it.
        records: All that are kept of the experiment, planned or not, by their identity; look up a planned run by
            `key_of(config)`, or with `record`.
        runs: Their directories, by the same key, as far as they are on this machine.
        kept: The folder with what earlier calls wrote, where there is one.
    """

    setting: Setting
    planned: Sequence[Config]
    records: Mapping[str, Record]
    runs: Mapping[str, Run] = field(default_factory=dict)
    kept: Path | None = None

    def record(self, config: Config) -> Record | None:
        return self.records.get(key_of(config))

    def run(self, config: Config) -> Run | None:
        return self.runs.get(key_of(config))

    @property
    def done(self) -> list[Record]:
        """The records of the planned runs."""
        return [record for config in self.planned if (record := self.record(config)) is not None]

    @property
    def missing(self) -> list[Config]:
        return [config for config in self.planned if self.record(config) is None]


@dataclass(frozen=True)
class Drawing:
    """One figure and the numbers in it.

    Attributes:
        name: Ends the names of its files.
        caption: Says data, seeds and runs.
        numbers: Everything that is drawn, as a table.
        packed: Whether its numbers are thousands of rows that are kept compressed.
    """

    name: str
    figure: Figure
    caption: str
    numbers: Sheet
    packed: bool = False


@dataclass(frozen=True)
class Artefact:
    """A table or figure of the paper that `bomd reproduce NAME` makes.

    Attributes:
        paper: Its label in the paper.
        what: One sentence for the list.
        plan: The runs that it needs, the most important first; raises `UnsuitableError` where the recipe cannot serve.
        make: What can be made of those that are done.
        directories: Whether it reads run directories, so that a run whose record alone is left is done again.
        usable: Whether a record has what it reads; a run whose record is older than that is done again.
    """

    name: str
    kind: Literal["table", "figure"]
    paper: str
    what: str
    plan: Callable[[Setting], list[Config]]
    make: Callable[[Material], Sequence[Sheet | Drawing]]
    directories: bool = False
    usable: Callable[[Record], bool] = lambda _: True


def key_of(config: Config) -> str:
    """The same for a planned run and for its record; it is asked for many times."""
    known = _KEYS.get(id(config))
    if known is None or known[0] is not config:
        known = _KEYS[id(config)] = (config, identity(config.to_dict()))
    return known[1]


_KEYS: dict[int, tuple[Config, str]] = {}  # with the settings themselves, so that nothing else gets their id


def config_of(record: Record) -> Config:
    """The settings of a recorded run; those that are newer than the record have their defaults."""
    return parse(record.written["config"], METHODS, f"record {record.run}")
