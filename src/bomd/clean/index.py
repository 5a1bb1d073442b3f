"""Search by a Faiss index over all vectors on a CPU: flat, which is exact, or inverted lists, which are not quite."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.clean import bags as blocks
from bomd.clean.bags import nothing, rank_in_run
from bomd.clean.neighbours import Neighbours, Rows
from bomd.clean.scan import Scan
from bomd.progress import say

SPARE_NODES = 16  # fetched beyond what is needed, so that the last one is farther than the last neighbour
LISTS = 2.0  # inverted lists per square root of the number of vectors
TRAINING = 40  # vectors per list from which its centre is learnt
ROUNDS = 10  # of learning the centres
RECALL = 0.99  # share of the true neighbours that inverted lists have to find ...
SAMPLE = 200  # ... for so many rows

Search = Callable[[Rows, Callable[..., None]], Neighbours]


def search_flat(scan: Scan, rows: Rows, advance: Callable[..., None]) -> Neighbours:
    """The same search as `scan` by a flat index; rows it cannot be certain about are scanned."""
    index = import_faiss().IndexFlatL2(scan.targets.width)
    _add(index, scan)
    found, certain = _search(index, scan, rows, advance, exhaustive=True)
    found.put(~certain, scan.search(rows[~certain], advance))
    return found


def search_lists(
    scan: Scan, exact: Search, rows: Rows, advance: Callable[..., None], *, unless_slower: bool
) -> Neighbours:
    """Search inverted lists, as many as it takes to find `RECALL` of the neighbours of a sample of rows.

    Distances are exact, so that all a row can do is miss a neighbour. Rows left with fewer than k are searched
    exactly, and so are all rows where lists do not reach the recall.

    Args:
        scan: what to search for.
        exact: an exact search.
        rows: (Q) images to search for.
        advance: told how many rows are done.
        unless_slower: whether to search exactly where the sample took no longer that way.
    """
    if not len(rows):
        return nothing(0, scan.k)
    sample = np.sort(np.random.default_rng(0).permutation(rows)[:SAMPLE])
    exact(sample[:1], _silent)  # prepares what all rows share, so that the next call shows what they take
    start = time.perf_counter()
    truth = exact(sample, _silent)
    allowed = time.perf_counter() - start if unless_slower else np.inf
    index = _inverted_lists(scan)
    index.nprobe = 1
    while True:
        start = time.perf_counter()
        near, _ = _search(index, scan, sample, _silent)
        taken, recall = time.perf_counter() - start, _recall(near, truth)
        if recall >= RECALL or taken > allowed or index.nprobe == index.nlist:
            break
        index.nprobe = min(2 * index.nprobe, index.nlist)
    if recall < RECALL or taken > allowed:
        say(f"{index.nprobe} of {index.nlist} inverted lists: recall {recall:.4f}, not worth it; searching exactly.")
        return exact(rows, advance)
    say(f"{index.nprobe} of {index.nlist} inverted lists searched: recall {recall:.4f} on {len(sample)} rows.")
    found, full = _search(index, scan, rows, advance)
    found.put(~full, exact(rows[~full], advance))
    return Neighbours(found.indices, found.distances, recall)


def import_faiss() -> Any:
    """Import Faiss with the right kernels: its BLAS misjudges some CPUs and runs slowly there."""
    variable, information = "OPENBLAS_CORETYPE", Path("/proc/cpuinfo")
    kernels = ""
    if variable not in os.environ and "faiss" not in sys.modules and information.exists():
        flags = set(information.read_text(encoding="utf-8").split())
        skylake = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= flags
        kernels = "SkylakeX" if skylake else "Haswell" if {"avx2", "fma"} <= flags else ""
    if kernels:
        os.environ[variable] = kernels  # read once, when the library is loaded
    try:
        import faiss
    finally:
        if kernels:
            del os.environ[variable]
    return faiss


def _inverted_lists(scan: Scan) -> Any:
    faiss, bags = import_faiss(), scan.targets
    vectors = len(bags) * bags.bag
    lists = max(1, min(int(LISTS * vectors**0.5), vectors // TRAINING))
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(bags.width), bags.width, lists)
    index.cp.niter, index.cp.min_points_per_centroid, index.cp.max_points_per_centroid = ROUNDS, 1, TRAINING
    some = np.random.default_rng(0).permutation(len(bags))[: -(-TRAINING * lists // bags.bag)]
    index.train(bags.centred(np.sort(some)).reshape(-1, bags.width).numpy())
    _add(index, scan)
    return index


def _add(index: Any, scan: Scan) -> None:
    for start in range(0, len(scan.targets), blocks.BLOCK):
        block = scan.targets.centred(slice(start, start + blocks.BLOCK))
        index.add(block.reshape(-1, scan.targets.width).numpy())


def _search(
    index: Any, scan: Scan, rows: Rows, advance: Callable[..., None], *, exhaustive: bool = False
) -> tuple[Neighbours, NDArray[np.bool_]]:
    """Neighbours by an index, and for which rows they stand: those that are certain if it is exhaustive, or full."""
    bags, k, codes = scan.targets, scan.k, scan.target_codes
    # (k + 1) bags' worth of vectors hold k other images; members of a group have to be fetched as well.
    members = np.bincount(codes)[codes].astype(np.float64)
    fetch = min((k + int(np.quantile(members, 0.95))) * bags.bag + SPARE_NODES, index.ntotal)
    found, settled = nothing(len(rows), k), np.zeros(len(rows), dtype=np.bool_)
    for start in range(0, len(rows), blocks.BLOCK):
        part = slice(start, start + blocks.BLOCK)
        block = rows[part]
        vectors = bags.centred(block)
        squares, nodes = index.search(vectors.reshape(-1, bags.width).numpy(), fetch)
        # What an exhaustive index has not fetched is at least as far as the last that it has.
        horizon = squares[:, -1].reshape(len(block), -1).min(axis=1)
        query = np.repeat(np.arange(len(block)), bags.bag * fetch)
        fetched = nodes.ravel() >= 0
        query, target, square = query[fetched], nodes.ravel()[fetched] // bags.bag, squares.ravel()[fetched]
        order = np.lexsort((square, target, query))
        query, target, square = query[order], target[order], square[order]
        single = (rank_in_run(query, target) == 0) & (codes[block][query] != codes[target])
        query, target, square = query[single], target[single], square[single]
        kth = np.full(len(block), np.inf, dtype=np.float32)
        order = np.lexsort((square, query))
        last = order[rank_in_run(query[order]) == k - 1]
        kth[query[last]] = square[last]
        limit = kth + 2 * scan.slack(vectors.square().sum(dim=2).amax(dim=1)).numpy()
        known = (limit < horizon) | (fetch == index.ntotal) if exhaustive else np.isfinite(kth)
        close = (square <= limit[query]) & known[query]
        found.put(part, scan.measure(block, query[close], target[close]))
        settled[part] = known
        advance(int(known.sum()))
    return found, settled


def _recall(found: Neighbours, truth: Neighbours) -> float:
    """Share of the true neighbours found; one as near as the last true one is as good."""
    expected = np.isfinite(truth.distances)
    last = np.where(expected, truth.distances, -1).max(axis=1, keepdims=True)
    return float((found.distances <= last).sum() / max(expected.sum(), 1))


def _silent(steps: int = 1, note: str = "") -> None:
    """Counts nothing."""
