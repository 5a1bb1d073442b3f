"""Draw docs/images/rooms.svg: which folders of the package import from which, found in the code itself."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from html import escape
from pathlib import Path

from bomd.files import write_text
from evidence import DOCS, ROOT

SOURCE = ROOT / "src" / "bomd"
PICTURE = DOCS / "images" / "rooms.svg"
GROUND = "tables, config, runs"  # the files beside the folders
WIDTH, HEIGHT, ACROSS, DOWN, EDGE = 150, 34, 30, 46, 14  # of a box, between boxes, and around all


def main() -> None:
    write_text(PICTURE, svg(needs(SOURCE)))


def needs(source: Path) -> dict[str, set[str]]:
    """The rooms that each room imports from, inside functions too."""
    graph: dict[str, set[str]] = {GROUND: set()}
    for path in sorted(source.rglob("*.py")):
        if path == source / "__init__.py":
            continue  # the public names, of any room
        own = _room(path.relative_to(source).with_suffix("").parts, source)
        found = graph.setdefault(own, set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "bomd":
                names = [f"bomd.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [str(node.module)]
            else:
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found |= {_room(name.split(".")[1:], source) for name in names if name.startswith("bomd.")} - {own}
    return graph


def _room(parts: tuple[str, ...] | list[str], source: Path) -> str:
    return parts[0] if (source / parts[0]).is_dir() and any((source / parts[0]).glob("*.py")) else GROUND


def floors(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """How far each room lies below the ground: one more than the lowest that it needs."""
    found: dict[str, int] = {}
    while len(found) < len(graph):
        ready = {room: needs for room, needs in graph.items() if room not in found and needs <= found.keys()}
        if not ready:
            raise ValueError(f"These rooms need one another: {', '.join(sorted(set(graph) - set(found)))}.")
        found |= {room: 1 + max((found[other] for other in needs), default=-1) for room, needs in ready.items()}
    return found


def direct(graph: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Arrows from a room to those that need it, without those that a longer way implies."""

    def reached(room: str) -> set[str]:
        return {room}.union(*(reached(other) for other in graph[room]))

    return [
        (other, room)
        for room, needs in sorted(graph.items())
        for other in sorted(needs)
        if not any(other in reached(between) for between in needs - {other})
    ]


def svg(graph: Mapping[str, set[str]]) -> str:
    """Rooms from top to bottom, those without a way between them side by side."""
    below = floors(graph)
    rows = [sorted(room for room in graph if below[room] == floor) for floor in range(max(below.values()) + 1)]
    wide = max(map(len, rows)) * (WIDTH + ACROSS) - ACROSS + 2 * EDGE
    high = len(rows) * (HEIGHT + DOWN) - DOWN + 2 * EDGE
    places: dict[str, tuple[float, float]] = {}
    for floor, row in enumerate(rows):
        left = (wide - len(row) * (WIDTH + ACROSS) + ACROSS) / 2
        places |= {
            room: (left + place * (WIDTH + ACROSS), EDGE + floor * (HEIGHT + DOWN)) for place, room in enumerate(row)
        }
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" font-family="sans-serif" '
        'font-size="13" role="img" aria-label="Rooms of the package and what they import">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#767676"/></marker></defs>',
    ]
    for above, room in direct(graph):
        (x1, y1), (x2, y2) = places[above], places[room]
        middle = (y1 + HEIGHT + y2) / 2
        lines.append(
            f'<path d="M{x1 + WIDTH / 2:g} {y1 + HEIGHT:g}C{x1 + WIDTH / 2:g} {middle:g} {x2 + WIDTH / 2:g} {middle:g} '
            f'{x2 + WIDTH / 2:g} {y2:g}" fill="none" stroke="#767676" marker-end="url(#tip)"/>'
        )
    for room, (x, y) in places.items():
        lines.append(
            f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="#fff" stroke="#0072b2"/>'
        )
        lines.append(
            f'<text x="{x + WIDTH / 2:g}" y="{y + 22:g}" text-anchor="middle" fill="#222">{escape(room)}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    main()
