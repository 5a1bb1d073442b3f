"""Bags of vectors, handed out in blocks wherever they are kept."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.clean.neighbours import Rows
from bomd.errors import InputError

READ = 2**22  # numbers that are read at a time to see where vectors lie, unless memory asks for fewer
READ_BYTES = 32  # per number that is being read: as given, float32, moved, float64 for lengths
LARGEST_EXPONENT = 120  # of the scale, which has to be a float32 itself


@dataclass(frozen=True, eq=False)
class Bags:
    """N bags of vectors on one device, wherever they are kept: in its memory, in another's, or in a file."""

    values: NDArray[Any] | Tensor  # (N, bag, D)
    device: torch.device
    centre: Tensor  # (D) mean vector: the expanded form is more exact for vectors moved near the origin
    scale: float  # power of two that brings the vector farthest from the centre to about 1, so that squares are safe
    radius: float  # its distance from the centre after scaling
    read: int  # bags that are read at a time

    def __len__(self) -> int:
        return len(self.values)

    @property
    def bag(self) -> int:
        return self.values.shape[1]

    @property
    def width(self) -> int:
        return self.values.shape[2]

    def nodes(self) -> Bags:
        """The same vectors as bags of one."""
        return replace(self, values=self.values.reshape(-1, 1, self.width), read=self.read * self.bag)

    def slices(self) -> list[slice]:
        """All bags, in parts that are small enough to be read."""
        return [slice(start, start + self.read) for start in range(0, len(self), self.read)]

    def block(self, index: slice | Rows | Tensor) -> Tensor:
        """(n, bag, D) float32, as given."""
        if isinstance(self.values, Tensor):
            if isinstance(index, np.ndarray):
                index = torch.from_numpy(index)
            if isinstance(index, Tensor):
                index = index.to(self.values.device)
            return self.values[index].detach().to(self.device).float()  # short numbers travel as such
        if isinstance(index, Tensor):
            index = index.cpu().numpy()
        # a copy of a slice, since a memory map may be read-only; other indices have copied already
        copy = True if isinstance(index, slice) else None
        short = self.values.dtype if self.values.dtype == np.float16 else np.float32
        return torch.from_numpy(np.array(self.values[index], dtype=short, copy=copy)).to(self.device).float()

    def move(self, exact: Tensor, dtype: torch.dtype) -> Tensor:
        """Vectors (..., D), moved and scaled."""
        return exact.to(dtype) * self.scale - self.centre.to(dtype) * self.scale


def open_bags(values: NDArray[Any] | Tensor, device: torch.device, memory: float) -> Bags:
    """Measure where the vectors lie; keep them on a GPU if they take at most half of `memory` (bytes) there."""
    read = max(1, min(READ, int(memory / 4 / READ_BYTES)) // (values.shape[1] * values.shape[2]))
    bags = Bags(values, device, torch.zeros(values.shape[2], device=device), 1.0, 0.0, read)
    elsewhere = not isinstance(values, Tensor) or values.device.type != device.type
    if device.type == "cuda" and elsewhere and 8 * np.prod(values.shape, dtype=np.float64) <= memory:
        kept = torch.empty(values.shape, dtype=torch.float32, device=device)
        for part in bags.slices():  # instead of travelling for every block
            kept[part] = bags.block(part)
        bags = replace(bags, values=kept)
    total = torch.zeros(bags.width, dtype=torch.float64, device=device)
    for part in bags.slices():
        total += bags.block(part).sum(dim=(0, 1), dtype=torch.float64)
    if not torch.isfinite(total).all():
        raise InputError("Descriptors are not finite; a distance to them means nothing.")
    bags = replace(bags, centre=(total / (len(bags) * bags.bag)).float())
    largest = torch.zeros((), dtype=torch.float64, device=device)
    for part in bags.slices():
        moved = bags.move(bags.block(part), torch.float32)
        largest = torch.maximum(largest, torch.linalg.vector_norm(moved, dim=2, dtype=torch.float64).max())
    if not torch.isfinite(largest):
        raise InputError("Descriptors are too large for float32; divide them by their length.")
    exponent = min(max(math.frexp(float(largest))[1], -LARGEST_EXPONENT), LARGEST_EXPONENT)
    return replace(bags, scale=2.0**-exponent, radius=float(largest) * 2.0**-exponent)


def closest(first: Tensor, second: Tensor) -> Tensor:
    """(n) float32 distances of the closest vectors of two bags, (n, p, D) and (n, m, D), by difference in float64.

    Every search ends here, so that all of them give the same distances on a device.
    """
    pairs = torch.cdist(first.double(), second.double(), compute_mode="donot_use_mm_for_euclid_dist")
    return pairs.amin(dim=(1, 2)).float()
