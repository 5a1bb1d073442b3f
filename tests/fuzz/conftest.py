"""Run something on bad input: it may work or say in one line what is wrong, soon, and nothing else."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import bomd.experiments.experiment  # noqa: F401  slow to import, which must not count against the first case
from bomd.cli import main
from bomd.errors import InputError

SECONDS = 10  # far more than anything here takes, on a busy machine, too


class TooSlowError(BaseException):
    """Not an Exception, so that no handler for damaged files swallows it."""


@contextmanager
def deadline(seconds: float = SECONDS) -> Iterator[None]:
    """Interrupt what takes too long, even where it waits for a pipe that nobody writes to."""

    def stop(*_: Any) -> None:
        raise TooSlowError(f"Nothing was said within {seconds} seconds.")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Outcomes:
    """What became of many cases; a case that ended in anything but success or one line is kept with its reason."""

    def __init__(self) -> None:
        self.worked = 0
        self.refused = 0
        self.failed: list[str] = []

    def call(self, case: str, function: Callable[[], object]) -> None:
        """Call a function that raises InputError for bad input."""
        try:
            with deadline():
                function()
        except InputError as error:
            self._check_line(case, str(error))
        except (Exception, TooSlowError) as error:
            self.failed.append(f"{case}: {type(error).__name__}: {str(error)[:200]}")
        else:
            self.worked += 1

    def command(self, case: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        """Type a command."""
        code: object = None
        try:
            with deadline():
                main(words)
        except SystemExit as stop:
            code = stop.code
        except (Exception, TooSlowError) as error:
            self.failed.append(f"{case}: {type(error).__name__}: {str(error)[:200]}")
            return
        complaint = capsys.readouterr().err
        if code in (0, 1):
            self.worked += 1
        elif code == 2:
            lines = [line for line in complaint.splitlines() if line.startswith("Error: ")]
            self._check_line(case, "\n".join(lines) if complaint.count("Error: ") == len(lines) == 1 else complaint)
        else:
            self.failed.append(f"{case}: exit code {code}")

    def _check_line(self, case: str, message: str) -> None:
        self.refused += 1
        if not message.strip() or len(message.splitlines()) != 1:
            self.failed.append(f"{case}: not one line: {message[:200]!r}")
        elif len(message) > 3000:
            self.failed.append(f"{case}: a message of {len(message)} characters")

    def check(self, cases: int) -> None:
        """All cases were tried, none failed, and a good part was bad enough to be refused."""
        assert not self.failed, "\n".join([f"{len(self.failed)} of {cases} cases:", *self.failed[:20]])
        assert self.worked + self.refused == cases
        assert self.refused > cases // 4


@pytest.fixture
def outcomes() -> Outcomes:
    return Outcomes()
