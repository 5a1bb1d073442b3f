"""Runs in words: what stands behind a file, what is missing, and what that would cost."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from bomd.config import Config
from bomd.experiments.identity import chosen_of, differing
from bomd.experiments.noise_names import noise_name
from bomd.experiments.plan import configure, cost, factor
from bomd.experiments.recorded import Record
from bomd.measure.significance import show_seconds
from bomd.methods import METHODS
from evidence.reproduce.artefact import Material, config_of


def facts(material: Material, name_missing: bool = True) -> list[str]:
    """What every file says about its runs: data, seeds, device, and what is missing.

    Args:
        name_missing: Off, missing runs are only counted.
    """
    if not material.planned:
        return ["It needs no run."]
    setting, done, missing = material.setting, material.done, material.missing
    sizes = []
    for name in ("train", *configure(setting.recipe, overrides=setting.overrides).test):
        found = [record.result.images[name] for record in done if name in record.result.images]
        sizes += [f"{_span(found)} {'training images' if name == 'train' else f'of {name}'}"] if found else []
    environments = [record.environment for record in done]
    devices = sorted({place.place for place in environments})
    commits = sorted({place.commit[:7] if place.commit else "an unknown commit" for place in environments})
    return [
        f"Recipe {setting.recipe}" + (f": {', '.join(sizes)}." if sizes else "."),
        f"Seeds {', '.join(map(str, setting.seeds))}; run on {'; '.join(devices) or 'nothing yet'}; code of "
        f"{', '.join(commits) or 'no run'}.",
        f"{len(done)} of {len(material.planned)} runs are recorded, {len(missing)} are missing"
        + (f": {'; '.join(listed(missing, material.planned))}." if missing and name_missing else "."),
    ]


def listed(configs: Sequence[Config], among: Sequence[Config]) -> list[str]:
    """Runs in few words: method, what is set differently, noise, and seeds.

    Args:
        among: The runs that they must be told apart from.
    """
    keys = {
        method: differing([config.settings.get(method, {}) for config in among if config.method == method])
        for method in dict.fromkeys(config.method for config in among)
    }
    levels: dict[str, dict[str, list[int]]] = {}  # label, noise, seeds
    for config in configs:
        own = config.settings.get(config.method, {})
        label = " ".join([config.method, *chosen_of(own, keys[config.method])])
        levels.setdefault(label, {}).setdefault(noise_name(config.noise), []).append(config.seed)
    together: dict[tuple[tuple[str, ...], tuple[int, ...]], list[str]] = {}
    for label, noises in levels.items():
        for seeds in dict.fromkeys(map(tuple, noises.values())):
            same = tuple(noise for noise, found in noises.items() if tuple(found) == seeds)
            together.setdefault((same, seeds), []).append(label)
    return [
        f"{', '.join(labels)} at {'; '.join(same)} (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})"
        for (same, seeds), labels in together.items()
    ]


def estimate(missing: Sequence[Config], records: Iterable[Record], jobs: int) -> str:
    """What runs would cost: by the recorded seconds of their methods, else by those of others and the usual factor."""
    if not missing:
        return "nothing to do"
    text = f"{len(missing)} to do, as much work as {sum(map(factor, missing)):.4g} of bce"
    rates: dict[str, list[float]] = {}
    for record in records:
        if record.config.method in METHODS:
            spent = record.result.seconds / cost(config_of(record))
            rates.setdefault(record.config.method, []).append(spent)
    if not rates:
        return f"{text}; no run is recorded to estimate the time by"
    usual = statistics.fmean(rate for found in rates.values() for rate in found)
    guess = sum(cost(config) * statistics.fmean(rates.get(config.method, [usual])) for config in missing)
    return (
        f"{text}; going by those that are recorded, about {show_seconds(guess / min(jobs, len(missing)))} of training"
    )


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
