"""Experiments that ship with bomd, one TOML file each."""

from __future__ import annotations

from pathlib import Path

from bomd.errors import InputError
from bomd.typed import nearest


def shipped_recipes() -> dict[str, Path]:
    """The recipes in this folder, by name."""
    return {file.stem: file for file in sorted(Path(__file__).parent.glob("*.toml"))}


def find_recipe(name: str) -> Path:
    """The file of a recipe: a path, or the name of one in this folder."""
    shipped = shipped_recipes()
    if name in shipped:
        return shipped[name]
    path = Path(name)
    if path.suffix != ".toml" and not path.exists():
        raise InputError(f"No recipe {name!r}.{nearest(name, shipped)}")
    return path
