"""Code that is no part of this package: optional packages, and one's own methods and loggers, `package.module:name`."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bomd.errors import InputError

INSTALLED = frozenset(("site-packages", "dist-packages"))  # folders of what is installed


def names(text: str) -> bool:
    """Whether a text is written as `package.module:name`."""
    return re.fullmatch(r"\w+(\.\w+)*:\w+", text) is not None


def find(text: str, what: str) -> Any:
    """Import what a text names, a "method" or a "logger", from what is installed or from the working directory."""
    _look_here()
    module, _, name = text.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise InputError(
            f"Cannot import {what} {text!r}: {error}. Write it as package.module:name, of a package that is installed "
            "or lies in the working directory."
        ) from error


def package(name: str, remedy: str) -> Any:
    """An optional package, or one line that says how to get it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(remedy) from error


def file_of(module: str) -> Path | None:
    """The text of a module, found without importing it; None where it has none or cannot be found."""
    _look_here()
    top, *below = module.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    files = [Path(spec.origin or "")]
    if below:
        places = [Path(folder, *below) for folder in spec.submodule_search_locations or ()]
        files = [file for place in places for file in (place / "__init__.py", place.with_name(f"{place.name}.py"))]
    return next((file for file in files if file.suffix == ".py" and file.is_file()), None)


def is_own(module: str, other: str) -> bool:
    """Whether a module is code of the same author as another one: of its package, or not installed."""
    top = module.partition(".")[0]
    if top in ("", "bomd") or top in sys.stdlib_module_names:
        return False
    file = file_of(module)
    return file is not None and (top == other.partition(".")[0] or INSTALLED.isdisjoint(file.parts))


def _look_here() -> None:
    """A command's path is that of the program; what is installed goes before what lies around."""
    here = str(Path.cwd())
    if "" not in sys.path and here not in sys.path:
        sys.path.append(here)
