"""The record of a run: settings, result and environment, as a line of a file of records or as a run directory has them.

Tables are made from records alone, so that runs of several sittings and machines fill one table, and every number leads
to the run that made it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from bomd.errors import InputError
from bomd.experiments.identity import apart, identity, without_folder
from bomd.files import PACKED, beside, locked, read_text, reading, write_text
from bomd.measure.result import Result
from bomd.runs import Run
from bomd.saved import mapped, read_as

PARTS = ("config", "result", "environment")
TABLES = (".csv", ".md", ".tex")  # endings of what is written beside a file of records
COMPARISON = "-comparison"  # in the names of those that compare methods
INTERVALS = ("auc_low", "auc_high", "ap_low", "ap_high", "draws")  # of single classes: half of a record


@dataclass(frozen=True)
class Settings:
    """The saved settings of a run that readers ask for; `Record.written` has them all."""

    name: str
    method: str
    seed: int
    minimum_positives: int = 1
    noise: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    test: dict[str, Any] = field(default_factory=dict)
    fit: dict[str, Any] = field(default_factory=dict)
    images: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Environment:
    """Where and how a run was made; records of the first version lack some of it."""

    device: str
    versions: dict[str, str | None]
    commit: str | None = None
    uncommitted: bool | None = None
    runs_at_once: int | None = None
    peak_memory_mb: float | None = None
    peak_gpu_memory_mb: float | None = None

    @property
    def place(self) -> str:
        return f"{self.device}, torch {self.versions.get('torch')}"


@dataclass(frozen=True)
class Record:
    """What is kept of a finished run."""

    written: Mapping[str, Any]  # as JSON has it: "run", "config", "result" and "environment"
    file: str = field(compare=False)
    directory: Path | None = field(default=None, compare=False)  # of the run, where the record was read from it

    @classmethod
    def of(cls, run: Run) -> Record:
        """A finished run on this machine, with everything as its directory has it."""
        parts = {"config": run.config(), "result": run.result(), "environment": run.environment()}
        return cls({"run": run.directory.name, **parts}, str(run.directory), run.directory)

    @property
    def run(self) -> str:
        """The name of its directory, unique among runs of a recipe and method."""
        return str(self.written.get("run"))

    @property
    def place(self) -> str:
        """Enough of the directory to find the run, without the path of somebody's home."""
        return "/".join((self.directory or Path(self.run)).resolve().parts[-3:])

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def code(self) -> str | None:
        """The code that it was started with; None where that is not known, as from a file of records."""
        return None if self.directory is None else Run(self.directory).code

    @cached_property
    def config(self) -> Settings:
        return read_as(Settings, self.written["config"], self._part("config"))

    @cached_property
    def result(self) -> Result:
        return read_as(Result, self.written["result"], self._part("result"))

    @cached_property
    def environment(self) -> Environment:
        return read_as(Environment, self.written["environment"], self._part("environment"))

    @cached_property
    def parts(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """The decisive settings of the data, of the training, and of the method."""
        return apart(self.written["config"])

    @cached_property
    def identity(self) -> str:
        self.config  # noqa: B018 - an error if it is damaged
        return identity(self.written["config"])

    def _part(self, name: str) -> str:
        return f"{self.file}: {name}" if self.directory is None else str(self.directory / f"{name}.json")


def record_of(run: Run) -> Record:
    """What is kept of a finished run on other machines: without folders, and with no more digits than are certain."""
    whole = Record.of(run)
    whole.result  # noqa: B018 - an error if it is damaged
    written = {
        "run": whole.run,
        "config": mapped(whole.written["config"], without_folder),
        "result": mapped(whole.written["result"], _rounded, lambda key: key not in INTERVALS),
        "environment": whole.written["environment"],
    }
    return Record(written, whole.file, whole.directory)


def check_name(path: Path) -> None:
    """Refuse a file of records that one of the tables beside it would take the place of, as of the user's own there.

    Tables are ours where there are records of that name, compressed or not.
    """
    if path in (beside(path, ending) for ending in TABLES):
        raise InputError(
            f"{path} cannot hold records, since their table gets that name: name a .jsonl or .jsonl.xz file, and "
            f"{', '.join(str(beside(path, ending)) for ending in TABLES)} are written beside it."
        )
    if any(place.exists() for place in (path, *(beside(path, f".jsonl{packed}") for packed in ("", *PACKED)))):
        return
    names = (beside(path, ""), path.with_name(f"{beside(path, '').name}{COMPARISON}"))
    taken = [table for name in names for ending in TABLES if (table := name.with_name(f"{name.name}{ending}")).exists()]
    if taken:
        raise InputError(f"{taken[0]} is there and no table of {path}: name other records, or remove it.")


def read_records(path: Path) -> list[Record]:
    """The records of a file, which may be compressed (.xz or .gz)."""
    text = read_text(path)
    with reading(path, ValueError, RecursionError):  # bad JSON, or JSON nested without end
        lines = [json.loads(line) for line in text.splitlines()]
    for number, line in enumerate(lines, start=1):
        if not isinstance(line, dict) or any(not isinstance(line.get(part), dict) for part in PARTS):
            raise InputError(f"Line {number} of {path} is not the record of a run: delete it.")
    return [Record(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]


def add_records(done: Sequence[Run], path: Path) -> list[Record]:
    """Add finished runs to a file of records, replacing older records of the same run; return all that it holds."""
    return merge(None, [record_of(run) for run in done], path)


def merge(before: Sequence[Record] | None, new: Sequence[Record], path: Path) -> list[Record]:
    """Write a file of records with those it holds and new ones, which take the place of older ones of the same run.

    Those of `before`, by default its own, come first, as far as the file has no later ones of their runs.
    """
    check_name(path)
    ours = {record.identity: record for record in new}
    with locked(path):  # another process may be adding its own
        held = {record.identity: record for record in (read_records(path) if path.exists() else [])}
        first = held if before is None else {record.identity: record for record in before}
        unique = first | ours | {key: record for key, record in held.items() if key not in ours}
        if not unique:
            raise InputError(f"There is no run in {path}: name finished runs to add, or folders of them.")
        lines = [json.dumps(record.written, separators=(",", ":")) + "\n" for record in unique.values()]
        write_text(path, "".join(lines))
    return list(unique.values())


def _rounded(value: Any) -> Any:
    """Four decimals, which is more than any number is certain to."""
    return round(value, 4) if isinstance(value, float) else value
