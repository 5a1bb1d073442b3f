"""Methods by name, imported when they are used: PyTorch alone takes seconds, and a list of names needs none of it."""

from __future__ import annotations
import __future__

import ast
import functools
import re
import typing
from collections import UserDict
from collections.abc import Mapping
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bomd import outside
from bomd.errors import InputError

if TYPE_CHECKING:
    from bomd.methods.base import Method

ROOM = "bomd.methods."
SHOWN = re.compile(r"def __init__\(|variant_of\b|['\"]")  # what an outline has of a class; quotes open its docstring


class Registry(UserDict[str, "type[Method]"]):
    """From a name to the class of a method; `package.module:Class` names one from outside this package."""

    data: dict[str, Any]  # a class, or where it is: "file:Class" in this folder

    def __init__(self, places: Mapping[str, str]) -> None:
        super().__init__()
        self.data |= places

    def __getitem__(self, name: str) -> type[Method]:
        place = self.data.get(name)
        if place is None:
            return _from_outside(name)
        if isinstance(place, str):
            file, _, kind = place.partition(":")
            place = getattr(import_module(ROOM + file), kind)
        return cast("type[Method]", place)

    def __contains__(self, name: object) -> bool:
        return name in self.data or (isinstance(name, str) and outside.names(name))

    def module(self, name: str) -> str:
        """The module that a method is written in; nothing of this package is imported to find that out."""
        place = self.data.get(name)
        if isinstance(place, str):
            return ROOM + place.partition(":")[0]
        return str((place or _from_outside(name)).__module__)  # a package may have it from a file of its own

    def outline(self, name: str) -> type:
        """A class with a method's docstring, `variant_of` and constructor, but of which no object can be of use.

        It is read from the method's file without importing it. What cannot be read so is imported after all.
        """
        place = self.data.get(name)
        if isinstance(place, str):
            file, _, kind = place.partition(":")
            try:
                return _outline(ROOM + file, kind)
            except (NameError, StopIteration):  # such as a type that only an import can tell
                pass
        return self[name]


def _from_outside(name: str) -> type[Method]:
    if not outside.names(name):
        raise KeyError(name)
    from bomd.methods.base import Method

    kind = outside.find(name, "method")
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        raise InputError(f"{name!r} is no method: write a class that is a bomd.methods.base.Method.")
    return kind


@functools.cache
def _outline(module: str, name: str) -> type:
    """The class of a module in this folder as its text has it; a base from elsewhere counts as none."""
    tree = _parsed(module)
    imported = _imported(tree)
    whole = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    kind = copy(whole)  # of a tree that others read, too
    space: dict[str, Any] = {"Literal": typing.Literal, "Path": Path, "Any": Any}
    kind.bases = []
    for base in whole.bases:
        origin = imported.get(base.id, module) if isinstance(base, ast.Name) else ""
        if isinstance(base, ast.Name) and origin.startswith(ROOM):
            space[base.id] = _outline(origin, base.id)
            kind.bases.append(base)
    kind.body = [node for node in whole.body if SHOWN.match(ast.unparse(node))] or [ast.Pass()]
    code = ast.fix_missing_locations(ast.Module([kind], []))
    exec(compile(code, module, "exec", __future__.annotations.compiler_flag), space)  # noqa: S102 - our own file's text
    found = cast(type, space[name])
    typing.get_type_hints(found.__init__)  # type: ignore[misc]  # now, while the real class can take its place
    return found


def _imported(tree: ast.Module) -> dict[str, str]:
    """Names that a file imports from modules of this package, with the module of each."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and (node.module or "")[:5] == "bomd."]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


@functools.cache
def _parsed(module: str) -> ast.Module:
    return ast.parse(Path(__file__).with_name(f"{module.removeprefix(ROOM)}.py").read_text("utf-8"))
