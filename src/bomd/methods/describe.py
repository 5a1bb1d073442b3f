"""What a method says about itself: its docstring and the signature of its constructor, read for people."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bomd.errors import InputError
from bomd.methods import METHODS
from bomd.typed import nearest, parameters


@dataclass(frozen=True)
class Setting:
    """One constructor argument of a method."""

    name: str
    kind: str  # what may be given, such as `float` or `'images' | 'nodes'`
    default: Any
    meaning: str  # its entry in the `Args` section of the class or its constructor; empty where another speaks for it

    @property
    def shown(self) -> str:
        """The default as people write it: a sixth has no end of digits."""
        if self.default is inspect.Parameter.empty:
            return "(must be given)"
        return f"{self.default:.4g}" if isinstance(self.default, float) and self.default < 1000 else str(self.default)


@dataclass(frozen=True)
class Description:
    """A method in words."""

    name: str  # its key in `METHODS`, or `package.module:Class`
    line: str  # the sentence that its docstring opens with
    sections: Mapping[str, str]  # what follows "Paper:", "Differs:", "Cost:" and the like, by that word
    cost: float | None  # image presentations as a factor of plain cross-entropy; the mean where a range is given
    settings: tuple[Setting, ...]
    base: str | None  # the method whose settings it starts from


def describe(name: str) -> Description:
    """Read one method of `METHODS`."""
    if name not in METHODS:
        raise InputError(f"No method {name!r}.{nearest(name, METHODS)}")
    kind = METHODS.outline(name)
    text = inspect.cleandoc(kind.__doc__ or "")
    sections = _entries(text, r"([A-Z][a-z]+): (.*)")
    line, cost = " ".join(text.partition("\n\n")[0].split()), _factor(sections.get("Cost", ""))
    return Description(name, line, sections, cost, _settings(kind), getattr(kind, "variant_of", None))


def tables_of(name: str) -> tuple[str, ...]:
    """The tables of a recipe that a method takes its settings from: that of its base first, then its own."""
    base = getattr(METHODS.outline(name), "variant_of", None) if name in METHODS else None
    return (name,) if base is None else (base, name)


def in_use(name: str, given: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Every setting of a method by what a recipe sets in each table, or by default: a result should say what it had."""
    chosen = {key: value for table in tables_of(name) for key, value in given.get(table, {}).items()}
    return {setting.name: chosen.get(setting.name, setting.default) for setting in describe(name).settings}


def overview(found: Sequence[Description]) -> Table:
    """All methods for the terminal: what each does, its paper, its cost, and its settings with their defaults."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption="`bomd methods NAME` explains one and its settings.")
    for heading in ("method", "cost", "what it does, where it is from, and its settings"):
        table.add_column(heading, overflow="fold")
    for method in found:
        text = Text(method.line)
        text.append(f"\nPaper: {method.sections.get('Paper', 'not said')}", style="dim")
        if method.settings:
            text.append("\n" + ", ".join(f"{setting.name}={setting.shown}" for setting in method.settings))
        table.add_row(method.name, "?" if method.cost is None else f"{method.cost:g}", text, end_section=True)
    return table


def in_full(method: Description) -> Group:
    """Everything that a method says about itself, for the terminal."""
    parts: list[RenderableType] = [Text(f"{method.name}: {method.line}\n", style="bold")]
    parts += [Text(f"{word}: {text}\n") for word, text in method.sections.items()]
    if method.base is not None:
        parts.append(Text(f"It starts from the settings of {method.base} in a recipe.\n"))
    parts.append(Text(f"Settings, as in --set {method.name}.KEY=VALUE:" if method.settings else "It has no settings."))
    for setting in method.settings:
        parts.append(Text.assemble((f"  {setting.name}={setting.shown}", "bold"), f"  {setting.kind}"))
        if setting.meaning:
            parts.append(Padding(Text(setting.meaning), (0, 0, 0, 6)))
    return Group(*parts)


def _entries(text: str, opening: str) -> dict[str, str]:
    """What follows each word with a colon, on one line; an empty line ends it."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        entry = re.match(opening, line)
        if entry:
            name = entry[1]
            found[name] = entry[2]
        elif not line.strip():
            name = ""
        elif name:
            found[name] += " " + line.strip()
    return found


def _factor(cost: str) -> float | None:
    """The number, or the middle of the range, that a sentence on cost opens with or mentions first."""
    number = re.search(r"(\d+(?:\.\d+)?)(?:\s*(?:to|-|–)\s*(\d+(?:\.\d+)?))?", cost)
    if number is None:
        return None
    low = float(number[1])
    return low if number[2] is None else (low + float(number[2])) / 2


def _settings(kind: Any) -> tuple[Setting, ...]:
    hints = typing.get_type_hints(kind.__init__)
    meanings: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        for text in (base.__doc__, base.__init__.__doc__):
            section = re.search(r"^Args:\n((?:[ ]+.*\n?|\n)*)", inspect.cleandoc(text or ""), flags=re.MULTILINE)
            meanings |= _entries(inspect.cleandoc(section[1]), r"(\w+): (.*)") if section else {}
    defaults = inspect.signature(kind).parameters
    return tuple(
        Setting(key, _spelt(hints.get(key, Any)), defaults[key].default, meanings.get(key, ""))
        for key in parameters(kind)
    )


def _spelt(hint: Any) -> str:
    """A type as people write it."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return " | ".join(map(repr, inner))
    if origin in (types.UnionType, typing.Union):
        return " | ".join(map(_spelt, inner))
    if hint is type(None):
        return "None"
    if origin is not None:
        return f"{origin.__name__}[{', '.join('...' if item is Ellipsis else _spelt(item) for item in inner)}]"
    return str(getattr(hint, "__name__", hint))
