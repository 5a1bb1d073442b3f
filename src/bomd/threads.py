"""How many cores there are to use, and how threads wait for one another: decided before PyTorch is loaded.

OpenMP's threads wait by spinning. Where other programs want the same cores, a thread that spins keeps from work the
very thread that it waits for, and small networks train ten to ninety times as slowly. Threads that sleep at once are as
bad in their own way: to be woken takes longer than the work of a small layer, so that two train no faster than one. So
they look for a moment, about as long as such a layer takes, and sleep if they have to wait longer.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from bomd import processes

SHARE = "BOMD_CORES"  # cores that a process may use, where several share a machine by agreement
POLICY, LOOKS = "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"
WAITING = {
    POLICY: "PASSIVE",  # of any OpenMP: sleep
    LOOKS: "3000",  # of GNU's, which PyTorch comes with: but look so many times before; 30,000 are too many
    "KMP_BLOCKTIME": "0",  # Intel's and LLVM's, milliseconds
    "OPENBLAS_THREAD_TIMEOUT": "4",  # NumPy's BLAS, as a power of two of processor cycles
}
COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def cores() -> int:
    """Processor cores that this process may use: those it may run on, as far as a container's quota goes."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if (limit := quota(Path("/sys/fs/cgroup"), _own_group())) is not None:
        own = min(own, max(1, math.floor(limit)))
    given = os.environ.get(SHARE, "")
    return min(own, max(1, int(given))) if given.isdigit() else own


def settle() -> None:
    """Set how threads wait and how many there are, unless somebody has, or PyTorch is loaded and would not notice.

    Processes that `torchrun` started side by side divide the cores.
    """
    if "torch" not in sys.modules:
        os.environ.update(_unless_given(cores() // processes.beside(), os.environ))


def settings(share: int) -> dict[str, str]:
    """Environment variables for a process that may use this many cores."""
    return WAITING | dict.fromkeys(COUNTS, str(max(1, share)))


def for_worker(share: int, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that shares the machine with others: never more threads than its share of cores.

    Fewer threads, and ways of waiting, stay as they are in the environment that it would inherit.
    """
    many = {name for name in COUNTS if not environment.get(name, "").isdigit() or int(environment[name]) > share}
    kept = {name: given for name, given in environment.items() if name not in many}
    return {**kept, **_unless_given(share, kept), SHARE: str(max(1, share))}


def _unless_given(share: int, environment: Mapping[str, str]) -> dict[str, str]:
    """The settings that are not in this environment; who says how threads wait has said how long they look."""
    missing = {name: usual for name, usual in settings(share).items() if name not in environment}
    if POLICY in environment:
        missing.pop(LOOKS, None)
    return missing


def busy() -> float:
    """How many programs want a core for each core that there is, over the last minute; 0 where it is not known."""
    return os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 0.0


def quota(root: Path, group: str) -> float | None:
    """Cores that a container lets its processes use: the tightest limit of a group below `root` and those around it."""
    folder, older = root / group, root / "cpu"
    places = [place for place in (folder, *folder.parents) if place.is_relative_to(root)]
    found = [limit for place in places for limit in _limit(place / "cpu.max")]
    found += _limit(older / "cpu.cfs_quota_us", older / "cpu.cfs_period_us")  # as older systems write it
    return min(found, default=None)


def _own_group() -> str:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ""
    return next((line[3:].lstrip("/") for line in lines if line.startswith("0::")), "")


def _limit(*files: Path) -> list[float]:
    """Microseconds of processor time in each period, as a number of cores; nothing where there is no limit."""
    try:
        allowed, period = (int(word) for file in files for word in file.read_text().split())
    except (OSError, ValueError):  # the limit may be the word max
        return []
    return [allowed / period] if allowed > 0 else []
