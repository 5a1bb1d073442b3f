"""Settings as dataclasses: read from TOML, overridden one by one, refused when unknown, saved whole."""

from __future__ import annotations

import copy
import functools
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

from bomd.errors import InputError
from bomd.files import fingerprint, reading
from bomd.typed import convert, nearest, table

LARGEST_SIZE = 8192  # pixels of a side; a batch of more would not fit into any memory
LONGEST_NAME = 200


@dataclass(frozen=True)
class ImageSettings:
    """How images are stored."""

    size: int = 512  # pixels of the square that every image is resized to
    skip_broken: bool = False  # drop and list unreadable images instead of stopping
    mode: Literal["auto", "grey", "colour"] = "auto"  # auto: colour if a sample of a folder's files has any


@dataclass(frozen=True)
class FitSettings:
    """How the final classifier is trained; the defaults are the paper's with the release's optimiser."""

    backbone: str = "densenet121"  # or "efficientnet_lite0", "small", "hf:NAME_OR_FOLDER", "timm:NAME"
    weights: str = "imagenet"  # or "none", "phantom", "imagenet+phantom", "self", a model folder or a file
    freeze: bool | None = None  # train the head alone; unless set, with hf: and timm: and with no other backbone
    epochs: int = 30
    batch: int = 16
    rate: float = 0.05  # sane only together with eps 0.1: steps are then close to plain momentum
    betas: tuple[float, float] = (0.9, 0.99)
    eps: float = 0.1
    decay: float = 0.0
    schedule: Literal["constant", "cosine", "onecycle"] = "constant"
    clip: float = 0.0  # largest gradient norm of a network; 0 leaves gradients alone
    augment: Literal["none", "light", "paper", "release"] = "paper"
    abnormality: float = 0.0  # share of "No Finding" in every finding's prediction, 0 to 1; see networks/abnormality.py
    select: Literal["last", "best"] = "last"  # "best" looks at the held-out patients, never at a test set


@dataclass(frozen=True)
class DeviceSettings:
    """Where and in which precision networks run."""

    accelerator: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "32-true", "64-true", "bf16-mixed"] = "auto"  # auto: bf16 where a GPU has it
    kernels: bool = True  # own kernels for DenseNet-121 on a GPU; off, its layers as PyTorch has them
    graphs: bool = True  # record training steps on a GPU and replay them
    fused: bool = True  # the optimiser as one kernel on a GPU
    resident: Literal["auto", "always", "never"] = "auto"  # images in GPU memory; auto: if they fit
    whole_batch_norm: bool = True  # with several processes: statistics of the whole batch, as in one process


@dataclass(frozen=True)
class Config:
    """One experiment: data, noise, method and seed."""

    name: str = "run"
    method: str = "bomd"
    seed: int = 0
    validation: float = 0.1  # share of the training patients that is held out
    hold_out_test_patients: bool = False  # drop patients of a test set from the training set instead of refusing
    labels: Literal["auto", "single", "multi"] = "auto"  # per image; auto: one where no image has none or several
    minimum_positives: int = 1  # findings with fewer positives in a test set are left out of its mean
    images: ImageSettings = field(default_factory=ImageSettings)
    train: dict[str, Any] = field(default_factory=dict)  # dataset = "...", then arguments of its reader
    test: dict[str, dict[str, Any]] = field(default_factory=dict)  # the same, by a name of your choice
    noise: dict[str, Any] = field(default_factory=dict)  # kind = "...", then its arguments; empty adds none
    fit: FitSettings = field(default_factory=FitSettings)
    device: DeviceSettings = field(default_factory=DeviceSettings)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)  # method name -> its arguments
    rates: dict[str, dict[str, float]] = field(default_factory=dict)  # class -> miss, false_alarm, where measured

    def __post_init__(self) -> None:
        outside = self.name in ("", ".", "..") or any(sign in "/\\" or not sign.isprintable() for sign in self.name)
        if outside or len(self.name) > LONGEST_NAME:
            raise InputError(f"name: {self.name[:80]!r} cannot be the name of a folder; use a word without slashes.")

    def to_dict(self) -> dict[str, Any]:
        # By hand, since `asdict` takes most of the time of planning hundreds of runs.
        values = {
            name: dict(vars(value)) if is_dataclass(value) else copy.deepcopy(value)
            for name, value in vars(self).items()
        }
        later = ((values, "rates"), (values, "labels"), (values["fit"], "freeze"), (values["images"], "mode"))
        for place, name in later:  # unless they are set, so that runs from before there were such settings keep names
            if place[name] in ({}, "auto", None):
                place.pop(name)
        return values

    @property
    def key(self) -> str:
        """Changes whenever any setting does."""
        return fingerprint(self.to_dict())


