"""Progress bars that library code asks for and that stay silent unless a command line switched them on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

Item = TypeVar("Item")

_console: Console | None = None
_shown: Progress | None = None


def enable(console: Console | None = None) -> None:
    """Show progress from now on: bars in a terminal, one line per finished step elsewhere."""
    global _console
    _console = console or Console(stderr=True)


def disable() -> None:
    """Show nothing from now on, which is how a library starts out."""
    global _console
    _console = None


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
    start = time.perf_counter()
    if not _console.is_terminal:
        yield lambda steps=1, note="": None
        say(f"{what}: {total} in {time.perf_counter() - start:.1f} s")
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


def track(items: Sequence[Item] | Iterable[Item], what: str, total: int | None = None) -> Iterator[Item]:
    """Iterate while a bar advances by one per item."""
    count = total if total is not None else len(items)  # type: ignore[arg-type]
    with bar(what, count) as advance:
        for item in items:
            yield item
            advance()
