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

from bomd.clean.bags import Bags, closest
from bomd.clean.neighbours import Neighbours, Rows, nothing
from bomd.clean.plan import Plan, pairs_at_a_time, plan
from bomd.clean.rounded import (
    Rounded,
    as_queries,
    multiplies_bfloat16,
    round_bags,
    rounded_width,
    squares,
    sums_in,
    unit,
)

PER_NEIGHBOUR, SPARE = 4, 24  # candidates that are kept of each row
WIDER = 16  # times as many for rows that float32 does not settle
CROWD = 50  # pairs to be measured per row and neighbour, above which many must be copies of one another
TINY = 2.0**-100  # covers squares too small for float32; vectors are scaled to a length of about 1


@dataclass(frozen=True, eq=False)
class Candidates:
    """Of Q rows the n bags that showed the smallest squared distance, sorted, and how wrong that may be."""

    squares: Tensor  # (Q, n) as shown; infinite where there are no more
    places: Tensor  # (Q, n) rows of targets
    lengths: Tensor  # (Q) of a row's longest vector, float64
    share: Tensor  # () the most that rounding moved a vector, in units of its length

    def join(self, rows: slice, shown: Tensor, start: int) -> None:
        """Keep the smallest of what some rows had and what they are shown (q, n) of the targets from `start` on."""
        count = self.squares.shape[1]
        least = shown.topk(min(count, shown.shape[1]), dim=1, largest=False)
        both = torch.cat([self.squares[rows], least.values], dim=1)
        self.squares[rows], chosen = both.topk(count, dim=1, largest=False)
        self.places[rows] = torch.cat([self.places[rows], least.indices + start], dim=1).gather(1, chosen)


