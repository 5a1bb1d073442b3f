"""How much a search handles at a time, so that it stays within a given memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bomd.clean.bags import READ_BYTES
from bomd.clean.rounded import rounded_width, sums_in

STRIP = 1024  # rows multiplied at a time, ...
TILE = {"cpu": 1024, "cuda": 16384}  # ... by so many bags: what a cache holds, what fills a GPU
BATCH = 2**15  # rows whose candidates are collected at a time, where that takes no second look at all bags
PAIRS = {"cpu": 256, "cuda": 8192}  # of bags, measured at a time

HELD_BYTES = 8  # per number of a row's vectors: float32, and as given while they are read
LIST_BYTES = 128  # per candidate of a row: value, place, distance, sorting key, masks, and what sorting copies
SHOWN = 3  # numbers per pair of a row and a bag: the smallest product, and what the choice of the least copies
MEASURED_BYTES = 24  # per number that is being measured: as given, float32, float64


@dataclass(frozen=True)
class Plan:
    """Sizes of one search for the nearest bags."""

    batch: int  # rows whose candidates are collected at a time; each batch passes over all targets
    block: int  # targets that are held rounded at a time; if these are not all, they are read anew for every batch
    tile: int  # targets that are read, rounded and multiplied at a time
    strip: int  # rows that are rounded and multiplied at a time
    passes: int  # how often all targets are read
    peak: float  # most bytes taken beside descriptors as given, a few numbers for each image, and the lists returned


def plan(
    queries: int,
    targets: int,
    query_bag: int,
    bag: int,
    width: int,
    candidates: int,
    memory: float,
    *,
    dtype: torch.dtype = torch.bfloat16,
    device: str = "cuda",
) -> Plan:
    """Choose sizes such that `peak` is at most `memory`, or the least that is possible.

    With s and t bytes in a sum and in a rounded number, the peak is batch (8 p D + 128 candidates) + block m (D + 6) t
    + strip (s ((p + 1) m tile + 3 block) + 32 p D) + max(32 tile m, 24 pairs (p + m)) D, of which each part takes at
    most a quarter of the memory.

    Args:
        query_bag: p, vectors in a row's bag.
        bag: m, vectors in a target.
        width: D, numbers in a vector.
        candidates: targets that are kept for every row.
        memory: bytes.
        dtype: of rounded numbers.
    """
    each, quarter = sums_in(dtype).itemsize, memory / 4
    rounded = bag * rounded_width(width) * dtype.itemsize
    block = _fit(quarter, rounded, targets)
    tile = _fit(quarter, READ_BYTES * bag * width, min(TILE[device], block))
    row = each * ((query_bag + 1) * bag * tile + SHOWN * block) + READ_BYTES * query_bag * width
    listed = HELD_BYTES * query_bag * width + LIST_BYTES * candidates
    batch = _fit(quarter, listed, max(1, min(queries, BATCH) if block == targets else queries))
    strip = _fit(quarter, row, min(STRIP, batch))
    pairs = pairs_at_a_time(query_bag + bag, width, memory, device)
    return Plan(
        batch=batch,
        block=block,
        tile=tile,
        strip=strip,
        passes=1 if block == targets else -(-queries // batch),
        peak=batch * listed
        + block * rounded
        + strip * row
        + max(READ_BYTES * tile * bag, MEASURED_BYTES * pairs * (query_bag + bag)) * width,
    )


def pairs_at_a_time(vectors: int, width: int, memory: float, device: str) -> int:
    """Pairs of bags that are measured at a time if each pair has so many vectors."""
    return _fit(memory / 4, MEASURED_BYTES * vectors * width, PAIRS[device])


def _fit(space: float, each: float, most: int) -> int:
    return max(1, min(int(space / each), most))
