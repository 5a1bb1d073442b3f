"""`python -m evidence.bench.neighbours [COUNT ...]`: the present search against the plain one, on the same work."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.clean.arithmetic import matmul_precision
from bomd.clean.bags import open_bags
from bomd.clean.graph import nearest_images
from bomd.clean.neighbours import Neighbours, Rows
from bomd.clean.search import Search
from evidence.bench.cpu import NEIGHBOURS, descriptors
from evidence.bench.table import forget_peak, peak_memory_mb, stopwatch


class Counting(Search):
    """Says how many rows every attempt leaves."""

    def _find(self, rows: Rows, dtype: torch.dtype, candidates: int) -> tuple[Neighbours, NDArray[np.bool_]]:
        found, certain = super()._find(rows, dtype, candidates)
        print(f"    {dtype}, {candidates} candidates: {len(rows)} rows, {int((~certain).sum())} left", flush=True)
        return found, certain


def plain(values: Tensor, k: int, memory: float, kind: type[Search] = Search) -> Neighbours:
    """All neighbours by the plain search."""
    codes = np.arange(len(values))
    with matmul_precision("highest"):
        bags = open_bags(values, values.device, memory)
        return kind(bags, bags, codes, codes, k, memory)(codes, lambda steps: None)


def tight(count: int, width: int, device: torch.device) -> Tensor:
    """Unit vectors near one mean that vary along 16 axes: descriptors of a trained network, with small gaps."""
    generator = torch.Generator(device).manual_seed(1)
    mean, axes = torch.randn((width,), generator=generator, device=device), torch.randn((16, width), device=device)
    weights = torch.randn((count, 3, 16), generator=generator, device=device)
    return torch.nn.functional.normalize(mean + 0.2 * weights @ axes, dim=2)


def compare(values: Tensor, name: str, memory: float, repeats: int) -> None:
    """Prints seconds, peak memory and agreement."""
    device, results = values.device, dict[str, Neighbours]()
    ways: dict[str, Callable[[Tensor], Neighbours]] = {
        "present": lambda part: nearest_images(part, NEIGHBOURS, memory=memory / 1e9),
        "plain": lambda part: plain(part, NEIGHBOURS, memory),
    }
    for way in ways.values():
        way(values[:3000])
    seconds: dict[str, list[float]] = {key: [] for key in ways}
    for _ in range(repeats):
        for key, way in ways.items():
            gc.collect()
            before = forget_peak(device)
            with stopwatch() as elapsed:
                results[key] = way(values)
            seconds[key].append(elapsed())
            print(f"  {key}: {elapsed():.3f} s, {peak_memory_mb(device) - before:,.0f} MB beside the descriptors")
    plain(values, NEIGHBOURS, memory, Counting)
    ratio = np.median(seconds["plain"]) / np.median(seconds["present"])
    same = (results["plain"].indices == results["present"].indices).mean()
    equal = (results["plain"].distances == results["present"].distances).mean()
    print(f"{name}: plain/present {ratio:.2f} (medians); {same:.6%} of neighbours, {equal:.6%} of distances equal")


def main() -> None:
    """Compare on both kinds of descriptors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("counts", type=int, nargs="*", default=[20_000, 83_672])
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--memory", type=float, help="gigabytes; by default 4 on a CPU, 60 on a GPU")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    memory = 1e9 * (given.memory or (60 if device.type == "cuda" else 4))
    for count in given.counts:
        for name, make in (("clusters", descriptors), ("tight", tight)):
            values = make(count, given.width, device)
            compare(values, f"{count:,} x 3 x {given.width}, {name}", memory, given.repeats)
            del values


if __name__ == "__main__":
    main()
