"""What exchanges between processes cost: the same training alone and in a group, recorded and step by step, in one run.

    python -m evidence.bench.several_gpus FOLDER                              # one GPU, alone and as a group of one
    torchrun --nproc-per-node 8 -m evidence.bench.several_gpus FOLDER         # several GPUs

FOLDER gets `several-gpus.csv` and `several-gpus.json`, which has every epoch. A group of one exchanges with itself all
that a larger group does: it shows that a recorded step can hold the exchanges, and what they cost besides the way over
the wire. Of several processes each has as many images in a step as one alone has. Rows of other measurements stay.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import io
import json
import os
import socket
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
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
from bomd.data.store import pack
from bomd.files import write_text
from bomd.learn.engine import fit
from bomd.methods.bce import Bce
from bomd.networks.device import make_fabric
from bomd.tables import Text
from evidence.bench.table import device_name

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
    parser = argparse.ArgumentParser(prog="python -m evidence.bench.several_gpus", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=2, help="how often each way has its turn")
    parser.add_argument("--epochs", type=int, default=3, help="that count in each turn, after one that does not")
    parser.add_argument("--quick", action="store_true", help="a tiny size, to see that everything runs")
    given = parser.parse_args(arguments)
    if processes.first():
        progress.enable()
    found: list[Measured] = []
    epochs: dict[str, dict[str, list[float]]] = {}
    try:
        for case in TINY if given.quick else CASES:
            ways = [way for way in WAYS if way.joined or not processes.joined()]
            rows, seconds = measure(case, ways, given.rounds, given.epochs)
            found += rows
            epochs[f"{case.backbone}, {case.size} px, batch {case.batch}"] = seconds
            for row in rows:
                share = "" if row.share is None else f" ({row.share:.1%} of alone)"
                progress.say(f"{row.backbone}, {row.way}: {row.images_per_second:,.0f} images/s{share}")
            if processes.first():
                given.folder.mkdir(parents=True, exist_ok=True)
                keep(rows, given.folder / f"{NAME}.csv")
                write_text(given.folder / f"{NAME}.json", json.dumps(epochs, indent=1) + "\n")
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
    problems = list(complaints(found))
    for problem in problems:
        progress.say(problem)
    return int(bool(problems))


def complaints(rows: Sequence[Measured]) -> Iterator[str]:
    """Where a group is slow, or a way learns something else than a process alone does."""
    alone = {row.backbone: row for row in rows if row.way == ALONE}
    for row in rows:
        if row.way in ("group", "group, norms apart") and row.share is not None and row.share < ASKED:
            yield f"{row.backbone}, {row.way}: {row.share:.1%} of the rate alone, less than {ASKED:.0%}"
        if row.backbone in alone and abs(row.loss / alone[row.backbone].loss - 1) > TOLERANCE:
            yield f"{row.backbone}, {row.way}: a loss of {row.loss:.4f}, not {alone[row.backbone].loss:.4f}"


def measure(case: Case, ways: Sequence[Way], rounds: int, epochs: int) -> tuple[list[Measured], dict[str, list[float]]]:
    """A row for each way, and the seconds of every epoch that counts; ways take turns, as a GPU's clock may drift."""
    seconds: dict[str, list[float]] = {way.name: [] for way in ways}
    losses, weights = {}, 0
    world = processes.count()
    count = case.steps * case.batch * world
    table = phantom.read(count=count)
    with tempfile.TemporaryDirectory() as folder:
        store = pack(table, Path(folder) / "store", case.size, render=_render)
        for turn in range(rounds):
            for way in ways:
                with a_group_of_one() if way.joined and not processes.joined() else nullcontext():
                    device = make_fabric(way.device)
                    images = Images(store, table.ids, device.device)
                    settings = FitSettings(
                        backbone=case.backbone, weights="none", epochs=1 + epochs, batch=case.batch * world,
                        augment="light", rate=1e-4, betas=(0.9, 0.999), eps=1e-8,
                    )  # fmt: skip
                    (network,), history = fit(
                        Bce(), images, table.values, settings, outputs=len(table.classes), fabric=device, seed=0,
                        directory=Path(folder) / f"{way.name}-{turn}", what=f"{case.backbone}, {way.name}",
                    )  # fmt: skip
                seconds[way.name] += [float(record["seconds"]) for record in history[1:]]
                losses[way.name] = float(history[-1]["loss"])
                weights = sum(weight.numel() for weight in network.parameters())
    rates = {name: count / statistics.median(each) for name, each in seconds.items()}
    rows = [
        Measured(
            device_name(device.device), datetime.datetime.now(datetime.UTC).date().isoformat(),
            metadata.version("torch"), case.backbone, case.size, case.batch, world, way.name, weights,
            rates[way.name], rates[way.name] / (world * rates[ALONE]) if ALONE in rates else None, losses[way.name],
        )
        for way in ways
    ]  # fmt: skip
    return rows, seconds


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
    old = read(path)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows([*(row for row in old if tuple(row[name] for name in same) not in replaced), *new])
    write_text(path, stream.getvalue())


def read(path: Path) -> list[dict[str, str]]:
    """What `keep` wrote; nothing where there is no file."""
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))) if path.exists() else []


def _rounded(row: Measured) -> Measured:
    share = None if row.share is None else round(row.share, 4)
    return replace(row, images_per_second=round(row.images_per_second, 1), share=share, loss=round(row.loss, 6))


def _render(ids: Text, size: int) -> NDArray[np.uint8]:
    return phantom.render(ids, size, device="cuda" if torch.cuda.is_available() else "cpu").cpu().numpy()


if __name__ == "__main__":
    sys.exit(main())
