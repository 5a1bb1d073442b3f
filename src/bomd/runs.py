"""Run directories and finished stages: what was computed, from which settings, and whether it is complete.

    runs/demo/bomd/seed0-3fa91c/   config.json, environment.json, metrics.jsonl, labels.npz,
                                   predictions.npz, examples.npz, model/, result.json
    runs/stages/descriptors-81e0/  whatever the stage wrote, and finished.json

A stage is named by the fingerprint of everything it depends on, its code among it, so a changed setting or method
finds no old stage, and runs that agree on a stage (BoMD with another lambda) share it. `result.json` and
`finished.json` are written last: without them the work is taken up again where it stopped.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from filelock import FileLock

from bomd import outside, processes
from bomd.config import Config
from bomd.errors import InputError
from bomd.files import fingerprint, read_json, write_json, write_text

ROOMS = ("data", "learn", "describe", "clean", "methods")  # the code that numbers come from
BESIDE = ("learn/card.py", "learn/export.py", "learn/heatmap.py", "learn/logs.py", "methods/describe.py")  # no numbers
FORMAT = 1  # raised whenever a file in a run or stage directory changes its meaning

_at_once = 1


@dataclass(frozen=True)
class Run:
    """One run directory."""

    directory: Path

    @property
    def finished(self) -> bool:
        return (self.directory / "result.json").exists()

    def config(self) -> dict[str, Any]:
        """Every resolved setting, as saved."""
        saved: dict[str, Any] = read_json(self.directory / "config.json")
        if saved.get("format") != FORMAT:
            raise InputError(
                f"{self.directory} was written by another version of bomd (format {saved.get('format')}, "
                f"this one reads {FORMAT}). Move it away and run again."
            )
        config: dict[str, Any] = saved["config"]
        return config

    @property
    def by_this_code(self) -> bool:
        """Whether the code that numbers come from is still what it was when the run was started."""
        saved = read_json(self.directory / "config.json")
        return bool(saved.get("code") == code_fingerprint(saved["config"]["method"]))

    def result(self) -> dict[str, Any]:
        self.config()
        if not self.finished:
            raise InputError(f"{self.directory} has no result.json: the run is not finished. Run it again.")
        result: dict[str, Any] = read_json(self.directory / "result.json")
        return result


def locate(root: Path, config: Config) -> Run:
    """The directory of a run, whether it exists or not; the same settings always give the same one."""
    method = config.method.replace(":", ".")  # of a method from outside; not every system allows it in a name
    return Run(root / config.name / method / f"seed{config.seed}-{config.key[:6]}")


def start(root: Path, config: Config) -> Run:
    """Make or find the directory of a run."""
    run = locate(root, config)
    if (run.directory / "config.json").exists():
        run.config()
    else:
        settings = {"format": FORMAT, "code": code_fingerprint(config.method), "config": config.to_dict()}
        write_json(run.directory / "config.json", settings)
    return run


def find(places: list[Path]) -> list[Run]:
    """The finished runs in these run directories, or anywhere below these folders."""
    found = []
    for place in places:
        if not place.exists():
            raise InputError(f"No such run or folder: {place}.")
        if (place / "config.json").exists():
            found.append(place)
        else:
            found += [file.parent for file in sorted(place.glob("**/result.json"))]
    if not found:
        raise InputError(f"No finished run in {', '.join(map(str, places))}.")
    return [Run(directory) for directory in found]


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    """Write one JSON object per line, whole."""
    import json

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
        facts: dict[str, Any] = read_json(self.directory / "finished.json")
        return facts


@dataclass(frozen=True)
class Stages:
    """All stages below one root; any number of processes may share it.

    Attributes:
        method: Whose code counts beside that of this package, where it is from outside.
    """

    root: Path
    method: str = ""

    def directory(self, name: str, *inputs: Any) -> Path:
        """Where the stage that these inputs determine is kept."""
        return self.root / f"{name}-{fingerprint(FORMAT, *inputs)}"

    @contextmanager
    def enter(self, name: str, *inputs: Any) -> Iterator[Stage]:
        """Hold the stage that these inputs determine; a second process waits until it is finished."""
        directory = self.directory(name, code_fingerprint(self.method), *inputs)
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"Cannot write {directory}: {error.strerror}.") from error
        with FileLock(directory / ".lock") if processes.first() else nullcontext():
            processes.wait()  # the others come in when the first holds the lock
            yield Stage(directory)
            processes.wait()


def code_fingerprint(method: str = "") -> str:
    """Changes with any line of the code that decides about numbers, so that a new method never gets old results.

    Args:
        method: Its own file counts, too, where it is from outside this package.
    """
    own = outside.source(method) if outside.names(method) else ""
    return fingerprint(_package_fingerprint(), own) if own else _package_fingerprint()


@functools.cache
def _package_fingerprint() -> str:
    package = Path(__file__).parent
    files = sorted(file for room in ROOMS for file in (package / room).rglob("*.py"))
    texts = {file.relative_to(package).as_posix(): file.read_text("utf-8") for file in files}
    return fingerprint(*(part for name, text in texts.items() if name not in BESIDE for part in (name, text)))


def measure_anew(at_once: int = 1) -> None:
    """Forget the peaks of memory so far, for a process that does several runs.

    Args:
        at_once: Runs that share the machine from now on, since it takes each of them longer.
    """
    global _at_once
    _at_once = at_once
    with suppress(OSError):  # not every system lets a process reset its own peak; it is then an upper bound
        Path("/proc/self/clear_refs").write_text("5")
    if _uses_gpu():
        import torch

        torch.cuda.reset_peak_memory_stats()


def environment(device: str, started: float) -> dict[str, Any]:
    """What a reader needs to judge or repeat a number: code, versions, device, time and memory."""
    packages = ("bomd", "torch", "numpy", "triton", "scikit-learn", "faiss-cpu")
    commit = _git("rev-parse", "HEAD")
    return {
        "commit": commit,
        "uncommitted": None if commit is None else bool(_git("status", "--porcelain")),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "device": device,
        "versions": {name: _version(name) for name in packages},
        "seconds": round(time.time() - started, 1),
        "runs_at_once": _at_once,
        "peak_memory_mb": _peak_memory(),
        "peak_gpu_memory_mb": _peak_gpu_memory(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
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
    if sys.platform == "linux":  # where getrusage also counts what the process was before it became this program
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), flags=re.MULTILINE)
        return None if found is None else round(int(found[1]) / 1024, 1)
    import resource

    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2, 1)


def _peak_gpu_memory() -> float | None:
    """Megabytes of tensors at the worst moment; what the driver and PyTorch keep beside them is not counted."""
    if not _uses_gpu():
        return None
    import torch

    return round(torch.cuda.max_memory_allocated() / 1024**2, 1)


def _uses_gpu() -> bool:
    """Whether this process has computed on a GPU; asking must not start one up."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())
