"""The paper's schedule on phantoms: 20 epochs of descriptors and 30 of the classifier, in as many sittings as it takes.

    python -m evidence.studies.schedule --work /tmp/schedule --bag bag --seconds 500
    python -m evidence.studies.schedule --length 0.2 ...      # a fifth of all epochs
    python -m evidence.studies.schedule --jobs 3 ...          # three of the six at once, on one GPU
    python -m evidence.studies.schedule --size 512 --images 20000 --length 0.1 --methods bomd --noise symmetric ...

Every method learns from 83,672 phantoms at 224 px with either noise. It is the recipe `nih` but for what phantoms need:
no ImageNet weights, hence another rate, Adam's usual constants and a cosine for the classifier; larger batches; class
vectors that the package ships. What is finished is a row of `results/schedule.csv`.

When `--seconds` are over, the sitting ends after at most one epoch of each job in vain. The same command goes on with
what is in `--work`. On another machine, which has nothing of that, it goes on with what is in `--bag`: labels of runs
under way, and one network under way in pieces of 15 MB. To be that small its moments are rounded to bfloat16, so
that a fit which changed machines is not, digit by digit, one that did not. Images are drawn anew. What has a row of the
same device in `--out` is not done again.

With `--jobs` each run has a process, one of them draws the images while the others wait, and what a process says is in
`logs` in `--work`. A row tells how many ran at once at most: the seconds of such runs are not those of one alone. Of
several networks under way the bag takes one, which was trained longest; on another machine the others begin anew, from
labels as far as those were made.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bomd import progress
from bomd.config import Config, DeviceSettings, parse
from bomd.experiments import experiment
from bomd.experiments.workers import Event, work
from bomd.files import read_json
from bomd.methods import METHODS
from bomd.networks.device import make_fabric
from bomd.recipes import find_recipe
from bomd.runs import Run, locate, measure_anew
from evidence import RESULTS
from evidence.rows import add_row, read_rows
from evidence.studies import bag

TABLE = RESULTS / "schedule.csv"
NOISES = {
    "symmetric": {"kind": "symmetric", "rows": 0.2, "labels": 0.2},
    "report mining": {"kind": "report_mining"},
}
OURS = {"bce": "bce", "bomd": f"{bag.__name__}:KeptBomd", "bomd-plus": f"{bag.__name__}:KeptBomdPlus"}
NAMED = ("method", "noise", "images", "size", "backbone", "batch", "length")  # columns that say what was asked for
IMAGES, SIZE = 83_672, 224
TEST = 5_000  # images of each test set


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
        epochs = epochs_of(length)
        test = {
            place: {"dataset": "phantom", "hospital": place, "split": "test", "count": min(TEST, images)}
            for place in ("north", "south")
        }
        plain = {"weights": "none", "rate": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "schedule": "cosine"}
        values = {
            **recipe,
            "name": self.name,
            "method": OURS[self.method],
            "images": {"size": size},
            "train": {"dataset": "phantom", "count": images},
            "test": test,
            "noise": NOISES[self.noise],
            "fit": {**recipe["fit"], **plain, "epochs": epochs["fit"], **fit},
            "bomd": {**recipe["bomd"], "language": "auto", "batch": fit["batch"], "epochs": epochs["bomd"]},
        }
        return parse(values, METHODS)


def epochs_of(length: float) -> dict[str, int]:
    """Epochs of the classifier, "fit", and of the descriptors, "bomd", for this share of the paper's."""
    recipe = tomllib.loads(find_recipe("nih").read_text(encoding="utf-8"))
    return {part: max(1, round(length * recipe[part]["epochs"])) for part in ("fit", "bomd")}


