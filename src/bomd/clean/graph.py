"""The nearest images over all descriptors, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.clean.bags import Bags, open_bags
from bomd.clean.neighbours import Neighbours, Rows, nothing
from bomd.clean.rounded import full_precision
from bomd.clean.search import Search
from bomd.errors import InputError
from bomd.progress import bar
from bomd.tables import Floats

__all__ = ["Neighbours", "Reading", "nearest_images"]

Reading = Literal["images", "nodes", "ranksum"]

RANKSUM_NODES = 200  # descriptors in each list of the `ranksum` reading
LISTED = 2048  # images whose lists are ranked at a time
PART = {
    "cpu": 5e12,
    "cuda": 5e15,
}  # products of two numbers in about a minute, which is when results are kept, ...
FEWEST = 1000  # ... of so many rows at least: those of fewer would read all descriptors for little
HOST_MEMORY = 4.0  # gigabytes that a search takes on a CPU unless told otherwise
FREE_SHARE = 0.8  # of what is free, that a search takes on a GPU


def nearest_images(
    descriptors: NDArray[Any] | Tensor,
    k: int,
    *,
    rows: NDArray[Any] | None = None,
    groups: NDArray[Any] | None = None,
    reading: Reading = "images",
    device: str | torch.device | None = None,
    memory: float | None = None,
    done: int = 0,
    keep: Callable[[Neighbours], object] = lambda found: None,
) -> Neighbours:
    """Find the k nearest other images of each image.

    The distance between two images is that of their closest pair of descriptors. Readings of equation 5:

    - `images`: the k nearest images; always k of them unless `groups` leaves fewer.
    - `nodes`: the different images among the k nearest descriptors of other images, which may be fewer.
    - `ranksum`: per descriptor the 200 nearest descriptors of other images give a ranked list of images; the
      k images with the smallest sum of ranks over the lists that hold them.

    Args:
        descriptors: (N, M, D) or, with one for each image, (N, D), finite; an array or a tensor of any float type, or
            either mapped from a file, which is then read in parts and may be larger than the memory.
        k: neighbours per image, at most N - 1.
        rows: (Q) images to search for; all of them by default.
        groups: (N) images with the same value, such as a patient, are never each other's neighbours.
        reading: see above.
        device: where to compute; by default where the tensor is, or a GPU if there is one.
        memory: gigabytes that the search may take on its device besides what is given there; by default 4 on a CPU
            and most of what is free on a GPU. How it is divided says `bomd.clean.plan`.
        done: how many of the rows, from the first, are left out, since their neighbours are known.
        keep: is told the neighbours of row after row in parts of about a minute, for whoever may be interrupted.

    Returns:
        The neighbours of all rows but those that are done.
    """
    descriptors = descriptors[:, None] if descriptors.ndim == 2 else descriptors
    count = len(descriptors)
    queries = np.asarray(np.arange(count) if rows is None else rows)
    if descriptors.ndim != 3:
        raise InputError(f"Descriptors have shape {tuple(descriptors.shape)}, expected (N, M, D) or (N, D).")
    if isinstance(descriptors, np.ndarray) and descriptors.dtype.type is np.void:
        raise InputError("Descriptors have a type that NumPy does not know; open a bfloat16 file by torch.from_file.")
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
    place = _device(descriptors, device)
    # An image is never its own neighbour: without groups, each image is a group of its own.
    codes = np.arange(count) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    queries = queries.astype(np.int64)
    with bar("Nearest images", len(queries)) as advance, full_precision():
        advance(done)
        free = FREE_SHARE * torch.cuda.mem_get_info(place)[0] if place.type == "cuda" else HOST_MEMORY * 1e9
        space = free if memory is None else 1e9 * memory
        bags = open_bags(descriptors, place, space)
        if bags.values is not descriptors:
            space /= 2  # the other half holds the descriptors
        find = _searcher(bags, codes, k, reading, space)
        step = max(FEWEST, int(PART[place.type] / (bags.bag**2 * bags.width * count)))
        found = nothing(len(queries) - done, k)
        for start in range(done, len(queries), step):
            near = find(queries[start : start + step], advance)
            found.put(slice(start - done, start - done + step), near)
            keep(near)
        return found


def _searcher(
    bags: Bags, codes: Rows, k: int, reading: Reading, space: float
) -> Callable[[Rows, Callable[..., object]], Neighbours]:
    """What finds the neighbours of some rows within so many bytes, and tells how many are done."""
    images = Search(bags, bags, codes, codes, k, space)
    if reading == "images":
        return images
    nodes, owners = bags.nodes(), np.repeat(codes, bags.bag)
    if reading == "nodes":
        near = Search(bags, nodes, codes, owners, k, space)
        return lambda rows, advance: _images_of(near(rows, advance), bags.bag)
    lists = Search(nodes, nodes, owners, owners, min(RANKSUM_NODES, len(nodes)), space)
    return lambda rows, advance: _rank_sum(images, lists, rows, advance)


def _images_of(nodes: Neighbours, bag: int) -> Neighbours:
    """The different images of the nearest descriptors."""
    return _first_of_each(nodes.indices // bag, nodes.distances)  # -1 stays -1 when divided


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


def _rank_sum(images: Search, lists: Search, rows: Rows, advance: Callable[..., object]) -> Neighbours:
    """Images by the sum of their ranks in the lists of an image's descriptors; equal sums by lower row."""
    found, bags = nothing(len(rows), images.k), images.queries
    for start in range(0, len(rows), LISTED):
        block = rows[start : start + LISTED]
        near = lists((block[:, None] * bags.bag + np.arange(bags.bag)).ravel(), lambda steps: None)
        ranked = _first_of_each(near.indices // bags.bag, near.distances).indices
        for place, own in enumerate(ranked.reshape(len(block), bags.bag, -1).tolist(), start):
            ranks: dict[int, int] = {}
            for one in own:
                for rank, image in enumerate(one, 1):
                    ranks[image] = ranks.get(image, 0) + rank
            best = sorted(ranks.keys() - {-1}, key=lambda image: (ranks[image], image))[: images.k]
            found.indices[place, : len(best)] = best
        part = slice(start, start + len(block))
        places = torch.from_numpy(found.indices[part]).to(bags.device)
        found.distances[part][found.indices[part] >= 0] = images.measure(bags.block(block), places >= 0, places).cpu()
        advance(len(block))
    return found


def _device(descriptors: NDArray[Any] | Tensor, device: str | torch.device | None) -> torch.device:
    kept = descriptors.device if isinstance(descriptors, Tensor) else None
    chosen = torch.device(device or kept or ("cuda" if torch.cuda.is_available() else "cpu"))
    if chosen.type not in ("cpu", "cuda"):
        raise InputError(f"Cannot search on device {str(chosen)!r}; choose cpu or cuda.")
    return chosen
