"""Files that runs wrote, read back into frozen dataclasses: what a reader relies on has its type, or is an error.

A file may come from another version: what it has more is left alone, what it lacks has its default. JSON knows no NaN,
so that null stands for it.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, TypeVar

from bomd.errors import InputError
from bomd.typed import parameters

T = TypeVar("T")


class Saved:
    """A dataclass of results that can be written as JSON; NaN becomes null."""

    def to_dict(self) -> dict[str, Any]:
        return {item.name: mapped(getattr(self, item.name), _plain) for item in fields(self)}  # type: ignore[arg-type]


def read_as(kind: type[T], found: Any, file: object) -> T:
    """A dataclass, whose type hints say what fits, from what JSON holds; errors are one line that names the file."""
    try:
        whole: T = _read(found, kind, "")
    except _Misfit as misfit:
        raise InputError(f"{file} is damaged: {misfit}. Run it again.") from None
    return whole


def mapped(value: Any, leaf: Callable[[Any], Any], keep: Callable[[str], bool] = lambda key: True) -> Any:
    """The same nested tables and lists with other values in them; entries whose key is not kept are left out."""
    if isinstance(value, Mapping):
        return {str(key): mapped(item, leaf, keep) for key, item in value.items() if keep(str(key))}
    return [mapped(item, leaf, keep) for item in value] if isinstance(value, list | tuple) else leaf(value)


class _Misfit(Exception):  # noqa: N818 - it becomes an InputError, which names the file
    pass


def _read(value: Any, hint: Any, where: str) -> Any:
    inner = typing.get_args(hint)
    if NoneType in inner:
        return None if value is None else _read(value, inner[0], where)
    if is_dataclass(hint):
        return _read_dataclass(value, hint, where)
    origin = typing.get_origin(hint) or hint
    if origin is dict:
        if isinstance(value, list) and inner and inner[1] is str:  # as test sets list why findings are left out
            pairs_of = [_fitting(item, dict, f"{where}[{place}]") for place, item in enumerate(value)]
            value = {str(item.get("name")): item.get("reason") for item in pairs_of}
        pairs = _fitting(value, dict, where).items()
        return {name: _read(item, inner[1], _inside(where, name)) for name, item in pairs} if inner else value
    if origin is tuple:
        items = _fitting(value, list, where)
        if inner[0] in (int, str) and all(type(item) is inner[0] for item in items):
            return tuple(items)  # long lists of counts, at once
        return tuple(_read(item, inner[0], f"{where}[{place}]") for place, item in enumerate(items))
    if hint is float:
        number = math.nan if value is None else _fitting(value, (int, float), where)
        return float(number) if math.isfinite(number) else math.nan
    return value if hint is Any else _fitting(value, hint, where)


def _read_dataclass(value: Any, kind: Any, where: str) -> Any:
    table, known = _fitting(value, dict, where), parameters(kind)
    for name, (_, needed) in known.items():
        if needed and name not in table:
            raise _Misfit(f"{where or 'it'} has no {name!r}")
    there = {name: hint for name, (hint, _) in known.items() if name in table}
    return kind(**{name: _read(table[name], hint, _inside(where, name)) for name, hint in there.items()})


def _fitting(value: Any, kinds: Any, where: str) -> Any:
    """The same value if it has one of these types; true and false are no numbers."""
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise _Misfit(f"{where or 'it'} is a {type(value).__name__}")
    return value


def _inside(where: str, name: object) -> str:
    return f"{where}.{name}" if where else str(name)


def _plain(value: Any) -> Any:
    if isinstance(value, Saved):
        return value.to_dict()
    return None if isinstance(value, float) and not math.isfinite(value) else value
