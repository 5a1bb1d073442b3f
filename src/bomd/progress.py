"""Progress bars that library code asks for and that stay silent unless a command line switched them on."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Item = TypeVar("Item")

_console: Console | None = None
_shown: Progress | None = None

EVERY = 60.0  # seconds between two lines about the same work where there is no terminal


def enable(console: Console | None = None) -> None:
    """Show progress from now on: bars in a terminal; elsewhere a line a minute, and one when a step is finished."""
    global _console
    _console = console or Console(emoji=False, stderr=True)


def disable() -> None:
    """Show nothing from now on, which is how a library starts out."""
    global _console
    _console = None


@contextmanager
def shown() -> Iterator[None]:
    """Show progress in this block, for a function that takes long and that people call themselves."""
    global _console
    before = _console
    _console = before or Console(emoji=False, stderr=True)
    try:
        yield
    finally:
        _console = before


def say(text: str) -> None:
    """One line above the bars, if progress is shown."""
    if _console is not None:
        (_shown.console if _shown is not None else _console).print(text, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[..., None]]:
    """A bar of `total` steps; the block calls the yielded function as `advance(steps=1, note="")`."""
    global _shown
    if _console is None:
        yield lambda steps=1, note="": None
        return
    if not _console.is_terminal:
        lines = _Lines(what, total)
        yield lines.advance
        say(f"{what}: {total} in {time.perf_counter() - lines.began:.1f} s")
        return
    outermost = _shown is None
    if _shown is None:
        _shown = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=_console,
        )
        _shown.start()
    shown = _shown
    task = shown.add_task(what, total=total, note="")

    def advance(steps: int = 1, note: str = "") -> None:
        shown.update(task, advance=steps)
        if note:
            shown.update(task, note=note)

    try:
        yield advance
    finally:
        if outermost:
            shown.stop()
            _shown = None
        else:
            shown.remove_task(task)


def track(items: Collection[Item], what: str) -> Iterator[Item]:
    """Iterate while a bar advances by one per item."""
    with bar(what, len(items)) as advance:
        for item in items:
            yield item
            advance()


class _Lines:
    """How far something is, as a line a minute for log files."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done, self.note = what, total, 0, ""
        self.began = self.said = time.perf_counter()
        self.before = 0  # done when counting began: what an earlier process did took none of this one's time

    def advance(self, steps: int = 1, note: str = "") -> None:
        now = time.perf_counter()
        if not self.done and steps > 1 and now - self.began < 1:
            self.before = steps
        self.done += steps
        self.note = note or self.note
        if now - self.said >= EVERY and self.done < self.total:
            self.said = now
            spent, fresh = now - self.began, self.done - self.before
            left = f", about {_words(spent * (self.total - self.done) / fresh)} left" if fresh else ""
            note = f", {self.note}" if self.note else ""
            say(f"{self.what}: {self.done:,} of {self.total:,} after {_words(spent)}{left}{note}")


def _words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
