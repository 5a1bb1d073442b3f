"""Experiments that ship with bomd, one TOML file each."""

from __future__ import annotations

from pathlib import Path

from bomd.errors import InputError
from bomd.typed import nearest


def find_recipe(name: str) -> Path:
    """The file of a recipe: a path, or the name of one in this folder."""
    folder = Path(__file__).parent
    shipped = {file.stem: file for file in folder.glob("*.toml")}
    if name in shipped:
        return shipped[name]
    path = Path(name)
    if path.suffix != ".toml" and not path.exists():
        raise InputError(f"No recipe {name!r}.{nearest(name, shipped)}")
    return path
