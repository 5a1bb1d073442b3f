"""How much faster the vectorised mathematics is than plain loops: `python -m bomd.bench`."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor

from bomd.clean.relabel import relabel
from bomd.describe.ranking import ranking_loss

THREADS = 2
RANKING_TARGET = 30  # times faster than the loop
RELABEL_TARGET = 1.0  # seconds for all of NIH
IMAGES, CLASSES, NEIGHBOURS = 83_672, 14, 10  # the size of NIH in the paper
LOOPED_IMAGES = 2_000  # as many are re-labelled by the loop, and its time is scaled up


@dataclass(frozen=True)
class Timing:
    """Seconds that the library and a loop take for the same result, and what the library has to reach."""

    what: str
    library: float
    loop: float
    target: str
    reached: bool
    remark: str = ""

    @property
    def ratio(self) -> float:
        return self.loop / self.library


def main() -> int:
    """Print both ratios; 1 if a target is missed."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        timings = [time_ranking(), time_relabel()]
    finally:
        torch.set_num_threads(before)
    table = Table("", "library", "loop", "ratio", "target", "")
    for timing in timings:
        table.add_row(
            timing.what,
            f"{timing.library * 1e3:.2f} ms",
            f"{timing.loop * 1e3:.0f} ms",
            f"{timing.ratio:.0f} x",
            timing.target,
            "reached" if timing.reached else "missed",
        )
    console = Console()
    console.print(table)
    for timing in timings:
        console.print(f"{timing.what}: {timing.remark}", highlight=False)
    return 0 if all(timing.reached for timing in timings) else 1


def time_ranking(batch: int = 64, count: int = 3, width: int = 1024, repeats: int = 15) -> Timing:
    """Forward and backward of the ranking loss on one batch."""
    generator = torch.Generator().manual_seed(0)
    bags = torch.randn(batch, count, width, generator=generator).requires_grad_(True)
    words = torch.nn.functional.normalize(torch.randn(CLASSES, width, generator=generator), dim=1)
    labels = (torch.rand(batch, CLASSES, generator=generator) < 0.15).float()
    labels[:, 0] = 1 - labels[:, 1:].amax(dim=1)  # every image has at least one label

    def step(loss: Callable[[], Tensor]) -> float:
        bags.grad = None
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        return float(value.detach())

    def library() -> float:
        return step(lambda: ranking_loss(bags, words, labels).loss)

    def loop() -> float:
        return step(lambda: _ranking_loop(bags, words, labels, beta=0.3))

    difference = abs(library() - loop()) / abs(loop())
    fast, slow = _median(library, repeats), _median(loop, max(3, repeats // 5))
    return Timing(
        f"ranking loss, B={batch} C={CLASSES} M={count} D={width}",
        fast,
        slow,
        f"at least {RANKING_TARGET} x",
        slow / fast >= RANKING_TARGET,
        f"forward and backward, {THREADS} threads; the two differ by {difference:.0e} of the loss",
    )


def time_relabel(images: int = IMAGES, looped: int = LOOPED_IMAGES, repeats: int = 5) -> Timing:
    """Re-labelling of every image from 10 neighbours."""
    generator = np.random.default_rng(0)
    labels = (generator.random((images, CLASSES)) < 0.1).astype(np.float32)
    neighbours = generator.integers(0, images, (images, NEIGHBOURS))
    everything = np.ones(images, dtype=np.bool_)
    fast = _median(lambda: relabel(labels, neighbours, everything), repeats)
    slow = _median(lambda: _relabel_loop(labels, neighbours[:looped]), 3) * images / looped
    expected = _relabel_loop(labels, neighbours[:looped])
    difference = float(np.abs(relabel(labels, neighbours, everything)[:looped] - expected).max())
    return Timing(
        f"re-labelling, {images:,} x {CLASSES}, K={NEIGHBOURS}",
        fast,
        slow,
        f"under {RELABEL_TARGET:g} s",
        fast < RELABEL_TARGET,
        f"the loop did {looped:,} images and is scaled up; the two differ by at most {difference:.0e}",
    )


def _median(action: Callable[[], object], repeats: int) -> float:
    action()  # the first call also pays for memory and threads
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _ranking_loop(bags: Tensor, words: Tensor, labels: Tensor, beta: float) -> Tensor:
    """The release's form of the loss as its equations read: one image, one pair of classes at a time."""
    total = torch.zeros(())
    for bag, row in zip(bags, labels, strict=True):
        positives = [c for c in range(len(words)) if row[c] == 1]
        negatives = [c for c in range(len(words)) if row[c] == 0]
        scores = [torch.stack([vector @ word for vector in bag]).max() for word in words]
        ranking = torch.zeros(())
        for p in positives:
            for n in negatives:
                ranking = ranking + torch.nn.functional.softplus(scores[n] - scores[p])
        spread = words[positives].var(dim=0).sum() if len(positives) > 1 else torch.zeros(())
        attraction = (1 + spread) * ranking / len(positives)
        total = total + 2 * ((1 - beta) * attraction + beta * bag.var(dim=0).sum())
    return total / len(bags)


def _relabel_loop(labels: NDArray[np.float32], neighbours: NDArray[np.int64]) -> NDArray[np.float64]:
    """Equation 6 with the paper's weights, one image at a time."""
    rows = []
    for given, near in zip(labels, neighbours, strict=False):
        mean = sum(labels[j].astype(np.float64) for j in near) / len(near)
        mask = (given + mean) > 0
        rows.append(0.4 * given + 0.6 * (0.25 + 0.75 * mean) * mask)
    return np.stack(rows)


if __name__ == "__main__":
    sys.exit(main())
