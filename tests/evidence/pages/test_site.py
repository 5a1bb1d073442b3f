"""Colours of the site can be read: contrast by the definition of WCAG, of every colour of code and every verdict."""

from __future__ import annotations

import re

import pytest

from evidence import DOCS

LIGHT, DARK, REST = re.split(r"^}$", (DOCS / "stylesheets" / "site.css").read_text("utf-8"), maxsplit=2, flags=re.M)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_colour_of_code_can_be_read(scheme: str) -> None:
    [ground] = re.findall(r"--md-code-bg-color: #(\w{6})", scheme)
    colours = re.findall(r"--md-code-hl-\w+-color: #(\w{6})", scheme)
    assert len(colours) == 10  # as many as the theme has
    assert {colour: contrast(colour, ground) for colour in colours if contrast(colour, ground) < 4.5} == {}


def test_every_verdict_can_be_read() -> None:
    grounds = re.findall(r"^\.(?:holds|partly|fails|untested) { background: #(\w{6})", REST, re.M)
    assert len(grounds) == 4
    assert min(contrast("ffffff", ground) for ground in grounds) >= 4.5
