"""The model card: what a model was trained on, how well it does and what it cannot do, in Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from bomd.config import Config
from bomd.runs import version_of
from bomd.saved import mapped

ONE_CLASS = 3  # the format of a model whose probabilities add up to 1
FIT = ("backbone", "weights", "epochs", "batch", "augment", "select")  # settings worth a line


def facts_of(config: Config, images: Mapping[str, int]) -> dict[str, Any]:
    """What a model was trained on, and how, without the paths of the machine it was trained on.

    Args:
        images: How many the training set, the held-out patients and each test set have.
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
        "fit": _without_paths({name: fit[name] for name in FIT}),
        "version": version_of("bomd"),
    }


def write(description: Mapping[str, Any]) -> str:
    """The card of a model from the content of its `model.json`."""
    facts, metrics = description["facts"], description["metrics"]
    name, method = facts.get("run", "a classifier"), facts.get("method")
    parts = [
        f"# {_plain(name)}: {_plain(description['backbone'])}" + (f" trained with {_plain(method)}" if method else ""),
        f"Gives a probability for each of these {_what(description)} {_kind(description)} of the kind it has learnt: "
        f"{', '.join(_plain(finding) for finding in description['classes'])}.",
        "For research. It is not a medical device, and no decision about a patient may rest on it.",
        "## Use",
        "```\nbomd predict FOLDER image.png scan.dcm\n```",
        "```python\nimport bomd\n\nbomd.load(FOLDER).predict([path]).values  # (1, C) probabilities\n```",
        "## Training",
        _bullets(_training(description)),
        "## Images",
        _images(description["preprocessing"]),
        "## How well it does",
        _metrics(metrics, facts.get("images", {})),
        "## Findings",
        _findings(description, metrics),
        "## Limits",
        _bullets(LIMITS),
    ]
    return "\n\n".join(parts) + "\n"


LIMITS = (
    "Other hospitals, devices, views and patients than those it was trained on may lower every number here.",
    "Probabilities are not calibrated: training on noisy or re-labelled data moves them. Ranks and thresholds mean "
    "more than their size.",
    "A finding that is not in the list is not looked for; an image that is no X-ray gets probabilities all the same.",
    "Heat maps show what raised a probability. They do not outline a finding, and they may show a shortcut.",
)


def _training(description: Mapping[str, Any]) -> list[str]:
    facts = description["facts"]
    lines = []
    if "train" in facts:
        # The classes stand at the top of the card, and how a file was laid out says nothing about the images.
        train = {key: value for key, value in facts["train"].items() if key != "classes" and "_column" not in key}
        count = facts.get("images", {}).get("train")
        number = f", {count:,} images" if isinstance(count, int) else ""
        lines.append(f"Data: {_plain(train.pop('dataset', 'not recorded'))}{number}{_settings(train)}.")
        lines.append(_noise(dict(facts.get("noise", {}))))
    if "method" in facts:
        lines.append(f"Method: {_plain(facts['method'])}{_settings(facts.get('settings', {}))}.")
    if "fit" in facts:
        lines.append(f"Training:{_settings(facts['fit']).replace(' (', ' ', 1).removesuffix(')')}.")
    if "seed" in facts:
        lines.append(f"Seed {_plain(facts['seed'])}, bomd {_plain(facts.get('version') or 'of unknown version')}.")
    architecture = description["architecture"]
    form = f"{description['networks']} network{'s' if description['networks'] > 1 else ''}"
    lines.append(f"Form: {form}, {_plain(architecture['name'])}{_settings(architecture['arguments'])}.")
    return lines if facts else ["Not recorded.", *lines]


def _noise(noise: dict[str, Any]) -> str:
    kind = noise.pop("kind", "none")
    if kind == "none" or 0 in noise.values():  # noise on no row, or that flips no label
        return "Label noise: none was added on purpose; errors that the labels came with are in there."
    return f"Label noise that was added on purpose: {_plain(kind)}{_settings(noise)}."


def _what(description: Mapping[str, Any]) -> str:
    return "classes, of which an image has one, in" if description["format"] == ONE_CLASS else "findings in"


