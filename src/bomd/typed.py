"""Check plain values, as TOML or JSON give them, against type hints; errors name the place and what fits."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal

from bomd.errors import InputError


def arguments(function: Callable[..., Any], given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Check settings against a function's keyword arguments and return them converted.

    Constructor arguments of a method and options of a dataset reader are settings, so their signatures are
    the only place where they are declared. What a partial function has bound already cannot be set.
    """
    plain, bound = (function.func, function.keywords) if isinstance(function, functools.partial) else (function, {})
    known = {name: one for name, one in parameters(plain).items() if name not in bound}
    _check_names(given, known, where)
    return {name: convert(value, known[name][0], f"{where}.{name}") for name, value in given.items()}


def check_keywords(called: str, given: Collection[str], *functions: Callable[..., Any]) -> None:
    """Refuse keywords that none of these functions takes, in the name of what the user called."""
    known = [name for function in functions for name in inspect.signature(function).parameters]
    for name in given:
        if name not in known:
            raise TypeError(f"{called}() got an unexpected keyword argument {name!r}.{nearest(name, known)}")


def convert(value: Any, hint: Any, where: str) -> Any:
    """`value` as the type that `hint` asks for, or an error that names the place and what fits there."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        return _convert_union(value, inner, where)
    if origin is Literal:
        if value not in inner:
            raise InputError(f"{where}: {value!r} is not one of {', '.join(map(repr, inner))}.")
        return value
    if is_dataclass(hint) and isinstance(hint, type):
        return _convert_dataclass(value, hint, where)
    if origin in (dict, Mapping):
        return {key: convert(item, inner[1], f"{where}.{key}") for key, item in table(value, where).items()}
    if origin in (tuple, list, Sequence):
        return _convert_sequence(value, origin, inner, where)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return _finite(value, where)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if isinstance(hint, type) and isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise InputError(f"{where}: expected {getattr(hint, '__name__', hint)}, got {value!r}.")


def nearest(name: str, known: Collection[str]) -> str:
    """A hint at the end of an error: the most similar known name, or all of them."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(sorted(known)) or 'none'}."


def table(value: Any, where: str) -> dict[str, Any]:
    """`value` as a table of settings, or an error."""
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: expected a table of settings, got {value!r}.")
    return dict(value)


def _finite(value: float, where: str) -> float:
    """A number to compute with; nan and inf, which TOML knows, would only be found out in the middle of the work."""
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{where}: expected a finite number, got {number}.")
    return number


def _convert_union(value: Any, choices: tuple[Any, ...], where: str) -> Any:
    if value is None and type(None) in choices:
        return None
    problems = []
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return convert(value, choice, where)
        except InputError as error:
            problems.append(error)
    raise problems[0]


def _convert_dataclass(value: Any, hint: Any, where: str) -> Any:
    if isinstance(value, hint):
        return value
    given, known = table(value, where), parameters(hint)
    _check_names(given, known, where)
    return hint(**{name: convert(item, known[name][0], f"{where}: {name}") for name, item in given.items()})


def _convert_sequence(value: Any, origin: Any, inner: tuple[Any, ...], where: str) -> Any:
    if not isinstance(value, list | tuple):
        raise InputError(f"{where}: expected a list, got {value!r}.")
    if origin is tuple and inner and inner[-1] is not Ellipsis:
        if len(value) != len(inner):
            raise InputError(f"{where}: expected {len(inner)} values, got {len(value)}.")
        kinds: Sequence[Any] = inner
    else:
        kinds = [inner[0] if inner else Any] * len(value)
    items = [convert(item, kind, where) for item, kind in zip(value, kinds, strict=True)]
    return items if origin is list else tuple(items)


def _check_names(given: Mapping[str, Any], known: Mapping[str, tuple[Any, bool]], where: str) -> None:
    for name in given:
        if name not in known:
            raise InputError(f"{where}: unknown key {name!r}.{nearest(name, known)}")
    for name, (_, needed) in known.items():
        if needed and name not in given:
            raise InputError(f"{where}: {name!r} is needed.")


@functools.cache
def parameters(function: Callable[..., Any]) -> dict[str, tuple[Any, bool]]:
    """Each parameter's type, and whether it is needed; that takes most of the time of planning hundreds of runs."""
    own = inspect.isclass(function) and not is_dataclass(function)  # its fields may be inherited from elsewhere
    hints = typing.get_type_hints(function.__init__ if own else function)
    found = inspect.signature(function).parameters
    named = {name: one for name, one in found.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    return {name: (hints.get(name, Any), one.default is one.empty) for name, one in named.items()}
