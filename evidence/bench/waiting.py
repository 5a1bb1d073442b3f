"""Training with threads that look for a moment before they sleep, against threads that sleep at once.

Each way has a process of its own, since how threads wait is settled before PyTorch is loaded. They are timed in turn,
so that whatever else the machine does meets both alike.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from bomd import threads
from evidence.bench.table import Row

ROUNDS = 5  # of which the middle one counts
SLEEPING = {"GOMP_SPINCOUNT": "0"}
# A program that wants a core for as long as whoever started it is there, also after kill -9. It is told who that is: by
# the time it can look, somebody else may have become its parent, and stay.
OTHER = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"
TRAINING = """
import json, sys, time
from bomd import threads
threads.settle()
import torch
from torch.nn.functional import binary_cross_entropy_with_logits as loss
from bomd.networks.backbone import build
backbone, size, batch, steps = sys.argv[1], *map(int, sys.argv[2:])
network = build(backbone, 14, weights="none", seed=0).train()
images, labels = torch.randn(batch, network.channels, size, size), torch.zeros(batch, 14)
optimiser = torch.optim.Adam(network.parameters())
def step():
    optimiser.zero_grad()
    loss(network(images), labels).backward()
    optimiser.step()
for _ in range(3):
    step()
for _ in sys.stdin:
    clock, used = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    print(json.dumps([time.perf_counter() - clock, time.process_time() - used]), flush=True)
"""


def rows(quick: bool = False) -> Iterator[Row]:
    """Two networks, on a machine that has nothing else to do, and beside as many other programs as it has cores."""
    size, batch, most = (32, 4, 2) if quick else (64, 32, 60)
    for backbone, steps in (("small", most), ("densenet121", max(2, most // 10))):
        for others in (0, threads.cores()):
            yield compared(backbone, size, batch, steps, others, 1 if quick else ROUNDS)


def compared(backbone: str, size: int, batch: int, steps: int, others: int, rounds: int) -> Row:
    """Images a second of both ways."""
    work = (backbone, size, batch, steps)
    with training(*work) as ours, training(*work, SLEEPING) as sleeping:
        ours(), sleeping()  # both are ready before any other program is
        with busy(others):
            taken = [[way()[0] for way in (ours, sleeping)] for _ in range(rounds)]
    rate, other_rate = (batch * steps / statistics.median(column) for column in zip(*taken, strict=True))
    where = f"beside {others} other programs" if others else "on an idle machine"
    return Row(
        f"training {backbone} at {size} px {where}",
        "images/s",
        rate,
        other_rate,
        "threads that sleep at once",
        remark=f"batches of {batch}, {threads.cores()} threads; medians of {rounds} rounds each, in turn",
    )


@contextmanager
def training(
    backbone: str, size: int, batch: int, steps: int, environment: Mapping[str, str] | None = None
) -> Iterator[Callable[[], tuple[float, float]]]:
    """A process with these settings of threads that trains when it is asked to: seconds on the clock, of processors."""
    kept = {name: value for name, value in os.environ.items() if name not in threads.settings(1)}
    command = [sys.executable, "-c", TRAINING, backbone, *map(str, (size, batch, steps))]
    started = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**kept, **(environment or {})}
    )
    assert started.stdin is not None
    assert started.stdout is not None
    told, heard = started.stdin, started.stdout

    def ask() -> tuple[float, float]:
        told.write("\n")
        told.flush()
        clock, used = json.loads(heard.readline())
        return clock, used

    with started:
        try:
            yield ask
        finally:
            started.kill()


@contextmanager
def busy(others: int) -> Iterator[None]:
    """Let so many other programs want a core each."""
    started = [other_program() for _ in range(others)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def other_program() -> subprocess.Popen[bytes]:
    """One that wants a core until it is killed or this process has ended."""
    return subprocess.Popen([sys.executable, "-c", OTHER, str(os.getpid())])
