"""From a name to files: what is recorded, what is missing and what it would cost, the runs, and the artefact."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from bomd import runs
from bomd.config import Config
from bomd.errors import InputError
from bomd.experiments import workers
from bomd.experiments.benchmark import run_all
from bomd.experiments.identity import identity
from bomd.experiments.noise_names import noise_name
from bomd.experiments.plan import configure
from bomd.experiments.recorded import add_records
from bomd.reports.tables import add_results
from bomd.typed import nearest
from evidence.records import file_of, records_of
from evidence.reproduce import ARTEFACTS
from evidence.reproduce.artefact import Artefact, Material, Setting, UnsuitableError, key_of
from evidence.reproduce.facts import facts
from evidence.reproduce.writing import FORMS, write

ALL = "all"


@dataclass(frozen=True)
class Place:
    """Where runs, records and artefacts of one experiment are kept.

    Attributes:
        name: Of the experiment: the recipe's, unless it was changed.
        root: Of the run directories.
        results: Holds NAME.jsonl.xz with the records, and reproduced/NAME with what is made of them.
    """

    name: str
    root: Path
    results: Path

    @classmethod
    def of(cls, setting: Setting, root: Path, results: Path) -> Place:
        return cls(configure(setting.recipe, overrides=setting.overrides).name, root, results)

    @property
    def records(self) -> Path:
        return file_of(self.name, self.results)

    @property
    def folder(self) -> Path:
        return self.results / "reproduced" / self.name


@dataclass
class Made:
    """What came of a command: files by artefact, and why there are none of others."""

    files: dict[str, list[Path]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def choose(names: Sequence[str]) -> list[Artefact]:
    """The artefacts of these names, in the order of the list; "all" stands for every one."""
    for name in names:
        if name != ALL and name not in ARTEFACTS:
            raise InputError(
                f"No table or figure {name!r}.{nearest(name, [*ARTEFACTS, ALL])} See: bomd reproduce --list"
            )
    return [artefact for name, artefact in ARTEFACTS.items() if ALL in names or name in names]


def gather(plans: Mapping[str, Sequence[Config]], setting: Setting, place: Place) -> dict[str, Material]:
    """The planned runs of each artefact, with all records of the experiment and the directories that are here."""
    by_key = {record.identity: record for record in records_of(place.name, place.results)}
    directories = find_runs(place)
    return {name: Material(setting, planned, by_key, directories, place.folder) for name, planned in plans.items()}


def find_runs(place: Place) -> dict[str, runs.Run]:
    """The finished runs of the experiment on this machine, by their key."""
    found = {}
    for file in sorted((place.root / place.name).glob("*/*/result.json")):
        run = runs.Run(file.parent)
        try:
            found[identity(run.config())] = run
        except InputError:  # written by another version
            continue
    return found


def plan(artefacts: Sequence[Artefact], setting: Setting, made: Made) -> dict[str, list[Config]]:
    """The runs of those that the recipe can serve, each once; why it cannot serve others is noted.

    With a single artefact the reason is raised.
    """
    plans = {}
    for artefact in artefacts:
        try:
            plans[artefact.name] = _once(artefact.plan(setting))
        except UnsuitableError as error:
            if len(artefacts) == 1:
                raise
            made.reasons[artefact.name] = str(error)
    return plans


def to_do(found: Mapping[str, Material]) -> list[Config]:
    """The runs that are not recorded, were recorded without what an artefact reads, or whose directory it misses."""
    configs = []
    for name, material in found.items():
        artefact = ARTEFACTS[name]
        for config in material.planned:
            record, run = material.record(config), material.run(config)
            if record is None or not artefact.usable(record) or (artefact.directories and run is None):
                configs.append(config)
    return _once(configs)


def adopt(found: Mapping[str, Material], place: Place) -> bool:
    """Record the planned runs that are finished here and were not recorded; whether there were any."""
    pairs = [(material.run(config), config) for material in found.values() for config in material.missing]
    new = {run.directory: run for run, _ in pairs if run is not None}
    if new:
        add_results(list(new.values()), place.records)
    return bool(new)


def do_missing(
    configs: Sequence[Config],
    place: Place,
    jobs: int,
    console: Console | None = None,
    command: Sequence[str] = workers.COMMAND,
) -> dict[str, str]:
    """Do runs level of noise by level of noise, in the order given: should time run out, the most important are in.

    Records are added as each run finishes, and the tables beside them are written anew at the end, also when it is
    interrupted.

    Returns:
        Why runs failed, by their names.
    """
    failed: dict[str, str] = {}
    try:
        for noise, group in itertools.groupby(configs, key=lambda config: noise_name(config.noise)):
            wave = list(group)
            if console is not None:
                console.print(f"{noise}: {len(wave)} runs", highlight=False, markup=False)
            outcome = run_all(wave, place.root, jobs, console, place.records, command)
            add_records(outcome.done, place.records)
            failed |= {f"{name}, {noise}": reason for name, reason in outcome.failed.items()}
    finally:
        if records_of(place.name, place.results):
            add_results([], place.records)
    return failed


def make(found: Mapping[str, Material], folder: Path, made: Made, forms: Collection[str] = FORMS) -> Made:
    """Write what can be made of the records into a folder; an artefact without a single record is not written."""
    for name, material in found.items():
        if material.planned and not material.done:
            made.reasons[name] = f"none of its {len(material.planned)} runs is recorded"
            continue
        try:
            parts = ARTEFACTS[name].make(material)
        except InputError as error:
            made.reasons[name] = str(error)
            continue
        drawn = ARTEFACTS[name].kind == "figure"  # captions name the missing runs themselves
        made.files[name] = write(name, parts, facts(material, name_missing=not drawn), folder, forms)
    return made


def _once(configs: Iterable[Config]) -> list[Config]:
    return list({key_of(config): config for config in reversed(list(configs))}.values())[::-1]