@dataclass(frozen=True, eq=False)
class Search:
    """The k nearest targets of queries; bags of the same code are never paired. `memory` is in bytes.

    A distance is that of the closest vectors, by direct difference in float64, rounded to float32; equal ones are
    sorted by row. No size that is chosen for want of memory changes the result.
    """

    queries: Bags
    targets: Bags
    query_codes: Rows
    target_codes: Rows
    k: int
    memory: float
    _held: dict[tuple[torch.dtype, int], list[Rounded]] = field(default_factory=dict, init=False)

    def __call__(self, rows: Rows, advance: Callable[..., object]) -> Neighbours:
        """The neighbours of bags `rows`; `advance` is told how many are done."""
        found, pending = nothing(len(rows), self.k), np.arange(len(rows))
        for dtype, candidates in self.attempts:
            sizes, unsure = self.plan(len(pending), dtype, candidates), [pending[:0]]
            for start in range(0, len(pending), sizes.batch):
                part = pending[start : start + sizes.batch]
                exact = self.queries.block(rows[part])
                near, certain = self._settle(exact, self._propose(exact, rows[part], dtype, candidates, sizes))
                found.put(part, near)
                unsure.append(part[~certain])
                advance(int(certain.sum()))
            pending = np.concatenate(unsure)
        return found

    @cached_property
    def attempts(self) -> list[tuple[torch.dtype, int]]:
        """Types to search in and how many candidates to keep; the last keeps all, which is always certain."""
        few, every = PER_NEIGHBOUR * self.k + SPARE, len(self.targets)
        attempts = [(torch.float32, few), (torch.float64, WIDER * few), (torch.float64, every)]
        if multiplies_bfloat16(self.targets.device):
            attempts.insert(0, (torch.bfloat16, few))
        return [(dtype, min(candidates, every)) for dtype, candidates in attempts]

    def plan(self, rows: int, dtype: torch.dtype, candidates: int) -> Plan:
        """What is handled at a time in a search for so many rows."""
        shape = (rows, len(self.targets), self.queries.bag, self.targets.bag, self.targets.width)
        return plan(*shape, candidates, self.memory, dtype=dtype, device=self.targets.device.type)

    def _propose(self, exact: Tensor, rows: Rows, dtype: torch.dtype, candidates: int, sizes: Plan) -> Candidates:
        """The candidates of some rows, whose vectors are `exact`."""
        shape, device = (len(rows), candidates), exact.device
        near = Candidates(
            torch.full(shape, torch.inf, dtype=sums_in(dtype), device=device),
            torch.zeros(shape, dtype=torch.int64, device=device),
            torch.zeros(len(rows), dtype=torch.float64, device=device),
            torch.zeros((), dtype=torch.float64, device=device),
        )
        codes = torch.from_numpy(self.query_codes[rows]).to(device)
        for start in range(0, len(self.targets), sizes.block):
            tiles = self._tiles(dtype, slice(start, min(start + sizes.block, len(self.targets))), sizes.tile)
            near.share.copy_(torch.stack([near.share, *(tile.share for tile in tiles)]).max())
            for first in range(0, len(rows), sizes.strip):
                part = slice(first, first + sizes.strip)
                query = round_bags(self.queries, exact[part], dtype)
                near.lengths[part] = query.lengths
                near.join(part, self._shown(query, codes[part], tiles, start), start)
            del tiles  # before the next are read
        return near

    def _shown(self, query: Rounded, codes: Tensor, tiles: list[Rounded], start: int) -> Tensor:
        """(q, n) what a strip of rows shows for the targets from `start` on."""
        vectors = as_queries(query.vectors, self.queries.width)
        counts = [tile.vectors.shape[1] for tile in tiles]
        shown = torch.empty((len(codes), sum(counts)), dtype=sums_in(vectors.dtype), device=vectors.device)
        for tile, place in zip(tiles, torch.split(shown, counts, dim=1), strict=True):
            place.copy_(squares(vectors, tile.vectors))
        return shown.masked_fill_(codes[:, None] == self._target_codes[start : start + sum(counts)], torch.inf)

    def _tiles(self, dtype: torch.dtype, block: slice, size: int) -> list[Rounded]:
        """Rounded targets; the last are held for the next call, and these are all of them where they fit."""
        if (dtype, block.start) not in self._held:
            self._held.clear()
            parts = (slice(start, min(start + size, block.stop)) for start in range(block.start, block.stop, size))
            self._held[dtype, block.start] = [
                round_bags(self.targets, self.targets.block(part), dtype) for part in parts
            ]
        return self._held[dtype, block.start]

    def _settle(self, exact: Tensor, near: Candidates) -> tuple[Neighbours, NDArray[np.bool_]]:
        """The nearest of each row, and whether they are certain."""
        shown = near.squares
        distances = torch.full(shown.shape, torch.inf, device=exact.device)
        first = shown < torch.inf
        first[:, self.k :] = False
        distances[first] = self.measure(exact, first, near.places)
        # Whoever is as near as the k-th, or not farther than float32 can tell, has shown at most `limit`.
        kth = (distances[:, : self.k].amax(dim=1).double() * (1 + 2.0**-21) + 2.0**-149) * self.targets.scale
        longest = (near.lengths + kth).clamp(max=self.targets.radius * (1 + 2.0**-22))  # vector that is so near
        reach, terms = near.lengths + longest, rounded_width(self.targets.width) + 16
        limit = (kth + near.share * reach).square() + terms * unit(shown.dtype) * reach.square() + TINY
        last = shown[:, -1]
        certain = (last > limit) | (last == torch.inf) | (shown.shape[1] == len(self.targets))
        rest = (shown <= limit[:, None]) & (shown < torch.inf) & certain[:, None] & ~first
        distances[rest] = self.measure(exact, rest, near.places)
        # Distances are not negative, so their bits sort as they do; below them the place decides.
        keys = ((distances.view(torch.int32).long() << 32) | near.places).topk(self.k, dim=1, largest=False).values
        found = (keys >> 32).int().view(torch.float32)
        indices = torch.where(found < torch.inf, keys & (2**32 - 1), -1)
        return Neighbours(indices.cpu().numpy(), found.cpu().numpy()), certain.cpu().numpy()

    def measure(self, exact: Tensor, wanted: Tensor, places: Tensor) -> Tensor:
        """Distances of bags `exact` (Q, bag, D) to `places` (Q, n) where `wanted` (Q, n)."""
        row, column = wanted.nonzero(as_tuple=True)
        place, again = places[row, column], None
        if len(row) > CROWD * self.k * len(exact):
            pairs, again = torch.unique(row * len(self.targets) + self._first_copy[place], return_inverse=True)
            row, place = pairs // len(self.targets), pairs % len(self.targets)
        distances = torch.empty(len(row), dtype=torch.float32, device=exact.device)
        step = pairs_at_a_time(self.queries.bag + self.targets.bag, self.targets.width, self.memory, exact.device.type)
        for part in torch.split(place.argsort(), step):  # in order, so that a file is read from front to back
            distances[part] = closest(exact[row[part]], self.targets.block(place[part]))
        return distances if again is None else distances[again]

    @cached_property
    def _target_codes(self) -> Tensor:
        return torch.from_numpy(self.target_codes).to(self.targets.device)

    @cached_property
    def _first_copy(self) -> Tensor:
        """(N) the first of the targets whose vectors are exactly the same."""
        digests = [
            hashlib.blake2b(values.tobytes(), digest_size=16).digest()
            for part in self.targets.slices()
            for values in self.targets.block(part).cpu().numpy()
        ]
        _, first, places = np.unique(digests, return_index=True, return_inverse=True)
        return torch.from_numpy(first[places]).to(self.targets.device)
