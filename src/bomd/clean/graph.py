"""The nearest images over all descriptors, found exactly, on a CPU or a GPU.

A fast search in the expanded form |a|² + |b|² - 2ab proposes candidates, generously enough that its rounding
cannot hide a true neighbour; candidates are then measured by direct difference in float64. Whatever proposed
them, the result is therefore the same: sorted by float32 distance, equal distances by lower row.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.errors import InputError
from bomd.progress import bar
from bomd.tables import Floats

Reading = Literal["images", "nodes", "ranksum"]
Backend = Literal["auto", "torch", "faiss"]
Rows = NDArray[np.int64]

RANKSUM_NODES = 200  # descriptors in each list of the `ranksum` reading
SPARE_NODES = 16  # fetched beyond what is needed, so that the last one is farther than the last neighbour
CROWD = 50  # candidates per neighbour above which rounding or duplicates, not distance, decide who is one
BLOCK = 2048  # images handled at a time where memory does not ask for fewer


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest images of Q images, nearest first.

    Attributes:
        indices: (Q, K) row numbers; -1 where there are fewer than K.
        distances: (Q, K) distance of the closest pair of descriptors; infinite where there is no image.
    """

    indices: Rows
    distances: Floats


def nearest_images(
    descriptors: NDArray[Any] | Tensor,
    k: int,
    *,
    rows: NDArray[Any] | None = None,
    groups: NDArray[Any] | None = None,
    reading: Reading = "images",
    device: str | torch.device | None = None,
    backend: Backend = "auto",
    memory: float = 1.0,
) -> Neighbours:
    """Find the k nearest other images of each image.

    The distance between two images is that of their closest pair of descriptors. Readings of equation 5:

    - `images`: the k nearest images; always k of them unless `groups` leaves fewer.
    - `nodes`: the different images among the k nearest descriptors of other images, which may be fewer.
    - `ranksum`: per descriptor the 200 nearest descriptors of other images give a ranked list of images; the
      k images with the smallest sum of ranks over the lists that hold them.

    Args:
        descriptors: (N, M, D), finite; an array, a memory map or a tensor.
        k: neighbours per image, at most N - 1.
        rows: (Q) images to search for; all of them by default.
        groups: (N) images with the same value, such as a patient, are never each other's neighbours.
        reading: see above.
        device: where to compute; by default where the tensor is, or a GPU if there is one.
        backend: `auto` takes Faiss for `images` on a CPU and PyTorch for everything else.
        memory: gigabytes that one block of distances may take.
    """
    count = len(descriptors)
    queries = np.asarray(np.arange(count) if rows is None else rows)
    if descriptors.ndim != 3:
        raise InputError(f"Descriptors have shape {tuple(descriptors.shape)}, expected (N, M, D).")
    if not 1 <= k < count:
        raise InputError(f"k is {k}, but must lie between 1 and {count - 1}: there are {count} images.")
    if queries.ndim != 1 or queries.dtype.kind not in "iu" or not np.isin(queries, np.arange(count)).all():
        raise InputError(f"Rows must be a list of row numbers from 0 to {count - 1}.")
    if groups is not None and np.shape(groups) != (count,):
        raise InputError(f"Groups have shape {np.shape(groups)}, expected one for each of {count} images.")
    if reading not in get_args(Reading):
        raise InputError(f"Unknown reading {reading!r}; choose images, nodes or ranksum.")
    if backend not in get_args(Backend):
        raise InputError(f"Unknown backend {backend!r}; choose auto, torch or faiss.")
    # An image is never its own neighbour: without groups, each image is a group of its own.
    codes = np.arange(count) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    place = _device(descriptors, device)
    faiss = _choose_faiss(backend, place, reading)
    queries = queries.astype(np.int64)
    with bar("Nearest images", len(queries)) as advance, _full_precision():
        bags = _bags(descriptors, place)
        if reading == "images":
            scan = _Scan(bags, bags, codes, codes, k, memory)
            if faiss is not None:
                return _faiss_search(faiss, scan, queries, advance)
            return scan.search(queries, advance)
        nodes, owners = bags.nodes(), np.repeat(codes, bags.bag)
        if reading == "nodes":
            found = _Scan(bags, nodes, codes, owners, k, memory).search(queries, advance)
            return _first_of_each(found.indices // bags.bag, found.distances)  # -1 stays -1 when divided
        scan = _Scan(nodes, nodes, owners, owners, min(RANKSUM_NODES, len(nodes)), memory)
        return _rank_sum(scan, bags, queries, k, advance)


@dataclass(frozen=True, eq=False)
class _Bags:
    """N bags of vectors, handed out in blocks on one device, wherever they are kept."""

    values: NDArray[Any] | Tensor  # (N, bag, D)
    device: torch.device
    centre: Tensor  # (D) mean vector: the expanded form is more exact for vectors moved near the origin
    radius: float  # largest distance of a vector from the centre

    def __len__(self) -> int:
        return len(self.values)

    @property
    def bag(self) -> int:
        return self.values.shape[1]

    @property
    def width(self) -> int:
        return self.values.shape[2]

    def nodes(self) -> _Bags:
        """The same vectors as bags of one."""
        return replace(self, values=self.values.reshape(-1, 1, self.width))

    def block(self, index: slice | Rows) -> Tensor:
        """(n, bag, D) float32."""
        if isinstance(self.values, Tensor) and not isinstance(index, slice):
            return _move(self.values[torch.from_numpy(index).to(self.values.device)], self.device)
        return _move(self.values[index], self.device)

    def centred(self, index: slice | Rows, dtype: torch.dtype = torch.float32) -> Tensor:
        return self.block(index).to(dtype) - self.centre.to(dtype)


def _bags(values: NDArray[Any] | Tensor, device: torch.device) -> _Bags:
    if device.type == "cuda" and 4 * np.prod(values.shape) < torch.cuda.mem_get_info(device)[0] // 2:
        values = _move(values, device)  # stays there, instead of travelling for every block
    bags = _Bags(values, device, torch.zeros(values.shape[2], device=device), 0.0)
    slices = [slice(start, start + BLOCK) for start in range(0, len(bags), BLOCK)]
    total = torch.zeros(bags.width, dtype=torch.float64, device=device)
    for part in slices:
        total += bags.block(part).double().sum(dim=(0, 1))
    if not torch.isfinite(total).all():
        raise InputError("Descriptors are not finite; a distance to them means nothing.")
    bags = replace(bags, centre=(total / (len(bags) * bags.bag)).float())
    return replace(bags, radius=max(float(bags.centred(part).norm(dim=2).max()) for part in slices))


def _move(values: NDArray[Any] | Tensor, device: torch.device) -> Tensor:
    if not isinstance(values, Tensor):
        values = torch.from_numpy(np.array(values, dtype=np.float32))  # a copy: a memory map may be read-only
    return values.detach().to(device, torch.float32)


@dataclass(frozen=True, eq=False)
class _Scan:
    """Exact search for the k nearest target bags, which looks at every pair.

    Bags with the same code are never paired. The distance of two bags is that of their closest vectors.
    """

    queries: _Bags
    targets: _Bags
    query_codes: Rows
    target_codes: Rows
    k: int
    memory: float

    def search(self, rows: Rows, advance: Callable[..., None]) -> Neighbours:
        found = _nothing(len(rows), self.k)
        # 16 bytes a pair: distances, one product, masks and the top k
        size = max(1, min(int(self.memory * 1e9 / (16 * len(self.targets))), BLOCK))
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            block = rows[part]
            crowd = CROWD * self.k * len(block)
            query, target = self._candidates(block, torch.float32)
            if len(query) > crowd:
                query, target = self._candidates(block, torch.float64)
            if len(query) > crowd:  # many copies of the same bag: of each, the k first are enough
                twins = self._twins[target]
                order = np.lexsort((target, twins, query))
                enough = order[_rank_in_run(query[order], twins[order]) < self.k]
                query, target = query[enough], target[enough]
            near = self.measure(block, query, target)
            found.indices[part], found.distances[part] = near.indices, near.distances
            advance(len(block))
        return found

    def slack(self, squares: Tensor) -> Tensor:
        """(Q) bound on the rounding of an expanded squared distance, from the largest squared norms."""
        unit = torch.finfo(squares.dtype).eps / 2
        return (self.targets.width + 16) * unit * (squares.sqrt() + self.targets.radius).square()

    def measure(self, rows: Rows, query: Rows, target: Rows) -> Neighbours:
        """The k nearest of each row's candidates; `query` are places in `rows`, `target` rows of targets."""
        distance = _distances(self.queries, self.targets, rows[query], target)
        order = np.lexsort((target, distance, query))
        query, target, distance = query[order], target[order], distance[order]
        place = _rank_in_run(query)
        kept = place < self.k
        found = _nothing(len(rows), self.k)
        found.indices[query[kept], place[kept]] = target[kept]
        found.distances[query[kept], place[kept]] = distance[kept]
        return found

    @cached_property
    def _twins(self) -> Rows:
        """A number for each target that it shares with those whose vectors are exactly the same."""
        digests = [
            hashlib.blake2b(values.tobytes(), digest_size=16).hexdigest()
            for start in range(0, len(self.targets), BLOCK)
            for values in self.targets.block(slice(start, start + BLOCK)).cpu().numpy()
        ]
        return np.unique(digests, return_inverse=True)[1]

    def _candidates(self, rows: Rows, dtype: torch.dtype) -> tuple[Rows, Rows]:
        """Pairs (place in `rows`, target) among which the k nearest of every row certainly are."""
        device = self.queries.device
        query = self.queries.centred(rows, dtype)
        squares = query.square().sum(dim=2)
        best = torch.full((len(rows), len(self.targets)), torch.inf, dtype=dtype, device=device)
        step = max(1, int(self.memory * 1e9 / (8 * 4 * self.targets.bag * self.targets.width)))
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


def _faiss_search(faiss: Any, scan: _Scan, rows: Rows, advance: Callable[..., None]) -> Neighbours:
    """The same search by a Faiss index over all vectors; rows it cannot be certain about are scanned."""
    bags, k, codes = scan.targets, scan.k, scan.target_codes
    index = faiss.IndexFlatL2(bags.width)
    for start in range(0, len(bags), BLOCK):
        index.add(bags.centred(slice(start, start + BLOCK)).reshape(-1, bags.width).numpy())
    # (k + 1) bags' worth of vectors hold k other images; members of a group have to be fetched as well.
    members = np.bincount(codes)[codes].astype(np.float64)
    fetch = min((k + int(np.quantile(members, 0.95))) * bags.bag + SPARE_NODES, index.ntotal)
    found, uncertain = _nothing(len(rows), k), np.zeros(len(rows), dtype=np.bool_)
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        block = rows[part]
        vectors = bags.centred(block)
        squares, nodes = index.search(vectors.reshape(-1, bags.width).numpy(), fetch)
        # What was not fetched is at least as far as the last that was.
        horizon = squares[:, -1].reshape(len(block), -1).min(axis=1)
        query = np.repeat(np.arange(len(block)), bags.bag * fetch)
        target, square = nodes.ravel() // bags.bag, squares.ravel()
        order = np.lexsort((square, target, query))
        query, target, square = query[order], target[order], square[order]
        single = (_rank_in_run(query, target) == 0) & (codes[block][query] != codes[target])
        query, target, square = query[single], target[single], square[single]
        kth = np.full(len(block), np.inf, dtype=np.float32)
        order = np.lexsort((square, query))
        last = order[_rank_in_run(query[order]) == k - 1]
        kth[query[last]] = square[last]
        limit = kth + 2 * scan.slack(vectors.square().sum(dim=2).amax(dim=1)).numpy()
        certain = (limit < horizon) | (fetch == index.ntotal)
        close = (square <= limit[query]) & certain[query]
        near = scan.measure(block, query[close], target[close])
        found.indices[part], found.distances[part], uncertain[part] = near.indices, near.distances, ~certain
        advance(int(certain.sum()))
    near = scan.search(rows[uncertain], advance)
    found.indices[uncertain], found.distances[uncertain] = near.indices, near.distances
    return found


def _first_of_each(indices: Rows, distances: Floats) -> Neighbours:
    """(Q, K): each row without its repetitions, moved to the left."""
    again = indices < 0
    for place in range(1, indices.shape[1]):
        again[:, place] |= (indices[:, :place] == indices[:, place : place + 1]).any(axis=1)
    order = np.argsort(again, axis=1, kind="stable")
    again = np.take_along_axis(again, order, axis=1)
    return Neighbours(
        np.where(again, -1, np.take_along_axis(indices, order, axis=1)),
        np.where(again, np.float32(np.inf), np.take_along_axis(distances, order, axis=1)),
    )


def _rank_sum(scan: _Scan, bags: _Bags, rows: Rows, k: int, advance: Callable[..., None]) -> Neighbours:
    """Images by the sum of their ranks in the lists of an image's descriptors; equal sums by lower row."""
    found = _nothing(len(rows), k)
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        lists = scan.search((block[:, None] * bags.bag + np.arange(bags.bag)).ravel(), lambda steps: None)
        images = _first_of_each(lists.indices // bags.bag, lists.distances).indices
        for place, own in enumerate(images.reshape(len(block), bags.bag, -1).tolist(), start):
            ranks: dict[int, int] = {}
            for ranked in own:
                for rank, image in enumerate(ranked, 1):
                    ranks[image] = ranks.get(image, 0) + rank
            best = sorted(ranks.keys() - {-1}, key=lambda image: (ranks[image], image))[:k]
            found.indices[place, : len(best)] = best
        advance(len(block))
    places = np.nonzero(found.indices >= 0)
    found.distances[places] = _distances(bags, bags, rows[places[0]], found.indices[places])
    return found


def _distances(queries: _Bags, targets: _Bags, query: Rows, target: Rows) -> Floats:
    """Distance of the closest vectors of each pair of bags, by direct difference in float64."""
    distances = np.empty(len(query), dtype=np.float32)
    step = max(1, 2**23 // ((queries.bag + targets.bag) * targets.width))  # 64 MB
    for start in range(0, len(query), step):
        part = slice(start, start + step)
        first, second = queries.block(query[part]).double(), targets.block(target[part]).double()
        pairs = torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist")
        distances[part] = pairs.amin(dim=(1, 2)).float().cpu().numpy()
    return distances


def _nothing(rows: int, k: int) -> Neighbours:
    return Neighbours(np.full((rows, k), -1, dtype=np.int64), np.full((rows, k), np.inf, dtype=np.float32))


def _rank_in_run(*keys: NDArray[Any]) -> Rows:
    """Place of each entry within its run of equal keys: 0, 1, 2, 0, 1, ..."""
    place = np.arange(len(keys[0]))
    fresh = place == 0
    for key in keys:
        fresh[1:] |= key[1:] != key[:-1]
    return place - np.maximum.accumulate(np.where(fresh, place, 0))


def _device(descriptors: NDArray[Any] | Tensor, device: str | torch.device | None) -> torch.device:
    kept = descriptors.device if isinstance(descriptors, Tensor) else None
    chosen = torch.device(device or kept or ("cuda" if torch.cuda.is_available() else "cpu"))
    if chosen.type not in ("cpu", "cuda"):
        raise InputError(f"Cannot search on device {str(chosen)!r}; choose cpu or cuda.")
    return chosen


def _choose_faiss(backend: Backend, device: torch.device, reading: Reading) -> Any | None:
    """The Faiss module if it is to be used."""
    suitable = device.type == "cpu" and reading == "images"
    if backend == "torch" or (backend == "auto" and not (suitable and find_spec("faiss"))):
        return None
    if not suitable:
        raise InputError("The faiss backend searches with reading images on a CPU only; choose backend torch.")
    return _import_faiss()


def _import_faiss() -> Any:
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


@contextmanager
def _full_precision() -> Iterator[None]:
    """Keep TF32 and bfloat16 products, which training may have allowed, out of the search."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
