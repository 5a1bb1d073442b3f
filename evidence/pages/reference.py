"""Write the pages of docs/ that say what the code says: methods, commands, settings and the Python reference.

python -m evidence.pages.reference

A test fails when a page says anything else than the code does now.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from typer.main import get_command

from bomd.cli import app
from bomd.cli.plain_help import takes
from bomd.config import Config, DeviceSettings, FitSettings, ImageSettings
from bomd.data.datasets import DATASETS
from bomd.data.noise import NOISES
from bomd.files import write_text
from bomd.methods import METHODS
from bomd.methods.describe import Description, describe
from evidence import DOCS
from evidence.pages import paper

WRITTEN = "<!-- Written by evidence/pages/reference.py from {source}. Do not edit. -->"

# Public names by what they are for; a test sees to it that none is left out.
PUBLIC = {
    "Whole runs": ("audit", "Config", "run", "write_report", "load"),
    "One step at a time": (
        "embed",
        "ranking_loss",
        "scores_of",
        "detect",
        "nearest_images",
        "relabel",
        "cross_fit_heads",
        "calibrate",
        "estimate_rates",
        "judge",
        "form_opinion",
        "vote",
    ),
    "What flows between the steps": ("LabelTable", "Descriptors", "Flags", "Neighbours", "Opinion"),
    "When input is wrong": ("InputError",),
}
# For people who add a method, a dataset or a measurement.
BUILDING = {
    "Methods": ("bomd.methods.base.Method", "bomd.methods.base.Context", "bomd.methods.base.Prepared"),
    "Training": ("bomd.learn.learner.Learner", "bomd.learn.engine.fit", "bomd.learn.engine.predict"),
    "Images": ("bomd.data.store.Store", "bomd.data.store.pack", "bomd.data.batches.Images"),
    "Measurements": ("bomd.measure.quality.detection", "bomd.measure.quality.label_auc"),
    "Run directories": ("bomd.runs.Run", "bomd.runs.find", "bomd.experiments.records.LabelRecord"),
}

METHODS_TEXT = """They share data, loop and measurements. Choose one with
`bomd run RECIPE --method NAME`; `bomd methods NAME` prints what is below.

