"""Runs side by side: seeds of the same settings are one group, and methods stand against kinds of noise."""

from __future__ import annotations

import json
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bomd.experiments.identity import apart, chosen_of, differing, names_of
from bomd.experiments.noise_names import noise_level, noise_name
from bomd.experiments.recorded import Record
from bomd.measure.result import HELD_OUT, held_out
from bomd.measure.significance import Sample, verdict
from bomd.saved import Saved

BASELINE = "bce"  # plain training, which every other method must beat


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in nothing but seeds; what it measures is over these."""

    experiment: str  # data and noise in one name; only groups that share it may be compared
    noise: str  # what was done to the labels, and settings of the training where a method ran with several
    label: str  # name of the method, unique for the data
    runs: tuple[Record, ...]  # by seed

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    @cached_property
    def by_code(self) -> tuple[tuple[int, ...], ...]:
        """Seeds by the code that made their runs; several where a method was edited between them."""
        found: dict[str | None, list[int]] = {}
        for run in self.runs:
            found.setdefault(run.code, []).append(run.seed)
        return tuple(map(tuple, found.values()))

    @property
    def first(self) -> Record:
        """The run that stands for all where only one can be shown."""
        return self.runs[0]

    @property
    def method(self) -> str:
        return self.first.config.method

    @property
    def level(self) -> tuple[bool, str, float, float]:
        """Sorts kinds of noise: none first, then by kind, rows and labels."""
        return noise_level(self.first.config.noise)

    def score(self, test: str, measure: str = "mean_auc") -> Sample | None:
        """A number of a test set; of a single run with its interval."""
        return _sample([run.result.scores(test) for run in self.runs], measure)

    def finding(self, test: str, name: str, measure: str) -> Sample | None:
        """AUC or average precision of one class."""
        scores = [run.result.scores(test) for run in self.runs]
        found = [[item for item in one.classes if item.name == name] if one else [] for one in scores]
        return _sample([items[0] if items else None for items in found], measure)

    @cached_property
    def flagged(self) -> Sample | None:
        """The share of training images that the method flags."""
        counts = [run.result.flagged for run in self.runs]
        return Sample.of(count.images / count.of for count in counts if count is not None and count.of)

    @cached_property
    def detection(self) -> dict[str, Sample]:
        """How well flags find wrong labels, by measure; nothing where the truth is not known."""
        return _samples([run.result.detection for run in self.runs])

    @cached_property
    def labels(self) -> dict[str, Sample]:
        """How close labels are to the truth, by measure; nothing where it is not known."""
        return _samples([run.result.labels for run in self.runs])

    @property
    def seconds(self) -> Sample | None:
        return Sample.of(run.result.seconds for run in self.runs)


def _sample(parts: Sequence[Saved | None], measure: str) -> Sample | None:
    """One number of these parts of results, with the interval of the first for the case that it is the only one."""
    ends = [getattr(parts[0], f"{measure}_{end}", None) for end in ("low", "high")]
    return Sample.of([getattr(part, measure, None) for part in parts], *ends)


def _samples(parts: Sequence[Saved | None]) -> dict[str, Sample]:
    """Every plain number of these parts of results."""
    tables = [part.to_dict() for part in parts if part is not None]
    names = dict.fromkeys(name for table in tables for name, value in table.items() if isinstance(value, int | float))
    samples = {name: Sample.of(table.get(name) for table in tables) for name in names}
    return {name: sample for name, sample in samples.items() if sample is not None}


@dataclass(frozen=True, eq=False)
class Grid:
    """The groups of the same images: methods down, kinds of noise across."""

    name: str  # of the images, unique among grids
    methods: tuple[str, ...]  # labels of groups; a setting is added where the same method ran with several
    noises: tuple[str, ...]  # names, from none to strong
    tests: tuple[str, ...]  # test sets; held-out patients come last
    seeds: tuple[int, ...]  # those that every group should have
    groups: dict[tuple[str, str], Group]
    reference: str | None  # the method that others are compared with; None where it is not among them

    @property
    def judged(self) -> tuple[str, ...]:
        """The test sets, held-out patients once by the best labels that are known of them."""
        real = tuple(test for test in self.tests if not held_out(test))
        return (*real, HELD_OUT) if len(real) < len(self.tests) else real

    def records(self, label: str, noise: str | None = None) -> list[Record]:
        """The runs of a method, under all kinds of noise or one."""
        places = [(label, one) for one in self.noises if noise in (None, one)]
        return [run for place in places if place in self.groups for run in self.groups[place].runs]

    def score(self, label: str, noise: str, test: str) -> Sample | None:
        """Mean AUC over seeds, or None where it is not known."""
        group = self.groups.get((label, noise))
        return None if group is None else group.score(test)

    def missing(self, label: str, noise: str) -> list[int]:
        """Seeds that are not there."""
        group = self.groups.get((label, noise))
        return [seed for seed in self.seeds if group is None or seed not in group.seeds]

    def opposite(self, group: Group, method: str | None) -> Group | None:
        """The group of a method to compare one with: on the same data, and the only one; None for itself."""
        found = [one for one in self.groups.values() if one.noise == group.noise and one.method == method]
        return found[0] if len(found) == 1 and found[0] is not group else None

    def verdict(self, group: Group, method: str | None, test: str) -> int:
        """1 where a group is surely better than a method over seeds, -1 where worse, 0 where nobody can tell."""
        other = self.opposite(group, method)
        return 0 if other is None else verdict(group.score(test), other.score(test))

    def presented(self, label: str) -> float | None:
        """Images that went through networks, as a factor of the baseline's with the same data and seed."""
        shares = []
        for group in [group for (own, _), group in self.groups.items() if own == label]:
            plain = group if group.method == BASELINE else self.opposite(group, BASELINE)
            units = {run.seed: run.result.images_presented for run in plain.runs} if plain else {}
            shares += [run.result.images_presented / unit for run in group.runs if (unit := units.get(run.seed))]
        return statistics.fmean(shares) if shares else None


