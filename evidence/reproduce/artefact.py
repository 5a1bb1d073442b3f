"""What a table or figure of the paper is here: the runs that it needs, and what is made of their records."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bomd.config import Config, parse
from bomd.errors import InputError
from bomd.experiments.benchmark import Record, effective
from bomd.experiments.noise import NO_NOISE, noise_name
from bomd.files import fingerprint
from bomd.measure.significance import Sample
from bomd.methods import METHODS
from bomd.methods.describe import describe
from bomd.runs import Run
from bomd.typed import arguments

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPEED = ("accelerator", "kernels", "graphs", "fused", "resident")  # settings of the device that decide about time alone
PLACES = ("lists", "reports")  # arguments of readers that say where a part of the data lies, beside those called root
MISSING, UNDEFINED = "missing", "–"


@dataclass(frozen=True)
class Mean:
    """One cell of a table: a measurement over the seeds of one entry.

    CSV has its mean, spread and number of runs in three columns; elsewhere it reads 0.873 ± 0.004.

    Attributes:
        sample: None where no run has the measurement.
        done: Runs that are recorded.
        wanted: Runs that were planned.
        digits: Decimals that are shown.
    """

    sample: Sample | None
    done: int
    wanted: int
    digits: int = 3

    def __str__(self) -> str:
        if self.sample is None:
            return UNDEFINED if self.done else MISSING
        spread = "" if self.sample.std is None else f" ± {self.sample.std:.{self.digits}f}"
        few = f" ({self.done} of {self.wanted} runs)" if self.done < self.wanted else ""
        return f"{self.sample.mean:.{self.digits}f}{spread}{few}"


Cell = str | int | float | Mean | None


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
        records: All that are kept of the experiment, planned or not, by `key_of_record`; look up a planned run by
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
        return self.records.get(self._key(config))

    def run(self, config: Config) -> Run | None:
        return self.runs.get(self._key(config))

    @property
    def done(self) -> list[Record]:
        """The records of the planned runs."""
        return [record for config in self.planned if (record := self.record(config)) is not None]

    @property
    def missing(self) -> list[Config]:
        return [config for config in self.planned if self.record(config) is None]

    def _key(self, config: Config) -> str:
        return self._keys.get(id(config)) or key_of(config)

    @functools.cached_property
    def _keys(self) -> dict[int, str]:
        """Of the planned runs, which are asked for many times; a key takes milliseconds."""
        return {id(config): key_of(config) for config in self.planned}


@dataclass(frozen=True)
class Sheet:
    """One table: strings and numbers as they are, for CSV; Markdown and LaTeX are written from the same cells.

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
    """The same for a planned run and for its record: what decides about its numbers, and nothing else.

    Settings that were not given count as their defaults. Folders, other methods' settings, and how fast the device was
    asked to be do not count, and all ways to ask for no noise are one.
    """
    saved = effective(config.to_dict())
    kind = METHODS.outline(config.method)
    given: dict[str, Any] = {}
    for table in sorted(saved["settings"], key=lambda table: table == config.method):  # its base's first
        given |= saved["settings"][table]
    saved["settings"] = _defaults(config.method) | arguments(kind, given, config.method)
    saved["device"] = {name: value for name, value in saved["device"].items() if name not in SPEED}
    if noise_name(saved["noise"]) == NO_NOISE:
        saved["noise"] = {}
    return fingerprint(_without_folders(saved))


def key_of_record(record: Record) -> str:
    """See `key_of`; a record with settings that this version does not know is like no planned run."""
    try:
        return key_of(config_of(record))
    except InputError:
        return fingerprint(record["config"])


def config_of(record: Record) -> Config:
    """The settings of a recorded run; those that are newer than the record have their defaults."""
    return parse(record["config"], METHODS, f"record {record.get('run')}")


@functools.cache
def _defaults(method: str) -> dict[str, Any]:
    return {setting.name: setting.default for setting in describe(method).settings}


def _without_folders(value: Any) -> Any:
    """Records hold file names in place of paths."""
    if isinstance(value, dict):
        return {key: _without_folders(item) for key, item in value.items() if key not in PLACES}
    if isinstance(value, list | tuple):
        return [_without_folders(item) for item in value]
    return Path(value).name if isinstance(value, Path) or (isinstance(value, str) and "/" in value) else value