def load(path: Path, methods: Collection[str], overrides: Sequence[str] = ()) -> Config:
    """Read a TOML recipe.

    Args:
        methods: Names of the known methods, each of which may have a table of its own.
        overrides: "key=value" with a dotted key, the value written as in TOML; plain words need no quotes.
    """
    if not path.exists():
        raise InputError(f"No recipe at {path}.")
    with reading(f"recipe {path}", UnicodeDecodeError, tomllib.TOMLDecodeError):
        values = copy.deepcopy(_parsed(path.read_text(encoding="utf-8")))
    return parse(override(values, overrides), methods, str(path))


@functools.lru_cache(maxsize=8)
def _parsed(text: str) -> dict[str, Any]:
    """A recipe, which a benchmark asks for once for each of its runs."""
    return tomllib.loads(text)


def parse(values: Mapping[str, Any], methods: Collection[str], where: str = "recipe") -> Config:
    """Build a checked Config from nested mappings; tables named after a method become its settings."""
    plain = {name: value for name, value in values.items() if name not in methods}
    settings = table(plain.pop("settings", {}), f"{where}: settings")
    for name, own in settings.items():
        settings[name] = table(own, f"{where}: settings.{name}")
        if name not in methods:
            raise InputError(f"{where}: settings for unknown method {name!r}.")
    for name in values:
        if name in methods:
            settings[name] = {**settings.get(name, {}), **table(values[name], f"{where}: {name}")}
    known = [item.name for item in fields(Config) if item.name != "settings"]
    for name in plain:
        if name not in known:
            raise InputError(f"{where}: unknown key {name!r}.{nearest(name, [*known, *methods])}")
    config: Config = convert({**plain, "settings": settings}, Config, where)
    if config.method not in methods:
        raise InputError(f"{where}: unknown method {config.method!r}.{nearest(config.method, methods)}")
    _check_ranges(config, where)
    return config


def _check_ranges(config: Config, where: str) -> None:
    """Refuse numbers that nothing can be trained with, before anything is spent on them."""
    fit = config.fit
    for name, share in (("validation", config.validation), *(("betas", beta) for beta in fit.betas)):
        if not 0 <= share < 1:
            raise InputError(f"{where}: {name} must be at least 0 and below 1, not {share:g}.")
    for name, value, highest in (("size", config.images.size, LARGEST_SIZE), ("abnormality", fit.abnormality, 1)):
        if value > highest:
            raise InputError(f"{where}: {name} must be at most {highest}, not {value}.")
    smallest = {
        "abnormality": (fit.abnormality, 0),
        "seed": (config.seed, 0),
        "minimum_positives": (config.minimum_positives, 1),
        "size": (config.images.size, 8),
        "epochs": (fit.epochs, 1),
        "batch": (fit.batch, 2),
        "rate": (fit.rate, 0),
        "eps": (fit.eps, 0),
        "decay": (fit.decay, 0),
        "clip": (fit.clip, 0),
    }
    for name, (value, lowest) in smallest.items():
        if value < lowest:
            raise InputError(f"{where}: {name} must be at least {lowest}, not {value:g}.")


def override(values: dict[str, Any], texts: Sequence[str]) -> dict[str, Any]:
    """Nested settings with any number of "key=value" put into them."""
    for text in texts:
        key, equals, literal = text.partition("=")
        if not equals or not key.strip(" ."):
            raise InputError(f"--set {text!r}: write it as key=value, for example fit.epochs=5.")
        try:
            value = tomllib.loads(f"value = {literal}")["value"]
        except tomllib.TOMLDecodeError:
            value = literal.strip()
        *sections, last = re.findall(r"[\w.]+:\w+|[^.]+", key.strip())  # package.module:Class is one name
        place = values
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise InputError(f"--set {text!r}: {section!r} is a value, not a table.")
        place[last] = value
    return values
