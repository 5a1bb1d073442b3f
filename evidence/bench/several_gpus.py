"""What exchanges between processes cost: the same training alone and in a group, recorded and step by step, in one run.

    python -m evidence.bench.several_gpus FOLDER                              # one GPU, alone and as a group of one
    torchrun --nproc-per-node 8 -m evidence.bench.several_gpus FOLDER         # several GPUs

FOLDER gets `several-gpus.csv` and `several-gpus.json`, which has every epoch, after every turn: what was measured
survives whatever comes next. Recorded ways have their turns first, and `--seconds` says when no further one may begin.
A group of one exchanges with itself all that a larger group does: it shows that a recorded step can hold the exchanges,
and what they cost besides the way over the wire. Of several processes each has as many images in a step as one alone
has. Rows of other measurements stay.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import io
import json
import math
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as distributed
from numpy.typing import NDArray

from bomd import processes, progress
from bomd.config import DeviceSettings, FitSettings
from bomd.data.batches import Images
from bomd.data.datasets import phantom
from bomd.data.store import Store, pack
from bomd.files import write_text
from bomd.learn.engine import fit
from bomd.methods.bce import Bce
from bomd.networks.device import make_fabric
from bomd.tables import Text
from evidence.bench.table import device_name
from evidence.rows import read_rows

NAME = "several-gpus"
ASKED = 0.97  # of the rate alone
TOLERANCE = 0.02  # of the last epoch's loss: a GPU adds up in another order each time


@dataclass(frozen=True)
class Case:
    """What is trained.

    Attributes:
        batch: Images of a step in one process.
        steps: Of an epoch.
    """

    backbone: str
    size: int
    batch: int
    steps: int

    @property
    def title(self) -> str:
        return f"{self.backbone}, {self.size} px, batch {self.batch}"


@dataclass(frozen=True)
class Way:
    """How it is trained: alone or in a group of processes, with the device's settings."""

    name: str
    joined: bool
    device: DeviceSettings


CASES = (Case("densenet121", 224, 64, 100), Case("small", 64, 64, 300))
TINY = (Case("small", 32, 4, 3),)
ALONE = "alone"
WAYS = (
    Way(ALONE, False, DeviceSettings()),
    Way("group", True, DeviceSettings()),
    Way("group, norms apart", True, DeviceSettings(whole_batch_norm=False)),
    Way("alone, not recorded", False, DeviceSettings(graphs=False)),
    Way("group, not recorded", True, DeviceSettings(graphs=False)),
)


@dataclass(frozen=True)
class Measured:
    """One way to train one network.

    Attributes:
        processes: That share a batch.
        images_per_second: Of all processes; the middle epoch's.
        share: Of the rate alone in the same run, times the number of processes; empty where that was not measured.
        loss: Of the last epoch: the same in all ways, but for roundings.
    """

    device: str
    date: str
    torch: str
    backbone: str
    size: int
    batch: int
    processes: int
    way: str
    parameters: int
    images_per_second: float
    share: float | None
    loss: float


def main(arguments: Sequence[str] | None = None) -> int:
    """1 if a recorded group of one is more than 3 % slower than a process alone, or any way learns something else."""
    began = time.perf_counter()
    parser = argparse.ArgumentParser(prog="python -m evidence.bench.several_gpus", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=2, help="how often each way has its turn")
    parser.add_argument("--epochs", type=int, default=3, help="that count in each turn, after one that does not")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no turn that would not end by then")
    parser.add_argument("--quick", action="store_true", help="a tiny size, to see that everything runs")
    given = parser.parse_args(arguments)
    if processes.first():
        progress.enable()
    ways = [way for way in WAYS if way.joined or not processes.joined()]
    with tempfile.TemporaryDirectory() as folder, _parted_at_the_end():
        benches = [Bench(case, Path(folder) / case.backbone, given.epochs) for case in (TINY if given.quick else CASES)]
        for bench, way in turns(benches, ways, given.rounds):
            left = given.seconds - (time.perf_counter() - began)
            if not processes.agreed(bench.expected(way) <= left):
                progress.say(f"No time is left for {bench.case.backbone}, {way.name}.")
                continue
            bench.take_turn(way)
            if processes.first():
                given.folder.mkdir(parents=True, exist_ok=True)
                keep([row for each in benches for row in each.rows()], given.folder / f"{NAME}.csv")
                epochs = {each.case.title: each.seconds for each in benches}
                write_text(given.folder / f"{NAME}.json", json.dumps(epochs, indent=1) + "\n")
    found = [row for bench in benches for row in bench.rows()]
    for row in found:
        share = "" if row.share is None else f" ({row.share:.1%} of alone)"
        progress.say(f"{row.backbone}, {row.way}: {row.images_per_second:,.0f} images/s{share}")
    problems = list(complaints(found))
    for problem in problems:
        progress.say(problem)
    return int(bool(problems))


def turns(benches: Sequence[Bench], ways: Sequence[Way], rounds: int) -> Iterator[tuple[Bench, Way]]:
    """Recorded ways first, since they are what is asked about; ways take turns, as a GPU's clock may drift."""
    for recorded in (True, False):
        for bench in benches:
            for _ in range(rounds):
                yield from ((bench, way) for way in ways if way.device.graphs == recorded)


