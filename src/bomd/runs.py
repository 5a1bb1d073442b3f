"""Run directories and finished stages: what was computed, from which settings, and whether it is complete.

    runs/demo/bomd/seed0-3fa91c/          config.json, environment.json, metrics.jsonl, labels.npz,
                                          predictions.npz, examples.npz, model/, result.json
    runs/demo/bomd/seed0-3fa91c-8e02d1/   the same settings after labels or images were changed
    runs/stages/descriptors-81e0/         whatever the stage wrote, and finished.json

A stage is named by the fingerprint of everything it depends on, its code among it, so a changed setting or method
finds no old stage, and runs that agree on a stage (BoMD with another lambda) share it. `result.json` and
`finished.json` are written last: without them the work is taken up again where it stopped. Labels and pictures of
people are in there, so that the owner alone may look inside.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from bomd import processes, progress
from bomd.config import Config
from bomd.errors import InputError
from bomd.files import fingerprint, make_private, read_json, write_json, write_text
from bomd.sources import code_of
from bomd.version import VERSION

FORMAT = 1  # raised whenever a file in a run or stage directory changes its meaning

Data = dict[str, dict[str, Any]]  # name of a set -> fingerprints of its "labels", "files" and packed "images"

_at_once = 1


@dataclass(frozen=True)
class Run:
    """One run directory."""

    directory: Path

    @property
    def finished(self) -> bool:
        return (self.directory / "result.json").exists()

    @property
    def asked(self) -> int:
        """When it was last asked for; higher is later."""
        path = self.directory / "config.json"
        return path.stat().st_mtime_ns if path.exists() else 0

    def saved(self) -> dict[str, Any]:
        """What was written when the run was started: format, code, settings and data."""
        saved = _read_table(self.directory / "config.json")
        if (found := saved.get("format")) != FORMAT:
            raise InputError(
                f"{self.directory} was written by another version of bomd (format {found}, this one reads {FORMAT}). "
                "Move it away and run again."
            )
        return saved

    def config(self) -> dict[str, Any]:
        """Every resolved setting, as saved."""
        config = self.saved().get("config")
        if not isinstance(config, dict):
            raise InputError(f"{self.directory / 'config.json'} is damaged: it holds no settings. Run it again.")
        return config

    def data(self) -> Data | None:
        """The state of labels and images that it was made from; None for a run that does not say."""
        data = self.saved().get("data")
        return data if isinstance(data, dict) and all(isinstance(part, dict) for part in data.values()) else None

    @property
    def code(self) -> str:
        """The code that it was started with, as `bomd.sources` tells it."""
        return str(self.saved().get("code"))

    def result(self) -> dict[str, Any]:
        """What came of it, as saved; `bomd.experiments.recorded.Record` has it by name and type."""
        self.config()
        if not self.finished:
            raise InputError(f"{self.directory} has no result.json: the run is not finished. Run it again.")
        return _read_table(self.directory / "result.json")

    def environment(self) -> dict[str, Any]:
        """Where and how it was made."""
        return _read_table(self.directory / "environment.json")


def _read_table(path: Path) -> dict[str, Any]:
    """A JSON object; whatever else the file may hold is an error."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise InputError(f"{path} is damaged: it holds a {type(found).__name__}, not a table. Run it again.")
    return found


def locate(root: Path, config: Config, data: Data | None = None) -> Run:
    """The directory of a run, whether it exists or not; the same settings and data always give the same one.

    Args:
        data: The state of labels and images. Where the settings have a finished run already that was made from
            another state, this one gets a directory of its own. Without it: the finished run that was asked for last.
    """
    method = config.method.replace(":", ".")  # of a method from outside; not every system allows it in a name
    first = Run(root / config.name / method / f"seed{config.seed}-{config.key[:6]}")
    name = first.directory.name
    others = sorted(first.directory.parent.glob(f"{name}-*")) if first.directory.parent.is_dir() else []
    known = [first, *map(Run, others)]
    if data is None:
        return max((run for run in known if run.finished), key=lambda run: run.asked, default=first)
    new = Run(first.directory.with_name(f"{name}-{fingerprint(data)[:6]}"))
    return next((run for run in known if not run.finished or same_data(run.data(), data)), new)


