"""Exact search that looks at every pair of bags: slow, and certain whatever the vectors are like.

The expanded form |a|² + |b|² - 2ab proposes candidates, generously enough that its rounding cannot hide a true
neighbour; these are then measured. Where too many qualify, float64 and the detection of copies narrow them down.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from bomd.clean import bags as blocks
from bomd.clean.bags import Bags, closest, nothing, rank_in_run
from bomd.clean.neighbours import Neighbours, Rows

CROWD = 50  # candidates per neighbour above which rounding or duplicates, not distance, decide who is one


@dataclass(frozen=True, eq=False)
class Scan:
    """Exact search for the k nearest target bags.

    Bags with the same code are never paired. The distance of two bags is that of their closest vectors.
    `memory` is in bytes.
    """

    queries: Bags
    targets: Bags
    query_codes: Rows
    target_codes: Rows
    k: int
    memory: float

    def search(self, rows: Rows, advance: Callable[..., None]) -> Neighbours:
        """The neighbours of bags `rows`; `advance` is told how many are done."""
        found = nothing(len(rows), self.k)
        # 16 bytes a pair: distances, one product, masks and the top k
        size = max(1, min(int(self.memory / (16 * len(self.targets))), blocks.BLOCK))
        for start in range(0, len(rows), size):
            block = rows[start : start + size]
            crowd = CROWD * self.k * len(block)
            query, target = self._candidates(block, torch.float32)
            if len(query) > crowd:
                query, target = self._candidates(block, torch.float64)
            if len(query) > crowd:  # many copies of the same bag: of each, the k first are enough
                twins = self._twins[target]
                order = np.lexsort((target, twins, query))
                enough = order[rank_in_run(query[order], twins[order]) < self.k]
                query, target = query[enough], target[enough]
            found.put(slice(start, start + size), self.measure(block, query, target))
            advance(len(block))
        return found

    def slack(self, squares: Tensor) -> Tensor:
        """(Q) bound on the rounding of an expanded squared distance, from the largest squared norms."""
        unit = torch.finfo(squares.dtype).eps / 2
        return (self.targets.width + 16) * unit * (squares.sqrt() + self.targets.radius).square()

    def measure(self, rows: Rows, query: Rows, target: Rows) -> Neighbours:
        """The k nearest of each row's candidates; `query` are places in `rows`, `target` rows of targets."""
        pairs = torch.from_numpy(rows[query]), torch.from_numpy(target)[:, None]
        distance = closest(self.queries, self.targets, *pairs)[:, 0].cpu().numpy()
        order = np.lexsort((target, distance, query))
        query, target, distance = query[order], target[order], distance[order]
        place = rank_in_run(query)
        kept = place < self.k
        found = nothing(len(rows), self.k)
        found.indices[query[kept], place[kept]] = target[kept]
        found.distances[query[kept], place[kept]] = distance[kept]
        return found

    @cached_property
    def _twins(self) -> Rows:
        """A number for each target that it shares with those whose vectors are exactly the same."""
        digests = [
            hashlib.blake2b(values.tobytes(), digest_size=16).hexdigest()
            for start in range(0, len(self.targets), blocks.BLOCK)
            for values in self.targets.block(slice(start, start + blocks.BLOCK)).cpu().numpy()
        ]
        return np.unique(digests, return_inverse=True)[1]

    def _candidates(self, rows: Rows, dtype: torch.dtype) -> tuple[Rows, Rows]:
        """Pairs (place in `rows`, target) among which the k nearest of every row certainly are."""
        device = self.queries.device
        query = self.queries.centred(rows, dtype)
        squares = query.square().sum(dim=2)
        best = torch.full((len(rows), len(self.targets)), torch.inf, dtype=dtype, device=device)
        step = max(1, int(self.memory / (8 * 4 * self.targets.bag * self.targets.width)))
        for start in range(0, len(self.targets), step):
            target = self.targets.centred(slice(start, start + step), dtype)
            norms = target.square().sum(dim=2)
            part = best[:, start : start + step]
            for m in range(query.shape[1]):
                for n in range(target.shape[1]):
                    distance = torch.addmm(norms[:, n], query[:, m], target[:, n].T, alpha=-2)
                    torch.minimum(part, distance.add_(squares[:, m, None]), out=part)
        codes = torch.from_numpy(self.query_codes[rows]).to(device)
        best[codes[:, None] == torch.from_numpy(self.target_codes).to(device)] = torch.inf
        kth = best.topk(self.k, dim=1, largest=False).values[:, -1]
        # The true k-th is at most kth + slack, and whoever is nearer than that shows at most kth + 2 slack.
        limit = kth + 2 * self.slack(squares.amax(dim=1))
        close = (best <= limit[:, None]) & torch.isfinite(best)
        query_place, target_place = close.nonzero(as_tuple=True)
        return query_place.cpu().numpy(), target_place.cpu().numpy()
