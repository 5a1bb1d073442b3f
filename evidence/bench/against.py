"""Training by this checkout against the same by another one, on a GPU: is a change of the kernels worth having?

    git worktree add /tmp/before COMMIT
    python -m evidence.bench.against /tmp/before --results results/speed.csv

Each has processes of its own that import its sources alone, in turn. In a process every case is trained twice, and the
last epoch of each time counts: the first pays for algorithms being chosen and steps recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from bomd.errors import InputError
from evidence.bench import table

HERE = Path(__file__).parents[2]
# What it imports has to be in both checkouts. Phantoms are drawn small and enlarged, since nobody looks at them.
TRAINING = """
import json, sys, tempfile
from pathlib import Path
import bomd
if not Path(bomd.__file__).is_relative_to(sys.argv[2]):
    sys.exit(f"{bomd.__file__} was imported.")
import torch
from bomd.config import DeviceSettings, FitSettings
from bomd.data.batches import Images
from bomd.data.datasets import phantom
from bomd.data.store import pack
from bomd.learn.engine import fit
from bomd.methods.bce import Bce
from bomd.networks.device import make_fabric
fabric = make_fabric(DeviceSettings())
def render(ids, side):
    small = phantom.render(ids, min(side, 128), device=fabric.device.type)
    large = torch.nn.functional.interpolate(small[:, None].float(), side, mode="bilinear")[:, 0]
    return large.clamp(0, 255).byte().cpu().numpy()
rates = []
for backbone, size, batch, steps in json.loads(sys.argv[1]):
    table = phantom.read(count=steps * batch)
    settings = FitSettings(
        backbone=backbone, weights="none", epochs=2, batch=batch, augment="paper", rate=1e-4, eps=1e-8
    )
    with tempfile.TemporaryDirectory() as folder:
        images = Images(pack(table, Path(folder) / "images", size, render=render), table.ids, fabric.device)
        own = []
        for time in ("first", "second"):
            _, history = fit(
                Bce(), images, table.values, settings, outputs=len(table.classes), fabric=fabric, seed=0,
                directory=Path(folder) / time, what=time,
            )
            own.append(steps * batch / history[-1]["seconds"])
    rates.append(own)
print(json.dumps(rates))
"""


@dataclass(frozen=True)
class Case:
    """What is trained."""

    backbone: str
    size: int
    batch: int
    steps: int


CASES = (Case("densenet121", 512, 64, 60), Case("densenet121", 224, 128, 60))
TINY = (Case("small", 32, 4, 2),)


def item(size: int, batch: int) -> str:
    """What a row is called."""
    return f"training at {size} px, batch {batch}, against an earlier version"


def rates(checkout: Path, cases: Sequence[Case]) -> list[list[float]]:
    """Images a second of each case, both times, by the sources in this folder."""
    work = json.dumps([[case.backbone, case.size, case.batch, case.steps] for case in cases])
    sources = str(checkout / "src")
    path = os.pathsep.join(filter(None, [sources, os.environ.get("PYTHONPATH")]))  # "" would be the present folder
    done = subprocess.run(
        [sys.executable, "-P", "-c", TRAINING, work, sources],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}, check=False,
    )  # fmt: skip
    if done.returncode:
        raise InputError(f"Training by {sources} failed; what it said is above.")
    found: list[list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(other: Path, cases: Sequence[Case], rounds: int) -> list[table.Row]:
    """A row for each case."""
    ours: list[list[float]] = [[] for _ in cases]
    theirs: list[list[float]] = [[] for _ in cases]
    for _ in range(rounds):
        for checkout, kept in ((HERE, ours), (other, theirs)):
            for own, found in zip(kept, rates(checkout, cases), strict=True):
                own += found
    before = f"the same by {version(other)}"
    return [
        table.Row(
            item(case.size, case.batch), "images/s", statistics.median(own), statistics.median(older), before,
            remark=f"{case.backbone} with augmentation; second epochs of {case.steps} steps, "
            f"{_listed(own)} against {_listed(older)}",
        )
        for case, own, older in zip(cases, ours, theirs, strict=True)
    ]  # fmt: skip


def version(checkout: Path) -> str:
    """Its commit, or the folder's name where git knows nothing of it."""
    asked = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    return f"commit {found.stdout.strip()}" if found.returncode == 0 else checkout.name


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:,.0f}" for number in numbers)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m evidence.bench.against", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("other", type=Path, help="a folder with another version of this project")
    parser.add_argument("--rounds", type=int, default=2, help="processes of each version, in turn")
    parser.add_argument("--results", type=Path, help="a CSV of timings to write the rows into")
    parser.add_argument("--quick", action="store_true", help="a tiny size, to see that everything runs")
    chosen = parser.parse_args(given)
    other = chosen.other.resolve()
    if not (other / "src" / "bomd").is_dir():
        raise InputError(f"{chosen.other} has no src/bomd: give the folder of another checkout.")
    if not chosen.quick and not torch.cuda.is_available():
        raise InputError("PyTorch sees no GPU here; --quick shows that everything runs.")
    rows = compared(other, TINY if chosen.quick else CASES, chosen.rounds)
    device = table.device_name(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    if chosen.results is not None:
        table.keep(rows, device, chosen.results)
    table.show(rows, device)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(str(error))
