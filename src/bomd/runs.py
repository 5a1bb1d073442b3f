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
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from filelock import FileLock

from bomd.config import Config
from bomd.errors import InputError
from bomd.files import fingerprint, read_json, write_json, write_text

ROOMS = ("data", "learn", "describe", "clean", "methods")  # the code that numbers come from
FORMAT = 1  # raised whenever a file in a run or stage directory changes its meaning


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
        return bool(read_json(self.directory / "config.json").get("code") == code_fingerprint())

    def result(self) -> dict[str, Any]:
        self.config()
        if not self.finished:
            raise InputError(f"{self.directory} has no result.json: the run is not finished. Run it again.")
        result: dict[str, Any] = read_json(self.directory / "result.json")
        return result


def start(root: Path, config: Config) -> Run:
    """Make or find the directory of a run; the same settings always give the same one."""
    directory = root / config.name / config.method / f"seed{config.seed}-{config.key[:6]}"
    run = Run(directory)
    if (directory / "config.json").exists():
        run.config()
    else:
        settings = {"format": FORMAT, "code": code_fingerprint(), "config": config.to_dict()}
        write_json(directory / "config.json", settings)
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
        return (self.directory / "finished.json").exists()

    def finish(self, **facts: Any) -> None:
        write_json(self.directory / "finished.json", facts)

    def facts(self) -> dict[str, Any]:
        """What `finish` was told."""
        facts: dict[str, Any] = read_json(self.directory / "finished.json")
        return facts


@dataclass(frozen=True)
class Stages:
    """All stages below one root; any number of processes may share it."""

    root: Path

    def directory(self, name: str, *inputs: Any) -> Path:
        """Where the stage that these inputs determine is kept."""
        return self.root / f"{name}-{fingerprint(FORMAT, *inputs)}"

    @contextmanager
    def enter(self, name: str, *inputs: Any) -> Iterator[Stage]:
        """Hold the stage that these inputs determine; a second process waits until it is finished."""
        directory = self.directory(name, code_fingerprint(), *inputs)
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"Cannot write {directory}: {error.strerror}.") from error
        with FileLock(directory / ".lock"):
            yield Stage(directory)


@functools.cache
def code_fingerprint() -> str:
    """Changes with any line of the code that decides about numbers, so that a new method never gets old results."""
    package = Path(__file__).parent
    files = sorted(file for room in ROOMS for file in (package / room).rglob("*.py"))
    return fingerprint(*(part for file in files for part in (str(file.relative_to(package)), file.read_text("utf-8"))))


def environment(device: str, started: float) -> dict[str, Any]:
    """What a reader needs to judge or repeat a number: code, versions, device, time and memory."""
    packages = ("bomd", "torch", "numpy", "monai", "lightning-fabric", "scikit-learn", "faiss-cpu")
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
        "peak_memory_mb": _peak_memory(),
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
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1024 if sys.platform == "linux" else 1024**2), 1)