def row_of(task: Task, run: Run, length: float, seconds: float, jobs: int) -> dict[str, Any]:
    """What is recorded of a finished run; its seconds of training are those of all sittings."""
    result, environment, config = run.result(), read_json(run.directory / "environment.json"), run.config()
    stages: dict[str, float] = {}
    for line in (run.directory / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        epoch = json.loads(line)
        stages[epoch["stage"]] = stages.get(epoch["stage"], 0.0) + epoch["seconds"]
    aucs = {f"auc_{name}": f"{test['mean_auc']:.4f}" for name, test in result["tests"].items()}
    found = result["detection"]  # nothing where a method has no opinion about labels
    return {
        "device": environment["device"],
        "method": task.method,
        "noise": task.noise,
        "images": result["images"]["train"],
        "size": config["images"]["size"],
        "backbone": config["fit"]["backbone"],
        "batch": config["fit"]["batch"],
        "length": f"{length:g}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "jobs": jobs,
        "seconds_training": "; ".join(f"{what} {taken:.1f}" for what, taken in stages.items()),
        "seconds_last_sitting": f"{seconds:.1f}",
        "peak_mb": environment["peak_memory_mb"],
        "peak_gpu_mb": environment["peak_gpu_memory_mb"] or "",
        **aucs,
        "wrong_labels_ap": f"{found['entry_ap']:.4f}" if found else "",
        "said": " ".join(result["notes"]),
    }


def in_turn(configs: Sequence[Config], root: Path) -> Generator[Event, None, None]:
    """Do these runs in this process, and tell of them as `bomd.experiments.workers.work` does."""
    for place, config in enumerate(configs):
        yield Event(place, "running")
        measure_anew()
        experiment.run(config, root)
        yield Event(place, "finished")


def do(tasks: Sequence[Task], chosen: argparse.Namespace, say: Callable[[str], None]) -> bool:
    """Do what has no row yet, several at once if asked; whether all of it came to an end."""
    fit = {"backbone": chosen.backbone, "batch": chosen.batch}
    configs = [task.config(chosen.images, chosen.size, chosen.length, fit) for task in tasks]
    at_once, began, failed = min(chosen.jobs, len(tasks)), {}, False
    events = work(configs, chosen.work, at_once) if at_once > 1 else in_turn(configs, chosen.work)
    with closing(events):  # which ends the processes
        for event in events:
            task, config = tasks[event.place], configs[event.place]
            most = bag.most_at_once(chosen.bag, f"{task.name}-{config.key}", at_once)
            if event.state == "running":
                began[event.place] = time.perf_counter()
                say(f"{task.name} is under way.")
            elif event.state == "failed":
                failed = True
                say(f"{task.name} failed: {event.reason}")
            else:
                seconds = time.perf_counter() - began[event.place]
                add_row(chosen.out, row_of(task, locate(chosen.work, config), chosen.length, seconds, most))
                say(f"{task.name} is done.")
    return not failed


def last_said(root: Path, since: float) -> list[str]:
    """What each process has said of its present run, for those that said something since then."""
    said = []
    for log in sorted((root / "logs").glob("*.log")):
        if log.stat().st_mtime >= since:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            first = max((number for number, line in enumerate(lines) if ", seed " in line), default=0)
            said += [f"{log.stem}: {line}" for line in lines[first:]]
    return said


def main(given: Sequence[str] | None = None, say: Callable[[str], None] = print) -> int:
    """3 if the time was over before all was done, 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="images, stages and runs")
    parser.add_argument("--bag", type=Path, required=True, help="what another machine needs to go on")
    parser.add_argument("--seconds", type=float, default=0, help="end after so many; 0 never")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once, each in a process")
    parser.add_argument("--length", type=float, default=1.0, help="share of all epochs")
    parser.add_argument("--methods", default=",".join(OURS))
    parser.add_argument("--noise", default=",".join(NOISES))
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--backbone", default="densenet121")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--out", type=Path, default=TABLE)
    chosen = parser.parse_args(given)
    progress.enable()
    chosen.bag.mkdir(parents=True, exist_ok=True)
    os.environ[bag.PLACE] = str(chosen.bag.resolve())
    started = time.time()
    device, length = experiment.device_name(make_fabric(DeviceSettings())), f"{chosen.length:g}"
    before = signal.signal(signal.SIGALRM, _time_is_up)
    signal.setitimer(signal.ITIMER_REAL, chosen.seconds)
    try:
        stage = bag.take_from_bag(chosen.bag, chosen.work)
        if stage is not None:
            say(f"From the bag: {stage}")
        ready = [[_kind(row["device"]), *(row[name] for name in NAMED)] for row in read_rows(chosen.out)]
        asked = [Task(method, noise) for noise in chosen.noise.split(",") for method in chosen.methods.split(",")]
        left = []
        for task in asked:
            sizes = [str(chosen.images), str(chosen.size), chosen.backbone, str(chosen.batch), length]
            named = [task.method, task.noise, *sizes]
            if [_kind(device), *named] in ready:
                say(f"{task.name} is in {chosen.out}.")
            else:
                left.append(task)
        return 0 if do(left, chosen, say) else 1
    except TimeUp:
        for line in last_said(chosen.work, started):
            say(line)
        say(f"The time is over; into the bag: {bag.put_into_bag(chosen.work, chosen.bag) or 'no network'}")
        return 3
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _kind(device: str) -> str:
    """A device without the number of its threads: of a CPU's cores several jobs have a share each."""
    return device.split(",")[0]


def _time_is_up(*_: object) -> None:
    raise TimeUp


if __name__ == "__main__":
    sys.exit(main())
