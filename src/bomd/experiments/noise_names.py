"""What was done to the labels of a run on purpose: its one name, and its place among others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

NO_NOISE = "no noise"


def noise_name(noise: Mapping[str, Any]) -> str:
    """The noise of a run as the paper writes it, (rows, labels), with whatever else was set but its seed."""
    rest = {key: value for key, value in noise.items() if key not in ("kind", "seed")}
    kind, rows, labels = noise.get("kind", "none"), noise.get("rows"), noise.get("labels")
    if kind == "none" or 0 in (rows, labels):
        return NO_NOISE
    parts = [str(kind)]
    if isinstance(rows, int | float) and isinstance(labels, int | float):
        parts = [*parts[kind == "symmetric" :], f"({rows:g}, {labels:g})"]
        del rest["rows"], rest["labels"]
    return " ".join([*parts, *(f"{key}={value}" for key, value in rest.items())])


def noise_level(noise: Mapping[str, Any]) -> tuple[bool, str, float, float]:
    """Sorts the noise of runs: none first, then by kind and whatever else was set, by rows and by labels."""
    if noise_name(noise) == NO_NOISE:
        return False, "", 0.0, 0.0
    rest = {key: value for key, value in noise.items() if key not in ("rows", "labels", "seed")}
    rows, labels = (value if isinstance(value, int | float) else 0.0 for value in map(noise.get, ("rows", "labels")))
    return True, json.dumps(rest, sort_keys=True, default=str), rows, labels
