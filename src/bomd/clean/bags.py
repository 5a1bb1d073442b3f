"""Bags of vectors, and the exact distance between two bags."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.clean.neighbours import Neighbours, Rows
from bomd.errors import InputError

BLOCK = 2048  # bags handled at a time where memory does not ask for fewer
LARGEST_EXPONENT = 120  # of the scale, which has to be a float32 itself
PAIR_BYTES = {"cpu": 2**23, "cuda": 2**30}  # of vectors in float64 that are measured at a time


@dataclass(frozen=True, eq=False)
class Bags:
    """N bags of vectors, handed out in blocks on one device, wherever they are kept."""

    values: NDArray[Any] | Tensor  # (N, bag, D)
    device: torch.device
    centre: Tensor  # (D) mean vector: the expanded form is more exact for vectors moved near the origin
    scale: float  # power of two that brings the vector farthest from the centre to about 1, so that squares are safe
    radius: float  # its distance from the centre after scaling

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
        return replace(self, values=self.values.reshape(-1, 1, self.width))

    def block(self, index: slice | Rows | Tensor) -> Tensor:
        """(n, bag, D) float32, as given."""
        if isinstance(self.values, Tensor):
            if isinstance(index, np.ndarray):
                index = torch.from_numpy(index)
            if isinstance(index, Tensor):
                index = index.to(self.values.device)
            return self.values[index].detach().to(self.device, torch.float32)
        if isinstance(index, Tensor):
            index = index.cpu().numpy()
        # a copy of a slice, since a memory map may be read-only; other indices have copied already
        copy = True if isinstance(index, slice) else None
        return torch.from_numpy(np.array(self.values[index], dtype=np.float32, copy=copy)).to(self.device)

    def move(self, exact: Tensor, dtype: torch.dtype) -> Tensor:
        """Vectors (..., D), moved and scaled."""
        return exact.to(dtype) * self.scale - self.centre.to(dtype) * self.scale

    def centred(self, index: slice | Rows | Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """(n, bag, D), moved and scaled."""
        return self.block(index).to(dtype) * self.scale - self.centre.to(dtype) * self.scale


def open_bags(values: NDArray[Any] | Tensor, device: torch.device, memory: float) -> Bags:
    """Measure where the vectors lie; keep them on a GPU if they take at most half of `memory` (bytes) there."""
    bags = Bags(values, device, torch.zeros(values.shape[2], device=device), 1.0, 0.0)
    slices = [slice(start, start + BLOCK) for start in range(0, len(bags), BLOCK)]
    elsewhere = not isinstance(values, Tensor) or values.device.type != device.type
    if device.type == "cuda" and elsewhere and 8 * np.prod(values.shape, dtype=np.float64) <= memory:
        kept = torch.empty(values.shape, dtype=torch.float32, device=device)
        for part in slices:  # instead of travelling for every block
            kept[part] = bags.block(part)
        bags = replace(bags, values=kept)
    total = torch.zeros(bags.width, dtype=torch.float64, device=device)
    for part in slices:
        total += bags.block(part).sum(dim=(0, 1), dtype=torch.float64)
    if not torch.isfinite(total).all():
        raise InputError("Descriptors are not finite; a distance to them means nothing.")
    bags = replace(bags, centre=(total / (len(bags) * bags.bag)).float())
    largest = torch.zeros((), dtype=torch.float64, device=device)
    for part in slices:
        norms = torch.linalg.vector_norm(bags.centred(part), dim=2, dtype=torch.float64)
        largest = torch.maximum(largest, norms.max())
    if not torch.isfinite(largest):
        raise InputError("Descriptors are too large for float32; divide them by their length.")
    exponent = min(max(math.frexp(float(largest))[1], -LARGEST_EXPONENT), LARGEST_EXPONENT)
    return replace(bags, scale=2.0**-exponent, radius=float(largest) * 2.0**-exponent)


def closest(queries: Bags, targets: Bags, rows: Tensor, places: Tensor) -> Tensor:
    """Distance of the closest vectors of bags `rows` (Q) and `places` (Q, n), by direct difference in float64.

    Every search ends here, so that all of them give the same (Q, n) float32 distances on a device.
    """
    distances = torch.empty(places.shape, dtype=torch.float32, device=queries.device)
    vectors = queries.bag + places.shape[1] * targets.bag
    step = max(1, PAIR_BYTES[queries.device.type] // (8 * vectors * targets.width))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        first = queries.block(rows[part]).double()
        second = targets.block(places[part].reshape(-1)).double().view(len(first), -1, targets.width)
        pairs = torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist")
        distances[part] = pairs.view(len(first), queries.bag, -1, targets.bag).amin(dim=(1, 3)).float()
    return distances


def nothing(rows: int, k: int) -> Neighbours:
    """Lists without an entry, to be filled in."""
    return Neighbours(np.full((rows, k), -1, dtype=np.int64), np.full((rows, k), np.inf, dtype=np.float32))


def rank_in_run(*keys: NDArray[Any]) -> Rows:
    """Place of each entry within its run of equal keys: 0, 1, 2, 0, 1, ..."""
    place = np.arange(len(keys[0]))
    fresh = place == 0
    for key in keys:
        fresh[1:] |= key[1:] != key[:-1]
    return place - np.maximum.accumulate(np.where(fresh, place, 0))