*Cost* counts the images that go through a network, as a factor of plain training (`bce`). A setting is given as
`--set NAME.KEY=VALUE`, or in the table `[NAME]` of a recipe. *Differs* says where a method is not what its paper
describes, and *Found* what we learnt while writing it. [Choose a method](choose.md) says when which one helps,
and [the benchmarks](benchmarks.md) how they compare."""

COMMANDS_TEXT = """`bomd COMMAND --help` prints what is below. Bad input is one line and exit code 2. An interrupted
command goes on where it stopped when it is given again."""

SETTINGS_TEXT = """A recipe is a TOML file. Every key below can be left out, and can be replaced for one run with
`--set KEY=VALUE`, such as `--set fit.epochs=5`. A key that does not exist, or a value of the wrong type, is refused.
The settings of a method are in a table of its name; see [the methods](../methods.md). A run keeps all resolved settings
in its `config.json`."""

DATA_TEXT = """`dataset = "..."`, then arguments of its reader: see [the datasets](../datasets.md) and
[your own data](../your-data.md). There may be any number of test sets, each with a name of your choice."""

NOISE_TEXT = """Adds label noise on purpose, to measure what a method does about it: `kind = "..."`, then the arguments
of that kind. Two more keys work with every kind: `only` names the origin of the rows that it falls on, and `share` the
part of the patients."""

PYTHON_TEXT = """All names on this page are imported from `bomd`: `from bomd import detect`. N stands for images, C for
classes, M for descriptors per image, D for the numbers in a descriptor and K for neighbours."""


def main() -> None:
    for path, page in PAGES.items():
        write_text(DOCS / path, page())


def methods_page() -> str:
    """Every method with all that it says about itself."""
    found = [describe(name) for name in METHODS]
    rows = [(f"[`{method.name}`](#{method.name})", method.line, _cost(method)) for method in found]
    return _page(
        "# The methods",
        WRITTEN.format(source="the docstrings in src/bomd/methods"),
        f"{len(found)} ways to learn from noisy labels, one file each. {METHODS_TEXT}",
        _table(("method", "what it does", "cost"), rows),
        *(_method(method) for method in found),
    )


def command_line_page() -> str:
    """Every command with its arguments and options, as the command line itself knows them."""
    root = get_command(app)
    commands: Mapping[str, Any] = root.commands  # type: ignore[attr-defined]
    rows = [(f"[`bomd {name}`](#bomd-{name})", _first_sentence(command.help)) for name, command in commands.items()]
    return _page(
        "# Command line",
        WRITTEN.format(source="the commands themselves"),
        _paragraphs(root.help),
        COMMANDS_TEXT,
        _table(("command", "what it does"), rows),
        *(_command(name, command) for name, command in commands.items()),
    )


def settings_page() -> str:
    """Every key that a recipe may have, from the dataclasses that read it."""
    return _page(
        "# Settings of a recipe",
        WRITTEN.format(source="src/bomd/config.py and src/bomd/data/noise.py"),
        SETTINGS_TEXT,
        "## At the top",
        _settings(Config, ""),
        "## `[images]`",
        _settings(ImageSettings, "images."),
        "## `[train]` and `[test.NAME]`",
        DATA_TEXT,
        f'### `dataset = "folder"`\n\n{_function(DATASETS["folder"].read)}',
        "## `[fit]`",
        "How the final classifier is trained.",
        _settings(FitSettings, "fit."),
        "## `[device]`",
        _settings(DeviceSettings, "device."),
        "## `[noise]`",
        NOISE_TEXT,
        *(f'### `kind = "{name}"`\n\n{_function(kind, ("table", "seed"))}' for name, kind in NOISES.items()),
    )


def python_page() -> str:
    groups = {title: [f"bomd.{name}" for name in names] for title, names in PUBLIC.items()}
    return _page("# Python", WRITTEN.format(source="the names in bomd.__all__"), PYTHON_TEXT, *_reference(groups))


def building_page() -> str:
    intro = "What a new method, dataset or measurement meets. `CONTRIBUTING.md` shows a complete method."
    written = WRITTEN.format(source="a list of names in that file")
    return _page("# For those who extend it", written, intro, *_reference(BUILDING))


PAGES: dict[str, Callable[[], str]] = {
    "methods.md": methods_page,
    "paper-and-release.md": paper.page,
    "reference/command-line.md": command_line_page,
    "reference/settings.md": settings_page,
    "reference/python.md": python_page,
    "reference/building.md": building_page,
}


def _page(*parts: str) -> str:
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _reference(groups: Mapping[str, Iterable[str]]) -> list[str]:
    return [f"## {title}\n\n" + "\n\n".join(f"::: {name}" for name in names) for title, names in groups.items()]


def _method(method: Description) -> str:
    parts = [f"## {method.name}", method.line]
    parts += [f"**{word}:** {_safe(text)}" for word, text in method.sections.items()]
    if method.base is not None:
        parts.append(f"It starts from the settings of `{method.base}` in a recipe.")
    rows = [
        (f"`{method.name}.{setting.name}`", f"`{setting.kind}`", f"`{setting.shown}`", setting.meaning)
        for setting in method.settings
    ]
    parts.append(_table(("setting", "type", "default", "meaning"), rows) if rows else "It has no settings.")
    return "\n\n".join(parts)


def _cost(method: Description) -> str:
    return "not said" if method.cost is None else f"{method.cost:g}"


def _command(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    usage = " ".join([f"bomd {name}", *map(_argument, arguments), *(["[OPTIONS]"] * bool(options))])
    parts = [f"## bomd {name}", _paragraphs(command.help), f"```\n{usage}\n```"]
    rows = [(f"`{_argument(one)}`", one.help or "", "") for one in arguments]
    rows += [(_option(one, command.callback), one.help or "", _default(one)) for one in options]
    if rows:
        parts.append(_table(("argument or option", "meaning", "default"), rows))
    return "\n\n".join(parts)


def _argument(argument: Any) -> str:
    several, name = "..." if argument.nargs != 1 else "", argument.metavar or argument.name.upper()
    return f"{name}{several}" if argument.required else f"[{name}]{several}"


def _option(option: Any, function: Callable[..., Any]) -> str:
    names = "`, `".join([*option.opts, *option.secondary_opts])
    word = takes(option, function)
    return f"`{names}{' ' * bool(word)}{word}`"


def _default(option: Any) -> str:
    if option.required:
        return "must be given"
    if option.is_flag and option.default is not None:
        return f"`{(option.opts if option.default else option.secondary_opts or ['off'])[0]}`"
    return "" if option.default in (None, (), []) else f"`{option.default}`"


def _settings(kind: type[Any], prefix: str) -> str:
    """The fields of a dataclass that are values, with the comments that stand beside them."""
    comments = dict(re.findall(r"^    (\w+):.*?  # (.*)$", inspect.getsource(kind), flags=re.MULTILINE))
    rows = []
    for item in dataclasses.fields(kind):
        if item.default is dataclasses.MISSING:
            continue  # a table, which has its own heading
        shown = f'"{item.default}"' if isinstance(item.default, str) else _toml(item.default)
        rows.append((f"`{prefix}{item.name}`", f"`{_type(item.type)}`", f"`{shown}`", comments.get(item.name, "")))
    return _table(("key", "type", "default", "meaning"), rows)


def _type(hint: Any) -> str:
    text = str(hint)
    return (
        " | ".join(f'"{value}"' for value in re.findall(r"[\"']([^\"']*)[\"']", text))
        if text.startswith("Literal")
        else text
    )


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)


def _function(kind: Callable[..., Any], left_out: Sequence[str] = ()) -> str:
    """A function's docstring as paragraphs and a table of the arguments that a recipe sets."""
    text, _, rest = inspect.cleandoc(kind.__doc__ or "").partition("\nArgs:\n")
    arguments = rest.partition("\n\n")[0]
    meanings = re.findall(r"^    (\w+): (.*(?:\n {8,}.*)*)", arguments, flags=re.MULTILINE)
    rows = [
        (f"`{name}`", " ".join(meaning.split()), _given(inspect.signature(kind).parameters[name].default))
        for name, meaning in meanings
        if name not in left_out
    ]
    return f"{text.strip()}\n\n{_table(('key', 'meaning', 'default'), rows)}"


def _given(default: Any) -> str:
    if default is inspect.Parameter.empty:
        return "must be given"
    return "" if default is None else f"`{default}`"


def _paragraphs(text: str | None) -> str:
    return inspect.cleandoc(text or "")


def _first_sentence(text: str | None) -> str:
    return re.split(r"(?<=[.;:])\s", " ".join(_paragraphs(text).split()), maxsplit=1)[0].rstrip(";:.") + "."


def _safe(text: str) -> str:
    """Addresses become links; stars and underscores in prose stay what they are."""
    return re.sub(r"(?<![<(`])(https?://[^\s,;)]+[^\s,;).])", r"<\1>", text)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


if __name__ == "__main__":
    main()