def same_data(before: Data | None, now: Data) -> bool:
    """Whether labels and images are what they were; a run that does not say is believed.

    Pixels decide where both are known, so that files may be copied and touched.
    """
    if before is None:
        return True
    if set(before) != set(now):
        return False
    for name, part in now.items():
        known = "images" if part.get("images") and before[name].get("images") else "files"
        if any(before[name].get(key) != part.get(key) for key in ("labels", known)):
            return False
    return True


def start(root: Path, config: Config, data: Data | None = None, code: str = "") -> Run:
    """Make or find the directory of a run, and write down what it is made from: settings, data and code."""
    run = locate(root, config, data)
    if run.finished and data is None:
        return run
    make_private(run.directory)
    saved = run.saved() if (run.directory / "config.json").exists() else {}
    known = run.data() if run.finished else data
    if data is not None and known is not None:  # what a run of an older version was made from, nobody knows
        now = {name: {key: state for key, state in part.items() if state is not None} for name, part in data.items()}
        saved["data"] = {name: known[name] | part for name, part in now.items()}
    if not run.finished:
        saved |= {"format": FORMAT, "code": code, "config": config.to_dict()}
    write_json(run.directory / "config.json", saved)  # also if it is finished: of several, the last asked for counts
    return run


def remember_images(run: Run, store: Path, size: int, state: str) -> None:
    """Write down where the packed images of a run are, and which they are, for those who look at them later."""
    place = str(store.resolve())
    with suppress(ValueError):  # on Windows nothing leads from one drive to another
        place = os.path.relpath(place, run.directory.resolve())
    write_json(run.directory / "images.json", {"store": place, "size": size, "fingerprint": state})


def run_of_audit(place: Path) -> Path | None:
    """The latest run of an audit's folder; None for any other folder, or where it was taken away."""
    facts = read_json(place / "audit.json") if (place / "audit.json").is_file() else None
    run = place / str(facts.get("run")) if isinstance(facts, dict) else place
    return run if run != place and run.is_dir() and run.resolve().is_relative_to(place.resolve()) else None


def find(places: list[Path]) -> list[Run]:
    """The finished runs in these run directories, or anywhere below these folders."""
    found: list[Run] = []
    for place in places:
        if not place.exists():
            raise InputError(f"No such run or folder: {place}.")
        below = (Run(file.parent) for file in sorted(place.glob("**/result.json")))
        found += [Run(place)] if (place / "config.json").exists() else _latest(_shown(place, below))
    if not found:
        raise InputError(f"No finished run in {', '.join(map(str, places))}.")
    return found


def _shown(place: Path, runs: Iterable[Run]) -> Iterator[Run]:
    """All but earlier runs of audits: labels are part of an audit's settings, so that the name does not tell them."""
    latest = [shown for file in place.glob("**/audit.json") if (shown := run_of_audit(file.parent)) is not None]
    of_audit = {shown.parent.parent: shown for shown in latest}  # by the folder for all methods
    for run in runs:
        if of_audit.get(run.directory.parent.parent, run.directory) == run.directory:
            yield run


def _latest(runs: Iterable[Run]) -> list[Run]:
    """Of the runs with the same settings on changed data only the one that was asked for last."""
    latest: dict[Path, Run] = {}
    for run in runs:
        again = re.fullmatch(r"(seed-?\d+-[0-9a-f]{6})-[0-9a-f]{6}", run.directory.name)
        settings = run.directory if again is None else run.directory.with_name(again[1])
        latest[settings] = max(latest.get(settings, run), run, key=lambda one: one.asked)
    return list(latest.values())


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    """Write one JSON object per line, whole."""
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))


