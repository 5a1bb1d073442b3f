"""Which runs are the same: what decides about the numbers of a run, and nothing else.

Settings that were not given count as their defaults. Folders, other methods' settings, and how fast the device was
asked to be do not count, and all ways to ask for no noise are one. A run directory is named by more than that
(`Config.key`): it must not be taken for another whatever was changed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import Any

from bomd import outside
from bomd.config import Config
from bomd.experiments.noise_names import NO_NOISE, noise_name
from bomd.files import fingerprint
from bomd.methods import METHODS
from bomd.methods.describe import describe, tables_of
from bomd.saved import mapped

SPEED = ("accelerator", "kernels", "graphs", "fused", "resident")  # settings of the device that decide about time alone
PLACES = ("lists", "reports")  # arguments of readers that say where a part of the data lies, beside those called root
# Settings that decide which images are learnt from and how they are tested, noise aside.
DATA = ("name", "images", "train", "test", "validation", "hold_out_test_patients", "minimum_positives")


def identity(config: Mapping[str, Any]) -> str:
    """The same for every run of the same experiment, planned or recorded, wherever it was done.

    What is as it is by default does not count, so that a setting which is added later makes no other runs of old ones.
    """
    found = decisive(config)
    usual = _defaults() | {"settings": _defaults_of(found["method"])}
    named = [found.get(key) for key in ("name", "method", "seed")]
    return fingerprint(mapped([named, _changed(found, usual)], _as_float))


def decisive(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide about the numbers of a run, defaults too; those of its method are "settings"."""
    method, noise = str(config.get("method")), config.get("noise") or {}
    found: dict[str, Any] = _filled(_defaults(), _without_folders(config))
    found["settings"] = _defaults_of(method) | _without_folders(own_settings(config))
    found["device"] = {key: value for key, value in found["device"].items() if key not in SPEED}
    found["noise"] = {} if noise_name(noise) == NO_NOISE else found["noise"]
    return found


def own_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What was set for the method of a run itself, its base's table first."""
    tables, method = config.get("settings") or {}, str(config.get("method"))
    # One from outside may not be here to be asked for its base, but its runs keep no other settings anyway.
    names = sorted(tables, key=lambda name: name == method) if outside.names(method) else tables_of(method)
    return {key: value for name in names for key, value in (tables.get(name) or {}).items()}


def apart(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The decisive settings in three: of the data, of the training, and of the method; without noise and seeds."""
    found: dict[str, Any] = mapped(decisive(config), lambda value: value, lambda key: key != "seed")
    data, own = {key: found.pop(key, None) for key in DATA}, found.pop("settings")
    return data, {key: value for key, value in found.items() if key not in ("noise", "method")}, own


def names_of(name: str, settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each of these settings: where they differ, what is set differently is added in brackets."""
    keys = differing(settings)
    chosen = [chosen_of(one, keys) for one in settings]
    return [f"{name} ({', '.join(details)})" if details else name for details in chosen]


def chosen_of(settings: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    """Some settings in few words, as far as they are set."""
    flat = flatten(settings)
    return [f"{key.rsplit('.', 1)[-1]}={flat[key]}" for key in keys if flat.get(key) is not None]


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted key."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Dotted keys that are not the same everywhere."""
    flat = [flatten(item) for item in settings]
    keys = dict.fromkeys(key for item in flat for key in item)
    return [key for key in keys if len({json.dumps(item.get(key), default=str) for item in flat}) > 1]


def _filled(defaults: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the defaults of those that are not there, table by table."""
    tables = [key for key, value in settings.items() if isinstance(value, Mapping) and defaults.get(key)]
    return {**defaults, **settings, **{key: _filled(defaults[key], settings[key]) for key in tables}}


def _changed(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """What is not as it is by default."""
    kept = {}
    for key, value in settings.items():
        usual = defaults.get(key)
        if isinstance(value, Mapping) and isinstance(usual, Mapping):
            value = _changed(value, usual)
            usual = {}
        if value != usual:
            kept[key] = value
    return kept


@functools.cache
def _defaults() -> dict[str, Any]:
    usual: dict[str, Any] = _without_folders(asdict(Config()))  # all of them, those too that a saved one leaves out
    return usual


@functools.cache
def _defaults_of(method: str) -> dict[str, Any]:
    if method not in METHODS or outside.names(method):
        return {}  # one from outside need not be here
    return {setting.name: _without_folders(setting.default) for setting in describe(method).settings}


def _without_folders(value: Any) -> Any:
    """Records hold file names in place of paths, and lists in place of tuples."""
    return mapped(value, without_folder, lambda key: key not in PLACES and not key.endswith("root"))


def without_folder(value: Any) -> Any:
    """A file's name in place of its path: where somebody kept the data is nobody's business."""
    return Path(value).name if isinstance(value, PurePath) or (isinstance(value, str) and "/" in value) else value


def _as_float(value: Any) -> Any:
    """Numbers as one kind, since a recipe may write 1 for 1.0."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
