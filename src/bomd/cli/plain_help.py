"""Help in words that everybody knows: an option takes a PATH, a NUMBER or a TEXT, and a switch takes nothing."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

from typer.core import TyperCommand, TyperGroup

WORDS = {Path: "PATH", int: "NUMBER", float: "NUMBER", str: "TEXT"}


def takes(option: Any, function: Callable[..., Any] | None) -> str:
    """What an option of a command is given, in one word or as the choices that there are; nothing for a switch."""
    if option.metavar is not None or option.is_flag:
        return option.metavar or ""
    hint = get_type_hints(function).get(option.name, str)
    for kind in (hint, *get_args(hint)):
        if isinstance(kind, type) and issubclass(kind, Enum):
            return "|".join(str(choice.value) for choice in kind)
        if kind in WORDS:
            return WORDS[kind]
    return "TEXT"


class Command(TyperCommand):
    """A command whose help is plain, whatever words this version of Typer has for types."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _in_plain_words(super().get_params(ctx), self.callback)


class Group(TyperGroup):
    """All commands, with help of the same kind."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _in_plain_words(super().get_params(ctx), self.callback)


def _in_plain_words(found: list[Any], function: Callable[..., Any] | None) -> list[Any]:
    for one in found:
        if one.param_type_name == "option":
            one.metavar = takes(one, function)
        else:
            one.metavar = one.metavar or one.name.upper()
            one.display_type_rich = lambda ctx: None  # newer versions of Typer show a type beside the name
    return found
