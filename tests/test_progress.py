"""How far something is: a line a minute where there is no terminal, and nothing where nobody asked."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

import bomd
from bomd import progress
from bomd.cli import options


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    text = io.StringIO()
    progress.enable(Console(file=text, width=200))
    yield text
    progress.disable()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds since the start; the test moves it."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_a_log_gets_a_line_a_minute_and_one_at_the_end(said: io.StringIO, clock: list[float]) -> None:
    with progress.bar("train", 100) as advance:
        for step in range(100):
            clock[0] += 2
            advance(note=f"loss {step}")
    lines = said.getvalue().splitlines()
    assert lines == [
        "train: 30 of 100 after 60 s, about 2 min left, loss 29",
        "train: 60 of 100 after 2 min, about 80 s left, loss 59",
        "train: 90 of 100 after 3 min, about 20 s left, loss 89",
        "train: 100 in 200.0 s",
    ]


def test_what_an_earlier_process_did_is_not_counted_as_fast(said: io.StringIO, clock: list[float]) -> None:
    """80 of 100 were done before; 10 took a minute, so that 10 more take another."""
    with progress.bar("train", 100) as advance:
        advance(80)
        for _ in range(10):
            clock[0] += 6
            advance()
        assert said.getvalue() == "train: 90 of 100 after 60 s, about 60 s left\n"


def test_short_work_is_one_line(said: io.StringIO, clock: list[float]) -> None:
    for _ in progress.track([1, 2, 3], "pack"):
        clock[0] += 1
    assert said.getvalue() == "pack: 3 in 3.0 s\n"


def test_a_library_is_silent_unless_a_function_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    progress.say("nobody asked")
    with progress.shown():
        progress.say("while it lasts")
    progress.say("nobody asked again")
    assert capsys.readouterr().err == "while it lasts\n"


def test_showing_leaves_alone_what_is_shown_already(said: io.StringIO) -> None:
    with progress.shown():
        progress.say("within")
    progress.say("after")
    assert said.getvalue().splitlines() == ["within", "after"]


def test_names_with_colons_are_no_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    """`:Two:` in the name of one's own method was printed as an emoji."""
    name = "mine:Two: unknown key ':key:'"
    options.say(name)
    options.complain(name)
    with progress.shown():
        progress.say(name)
    found = capsys.readouterr()
    assert found.out == f"{name}\n"
    assert found.err == f"{name}\n" * 2
    consoles = [
        text for file in Path(bomd.__file__).parent.rglob("*.py") for text in file.read_text().split("Console(")[1:]
    ]
    assert [text[:40] for text in consoles if not text.startswith("emoji=False")] == []