def arrange(
    records: Iterable[Record],
    methods: Collection[str] = (),
    noises: Collection[str] = (),
    seeds: Collection[int] = (),
    reference: str = BASELINE,
    planned: Iterable[Mapping[str, Any]] = (),
) -> list[Grid]:
    """One grid for each set of images; what is asked for here and not in the records counts as missing.

    So do methods and seeds of runs that were `planned` on the same images, by their settings.

    Settings of the data make another grid, those of a method another row, and those of the training another column
    where a method ran with several; what only differs between methods belongs to them. The same experiment counts
    once, the last of it. Where nobody ran the reference, plain training takes its place.
    """
    by_data: dict[str, list[Record]] = {}
    for record in {one.identity: one for one in records}.values():
        by_data.setdefault(_key_of(record.parts[0]), []).append(record)
    asked: dict[str, list[Mapping[str, Any]]] = {}
    for config in planned:
        asked.setdefault(_key_of(apart(config)[0]), []).append(config)
    data = {key: same[0].parts[0] for key, same in by_data.items()}
    titles: dict[str, str] = {}
    for name in {settings["name"] for settings in data.values()}:  # where names clash, what differs is added
        keys = [key for key, settings in data.items() if settings["name"] == name]
        titles |= zip(keys, names_of(str(name), [data[key] for key in keys]), strict=True)
    grids = []
    for key, same in by_data.items():
        own_methods, own_seeds = (
            [*given, *(config[part] for config in asked.get(key, []))]
            for given, part in ((methods, "method"), (seeds, "seed"))
        )
        grids.append(_grid(titles[key], same, own_methods, noises, own_seeds, reference))
    return grids


def _key_of(data: Mapping[str, Any]) -> str:
    """The same for the same settings of the data."""
    return json.dumps(data, sort_keys=True, default=str)


def _grid(
    name: str,
    found: Sequence[Record],
    methods: Collection[str],
    noises: Collection[str],
    seeds: Collection[int],
    reference: str,
) -> Grid:
    by_method: dict[str, list[Record]] = {}
    for run in found:
        by_method.setdefault(run.config.method, []).append(run)
    varied = dict.fromkeys(key for same in by_method.values() for key in differing([run.parts[1] for run in same]))
    members: dict[tuple[str, str], list[Record]] = {}
    for method, same in by_method.items():
        for label, run in zip(names_of(method, [run.parts[2] for run in same]), same, strict=True):
            noise = ", ".join([noise_name(run.config.noise), *chosen_of(run.parts[1], list(varied))])
            members.setdefault((label, noise), []).append(run)
    levels = {noise: noise_level(runs[0].config.noise) for (_, noise), runs in members.items()}
    groups = {}
    for (label, noise), runs in members.items():
        experiment = f"{name}, {noise}" if len(levels) > 1 else name
        groups[label, noise] = Group(experiment, noise, label, tuple(sorted(runs, key=lambda run: run.seed)))
    rows = {method: [method] for method in methods} | {
        method: list(dict.fromkeys(group.label for group in groups.values() if group.method == method))
        for method in by_method
    }
    return Grid(
        name,
        tuple(label for labels in rows.values() for label in labels),
        tuple(dict.fromkeys([*noises, *sorted(levels, key=lambda noise: (levels[noise], noise))])),
        tuple(sorted(dict.fromkeys(test for run in found for test in run.result.tests), key=held_out)),
        tuple(sorted({*seeds, *(run.seed for run in found)})),
        groups,
        next((method for method in (reference, BASELINE) if method in by_method), None),
    )