@contextmanager
def _parted_at_the_end() -> Iterator[None]:
    """Leave the group of processes that a turn may have joined."""
    try:
        yield
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


def complaints(rows: Sequence[Measured]) -> Iterator[str]:
    """Where a group is slow, or a way learns something else than a process alone does."""
    alone = {row.backbone: row for row in rows if row.way == ALONE}
    for row in rows:
        if row.way in ("group", "group, norms apart") and row.share is not None and row.share < ASKED:
            yield f"{row.backbone}, {row.way}: {row.share:.1%} of the rate alone, less than {ASKED:.0%}"
        if row.backbone in alone and abs(row.loss / alone[row.backbone].loss - 1) > TOLERANCE:
            yield f"{row.backbone}, {row.way}: a loss of {row.loss:.4f}, not {alone[row.backbone].loss:.4f}"


class Bench:
    """One network, trained in several ways.

    Attributes:
        seconds: Of every epoch that counts, by way.
    """

    def __init__(self, case: Case, folder: Path, epochs: int) -> None:
        self.case, self.folder, self.epochs = case, folder, epochs
        self.seconds: dict[str, list[float]] = {}
        self._world = processes.count()
        self._table = phantom.read(count=case.steps * case.batch * self._world)
        self._losses: dict[str, float] = {}
        self._lasted: dict[str, float] = {}
        self._turns = self._weights = 0
        self._device = ""

    @cached_property
    def store(self) -> Store:
        """Drawn when the first turn comes."""
        return pack(self._table, self.folder / "store", self.case.size, render=_render)

    def expected(self, way: Way) -> float:
        """Seconds of a turn: as last time, or like the shortest of any way, since the first also chooses algorithms."""
        return self._lasted.get(way.name, min(self._lasted.values(), default=0.0))

    def take_turn(self, way: Way) -> None:
        """Train for an epoch that does not count, and some that do."""
        began = time.perf_counter()
        with a_group_of_one() if way.joined and not processes.joined() else nullcontext():
            device = make_fabric(way.device)
            images = Images(self.store, self._table.ids, device.device)
            settings = FitSettings(
                backbone=self.case.backbone, weights="none", epochs=1 + self.epochs,
                batch=self.case.batch * self._world, augment="light", rate=1e-4, betas=(0.9, 0.999), eps=1e-8,
            )  # fmt: skip
            (network,), history = fit(
                Bce(), images, self._table.values, settings, outputs=len(self._table.classes), fabric=device, seed=0,
                directory=self.folder / f"turn-{self._turns}", what=f"{self.case.backbone}, {way.name}",
            )  # fmt: skip
        self.seconds.setdefault(way.name, []).extend(float(record["seconds"]) for record in history[1:])
        self._losses[way.name] = float(history[-1]["loss"])
        self._weights = sum(weight.numel() for weight in network.parameters())
        self._turns, self._device = self._turns + 1, device_name(device.device)
        self._lasted[way.name] = time.perf_counter() - began

    def rows(self) -> list[Measured]:
        """What is known so far: a row for each way that has had a turn."""
        rates = {name: len(self._table) / statistics.median(each) for name, each in self.seconds.items()}
        alone = self._world * rates[ALONE] if ALONE in rates else None
        return [
            Measured(
                self._device, datetime.datetime.now(datetime.UTC).date().isoformat(), metadata.version("torch"),
                self.case.backbone, self.case.size, self.case.batch, self._world, name, self._weights, rate,
                None if alone is None else rate / alone, self._losses[name],
            )
            for name, rate in rates.items()
        ]  # fmt: skip


@contextmanager
def a_group_of_one() -> Iterator[None]:
    """What `torchrun --nproc-per-node 1` would set; the group itself stays when the block is left."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    one = {"TORCHELASTIC_RUN_ID": NAME, "WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}
    with patch.dict(os.environ, {**one, "MASTER_ADDR": "localhost", "MASTER_PORT": port}):
        yield


def keep(rows: Sequence[Measured], path: Path) -> None:
    """Write rows into a file; those of the same device, network, number of processes and way are replaced."""
    names = list(Measured.__dataclass_fields__)
    new = [{name: "" if value is None else str(value) for name, value in asdict(_rounded(row)).items()} for row in rows]
    same = ("device", "backbone", "size", "batch", "processes", "way")
    replaced = {tuple(row[name] for name in same) for row in new}
    old = read_rows(path)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows([*(row for row in old if tuple(row[name] for name in same) not in replaced), *new])
    write_text(path, stream.getvalue())


def _rounded(row: Measured) -> Measured:
    share = None if row.share is None else round(row.share, 4)
    return replace(row, images_per_second=round(row.images_per_second, 1), share=share, loss=round(row.loss, 6))


def _render(ids: Text, size: int) -> NDArray[np.uint8]:
    return phantom.render(ids, size, device="cuda" if torch.cuda.is_available() else "cpu").cpu().numpy()


if __name__ == "__main__":
    sys.exit(main())
