"""Exact search for the nearest bags: a fast product proposes candidates, float64 measures them and decides.

Vectors are rounded to a short type, the squared distances of all pairs come from products of matrices, tile by tile,
and of each row the smallest few are kept. Rounding moved every vector by a known length, and so, by the triangle
inequality, a distance by no more than the two lengths together. Once the first k candidates have been measured, it is
therefore known how small a value any bag as near must have shown. If the last one kept shows more, all such bags have
been kept, and are measured. Other rows are searched again with longer numbers, and at last among all bags.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.clean.bags import Bags, nothing
from bomd.clean.neighbours import Neighbours, Rows
from bomd.clean.rounded import Rounded, as_queries, round_bags, rounded_width, squares, sums_in, unit

PER_NEIGHBOUR, SPARE = 4, 24  # candidates that are kept of each row
STRIP = 1024  # rows multiplied at a time, ...
TILE = {"cpu": 1024, "cuda": 16384}  # ... by so many bags: what a cache holds, what fills a GPU
BATCH = 2**15  # rows whose candidates are collected at a time, where all bags are at hand
LIST_BYTES = 64  # per candidate: value, place, distance, sorting key, and what joining two lists copies
PAIR_BYTES = {"cpu": 2**23, "cuda": 2**30}  # of vectors in float64 that are measured at a time
CROWD = 50  # pairs to measure per row and neighbour above which many must be copies
DIRECT = "donot_use_mm_for_euclid_dist"
TINY = 2.0**-100  # covers squares too small for float32; vectors are scaled to a length of about 1


@dataclass(frozen=True, eq=False)
class Candidates:
    """Of Q rows the n bags that showed the smallest squared distance, sorted, and how wrong that may be.

    Attributes:
        squares: (Q, n) as shown; infinite where there are no more.
        places: (Q, n) rows of targets.
        lengths: (Q) of a row's longest vector, float64.
        losses: (Q) the most that rounding moved one of a row's vectors, float64.
        share: () the most that it moved a target's, in units of that vector's length.
    """

    squares: Tensor
    places: Tensor
    lengths: Tensor
    losses: Tensor
    share: Tensor


@dataclass(frozen=True, eq=False)
class Search:
    """The k nearest targets of queries; bags of the same code are never paired. `memory` is in bytes.

    A distance is that of the closest vectors, by direct difference in float64, rounded to float32; equal ones are
    sorted by row. No size chosen here changes the result.
    """

    queries: Bags
    targets: Bags
    query_codes: Rows
    target_codes: Rows
    k: int
    memory: float
    _held: dict[tuple[torch.dtype, int], list[Rounded]] = field(default_factory=dict, init=False, repr=False)

    def __call__(self, rows: Rows, advance: Callable[..., object]) -> Neighbours:
        """The neighbours of bags `rows`; `advance` is told how many are done."""
        found, pending = nothing(len(rows), self.k), np.arange(len(rows))
        for dtype, candidates in self.attempts:
            unsure = [pending[:0]]
            batch = self._batch(dtype, candidates)
            for start in range(0, len(pending), batch):
                part = pending[start : start + batch]
                near, certain = self._find(rows[part], dtype, candidates)
                found.put(part, near)
                unsure.append(part[~certain])
                advance(int(certain.sum()))
            pending = np.concatenate(unsure)
        return found

    @cached_property
    def attempts(self) -> list[tuple[torch.dtype, int]]:
        """Types to search in and how many candidates to keep; the last keeps all, which is always certain."""
        every = len(self.targets)
        few = min(PER_NEIGHBOUR * self.k + SPARE, every)
        fast = [torch.bfloat16, torch.float32] if _multiplies_bfloat16(self.targets.device) else [torch.float32]
        return [*((dtype, few) for dtype in fast), (torch.float64, every)]

    def _block(self, dtype: torch.dtype) -> int:
        """Targets that are held rounded at a time."""
        each = self.targets.bag * rounded_width(self.targets.width) * dtype.itemsize
        return _fit(self.memory / 4, each, len(self.targets))

    def _batch(self, dtype: torch.dtype, candidates: int) -> int:
        """Rows that pass over all targets together."""
        each = 4 * self.queries.bag * self.queries.width + LIST_BYTES * candidates
        return _fit(self.memory / 4, each, BATCH if self._block(dtype) == len(self.targets) else len(self.queries))

    def _find(self, rows: Rows, dtype: torch.dtype, candidates: int) -> tuple[Neighbours, NDArray[np.bool_]]:
        """The nearest of each row, and whether they are certain."""
        exact = self.queries.block(rows)
        near = self._propose(exact, rows, dtype, candidates)
        distances = torch.full(near.squares.shape, torch.inf, device=exact.device)
        first = near.squares < torch.inf
        first[:, self.k :] = False
        distances[first] = self._measure(exact, first, near.places)
        # Whoever is as near as the k-th, or not farther than float32 can tell, has shown at most `limit`.
        kth = (distances[:, : self.k].amax(dim=1).double() * (1 + 2.0**-21) + 2.0**-149) * self.targets.scale
        reach = (near.lengths + kth).clamp(max=self.targets.radius * (1 + 2.0**-22))  # the longest vector so near
        error = (rounded_width(self.targets.width) + 16) * unit(dtype) * (near.lengths + reach).square() + TINY
        limit = (kth + near.losses + near.share * reach).square() + error
        last = near.squares[:, -1]
        certain = (last > limit) | (last == torch.inf) | (candidates == len(self.targets))
        rest = (near.squares <= limit[:, None]) & (near.squares < torch.inf) & certain[:, None] & ~first
        distances[rest] = self._measure(exact, rest, near.places)
        # Distances are not negative, so their bits sort as they do; below them the place decides.
        keys = ((distances.view(torch.int32).long() << 32) | near.places).topk(self.k, dim=1, largest=False).values
        found = (keys >> 32).int().view(torch.float32)
        indices = torch.where(found < torch.inf, keys & (2**32 - 1), -1)
        return Neighbours(indices.cpu().numpy(), found.cpu().numpy()), certain.cpu().numpy()

    def _propose(self, exact: Tensor, rows: Rows, dtype: torch.dtype, candidates: int) -> Candidates:
        device, total, each = exact.device, len(self.targets), sums_in(dtype).itemsize
        best = torch.full((len(rows), candidates), torch.inf, dtype=sums_in(dtype), device=device)
        places = torch.zeros((len(rows), candidates), dtype=torch.int64, device=device)
        lengths, losses = torch.zeros((2, len(rows)), dtype=torch.float64, device=device)
        share = torch.zeros((), dtype=torch.float64, device=device)
        own, others = (torch.from_numpy(codes).to(device) for codes in (self.query_codes[rows], self.target_codes))
        block = self._block(dtype)
        tile = min(TILE[device.type], block)
        strip = _fit(self.memory / 4, each * (self.queries.bag * self.targets.bag * tile + 3 * block), STRIP)
        for start in range(0, total, block):
            tiles = self._tiles(dtype, start, min(start + block, total), tile)
            share = torch.stack([share, *(one.share for one in tiles)]).max()
            for first in range(0, len(rows), strip):
                part = slice(first, first + strip)
                query = round_bags(self.queries, exact[part], dtype)
                lengths[part], losses[part] = query.lengths, query.losses
                vectors = as_queries(query.vectors, self.queries.width)
                near = torch.cat([squares(vectors, one.vectors) for one in tiles], dim=1)
                near.masked_fill_(own[part, None] == others[start : start + block], torch.inf)
                nearest = near.topk(min(candidates, near.shape[1]), dim=1, largest=False)
                best[part], chosen = torch.cat([best[part], nearest.values], dim=1).topk(candidates, 1, largest=False)
                places[part] = torch.cat([places[part], nearest.indices + start], dim=1).gather(1, chosen)
        return Candidates(best, places, lengths, losses, share)

    def _tiles(self, dtype: torch.dtype, start: int, stop: int, size: int) -> list[Rounded]:
        """Rounded targets; the last are held for the next call, and these are all of them where they fit."""
        if (dtype, start) not in self._held:
            self._held.clear()
            parts = (slice(first, min(first + size, stop)) for first in range(start, stop, size))
            self._held[dtype, start] = [round_bags(self.targets, self.targets.block(part), dtype) for part in parts]
        return self._held[dtype, start]

    def _measure(self, exact: Tensor, wanted: Tensor, places: Tensor) -> Tensor:
        """Distances of the wanted pairs: of `exact` (Q, bag, D) where `wanted` (Q, n), to `places` (Q, n)."""
        row, column = wanted.nonzero(as_tuple=True)
        place, again = places[row, column], None
        if len(row) > CROWD * self.k * len(exact):  # copies of a bag, of which one is enough
            pairs, again = torch.unique(row * len(self.targets) + self._first_copy[place], return_inverse=True)
            row, place = pairs // len(self.targets), pairs % len(self.targets)
        distances = torch.empty(len(row), dtype=torch.float32, device=exact.device)
        numbers = (self.queries.bag + self.targets.bag) * self.targets.width
        step = max(1, PAIR_BYTES[exact.device.type] // (8 * numbers))
        for part in torch.split(place.argsort(), step):
            second = self.targets.block(place[part])  # in order, so that a file is read from front to back
            between = torch.cdist(exact[row[part]].double(), second.double(), compute_mode=DIRECT)
            distances[part] = between.amin(dim=(1, 2)).float()
        return distances if again is None else distances[again]

    @cached_property
    def _first_copy(self) -> Tensor:
        """(N) the first of the targets whose vectors are exactly the same."""
        digests = [
            hashlib.blake2b(values.tobytes(), digest_size=16).hexdigest()
            for start in range(0, len(self.targets), STRIP)
            for values in self.targets.block(slice(start, start + STRIP)).cpu().numpy()
        ]
        _, first, places = np.unique(digests, return_index=True, return_inverse=True)
        return torch.from_numpy(first[places]).to(self.targets.device)


def _multiplies_bfloat16(device: torch.device) -> bool:
    """Whether this GPU multiplies bfloat16, and this PyTorch returns the sums in float32."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    ones = torch.ones(16, 16, dtype=torch.bfloat16, device=device)
    try:
        return torch.mm(ones, ones, out_dtype=torch.float32).dtype == torch.float32
    except (NotImplementedError, RuntimeError, TypeError):
        return False


def _fit(space: float, each: float, most: int) -> int:
    return max(1, min(int(space / each), most))
