"""One batch over several processes, with the result of one: outputs are gathered, sums and gradients added up.

Every process holds the whole batch's labels and memory, puts its share of the images through the network, and gets the
outputs of all. A loss is therefore computed on the whole batch everywhere, and what a method remembers about images
stays the same in all processes without a word about them in the method.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
import torch.distributed as distributed
from torch import Tensor, nn

from bomd import processes


def own_part(count: int) -> slice:
    """The share of `count` rows that this process works on; shares differ by one row at most."""
    rank, world = processes.rank(), processes.count()
    return slice(rank * count // world, (rank + 1) * count // world)


def gather(own: Tensor, count: int) -> Tensor:
    """(count, ...) the rows of all processes in order; gradients find their way back to the process of each row."""
    return cast(Tensor, _Gather.apply(own, count))  # type: ignore[no-untyped-call]


def total(values: Tensor) -> Tensor:
    """The sum over all processes, without gradients."""
    values = values.contiguous().clone()
    distributed.all_reduce(values)
    return values


def average_gradients(weights: Iterable[nn.Parameter]) -> None:
    """Give every process the mean of all gradients, in one exchange."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    if gradients:
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        flat /= processes.count()
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


def normalise_together(network: nn.Module) -> None:
    """Let every batch norm take its statistics from the whole batch."""
    for module in network.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = WholeBatchNorm


class WholeBatchNorm(nn.BatchNorm2d):
    """Batch norm over the images of all processes; PyTorch's own needs a GPU."""

    def forward(self, images: Tensor) -> Tensor:
        if not self.training:
            return super().forward(images)
        exact = images if images.dtype == torch.float64 else images.float()
        axes, shape = (0, 2, 3), (1, -1, 1, 1)
        count = total(exact.new_tensor([exact.numel() / exact.shape[1]]))
        mean = _Total.apply(exact.sum(dim=axes)) / count  # type: ignore[no-untyped-call]
        away = exact - mean.view(shape)
        variance = _Total.apply(away.square().sum(dim=axes)) / count  # type: ignore[no-untyped-call]
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        with torch.no_grad():
            momentum = self.momentum or 0.0
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(variance * count / (count - 1), momentum)
            self.num_batches_tracked.add_(1)
        normal = away * torch.rsqrt(variance + self.eps).view(shape)
        return cast(Tensor, (normal * self.weight.view(shape) + self.bias.view(shape)).to(images.dtype))


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return total(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return total(gradient)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, count: int) -> Tensor:
        world = processes.count()
        ctx.own = own_part(count)
        largest = -(-count // world)
        padded = own.new_zeros((largest, *own.shape[1:]))
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in range(world)]
        distributed.all_gather(parts, padded)
        sizes = [(rank + 1) * count // world - rank * count // world for rank in range(world)]
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # Every process has the gradient of the whole loss; the factor makes up for the average over processes.
        return gradient[ctx.own] * processes.count(), None
