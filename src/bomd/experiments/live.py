"""How far a benchmark is: a table that keeps up with it in a terminal, a line per event and minute elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bomd import progress
from bomd.config import Config
from bomd.experiments.identity import chosen_of, differing
from bomd.experiments.noise_names import noise_name
from bomd.measure.result import Result
from bomd.measure.significance import Sample, show, show_seconds

PARTS = ("scores", "running", "failed")  # of a row: runs by what became of them
SPARE_LINES = 7  # of the terminal: title, head, rules, caption and the prompt


@dataclass(eq=False)
class Row:
    """The runs of one method on one cell, by seed."""

    method: str
    cell: str
    seeds: list[int] = field(default_factory=list)
    running: dict[int, float] = field(default_factory=dict)  # since when
    scores: dict[int, float | None] = field(default_factory=dict)  # of finished runs
    failed: dict[int, str] = field(default_factory=dict)
    changed: float = 0.0


class Board:
    """All runs of a benchmark and what became of them so far."""

    def __init__(self, configs: Sequence[Config], console: Console | None) -> None:
        self.configs, self.console, self.cells = configs, console, cells_of(configs)
        self.rows: dict[tuple[str, str], Row] = {}
        for config, cell in zip(configs, self.cells, strict=True):
            self.rows.setdefault((config.method, cell), Row(config.method, cell)).seeds.append(config.seed)
        self.test = ""
        self.began = time.monotonic()

    def run_started(self, place: int) -> None:
        row, seed = self._at(place)
        row.running[seed] = time.monotonic()
        self._say(f"started: {self.name(place)}")

    def run_finished(self, place: int, result: Result, already: bool = False) -> None:
        """Take in a result; the first of its test sets is the one shown."""
        row, seed = self._at(place)
        row.running.pop(seed, None)
        self.test = next(iter(result.tests), self.test)
        score = row.scores[seed] = result.auc(self.test)
        if not already:
            auc = "no AUC" if score is None else f"AUC {score:.3f} on {self.test}"
            self._say(f"finished: {self.name(place)}: {auc}, {show_seconds(result.seconds)}")

    def run_failed(self, place: int, reason: str) -> None:
        row, seed = self._at(place)
        row.running.pop(seed, None)
        row.failed[seed] = reason
        self._say(f"failed: {self.name(place)}: {reason}")

    def name(self, place: int) -> str:
        config, cell = self.configs[place], self.cells[place]
        return ", ".join(filter(None, [config.method, cell, f"seed {config.seed}"]))

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Keep the table on the screen, where there is one; a log gets a line a minute."""
        if self.console is None:
            yield
        elif self.console.is_terminal:
            with Live(self, console=self.console, refresh_per_second=2):
                yield
        else:
            over = threading.Event()
            teller = threading.Thread(target=self._tell, args=(over,), daemon=True)
            teller.start()
            try:
                yield
            finally:
                over.set()
                teller.join()

    def __rich__(self) -> Table:
        rows = list(self.rows.values())
        room = max(3, (self.console.height if self.console else 24) - SPARE_LINES)
        table = Table(title=self._state(rows), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for heading in ("method", "cell", "finished", "running", "failed", f"AUC {self.test}".strip()):
            table.add_column(heading, justify="left" if heading in ("method", "cell") else "right", overflow="fold")
        # What is under way or was last heard of stays in sight; the rest keeps its order.
        kept = sorted(rows, key=lambda row: (not row.running, -row.changed))[:room]
        now = time.monotonic()
        for row in [row for row in rows if row in kept]:
            # Copies, since the table is drawn in a thread of its own while runs end.
            since = list(row.running.items())
            running = ", ".join(f"seed {seed} {show_seconds(now - at)}" for seed, at in since)
            failed, score = ", ".join(map(str, list(row.failed))), Sample.of(list(row.scores.values()))
            auc = show(score) if score else ""
            cells = [row.method, row.cell, f"{len(row.scores)} of {len(row.seeds)}", running, failed, auc]
            table.add_row(*map(Text, cells), style="red" if row.failed else None)
        if len(rows) > room:
            table.caption = f"{len(rows) - room} more rows do not fit"
        return table

    def _state(self, rows: Sequence[Row]) -> str:
        finished, running, failed = (sum(len(getattr(row, part)) for row in rows) for part in PARTS)
        ended = f"{finished} of {len(self.configs)} runs finished, {running} running, {failed} failed"
        return f"{ended}, {show_seconds(time.monotonic() - self.began)}"

    def _tell(self, over: threading.Event) -> None:
        """Say how far it is once a minute until it is over."""
        while not over.wait(progress.EVERY):
            self._say(self._state(list(self.rows.values())))

    def _at(self, place: int) -> tuple[Row, int]:
        row = self.rows[self.configs[place].method, self.cells[place]]
        row.changed = time.monotonic()
        return row, self.configs[place].seed

    def _say(self, text: str) -> None:
        if self.console is not None and not self.console.is_terminal:
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def cells_of(configs: Sequence[Config]) -> list[str]:
    """A short name for the cell of each run: its data where there are several, its noise, and what else differs."""
    several = len({config.name for config in configs}) > 1
    groups: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for place, config in enumerate(configs):
        settings = config.to_dict() | {"seed": None, "noise": None, "": noise_name(config.noise)}
        groups.setdefault((config.name, config.method), {})[place] = settings
    names = [""] * len(configs)
    for (name, _), group in groups.items():
        keys = differing(list(group.values()))
        for place, settings in group.items():
            details = [text.removeprefix("=") for text in chosen_of(settings, keys)]
            names[place] = " ".join([*([name] if several else []), *details])
    return names
