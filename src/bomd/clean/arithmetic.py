"""How products of vectors are computed: as fast as a device allows while their error keeps a known bound."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

PROBE_OPERATIONS = 1e12  # per thread, above which it pays to find out whether a CPU multiplies bfloat16 faster
PROBE_GAIN = 1.2  # how much faster it has to be
PROBE_SECONDS = 60  # after which a probe is given up
# Runs in a process of its own: where a virtual machine announces instructions that it lacks, it is killed.
PROBE = """
import time, torch
first = torch.arange(768 * 1024).remainder(7).view(768, 1024).float()
second = torch.arange(4096 * 1024).remainder(5).view(4096, 1024).float()
expected = first @ second.T
def seconds(precision):
    torch.set_float32_matmul_precision(precision)
    taken = []
    for _ in range(4):
        start = time.perf_counter()
        product = first @ second.T
        taken.append(time.perf_counter() - start)
    return min(taken) if torch.equal(product, expected) else float("inf")
print(seconds("highest") / seconds("medium"))
"""


@dataclass(frozen=True)
class Arithmetic:
    """A way to multiply matrices with sums in float32.

    Attributes:
        rounded: whether numbers are rounded to bfloat16, which the faster ways do to them; numbers that were
            rounded before are multiplied exactly by all of them.
        container: the type in which numbers are handed over.
        precision: PyTorch's setting for products of float32 matrices.
    """

    rounded: bool
    container: torch.dtype = torch.float32
    precision: Literal["highest", "medium"] = "highest"

    def multiply(self, first: Tensor, second: Tensor) -> Tensor:
        """(n, D) by (m, D): all products of rows, (n, m) float32."""
        if self.container == torch.bfloat16:
            return torch.mm(first, second.T, out_dtype=torch.float32)
        with matmul_precision(self.precision):
            return torch.mm(first, second.T)


PLAIN = Arithmetic(rounded=False)
HALF = Arithmetic(rounded=True, container=torch.bfloat16)  # tensor cores that add up in float32
HALF_INSIDE = Arithmetic(rounded=True, precision="medium")  # CPUs with bfloat16; TF32, which holds all bfloat16


def fastest(device: torch.device, operations: float) -> Arithmetic:
    """The fastest arithmetic of a device for so many operations."""
    if device.type == "cuda":
        if torch.cuda.get_device_capability(device) < (8, 0):
            return PLAIN
        return HALF if _adds_up_in_float32(device) else HALF_INSIDE
    if operations < PROBE_OPERATIONS * torch.get_num_threads():
        return PLAIN
    return HALF_INSIDE if bfloat16_gain() > PROBE_GAIN else PLAIN


@cache
def _adds_up_in_float32(device: torch.device) -> bool:
    """Whether this PyTorch returns bfloat16 products in float32: those in bfloat16 would be useless."""
    ones = torch.ones(16, 16, dtype=torch.bfloat16, device=device)
    try:
        return HALF.multiply(ones, ones).dtype == torch.float32
    except (NotImplementedError, RuntimeError, TypeError):
        return False


@cache
def bfloat16_gain() -> float:
    """How many times faster this CPU multiplies in bfloat16 than in float32; 0 where it cannot."""
    information = Path("/proc/cpuinfo")
    flags = set(information.read_text(encoding="utf-8").split()) if information.exists() else set()
    if not flags & {"amx_bf16", "avx512_bf16"}:
        return 0.0
    try:
        probe = subprocess.run(  # noqa: S603 (our own interpreter and text)
            [sys.executable, "-c", PROBE], capture_output=True, timeout=PROBE_SECONDS, check=True
        )
        return float(probe.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0.0


@contextmanager
def matmul_precision(precision: Literal["highest", "medium"]) -> Iterator[None]:
    """Set PyTorch's precision of float32 products, and afterwards restore what training had chosen."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
