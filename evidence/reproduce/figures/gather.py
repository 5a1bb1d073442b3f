"""Which runs a figure is drawn from: the noise grid as a plan, and the records of it as numbers and sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bomd.config import Config
from bomd.errors import InputError
from bomd.experiments.noise_names import noise_name
from bomd.experiments.plan import configure, grid
from bomd.experiments.recorded import Record
from bomd.measure.result import Result
from bomd.measure.significance import Sample
from bomd.reports.sheet import Mean
from evidence.reproduce.artefact import Material, Setting, key_of

LEVELS = (0.2, 0.4, 0.6)
Noise = tuple[float, float]  # share of images with noise, chance that a label of theirs flips: rows, labels
NO_NOISE: Noise = (0.0, 0.0)
NOISES: tuple[Noise, ...] = tuple((rows, labels) for rows in LEVELS for labels in LEVELS)
BY_IMPORTANCE: tuple[Noise, ...] = tuple(sorted(NOISES, key=lambda noise: noise[0] != noise[1]))

AXES = "Rows is the share of images with noise, labels the chance that one of their labels flips."


@dataclass(frozen=True)
class Done:
    """A planned run that has been done."""

    config: Config
    record: Record

    @property
    def result(self) -> Result:
        return self.record.result

    @property
    def noise(self) -> Noise:
        return noise_of(self.config)


def cell_of(setting: Setting, noise: Noise) -> str:
    """The settings that make a cell of the noise grid, as for `measure.plan.grid`."""
    if noise != NO_NOISE:
        return f"noise.kind=symmetric noise.rows={noise[0]} noise.labels={noise[1]}"
    # A recipe that adds noise keeps its kind, so that the truth counts as known; others have none to switch off.
    return "noise.rows=0.0" if configure(setting.recipe, overrides=setting.overrides).noise else ""


def plan(setting: Setting, methods: Sequence[str], noises: Sequence[Noise], more: str = "") -> list[Config]:
    """Methods in cells of the noise grid with every seed.

    Args:
        more: Settings of all these runs beside the noise.
    """
    cells = [f"{cell_of(setting, noise)} {more}" for noise in noises]
    return grid([setting.recipe], methods, setting.seeds, cells, setting.overrides)


def noise_of(config: Config) -> Noise:
    """Where in the grid a run belongs."""
    rows, labels = float(config.noise.get("rows", 0.0)), float(config.noise.get("labels", 0.0))
    return (rows, labels) if rows and labels else NO_NOISE


def done(material: Material, usable: Callable[[Result], Any]) -> list[Done]:
    """The planned runs whose record holds what is drawn; older records may lack it.

    Args:
        usable: Finds it in a result; None or nothing means that it is not there.
    """
    pairs = [(config, material.record(config)) for config in material.planned]
    return [Done(config, record) for config, record in pairs if record is not None and usable(record.result)]


def need(found: Sequence[Done], material: Material, name: str) -> None:
    """Refuse to draw nothing."""
    if not found:
        raise InputError(
            f"None of the {len(material.planned)} runs of recipe {material.setting.recipe} that {name} is drawn from "
            f"is recorded with its numbers; do them with: {command(name, material.setting)}"
        )


def command(name: str, setting: Setting) -> str:
    """What does the runs of a figure."""
    overrides = "".join(f" --set {text}" for text in setting.overrides)
    return f"bomd reproduce {name} --recipe {setting.recipe}{overrides}"


def over_seeds(found: Iterable[Done], value: Callable[[Result], float | None]) -> Sample | None:
    """Mean and sample standard deviation of one number of these runs, where it is known."""
    return Sample.of(value(one.result) for one in found)


def means(material: Material, found: Sequence[Done], samples: Iterable[Sample | None], digits: int = 3) -> list[Mean]:
    """Numbers over the seeds of the same runs, for a sheet."""
    return [Mean(sample, len(found), len(material.setting.seeds), digits) for sample in samples]


def by_noise(found: Sequence[Done], noises: Sequence[Noise] = NOISES) -> dict[Noise, list[Done]]:
    """Runs by cell of the grid; a cell without any is left out."""
    return {noise: runs for noise in noises if (runs := [one for one in found if one.noise == noise])}


def between(counts: Sequence[int]) -> str:
    """A number of images, or from which to which where runs differ."""
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def names_of(found: Iterable[Done]) -> str:
    """The run directories behind a number, for a sheet."""
    return " ".join(one.record.run for one in found)


def provenance(material: Material, found: Sequence[Done], bars: bool = True) -> str:
    """The sentences that end every caption: data, seeds, runs, what bars are, and what is missing."""
    seeds = sorted({one.config.seed for one in found})
    images = between([one.result.images["train"] for one in found])
    text = f"Data: recipe {found[0].config.name}, {images} training images. "
    text += f"{'Seeds' if len(seeds) > 1 else 'Seed'} {', '.join(map(str, seeds))}. "
    text += _runs(found)
    if bars and len(seeds) > 1:
        text += " Points are means, bars the sample standard deviation over seeds."
    elif bars:
        text += " There is one seed, so nothing says how far another would differ."
    return f"{text} {_missing(material, found)}".strip()


def show_noise(noise: Noise) -> str:
    return noise_name({"kind": "symmetric", "rows": noise[0], "labels": noise[1]})


def _runs(found: Sequence[Done]) -> str:
    if len(found) <= 3:
        return "Runs: " + ", ".join(f"{one.config.method} {one.record.run}" for one in found) + "."
    methods = dict.fromkeys(one.config.method for one in found)
    return f"{len(found)} runs of {' and '.join(methods)}, named beside the numbers."


def _missing(material: Material, found: Sequence[Done]) -> str:
    """Which planned cells are not drawn, or drawn with fewer seeds."""
    have = {key_of(one.config) for one in found}
    planned: dict[str, dict[Noise, list[Config]]] = {}
    for config in material.planned:
        planned.setdefault(_variant(config), {}).setdefault(noise_of(config), []).append(config)
    parts = []
    for variant, by_noise in planned.items():
        absent = {
            noise: [config.seed for config in configs if key_of(config) not in have]
            for noise, configs in by_noise.items()
        }
        whole = [noise for noise, seeds in absent.items() if len(seeds) == len(by_noise[noise])]
        partly = [noise for noise, seeds in absent.items() if seeds and noise not in whole]
        if len(whole) == len(by_noise):
            parts.append(f"{variant} altogether")
        elif whole:
            parts.append(f"{variant} at {', '.join(map(show_noise, whole))}")
        parts += [f"{variant} at {show_noise(noise)} seed {', '.join(map(str, absent[noise]))}" for noise in partly]
    return f"Missing: {'; '.join(parts)}." if parts else ""


def _variant(config: Config) -> str:
    """A method with the settings that tell its runs in one figure apart."""
    warmup = config.settings.get(config.method, {}).get("warmup")
    return config.method if warmup is None else f"{config.method} warmup {warmup}"