def _kind(description: Mapping[str, Any]) -> str:
    return "an image in colour" if _in_colour(description) else "a frontal chest X-ray or another grey image"


def _in_colour(description: Mapping[str, Any]) -> bool:
    return str(description["preprocessing"].get("reading", "")).startswith("colour")


def _images(preprocessing: Mapping[str, Any]) -> str:
    size = preprocessing["size"]
    reading = "grey (16 bits divided by 256, colour as luma, EXIF"
    if _in_colour({"preprocessing": preprocessing}):
        reading = "colour (16-bit grey divided by 256, grey as three equal channels, EXIF"
    pairs = zip(preprocessing["mean"], preprocessing["deviation"], strict=True)
    scales = " and ".join(f"({mean:g}, {deviation:g})" for mean, deviation in pairs)
    return (
        f"PNG, JPEG, BMP, TIFF, WebP or DICOM, read as 8-bit {reading} "
        f"rotation and DICOM windows applied), stretched to {size} x {size} pixels by antialiased bilinear "
        f"interpolation, divided by 255 and normalised by the mean and deviation {scales} "
        f"of {preprocessing['channels']} channel{'s' if preprocessing['channels'] > 1 else ''}."
    )


def _metrics(metrics: Mapping[str, Any], images: Mapping[str, Any]) -> str:
    if not metrics:
        return "Not measured."
    rows = [
        [_plain(name), _count(images.get(name)), _plain(scores["findings"]), _interval(scores)]
        for name, scores in metrics.items()
    ]
    heads = ["images of", "number", "findings", "mean AUC (95 % interval over patients)"]
    if any("accuracy" in scores for scores in metrics.values()):
        heads = [*heads, "accuracy"]
        rows = [[*row, _number(scores.get("accuracy"))] for row, scores in zip(rows, metrics.values(), strict=True)]
    text = _table(heads, rows)
    held_out = [name for name in metrics if name.startswith("validation")]
    if not held_out:
        return text
    return f"{text}\n\n*validation* are patients held out of the training set, with the labels the set came with" + (
        "; *before noise* are the same patients with the labels from before noise was added." if held_out[1:] else "."
    )


def _findings(description: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    classes, thresholds = description["classes"], description["thresholds"]
    rows = [
        [
            _plain(name),
            _number(thresholds.get(name)),
            *(_number(scores["auc"].get(name)) for scores in metrics.values()),
        ]
        for name in classes
    ]
    text = _table(["finding", "threshold", *(f"AUC, {_plain(name)}" for name in metrics)], rows)
    if description["format"] == ONE_CLASS:
        return f"{text}\n\nAn image has one class: the one with the highest probability is called."
    if all(thresholds.get(name) is None for name in classes):
        reason = "nothing is known about held-out patients"
        if "images" in description["facts"]:
            held_out = "validation" in description["facts"]["images"]
            reason = (
                "too few held-out patients, or no better than a coin on them" if held_out else "nobody was held out"
            )
        return f"{text}\n\nNo threshold was chosen: {reason}."
    return (
        f"{text}\n\nA finding is called from its threshold on. It has the highest sensitivity + specificity on the "
        "held-out patients (Youden's J), which does not depend on how common the finding is. There is none where too "
        "few of them have the finding, or too few do not."
    )


def _interval(scores: Mapping[str, Any]) -> str:
    bounds = f" ({_number(scores['low'])} to {_number(scores['high'])})" if scores["low"] is not None else ""
    return f"{_number(scores['mean_auc'])}{bounds}"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---", *("---:" for _ in headings[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _settings(values: Mapping[str, Any]) -> str:
    return f" ({', '.join(f'{_plain(key)} {_plain(value)}' for key, value in values.items())})" if values else ""


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "–"


def _plain(value: Any) -> str:
    """Text that Markdown and HTML show as it is, on one line: names come from other people's files."""
    line = " ".join(html.escape(str(value), quote=False).split())
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", line)


def _without_paths(values: Any) -> Any:
    """Settings without the folders of the machine: of a path in a value only the last part stays, and no `root`."""

    def last_part(value: Any) -> Any:
        return PurePath(value.replace("\\", "/")).name if isinstance(value, str) else value

    return mapped(values, last_part, lambda key: key != "root")
