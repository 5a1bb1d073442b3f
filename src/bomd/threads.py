"""How many cores there are to use, and how threads wait for one another: decided before PyTorch is loaded.

OpenMP's threads wait by spinning. Where other programs want the same cores, a thread that spins keeps from work the
very thread that it waits for, and small networks train ten to ninety times as slowly. Threads that sleep while they
wait cost a little on an idle machine and nothing worse on a busy one.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path

SHARE = "BOMD_CORES"  # cores that a process may use, where several share a machine by agreement
WAITING = {
    "OMP_WAIT_POLICY": "PASSIVE",  # GNU's OpenMP, which PyTorch comes with
    "KMP_BLOCKTIME": "0",  # Intel's and LLVM's, milliseconds
    "OPENBLAS_THREAD_TIMEOUT": "4",  # NumPy's BLAS, as a power of two of processor cycles
}


def cores() -> int:
    """Processor cores that this process may use: those it may run on, as far as a container's quota goes."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    if quota is not None:
        own = min(own, max(1, math.floor(quota)))
    given = os.environ.get(SHARE, "")
    return min(own, max(1, int(given))) if given.isdigit() else own


def settle() -> None:
    """Set how threads wait and how many there are, unless somebody has, or PyTorch is loaded and would not notice."""
    if "torch" not in sys.modules:
        for name, value in settings(cores()).items():
            os.environ.setdefault(name, value)


def settings(share: int) -> dict[str, str]:
    """Environment variables for a process that may use this many cores."""
    count = str(max(1, share))
    return {**WAITING, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count}


def for_worker(share: int, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that shares the machine with others: never more threads than its share of cores.

    Args:
        share: Cores of its own.
        environment: What it would inherit; fewer threads than its share, and ways of waiting, stay as they are there.
    """
    wanted = settings(share)
    kept = {name: environment[name] for name in wanted if name in environment}
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        if not kept.get(name, "").isdigit() or int(kept[name]) > share:
            kept.pop(name, None)
    return {**environment, **wanted, **kept, SHARE: str(max(1, share))}


def busy() -> float:
    """How many programs want a core for each core that there is, over the last minute; 0 where it is not known."""
    return os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 0.0


def _quota() -> float | None:
    """Cores that a container's control group lets its processes use together, over all groups that hold this one."""
    root = Path("/sys/fs/cgroup")
    try:
        (name,) = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    except (OSError, ValueError):
        name = "/"
    folder, found = root / name.lstrip("/"), []
    while folder.is_relative_to(root):
        found += _limit(folder / "cpu.max")
        if folder == root:
            break
        folder = folder.parent
    older = root / "cpu" / "cpu.cfs_quota_us", root / "cpu" / "cpu.cfs_period_us"
    try:
        allowed, period = (int(file.read_text()) for file in older)
        found += [allowed / period] if allowed > 0 else []
    except (OSError, ValueError):
        pass
    return min(found, default=None)


def _limit(file: Path) -> list[float]:
    """Microseconds of processor time in each period, as a number of cores; nothing where there is no limit."""
    try:
        allowed, period = file.read_text().split()
        return [] if allowed == "max" else [int(allowed) / int(period)]
    except (OSError, ValueError):
        return []
