"""Data flows one way: a module imports only from rooms above its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "bomd"
ROOMS = [
    (
        "errors",
        "files",
        "outside",
        "processes",
        "progress",
        "seeds",
        "sources",
        "tables",
        "threads",
        "typed",
        "version",
    ),
    ("config", "runs", "sources", "recipes"),
    ("data",),
    ("networks",),
    ("learn",),
    ("models",),
    ("describe", "clean"),
    ("methods",),
    ("measure",),
    ("experiments",),
    ("reports",),
    ("review", "audits", "exchange"),
    ("cli",),
]
FLOOR = {name: floor for floor, names in enumerate(ROOMS) for name in names}
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem != "__init__")


def imported_rooms(path: Path) -> set[str]:
    """The rooms that a module imports from, wherever the import stands in it."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "bomd":
            rooms |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bomd."):
            rooms.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            rooms |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("bomd.")}
    return rooms


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert own in FLOOR, f"{own} has no floor: add it to ROOMS"
    for room in imported_rooms(path):
        assert FLOOR[room] <= FLOOR[own], f"{own} imports from {room}, which is downstream"
        if FLOOR[room] == FLOOR[own] and FLOOR[own] == FLOOR["clean"]:
            assert room == own, f"{own} and {room} stand side by side and must not know each other"


def test_only_networks_and_phantoms_need_torch_in_the_array_rooms() -> None:
    """Detection and re-labelling are arrays in, arrays out: no network code."""
    for name in ("detect", "relabel"):
        assert "torch" not in (SOURCE / "clean" / f"{name}.py").read_text()
