"""The picture of the rooms is what the imports say, and the walk through them names files that are there."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from evidence import DOCS
from evidence.pages.rooms import GROUND, HEIGHT, PICTURE, SOURCE, WIDTH, direct, floors, layout, needs, svg


def test_the_picture_is_what_the_imports_say() -> None:
    assert PICTURE.read_text(encoding="utf-8") == svg(needs(SOURCE)), "draw it anew: python -m evidence.pages.rooms"


def test_every_room_is_in_it_below_what_it_needs() -> None:
    graph = needs(SOURCE)
    below = floors(graph)
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert set(graph) == {GROUND, *rooms}
    assert all(below[other] < below[room] for room, others in graph.items() for other in others)


def test_what_a_longer_way_implies_is_left_out() -> None:
    """`c` needs `b` and `a`; `b` needs `a`, so that the arrow from `a` to `c` says nothing new."""
    graph = {"a": set[str](), "b": {"a"}, "c": {"a", "b"}}
    assert direct(graph) == [("a", "b"), ("b", "c")]
    assert floors(graph) == {"a": 0, "b": 1, "c": 2}
    with pytest.raises(ValueError, match="need one another: a, b"):
        floors({"a": {"b"}, "b": {"a"}})


def test_no_arrow_passes_behind_a_box_and_no_boxes_touch() -> None:
    corners, ways, wide, high = layout(needs(SOURCE))
    places = list(corners.values())
    for way in ways:
        for middle, top, _ in way[1:-1]:
            assert not any(y == top and x - 5 < middle < x + WIDTH + 5 for x, y in places)
        assert all(first[2] < second[1] for first, second in pairwise(way))  # downwards, and between floors in a gap
    for x, y in places:
        assert 0 < x < wide - WIDTH
        assert 0 < y < high - HEIGHT
        assert sum(other == y and abs(x - left) < WIDTH + 5 for left, other in places) == 1


def test_the_walk_of_an_image_names_each_file_once() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    hops = re.findall(r"^\| (\d+) \| `(.+?)` \|", text, flags=re.MULTILINE)
    assert [int(number) for number, _ in hops] == list(range(1, len(hops) + 1))
    assert 10 <= len(hops) <= 20
    assert len({file for _, file in hops}) == len(hops)
    for _, file in hops:
        assert (SOURCE / file).is_file(), f"{file} is gone: where does the image go now?"
