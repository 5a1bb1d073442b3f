"""One batch over several processes, with the result of one: outputs are gathered, sums and gradients added up.

Every process holds the whole batch's labels and memory, puts its share of the images through the network, and gets the
outputs of all. A loss is therefore computed on the whole batch everywhere, and what a method remembers about images
stays the same in all processes without a word about them in the method. Nothing here makes the host wait, so that a GPU
can record a step with all its exchanges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.distributed as distributed
from torch import Tensor, nn

from bomd import processes


def own_part(count: int) -> slice:
    """The share of `count` rows that this process works on; shares differ by one row at most."""
    rank, world = processes.rank(), processes.count()
    return slice(rank * count // world, (rank + 1) * count // world)


def part_sizes(count: int) -> list[int]:
    """The rows of every process's share."""
    world = processes.count()
    return [(rank + 1) * count // world - rank * count // world for rank in range(world)]


def gather(own: Tensor, count: int) -> Tensor:
    """(count, ...) the rows of all processes in order; gradients find their way back to the process of each row."""
    if len(own) != part_sizes(count)[processes.rank()]:
        raise ValueError(
            f"{len(own)} rows are not this process's share of {count}. "
            "A method whose step computes with images, as mixing does, has to set `mixes = True`."
        )
    return cast(Tensor, _Gather.apply(own, count))  # type: ignore[no-untyped-call]


def average_gradients(weights: Sequence[nn.Parameter]) -> None:
    """Give every process the mean of all gradients, in one exchange; they become parts of one tensor."""
    gradients = {weight: weight.grad for weight in weights if weight.grad is not None}
    if gradients:
        # In the order of memory, which is the same everywhere: a gradient lies as its weight does.
        flat = torch.cat([gradient.as_strided((gradient.numel(),), (1,)) for gradient in gradients.values()])
        _add_up(flat)
        flat /= processes.count()
        parts = torch.split(flat, [gradient.numel() for gradient in gradients.values()])
        for (weight, gradient), part in zip(gradients.items(), parts, strict=True):
            weight.grad = part.as_strided(gradient.shape, gradient.stride(), part.storage_offset())


class Together:
    """What the batch norms of a network ask of the processes that share a batch."""

    def __init__(self) -> None:
        self.images = 0  # of the whole batch; 0 where every process has all of it, and there is nothing to ask

    @property
    def count(self) -> int:
        """How many processes there are."""
        return processes.count()

    @property
    def rank(self) -> int:
        """This process's number."""
        return processes.rank()

    @property
    def shares(self) -> list[float]:
        """Of the images, by process."""
        return [size / self.images for size in part_sizes(self.images)]

    def rows(self, own: int) -> int:
        """How many rows all processes have, where this one has `own`; an image has the same number everywhere."""
        return own * self.images // part_sizes(self.images)[processes.rank()]

    def gather(self, values: Tensor) -> Tensor:
        """(processes, ...) the values of each, without gradients."""
        return _side_by_side(values[None])

    def fill(self, rows: Tensor) -> Tensor:
        """Add the other processes' rows to rows of which this process has written its own part."""
        _all_gather(rows, rows.chunk(self.count)[self.rank])
        return rows

    def total(self, values: Tensor) -> Tensor:
        """Add up over all processes, in place."""
        _add_up(values)
        return values


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, count: int) -> Tensor:
        world = processes.count()
        ctx.own = own_part(count)
        largest = -(-count // world)
        padding = own.new_zeros((largest - len(own), *own.shape[1:]))
        every = _side_by_side(torch.cat([own, padding]) if len(padding) else own)
        if len(every) == count:
            return every
        parts = zip(torch.split(every, largest), part_sizes(count), strict=True)
        return torch.cat([part[:size] for part, size in parts])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # Every process has the gradient of the whole loss; the factor makes up for the average over processes.
        return gradient[ctx.own] * processes.count(), None


def _side_by_side(own: Tensor) -> Tensor:
    """The rows of all processes one after the other; every process has as many."""
    every = own.new_empty((processes.count() * len(own), *own.shape[1:]))
    _all_gather(every, own.contiguous())
    return every


def _all_gather(every: Tensor, own: Tensor) -> None:
    newer = hasattr(distributed, "all_gather_single")  # the name since PyTorch 2.13, which deprecates the other
    with processes.exchange():
        (distributed.all_gather_single if newer else distributed.all_gather_into_tensor)(every, own)


def _add_up(values: Tensor) -> None:
    with processes.exchange():
        distributed.all_reduce(values)
