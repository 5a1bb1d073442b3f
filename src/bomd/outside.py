"""Code that is no part of this package: optional packages, and one's own methods and loggers, `package.module:name`."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bomd.errors import InputError


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
    """The text of a module; None where it has none or cannot be found."""
    _look_here()
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return None
    origin = "" if spec is None else spec.origin or ""
    return Path(origin) if origin.endswith(".py") else None


def _look_here() -> None:
    """A command's path is that of the program; what is installed goes before what lies around."""
    here = str(Path.cwd())
    if "" not in sys.path and here not in sys.path:
        sys.path.append(here)
