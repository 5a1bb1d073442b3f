"""Data flows one way: a module imports only from rooms above its own, and no two modules need each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "bomd"
ROOMS = [
    (
        "errors",
        "files",
        "filling",
        "outside",
        "processes",
        "progress",
        "saved",
        "seeds",
        "shares",
        "spread",
        "tables",
        "threads",
        "typed",
        "version",
    ),
    ("config", "runs", "sources", "recipes"),
    ("data",),
    ("kernels",),
    ("networks",),
    ("learn",),
    ("models",),
    ("describe", "clean"),
    ("methods",),
    ("measure",),
    ("pretrain",),
    ("experiments",),
    ("reports",),
    ("review", "audits", "exchange"),
    ("cli",),
]
FLOOR = {name: floor for floor, names in enumerate(ROOMS) for name in names}
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem != "__init__")
LARGEST = 2_500  # lines of a room; two hold a file for each dataset or method, and may have any number of these
UNBOUNDED = ("data", "methods")


def imported(tree: ast.AST) -> Iterator[str]:
    """Dotted names that a module imports from the package, wherever in it the import stands.

    `from bomd.data import images` may mean a module or a name in one, so that both are given.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "bomd")
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "bomd":
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def for_types_alone(node: ast.AST) -> bool:
    """Whether it is an `if TYPE_CHECKING`, whose imports never happen."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


class WithoutTypes(ast.NodeTransformer):
    """A module as it runs."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if for_types_alone(node) else self.generic_visit(node)


def imports(source: Path) -> dict[str, set[str]]:
    """The modules that each module of a package imports when it is loaded or when any function of it runs."""
    places = {
        ".".join((source.name, *path.relative_to(source).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in source.rglob("*.py")
    }
    graph = {}
    for name, path in places.items():
        found = set(imported(WithoutTypes().visit(ast.parse(path.read_text(encoding="utf-8")))))
        # Of `from bomd.data import images` the module counts, not the package: its own file need not be run for that.
        whole = {one for one in found if any(other.startswith(f"{one}.") and other in places for other in found)}
        graph[name] = {one for one in found if one in places and one not in whole} - {name}
    return graph


def cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """A round trip through the graph, if there is one: whoever is left when nobody's needs can be met any more."""
    left = dict(graph)
    while ready := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in ready:
            del left[name]
    trip: list[str] = []
    place = min(left, default=None)
    while place is not None and place not in trip:
        trip.append(place)
        place = min(left[place] & left.keys())
    return [] if place is None else [*trip[trip.index(place) :], place]


def test_no_module_needs_itself_in_a_round() -> None:
    assert " -> ".join(cycle(imports(SOURCE))) == ""


def test_a_round_is_found_where_there_is_one(tmp_path: Path) -> None:
    """`a` needs `b` at the top, `b` needs `c` inside a function, and `c` needs `a` for the type checker alone."""
    package = tmp_path / "bomd"
    (package / "room").mkdir(parents=True)
    (package / "a.py").write_text("from bomd import b\n")
    (package / "b.py").write_text("def later():\n    from bomd.room.c import something\n")
    (package / "room" / "c.py").write_text("if TYPE_CHECKING:\n    from bomd.a import kind\n")
    assert imports(package) == {"bomd.a": {"bomd.b"}, "bomd.b": {"bomd.room.c"}, "bomd.room.c": set()}
    assert cycle(imports(package)) == []
    (package / "room" / "c.py").write_text("def later():\n    import bomd.a\n")
    assert cycle(imports(package)) == ["bomd.a", "bomd.b", "bomd.room.c", "bomd.a"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    """Also those for the type checker alone."""
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert own in FLOOR, f"{own} has no floor: add it to ROOMS"
    for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
        room = [*name.split("."), own][1]
        assert FLOOR[room] <= FLOOR[own], f"{own} imports from {room}, which is downstream"
        if FLOOR[room] == FLOOR[own] and FLOOR[own] == FLOOR["clean"]:
            assert room == own, f"{own} and {room} stand side by side and must not know each other"


@pytest.mark.parametrize(
    "room", sorted(path.parent for path in SOURCE.glob("*/__init__.py")), ids=lambda room: room.name
)
def test_a_room_can_be_read_in_an_afternoon(room: Path) -> None:
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in room.rglob("*.py"))
    assert room.name in UNBOUNDED or lines <= LARGEST, f"{room.name} has {lines} lines: it is two rooms"


def test_only_networks_and_phantoms_need_torch_in_the_array_rooms() -> None:
    """Detection and re-labelling are arrays in, arrays out: no network code."""
    for name in ("detect", "relabel"):
        assert "torch" not in (SOURCE / "clean" / f"{name}.py").read_text()