@dataclass(frozen=True)
class Stage:
    """The directory of one stage; work in it survives a crash, `finish` makes it count."""

    directory: Path

    @property
    def finished(self) -> bool:
        return processes.agreed((self.directory / "finished.json").exists())

    def finish(self, **facts: Any) -> None:
        """Call it in every process: it waits until all have done their part."""
        processes.wait()
        if processes.first():
            write_json(self.directory / "finished.json", facts)
        processes.wait()

    def facts(self) -> dict[str, Any]:
        """What `finish` was told."""
        return _read_table(self.directory / "finished.json")


@contextmanager
def hold(directory: Path) -> Iterator[Stage]:
    """The stage in a directory, for one process at a time, or one group of them; others wait until it is finished."""
    make_private(directory)
    lock = FileLock(directory / ".lock")
    if processes.first():
        try:
            lock.acquire(timeout=0)
        except Timeout:
            progress.say(f"Another process is making {directory.name}: waiting for it.")
            lock.acquire()
    try:
        processes.wait()  # the others come in when the first holds the lock
        yield Stage(directory)
        processes.wait()
    finally:
        lock.release()


@dataclass(frozen=True)
class Stages:
    """All stages below one root; any number of processes may share it."""

    root: Path
    by: tuple[str, ...] = ()  # modules whose code computes a stage that does not say so itself, as the method's own

    def directory(self, name: str, *inputs: Any) -> Path:
        """Where the stage that these inputs determine is kept."""
        return self.root / f"{name}-{fingerprint(FORMAT, *inputs)}"

    def enter(self, name: str, *inputs: Any, by: tuple[str, ...] | None = None) -> AbstractContextManager[Stage]:
        """Hold the stage that these inputs determine; a second process waits until it is finished.

        Its result depends on these alone, and on the code: `by` names its modules where several methods share it.
        """
        return hold(self.directory(name, code_of(*(self.by if by is None else by)), *inputs))


def measure_anew(at_once: int = 1) -> None:
    """Forget the peaks of memory so far, for a process that does several runs, of which `at_once` share the machine."""
    global _at_once
    _at_once = at_once
    gc.collect()  # what the last run left in circles would count as this one's
    with suppress(OSError):  # not every system lets a process reset its own peak; it is then an upper bound
        Path("/proc/self/clear_refs").write_text("5")
    if (gpu := _gpu()) is not None:
        gpu.reset_peak_memory_stats()


def environment(device: str, started: float) -> dict[str, Any]:
    """What a reader needs to judge or repeat a number: code, versions, device, time and memory."""
    commit = _git("rev-parse", "HEAD")
    return {
        "commit": commit,
        "uncommitted": None if commit is None else bool(_git("status", "--porcelain")),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "device": device,
        "versions": {name: version_of(name) for name in ("bomd", "torch", "numpy", "triton", "scikit-learn")},
        "seconds": round(time.time() - started, 1),
        "runs_at_once": _at_once,
        "peak_memory_mb": _peak_memory(),
        # Of tensors alone; what the driver and PyTorch keep beside them is not counted.
        "peak_gpu_memory_mb": None if (gpu := _gpu()) is None else round(gpu.max_memory_allocated() / 1024**2, 1),
    }


def version_of(package: str) -> str | None:
    """The version of an installed package, or None; of this one, also where it runs from its source alone."""
    try:
        return VERSION if package == "bomd" else metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(*command: str) -> str | None:
    """Ask git about this package's own checkout; nothing when it is installed from a wheel."""
    if not (Path(__file__).parents[2] / ".git").exists():
        return None
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments
            ["git", *command],  # noqa: S607 - whichever git the user has
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            errors="replace",  # names of files need not be text
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _peak_memory() -> float | None:
    """Megabytes of this process at the worst moment."""
    if sys.platform == "win32":
        return None
    status = Path("/proc/self/status")
    if status.exists():  # on Linux getrusage also counts what the process was before it became this program
        found = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), flags=re.MULTILINE)
        return None if found is None else round(int(found[1]) / 1024, 1)
    import resource

    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2, 1)


def _gpu() -> Any | None:
    """PyTorch's GPU, where this process has computed on one; asking must not start one up."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None
