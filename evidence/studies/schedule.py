"""The paper's schedule on phantoms: 20 epochs of descriptors and 30 of the classifier, in as many sittings as it takes.

    python -m evidence.studies.schedule --work /tmp/schedule --bag bag --seconds 500
    python -m evidence.studies.schedule --length 0.2 ...      # a fifth of all epochs

Every method learns from 83,672 phantoms at 224 px with either noise. It is the recipe `nih` but for what phantoms need:
no ImageNet weights, hence another rate, Adam's usual constants and a cosine for the classifier; batches of 64; class
vectors that the package ships. What is finished is a row of `results/schedule.csv`.

When `--seconds` are over, the sitting ends after at most one epoch in vain. The same command goes on with what is in
`--work`. On another machine, which has nothing of that, it goes on with what is in `--bag`: labels that a method has
made, and the network under way in pieces of 15 MB. To be that small its moments are rounded to bfloat16, so that a fit
which changed machines is not, digit by digit, one that did not. Images are drawn anew. What has a row of
the same device in `--out` is not done again.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bomd import progress
from bomd.config import Config, DeviceSettings, parse
from bomd.experiments import experiment
from bomd.files import fingerprint, read_arrays, read_json, replacing, write_arrays, write_json, write_text
from bomd.methods import METHODS
from bomd.methods.base import Context, Prepared
from bomd.methods.bomd import Bomd
from bomd.methods.bomd_plus import BomdPlus
from bomd.networks.device import make_fabric
from bomd.recipes import find_recipe
from bomd.reports.sheet import rows_to_csv
from bomd.runs import Run, measure_anew
from bomd.tables import Flags, LabelTable
from evidence import RESULTS
from evidence.rows import read_rows

TABLE = RESULTS / "schedule.csv"
NOISES = {
    "symmetric": {"kind": "symmetric", "rows": 0.2, "labels": 0.2},
    "report mining": {"kind": "report_mining"},
}
OURS = {"bce": "bce", "bomd": f"{__name__}:KeptBomd", "bomd-plus": f"{__name__}:KeptBomdPlus"}
NAMED = ("device", "method", "noise", "images", "size", "backbone", "length")  # columns of what was asked for
PIECE = 15_000_000  # bytes
TEST = 5_000  # images of each test set
CHECKPOINT = "checkpoint.pt"
_bag = Path()  # where prepared labels are; methods are made by name and cannot be told


class TimeUp(KeyboardInterrupt):
    """The sitting is over; nothing on the way is to catch it."""


@dataclass(frozen=True)
class Task:
    """One method and one noise."""

    method: str
    noise: str

    @property
    def name(self) -> str:
        return f"{self.method}-{self.noise.replace(' ', '-')}"

    def config(self, images: int, size: int, length: float, fit: dict[str, Any]) -> Config:
        """The recipe `nih` with what phantoms need."""
        recipe = tomllib.loads(find_recipe("nih").read_text(encoding="utf-8"))
        epochs = {part: max(1, round(length * recipe[part]["epochs"])) for part in ("fit", "bomd")}
        test = {
            place: {"dataset": "phantom", "hospital": place, "split": "test", "count": min(TEST, images)}
            for place in ("north", "south")
        }
        plain = {"weights": "none", "rate": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "schedule": "cosine", "batch": 64}
        values = {
            **recipe,
            "name": self.name,
            "method": OURS[self.method],
            "images": {"size": size},
            "train": {"dataset": "phantom", "count": images},
            "test": test,
            "noise": NOISES[self.noise],
            "fit": {**recipe["fit"], **plain, "epochs": epochs["fit"], **fit},
            "bomd": {**recipe["bomd"], "language": "auto", "batch": 64, "epochs": epochs["bomd"]},
        }
        return parse(values, METHODS)


class KeptBomd(Bomd):
    """`bomd`, whose new labels travel."""

    variant_of = "bomd"

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        return once("bomd", train, context, super().prepare)


class KeptBomdPlus(BomdPlus):
    """`bomd-plus`, whose new labels travel."""

    variant_of = "bomd-plus"

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        found = once("bomd-plus", train, context, super().prepare)
        self.weights = torch.as_tensor(found.weights, device=context.fabric.device)
        return found


def once(
    name: str, train: LabelTable, context: Context, prepare: Callable[[LabelTable, Context], Prepared]
) -> Prepared:
    """What a method prepares, as it is kept in the bag, whether this sitting or an earlier one has prepared it."""
    path = _bag / f"prepared-{name}-{fingerprint(train.ids, train.values, context.fit, context.seed)}.npz"
    if not path.exists():
        found = prepare(train, context)
        assert found.flags is not None
        arrays = {"targets": found.targets, "scores": found.scores, "weights": found.weights}
        flags = {"noisy": found.flags.noisy, "margin": found.flags.margin, "entry": found.flags.entry}
        write_arrays(path, {key: value for key, value in (arrays | flags).items() if value is not None})
        write_json(path.with_suffix(".json"), {"history": found.history, "notes": list(found.notes)})
    kept, told = read_arrays(path), read_json(path.with_suffix(".json"))
    flags_again = Flags(train.ids, kept["noisy"], kept["margin"], kept["entry"])
    return Prepared(
        kept["targets"], flags_again, None, kept.get("scores"), told["history"], tuple(told["notes"]),
        weights=kept.get("weights"),
    )  # fmt: skip


def put_into_bag(stages: Path, bag: Path) -> str | None:
    """Keep the network that was trained last in pieces; its stage, or None where there is none."""
    newest = max(stages.glob(f"*/{CHECKPOINT}"), key=lambda file: file.stat().st_mtime_ns, default=None)
    for old in bag.glob("network.*"):
        old.unlink()
    if newest is None or (newest.parent / "finished.json").exists():
        return None
    state = torch.load(newest, map_location="cpu", weights_only=True)
    _round_moments(state["optimiser"], torch.bfloat16)
    stream = io.BytesIO()
    torch.save({"stage": newest.parent.name, "state": state}, stream)
    content = stream.getvalue()
    for number, start in enumerate(range(0, len(content), PIECE)):
        with replacing(bag / f"network.{number}") as temporary:
            temporary.write_bytes(content[start : start + PIECE])
    return newest.parent.name


def take_from_bag(bag: Path, stages: Path) -> str | None:
    """Put the network back where its training goes on, unless that has gone on there since; its stage."""
    pieces = sorted(bag.glob("network.*"), key=lambda file: int(file.suffix[1:]))
    if not pieces:
        return None
    found = torch.load(io.BytesIO(b"".join(piece.read_bytes() for piece in pieces)), weights_only=True)
    stage, state = str(found["stage"]), found["state"]
    if not re.fullmatch(r"[a-z-]+-[0-9a-f]+", stage):
        raise SystemExit(f"{bag} names no stage, but {stage!r}.")
    path = stages / stage / CHECKPOINT
    if not path.exists():
        _round_moments(state["optimiser"], torch.float32)
        with replacing(path) as temporary:
            torch.save(state, temporary)
    return stage


def _round_moments(optimiser: dict[str, Any], kind: torch.dtype) -> None:
    for moments in optimiser["state"].values():
        for name, value in moments.items():
            if name != "step":
                moments[name] = value.to(kind)


def row_of(task: Task, run: Run, length: float, seconds: float) -> dict[str, Any]:
    """What is recorded of a finished run."""
    result, environment, config = run.result(), read_json(run.directory / "environment.json"), run.config()
    stages: dict[str, float] = {}
    for line in (run.directory / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        epoch = json.loads(line)
        stages[epoch["stage"]] = stages.get(epoch["stage"], 0.0) + epoch["seconds"]
    aucs = {f"auc_{name}": f"{test['mean_auc']:.4f}" for name, test in result["tests"].items()}
    return {
        "device": environment["device"],
        "method": task.method,
        "noise": task.noise,
        "images": result["images"]["train"],
        "size": config["images"]["size"],
        "backbone": config["fit"]["backbone"],
        "length": f"{length:g}",
        "seconds_training": "; ".join(f"{what} {taken:.1f}" for what, taken in stages.items()),
        "seconds_last_sitting": f"{seconds:.1f}",
        "peak_mb": environment["peak_memory_mb"],
        "peak_gpu_mb": environment["peak_gpu_memory_mb"] or "",
        **aucs,
    }


def main(given: Sequence[str] | None = None, say: Callable[[str], None] = print) -> int:
    """3 if the time was over before all was done."""
    global _bag
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="images, stages and runs")
    parser.add_argument("--bag", type=Path, required=True, help="what another machine needs to go on")
    parser.add_argument("--seconds", type=float, default=0, help="end after so many; 0 never")
    parser.add_argument("--length", type=float, default=1.0, help="share of all epochs")
    parser.add_argument("--methods", default=",".join(OURS))
    parser.add_argument("--noise", default=",".join(NOISES))
    parser.add_argument("--images", type=int, default=83_672)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--backbone", default="densenet121")
    parser.add_argument("--out", type=Path, default=TABLE)
    chosen = parser.parse_args(given)
    progress.enable()
    _bag = chosen.bag
    _bag.mkdir(parents=True, exist_ok=True)
    stages = chosen.work / "stages"
    device, length = experiment.device_name(make_fabric(DeviceSettings())), f"{chosen.length:g}"
    before = signal.signal(signal.SIGALRM, _time_is_up)
    signal.setitimer(signal.ITIMER_REAL, chosen.seconds)
    try:
        stage = take_from_bag(_bag, stages)
        if stage is not None:
            say(f"From the bag: {stage}")
        for noise in chosen.noise.split(","):
            for method in chosen.methods.split(","):
                task, began = Task(method, noise), time.perf_counter()
                asked = [device, method, noise, str(chosen.images), str(chosen.size), chosen.backbone, length]
                if asked in [[row[name] for name in NAMED] for row in read_rows(chosen.out)]:
                    say(f"{task.name} is in {chosen.out}.")
                    continue
                measure_anew()
                config = task.config(chosen.images, chosen.size, chosen.length, {"backbone": chosen.backbone})
                run = experiment.run(config, chosen.work)
                row = row_of(task, run, chosen.length, time.perf_counter() - began)
                write_text(chosen.out, rows_to_csv([*read_rows(chosen.out), row]))
                say(f"{task.name} is done.")
    except TimeUp:
        say(f"The time is over; into the bag: {put_into_bag(stages, _bag) or 'no network'}")
        return 3
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return 0


def _time_is_up(*_: object) -> None:
    raise TimeUp


if __name__ == "__main__":
    sys.exit(main())
