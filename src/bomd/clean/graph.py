"""The nearest images over all descriptors, on a CPU or a GPU.

Whatever engine proposes candidates, these are measured by direct difference in float64, so that the result of all
exact ones is the same: sorted by float32 distance, equal distances by lower row.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.clean import bags as blocks
from bomd.clean.arithmetic import matmul_precision
from bomd.clean.bags import Bags, closest, nothing, open_bags
from bomd.clean.index import Search, search_flat, search_lists
from bomd.clean.neighbours import Neighbours, Rows
from bomd.clean.plan import Plan, plan
from bomd.clean.scan import Scan
from bomd.clean.sieve import Sieve
from bomd.errors import InputError
from bomd.progress import bar
from bomd.tables import Floats

__all__ = ["Backend", "Neighbours", "Plan", "Reading", "nearest_images", "plan"]

Reading = Literal["images", "nodes", "ranksum"]
Backend = Literal["auto", "torch", "faiss", "ivf"]

RANKSUM_NODES = 200  # descriptors in each list of the `ranksum` reading
HOST_MEMORY = 4.0  # gigabytes that a search takes on a CPU unless told otherwise
FREE_SHARE = 0.8  # of what is free, that a search takes on a GPU
LISTS_OPERATIONS = 2e13  # of an exact search on a CPU, above which inverted lists may be faster; minutes


def nearest_images(
    descriptors: NDArray[Any] | Tensor,
    k: int,
    *,
    rows: NDArray[Any] | None = None,
    groups: NDArray[Any] | None = None,
    reading: Reading = "images",
    device: str | torch.device | None = None,
    backend: Backend = "auto",
    memory: float | None = None,
) -> Neighbours:
    """Find the k nearest other images of each image.

    The distance between two images is that of their closest pair of descriptors. Readings of equation 5:

    - `images`: the k nearest images; always k of them unless `groups` leaves fewer.
    - `nodes`: the different images among the k nearest descriptors of other images, which may be fewer.
    - `ranksum`: per descriptor the 200 nearest descriptors of other images give a ranked list of images; the
      k images with the smallest sum of ranks over the lists that hold them.

    Args:
        descriptors: (N, M, D) or, with one for each image, (N, D), finite; an array, a memory map or a tensor.
        k: neighbours per image, at most N - 1.
        rows: (Q) images to search for; all of them by default.
        groups: (N) images with the same value, such as a patient, are never each other's neighbours.
        reading: see above.
        device: where to compute; by default where the tensor is, or a GPU if there is one.
        backend: `torch` and `faiss` (a flat index on a CPU) are exact. `ivf` searches inverted lists on a CPU, as
            many as it takes for a measured recall of at least .99. `auto` is `torch`, except for searches on a CPU
            that would take minutes and that a sample shows to be faster by inverted lists.
        memory: gigabytes that the search may take on its device; by default 4 on a CPU and most of what is free on
            a GPU. Descriptors that do not fit are streamed.
    """
    descriptors = descriptors[:, None] if descriptors.ndim == 2 else descriptors
    count = len(descriptors)
    queries = np.asarray(np.arange(count) if rows is None else rows)
    if descriptors.ndim != 3:
        raise InputError(f"Descriptors have shape {tuple(descriptors.shape)}, expected (N, M, D) or (N, D).")
    if not 1 <= k < count:
        raise InputError(f"k is {k}, but must lie between 1 and {count - 1}: there are {count} images.")
    if queries.ndim != 1 or queries.dtype.kind not in "iu" or not np.isin(queries, np.arange(count)).all():
        raise InputError(f"Rows must be a list of row numbers from 0 to {count - 1}.")
    if groups is not None and np.shape(groups) != (count,):
        raise InputError(f"Groups have shape {np.shape(groups)}, expected one for each of {count} images.")
    if memory is not None and memory <= 0:
        raise InputError(f"Memory is {memory:g} GB, but must lie above 0.")
    if reading not in get_args(Reading):
        raise InputError(f"Unknown reading {reading!r}; choose images, nodes or ranksum.")
    if backend not in get_args(Backend):
        raise InputError(f"Unknown backend {backend!r}; choose auto, torch, faiss or ivf.")
    place = _device(descriptors, device)
    if backend in ("faiss", "ivf") and (place.type != "cpu" or reading != "images"):
        raise InputError(f"The {backend} backend searches with reading images on a CPU only; choose backend torch.")
    # An image is never its own neighbour: without groups, each image is a group of its own.
    codes = np.arange(count) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    queries = queries.astype(np.int64)
    with bar("Nearest images", len(queries)) as advance, matmul_precision("highest"):
        space = 1e9 * memory if memory is not None else _memory(place)
        bags = open_bags(descriptors, place, space)
        if bags.values is not descriptors:
            space /= 2  # the other half holds the descriptors
        if reading == "images":
            scan = Scan(bags, bags, codes, codes, k, space)
            return _search_images(scan, queries, backend, advance)
        nodes, owners = bags.nodes(), np.repeat(codes, bags.bag)
        if reading == "nodes":
            scan = Scan(bags, nodes, codes, owners, k, space)
            found = Sieve(scan, len(queries)).search(queries, advance)
            return _first_of_each(found.indices // bags.bag, found.distances)  # -1 stays -1 when divided
        scan = Scan(nodes, nodes, owners, owners, min(RANKSUM_NODES, len(nodes)), space)
        lists = Sieve(scan, len(queries) * bags.bag).search
        return _rank_sum(lists, bags, queries, k, advance)


def _search_images(scan: Scan, rows: Rows, backend: Backend, advance: Callable[..., None]) -> Neighbours:
    if backend == "faiss":
        return search_flat(scan, rows, advance)
    sieve = Sieve(scan, len(rows))
    worth = sieve.plan(rows).operations > LISTS_OPERATIONS and bool(find_spec("faiss"))
    if backend == "ivf" or (backend == "auto" and sieve.device.type == "cpu" and worth):
        return search_lists(scan, sieve.search, rows, advance, unless_slower=backend == "auto")
    return sieve.search(rows, advance)


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


def _rank_sum(search: Search, bags: Bags, rows: Rows, k: int, advance: Callable[..., None]) -> Neighbours:
    """Images by the sum of their ranks in the lists of an image's descriptors; equal sums by lower row."""
    found = nothing(len(rows), k)
    for start in range(0, len(rows), blocks.BLOCK):
        block = rows[start : start + blocks.BLOCK]
        lists = search((block[:, None] * bags.bag + np.arange(bags.bag)).ravel(), lambda steps: None)
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
    pairs = torch.from_numpy(rows[places[0]]), torch.from_numpy(found.indices[places])[:, None]
    found.distances[places] = closest(bags, bags, *pairs)[:, 0].cpu().numpy()
    return found


def _device(descriptors: NDArray[Any] | Tensor, device: str | torch.device | None) -> torch.device:
    kept = descriptors.device if isinstance(descriptors, Tensor) else None
    chosen = torch.device(device or kept or ("cuda" if torch.cuda.is_available() else "cpu"))
    if chosen.type not in ("cpu", "cuda"):
        raise InputError(f"Cannot search on device {str(chosen)!r}; choose cpu or cuda.")
    return chosen


def _memory(device: torch.device) -> float:
    """Bytes that a search may take if nobody says."""
    return FREE_SHARE * torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else HOST_MEMORY * 1e9
