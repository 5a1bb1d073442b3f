"""Exact search at the speed of low precision: a fast search proposes candidates, a certificate says when they suffice.

Vectors a, b are encoded as a', b', by rounding and on a CPU first by projecting to a few axes. The fast search computes
|a' - b'|² for all pairs by one product of matrices and keeps the smallest few per row. |a' - b'| exceeds |a - b| by no
more than encoding moved a and b, which is known, and the error of products has a bound. So once the first k candidates
have been measured exactly, it is known how small a value every bag that might displace them must have shown. If the
last candidate kept shows more, all such bags are among the candidates; they are measured, and the result is that of
`Scan`. Rows without this certificate are tried again with more numbers or more candidates, and then go to `Scan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.clean.arithmetic import Arithmetic, fastest
from bomd.clean.bags import closest, nothing
from bomd.clean.encode import AXES, UNIT, Encoded, Encoder, principal_axes
from bomd.clean.neighbours import Neighbours, Rows
from bomd.clean.plan import PROPOSALS, SPARE_PROPOSALS, Plan, encoded_width, plan
from bomd.clean.scan import Scan
from bomd.progress import say

WIDER = 16  # times as many candidates for rows that had no certificate
SMALLEST = 2.0**-149  # float32 above 0, to which distances are rounded if they are as small
NEGLIGIBLE = 2.0**-100  # covers numbers too small for float32, in squares of vectors of length 1 or less
PROJECTION_OPERATIONS = 1e12  # of a search on a CPU, above which a projection to a few axes is tried ...
PILOT = 256  # ... on so many rows ...
PILOT_SHARE = 0.5  # ... and used if so many of them get their certificate


@dataclass(frozen=True, eq=False)
class Proposals:
    """Candidates of Q rows: (Q, n) squared distances and places, and what the certificate needs to know."""

    squares: Tensor
    places: Tensor
    norms: Tensor
    losses: Tensor
    share: Tensor
    width: int


class Sieve:
    """Exact search for the k nearest bags; `scan` says for what, and takes the rows that no certificate covers."""

    def __init__(self, scan: Scan, rows: int, arithmetic: Arithmetic | None = None) -> None:
        """Prepare to search for about so many rows, by default with what is fastest on the device."""
        self.scan, self.device = scan, scan.queries.device
        self.uncertified = 0  # rows that went to `scan`
        operations = 2.0 * rows * len(scan.targets) * scan.queries.bag * scan.targets.bag * scan.targets.width
        self.encoder = Encoder(fastest(self.device, operations) if arithmetic is None else arithmetic)
        self._large = self.device.type == "cpu" and operations > PROJECTION_OPERATIONS
        self._query_codes, self._target_codes = (
            torch.from_numpy(codes.astype(np.int32)).to(self.device) for codes in (scan.query_codes, scan.target_codes)
        )
        self._kept: dict[Encoder, list[Encoded]] = {}

    def search(self, rows: Rows, advance: Callable[..., None]) -> Neighbours:
        """The neighbours of bags `rows`, as `scan` would find them; `advance` is told how many are done."""
        found, pending = nothing(len(rows), self.scan.k), np.arange(len(rows))
        for encoder, proposals in self._attempts:
            if not len(pending):
                return found
            sizes = self.plan(rows[pending], encoder, proposals)
            uncertain = []
            for start in range(0, len(pending), sizes.batch):
                batch = pending[start : start + sizes.batch]
                near, certain = self._settle(rows[batch], self._propose(rows[batch], encoder, sizes, advance))
                found.put(batch, near)
                uncertain.append(batch[~certain])
            pending, advance = np.concatenate(uncertain), _silent  # every row has been counted
        if len(pending):
            self.uncertified += len(pending)
            say(f"{len(pending)} of {len(rows)} rows are too close to call by fast products and are scanned in full.")
            found.put(pending, self.scan.search(rows[pending], advance))
        return found

    def plan(self, rows: Rows, encoder: Encoder | None = None, proposals: int | None = None) -> Plan:
        """Block sizes for a search of `rows`, by default for the first attempt without a projection."""
        scan, encoder = self.scan, encoder or self.encoder
        sizes = plan(
            len(scan.targets),
            scan.targets.bag,
            encoder.width(scan.targets),
            scan.k,
            scan.memory / 1e9,
            rows=len(rows),
            query_bag=scan.queries.bag,
            device=self.device.type,
            number_bytes=encoder.arithmetic.container.itemsize,
            proposals=proposals,
        )
        every = scan.queries is scan.targets and np.array_equal(rows, np.arange(len(scan.targets)))
        return replace(sizes, mirrored=sizes.mirrored and every and sizes.batch == len(rows))

    @cached_property
    def _attempts(self) -> list[tuple[Encoder, int]]:
        """How rows are searched for, and with how many candidates, until they have their certificate."""
        few = PROPOSALS * self.scan.k + SPARE_PROPOSALS
        attempts = [(self.encoder, few), (self.encoder, WIDER * few)]
        if self._large and self.scan.targets.width > 2 * AXES:
            # Descriptors of a trained network often vary along few axes. If these do, it shows in some rows.
            projecting = replace(self.encoder, axes=principal_axes(self.scan.targets))
            rows = np.arange(0, len(self.scan.queries), -(-len(self.scan.queries) // PILOT))
            proposed = self._propose(rows, projecting, self.plan(rows, projecting, few), _silent)
            if self._settle(rows, proposed)[1].mean() >= PILOT_SHARE:
                attempts.insert(0, (projecting, few))
        return attempts

    def _settle(self, rows: Rows, proposed: Proposals) -> tuple[Neighbours, NDArray[np.bool_]]:
        """The k nearest of each row, and whether they are certain."""
        queries, targets, k = self.scan.queries, self.scan.targets, self.scan.k
        index = torch.from_numpy(rows).to(self.device)
        squares, places = proposed.squares, proposed.places
        distances = torch.full_like(squares, torch.inf)
        distances[:, :k] = closest(queries, targets, index, places[:, :k])
        distances.masked_fill_(squares == torch.inf, torch.inf)
        # Whoever is as near as the k-th, counting those that float32 cannot tell from it, has shown at most `limit`.
        kth = (distances[:, :k].amax(dim=1).double() * (1 + 4 * UNIT) + SMALLEST) * targets.scale
        norms, losses = proposed.norms, proposed.losses
        reach = (norms + kth).clamp(max=targets.radius * (1 + UNIT))  # the longest vector that can be so near
        terms = encoded_width(proposed.width) + 16
        limit = (kth + losses + proposed.share * reach).square() + terms * UNIT * (norms + reach).square() + NEGLIGIBLE
        last = squares[:, -1]
        certain = (last > limit) | (last == torch.inf) | (squares.shape[1] == len(targets))  # or there are no others
        wanted = (squares <= limit[:, None]) & (squares < torch.inf) & certain[:, None]
        wanted[:, :k] = False
        row, column = wanted.nonzero(as_tuple=True)
        distances[row, column] = closest(queries, targets, index[row], places[row, column][:, None])[:, 0]
        # Distances are not negative, so their bits sort as they do; below them the place decides.
        keys = (distances.view(torch.int32).long() << 32) | places
        keys = keys.topk(k, dim=1, largest=False).values
        lengths = (keys >> 32).int().view(torch.float32)
        indices = torch.where(lengths < torch.inf, keys & (2**32 - 1), -1)
        return Neighbours(indices.cpu().numpy(), lengths.cpu().numpy()), certain.cpu().numpy()

    def _propose(self, rows: Rows, encoder: Encoder, sizes: Plan, advance: Callable[..., None]) -> Proposals:
        """The candidates of some rows, without waiting for the device."""
        shape = (len(rows), sizes.proposals)
        squares = torch.full(shape, torch.inf, device=self.device)
        places = torch.zeros(shape, dtype=torch.int64, device=self.device)
        norms, losses = torch.zeros((2, len(rows)), dtype=torch.float64, device=self.device)
        share = torch.zeros((), dtype=torch.float64, device=self.device)
        index = torch.from_numpy(rows).to(self.device)
        codes = self._query_codes[index]
        start = 0
        for tiles in self._target_blocks(encoder, sizes):
            count = sum(tile.vectors.shape[1] for tile in tiles)
            share = torch.stack([share, *(tile.share for tile in tiles)]).max()
            for part, query, best in self._strips(index, encoder, tiles, sizes):
                best.masked_fill_(codes[part, None] == self._target_codes[start : start + count], torch.inf)
                near = best.topk(min(sizes.proposals, count), dim=1, largest=False)
                both = torch.cat([squares[part], near.values], dim=1)
                squares[part], kept = both.topk(sizes.proposals, dim=1, largest=False)
                places[part] = torch.cat([places[part], near.indices + start], dim=1).gather(1, kept)
                norms[part], losses[part] = query.norms, query.losses
                if start + count == sizes.images:
                    advance(len(best))
            start += count
        return Proposals(squares, places, norms, losses, share, sizes.width)

    def _strips(
        self, rows: Tensor, encoder: Encoder, tiles: list[Encoded], sizes: Plan
    ) -> Iterator[tuple[slice, Encoded, Tensor]]:
        """Slices of `rows`, encoded, with their approximate squared distances to all bags of a block: (n, block)."""
        if not sizes.mirrored:
            for start in range(0, len(rows), sizes.strip):
                part = slice(start, start + sizes.strip)
                query = encoder.encode(self.scan.queries, rows[part])
                vectors = query.as_queries()
                near = [self._near(vectors, tile) for tile in tiles]
                yield part, query, near[0] if len(near) == 1 else torch.cat(near, dim=1)
            return
        whole = torch.empty(sizes.images, sizes.images, device=self.device)
        parts = [slice(start, start + sizes.tile) for start in range(0, sizes.images, sizes.tile)]
        for row, query in enumerate(tiles):
            vectors = query.as_queries()
            for column in range(row, len(tiles)):
                block = self._near(vectors, tiles[column])
                whole[parts[row], parts[column]] = block
                whole[parts[column], parts[row]] = block.T
        for part, query in zip(parts, tiles, strict=True):
            yield part, query, whole[part]

    def _near(self, vectors: Tensor, tile: Encoded) -> Tensor:
        """Approximate squared distance of the closest vectors of bags: (q, n)."""
        bag, count, width = tile.vectors.shape
        products = self.encoder.arithmetic.multiply(vectors, tile.vectors.view(-1, width))
        products = products.view(self.scan.queries.bag, -1, bag, count)
        if products.is_cuda:
            return products.amin(dim=(0, 2))
        return products.amin(dim=0).amin(dim=1)  # several times faster on a CPU

    def _target_blocks(self, encoder: Encoder, sizes: Plan) -> Iterator[list[Encoded]]:
        """Encoded targets, block by block, each in tiles: all at once, kept for the next call, where they fit."""
        if sizes.block == sizes.images:
            if encoder not in self._kept:
                self._kept[encoder] = self._tiles(encoder, 0, sizes.images, sizes.tile)
            yield self._kept[encoder]
            return
        for start in range(0, sizes.images, sizes.block):
            yield self._tiles(encoder, start, min(start + sizes.block, sizes.images), sizes.tile)

    def _tiles(self, encoder: Encoder, start: int, stop: int, size: int) -> list[Encoded]:
        rows = torch.arange(start, stop, device=self.device)
        return [encoder.encode(self.scan.targets, part) for part in torch.split(rows, size)]


def _silent(steps: int = 1, note: str = "") -> None:
    """Counts nothing."""
