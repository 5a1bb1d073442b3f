"""The model card: what a model was trained on, how well it does and what it cannot do, in Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from bomd.config import Config
from bomd.runs import version_of
from bomd.saved import mapped

ONE_CLASS = 3  # the format of a model whose probabilities add up to 1
FIT = ("backbone", "weights", "epochs", "batch", "augment", "select")  # settings worth a line
TEMPLATE = Path(__file__).with_suffix(".md")
NO_THRESHOLD = "too few held-out labels, or no better than a coin on them"
LIKELIEST = "An image has one class: the one with the highest probability is called."


def facts_of(
    config: Config, images: Mapping[str, int], decided: Mapping[str, Mapping[str, int]] | None = None
) -> dict[str, Any]:
    """What a model was trained on and how, without the machine's own paths.

    Args:
        config: The settings of the run.
        images: How many each set has.
        decided: How many "labels" of how many "images" of each set are as people decided.
    """
    fit = asdict(config.fit)
    return {
        "run": config.name,
        "method": config.method,
        "settings": _without_paths(config.settings.get(config.method, {})),
        "seed": config.seed,
        "train": _without_paths(config.train),
        "noise": _without_paths(config.noise),
        "images": dict(images),
        "decided": {name: dict(count) for name, count in (decided or {}).items() if count["labels"]},
        "fit": _without_paths({name: fit[name] for name in FIT}),
        "version": version_of("bomd"),
    }


def write(description: Mapping[str, Any]) -> str:
    """The card of a model from the content of its `model.json`."""
    facts, metrics = description["facts"], description["metrics"]
    train = facts.get("train", {})
    environment = Environment(
        autoescape=True,
        finalize=_plain,  # escapes for Markdown, too
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.from_string(TEMPLATE.read_text("utf-8")).render(
        description,
        one_class=description["format"] == ONE_CLASS,
        colour=str(description["preprocessing"].get("reading", "")).startswith("colour"),
        images=facts.get("images", {}),
        decided=facts.get("decided", {}),
        dataset=train.get("dataset", "not recorded"),
        # The classes stand at the top of the card, and how a file was laid out says nothing about the images,
        # nor does the checksum of labels that were handed over.
        layout={k: train[k] for k in train if k not in ("dataset", "classes", "handed") and "_column" not in k},
        noise=_noise(facts.get("noise", {})),
        accuracy=any("accuracy" in scores for scores in metrics.values()),
        held_out=sum(name.startswith("validation") for name in metrics),
        no_threshold=NO_THRESHOLD,
        likeliest=LIKELIEST,
        called=any(description["thresholds"].get(name) is not None for name in description["classes"]),
    )


def _noise(noise: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Kind and settings of noise that was added on purpose; nothing where it is on no row, or flips no label."""
    rest = {key: value for key, value in noise.items() if key != "kind"}
    kind = noise.get("kind", "none")
    return None if kind == "none" or 0 in rest.values() else (kind, rest)


def _plain(value: Any) -> Markup:
    """Text that Markdown and HTML show as it is, on one line: names come from other people's files."""
    if isinstance(value, Markup):
        return value
    line = " ".join(html.escape(str(value), quote=False).split())
    return Markup(re.sub(r"([\\`*_\[\]|#~])", r"\\\1", line))  # noqa: S704 - this is what escapes


def _without_paths(values: Any) -> Any:
    """Settings without the folders of the machine: of a path in a value only the last part stays, and no `root`."""

    def last_part(value: Any) -> Any:
        return PurePath(value.replace("\\", "/")).name if isinstance(value, str) else value

    return mapped(values, last_part, lambda key: key != "root")
