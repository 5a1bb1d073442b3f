"""The site's code can be read: contrast by the definition of WCAG, of every colour, on the grounds of site.css."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pygments.styles import get_style_by_name

from evidence.pages import site

STYLES = (Path(__file__).parents[3] / "docs" / "stylesheets" / "site.css").read_text(encoding="utf-8")


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(
    ("style", "ground"),
    [
        (site.LIGHT_CODE, r'^\[role="main"\] pre \{[^}]*background: #(\w{6})'),
        (site.DARK_CODE, r'^\[data-bs-theme="dark"\] \[role="main"\] pre \{[^}]*background: #(\w{6})'),
    ],
)
def test_every_colour_of_code_can_be_read(style: str, ground: str) -> None:
    [behind] = re.findall(ground, STYLES, re.MULTILINE)
    colours = {token["color"] for _, token in get_style_by_name(style) if token["color"]}
    assert colours
    for colour in colours:
        lighter, darker = sorted((luminance(colour), luminance(behind)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, colour
