"""The examples in docstrings are true: they run, and show what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import bomd
from evidence.pages.reference import PUBLIC

SOURCES = Path(bomd.__file__).parent
SHOWING = [path for path in sorted(SOURCES.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]
NETWORKS = {"embed", "ranking_loss", "nearest_images"}  # their arguments do not fit a line


def module_of(path: Path) -> str:
    return ".".join(["bomd", *path.relative_to(SOURCES).with_suffix("").parts])


@pytest.mark.parametrize("path", SHOWING, ids=lambda path: path.stem)
def test_examples_show_what_they_say(path: Path) -> None:
    found = doctest.testmod(importlib.import_module(module_of(path)))
    assert found.attempted > 0
    assert found.failed == 0


def test_every_step_that_takes_arrays_has_an_example() -> None:
    steps = set(PUBLIC["One step at a time"]) - NETWORKS
    assert {name for name in steps if ">>> " not in (getattr(bomd, name).__doc__ or "")} == set()
