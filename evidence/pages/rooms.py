"""Draw docs/images/rooms.svg: which folders of the package import from which, found in the code itself."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from html import escape
from itertools import pairwise
from pathlib import Path

from bomd.files import write_text
from evidence import DOCS, ROOT

SOURCE = ROOT / "src" / "bomd"
PICTURE = DOCS / "images" / "rooms.svg"
GROUND = "tables, config, runs"  # the files beside the folders
WIDTH, HEIGHT, ACROSS, DOWN, EDGE = 150, 34, 30, 46, 14  # of a box, between boxes, and around all
SWEEPS = 8  # after which nothing moves any more


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


Way = list[tuple[float, float, float]]  # where an arrow goes down: its middle, and from which height to which


def layout(graph: Mapping[str, set[str]]) -> tuple[dict[str, tuple[float, float]], list[Way], float, float]:
    """Corners of all boxes, the ways of all arrows, width and height.

    Rooms without a way between them stand side by side. An arrow that passes other floors has a lane there, so that
    none is hidden by a box; each room and lane stands near the middle of what it is joined with.
    """
    below = floors(graph)
    rows: list[list[str]] = [[] for _ in range(max(below.values()) + 1)]
    for room in sorted(graph):
        rows[below[room]].append(room)
    ways = []
    for number, (above, room) in enumerate(direct(graph)):
        lanes = [f"{number} {floor}" for floor in range(below[above] + 1, below[room])]
        for floor, lane in enumerate(lanes, below[above] + 1):
            rows[floor].append(lane)
        ways.append([above, *lanes, room])
    joined: dict[str, list[str]] = {place: [] for row in rows for place in row}
    for way in ways:
        for first, second in pairwise(way):
            joined[first].append(second)
            joined[second].append(first)
    middles = _middles(rows, graph)
    for _ in range(SWEEPS):
        for row in rows:
            row.sort(key=lambda place: sum(middles[other] for other in joined[place]) / max(1, len(joined[place])))
            middles = _middles(rows, graph)
    wide = max(_row_width(row, graph) for row in rows) + 2 * EDGE
    tops = {place: float(EDGE + floor * (HEIGHT + DOWN)) for floor, row in enumerate(rows) for place in row}
    corners = {room: (wide / 2 + middles[room] - WIDTH / 2, tops[room]) for room in graph}
    lines = [[(wide / 2 + middles[place], tops[place], tops[place] + HEIGHT) for place in way] for way in ways]
    return corners, lines, wide, len(rows) * (HEIGHT + DOWN) - DOWN + 2 * EDGE


def _middles(rows: list[list[str]], graph: Mapping[str, set[str]]) -> dict[str, float]:
    """Of every room and lane, from the middle of the picture."""
    found = {}
    for row in rows:
        left = -_row_width(row, graph) / 2
        for place in row:
            width = _width(place, graph)
            found[place] = left + width / 2
            left += width + ACROSS
    return found


def _row_width(row: list[str], graph: Mapping[str, set[str]]) -> float:
    return sum(_width(place, graph) + ACROSS for place in row) - ACROSS


def _width(place: str, graph: Mapping[str, set[str]]) -> float:
    return WIDTH if place in graph else 0


def svg(graph: Mapping[str, set[str]]) -> str:
    """Rooms from top to bottom."""
    corners, ways, wide, high = layout(graph)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" font-family="sans-serif" '
        'font-size="13" role="img" aria-label="Rooms of the package and what they import">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#767676"/></marker></defs>',
    ]
    for way in ways:
        drawn = f"M{way[0][0]:g} {way[0][2]:g}"
        for (x1, _, y1), (x2, y2, end) in pairwise(way):
            middle = (y1 + y2) / 2
            drawn += f"C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {y2:g}"
            drawn += "" if (x2, y2, end) == way[-1] else f"V{end:g}"
        lines.append(f'<path d="{drawn}" fill="none" stroke="#767676" marker-end="url(#tip)"/>')
    for room, (x, y) in corners.items():
        lines.append(
            f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="#fff" stroke="#0072b2"/>'
        )
        lines.append(
            f'<text x="{x + WIDTH / 2:g}" y="{y + 22:g}" text-anchor="middle" fill="#222">{escape(room)}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    main()
