"""Timings as rows: measured in one run against a named alternative, with the floor that no version could pass."""

from __future__ import annotations

import csv
import datetime
import io
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from bomd.files import write_text
from evidence.rows import read_rows

STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Row:
    """One item of the table.

    Attributes:
        item: What was done.
        unit: What `ours` and `alternative` count: times are better low, rates such as "images/s" high.
        ours: Measured here.
        alternative: Another way to do the same work, in the same run; empty where there is none.
        alternative_is: Its name.
        floor: What bytes and operations alone would take, in the same unit.
        floor_is: How the floor was counted.
        target: What was asked for, in the same unit.
        memory_mb: Peak: of the GPU for GPU rows, of the process for CPU rows.
        remark: How it was measured.
    """

    item: str
    unit: str
    ours: float
    alternative: float | None = None
    alternative_is: str = ""
    floor: float | None = None
    floor_is: str = ""
    target: float | None = None
    memory_mb: float | None = None
    remark: str = ""

    @property
    def faster_is_less(self) -> bool:
        return self.unit in ("ms", "s", "minutes")

    @property
    def ratio(self) -> float | None:
        """How many times better than the alternative."""
        if self.alternative is None:
            return None
        return self.alternative / self.ours if self.faster_is_less else self.ours / self.alternative

    @property
    def share_of_floor(self) -> float | None:
        """1 where nothing is left to gain."""
        if self.floor is None:
            return None
        return self.floor / self.ours if self.faster_is_less else self.ours / self.floor

    @property
    def reached(self) -> bool | None:
        if self.target is None:
            return None
        return self.ours <= self.target if self.faster_is_less else self.ours >= self.target


def median(action: Callable[[], object], repeats: int) -> float:
    """Seconds of the middle run, after one that pays for memory and start-up; a GPU is waited for."""
    action()
    seconds = []
    for _ in range(repeats):
        with stopwatch() as elapsed:
            action()
        seconds.append(elapsed())
    return statistics.median(seconds)


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """Seconds between start and end of the block, with the GPU's work inside."""
    end = None
    _settle()
    start = time.perf_counter()
    yield lambda: (end if end is not None else time.perf_counter()) - start
    _settle()
    end = time.perf_counter()


def peak_memory_mb(device: torch.device) -> float:
    """Of the GPU or of this process since `forget_peak`, or since the start."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    if STATUS.exists():
        return _status("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def forget_peak(device: torch.device) -> float:
    """Start to look for a new peak; what is in use now, in MB."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device) / 2**20
    if not STATUS.exists():
        return 0.0  # such a system keeps one peak for the whole process
    STATUS.with_name("clear_refs").write_text("5")
    return _status("VmRSS")


def _status(name: str) -> float:
    (line,) = [line for line in STATUS.read_text(encoding="ascii").splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1]) / 2**10


def show(rows: Sequence[Row], title: str) -> None:
    """Print the table."""
    table = Table("item", "ours", "alternative", "ratio", "floor", "share", "target", "memory", title=title)
    for row in rows:
        goal = "" if row.target is None else f"{_number(row.target)} {'reached' if row.reached else 'MISSED'}"
        table.add_row(
            row.item,
            f"{_number(row.ours)} {row.unit}",
            "" if row.alternative is None else f"{_number(row.alternative)} ({row.alternative_is})",
            "" if row.ratio is None else f"{row.ratio:.3g} x",
            "" if row.floor is None else _number(row.floor),
            "" if row.share_of_floor is None else f"{row.share_of_floor:.0%}",
            goal,
            "" if row.memory_mb is None else f"{row.memory_mb:,.0f} MB",
        )
    console = Console(width=None if Console().is_terminal else 160)
    console.print(table)
    for row in rows:
        if row.remark:
            console.print(f"{row.item}: {row.remark}", highlight=False, markup=False)


COLUMNS = (
    "device", "date", "torch", "item", "unit", "ours", "alternative", "alternative_is", "ratio", "floor", "floor_is",
    "share_of_floor", "target", "reached", "memory_mb", "remark",
)  # fmt: skip


def keep(rows: Sequence[Row], device: str, path: Path) -> None:
    """Write rows into a file of timings; rows of the same device and item are replaced, others stay."""
    old = read_rows(path)
    new = [
        {
            **{key: _cell(value) for key, value in asdict(row).items()},
            "device": device,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "torch": metadata.version("torch"),
            "ratio": _cell(row.ratio),
            "share_of_floor": _cell(row.share_of_floor),
            "reached": _cell(row.reached),
        }
        for row in rows
    ]
    replaced = {(row["device"], row["item"]) for row in new}
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows([*(row for row in old if (row["device"], row["item"]) not in replaced), *new])
    write_text(path, stream.getvalue())


def device_name(device: torch.device) -> str:
    """The GPU's name, or the number of threads."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"CPU, {torch.get_num_threads()} threads, {platform.machine()}"


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Of log(value) over log(size): 1 where twice the size costs twice, 2 where it costs four times."""
    line = statistics.linear_regression(*(torch.tensor(part).log().tolist() for part in (sizes, values)))
    return line.slope


def _settle() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
