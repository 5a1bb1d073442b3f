"""Batch norms whose statistics are those of all processes that share a batch."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from bomd.kernels.columns import Norm, back_through_norm, maps_of, rows_of, scale, statistics
from bomd.spread import Together


def normalise_together(network: nn.Module, together: Together) -> None:
    """Let every batch norm take its statistics from the images of all processes; PyTorch's own needs a GPU for that."""
    for module in network.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = WholeBatchNorm
            cast(WholeBatchNorm, module).together = together


class WholeBatchNorm(nn.BatchNorm2d):
    """A batch norm that asks the other processes for their statistics."""

    together: Together

    def forward(self, images: Tensor) -> Tensor:
        if not self.training or not self.together.images:
            return super().forward(images)
        output, table, count = _WholeNorm.apply(images, self.weight, self.bias, self.eps, self.together)  # type: ignore[no-untyped-call]
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        with torch.no_grad():
            momentum = self.momentum or 0.0
            self.running_mean.lerp_(table[0], momentum)
            self.running_var.lerp_(table[1] * (count / max(1, count - 1)), momentum)
            self.num_batches_tracked.add_(1)
        return cast(Tensor, output)


class _WholeNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, images: Tensor, weight: Tensor, bias: Tensor, eps: float, together: Together
    ) -> tuple[Tensor, Tensor, int]:
        matrix, shape = rows_of(images), (images.shape[0], images.shape[2], images.shape[3])
        norm = statistics(matrix, weight, bias, together, eps)
        ctx.save_for_backward(matrix, norm.table, weight)
        ctx.shape, ctx.count, ctx.together = shape, norm.count, together
        ctx.mark_non_differentiable(norm.table)
        # Not a view of its rows: a ReLU that follows may change it in place.
        output = torch.empty_like(images, memory_format=torch.channels_last)
        scale(matrix, norm.factor, norm.shift, out=rows_of(output))
        return output, norm.table, norm.count

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        matrix, table, weight = ctx.saved_tensors
        moved, d_weight, d_bias = back_through_norm(
            rows_of(gradient), matrix, Norm(table, ctx.count), together=ctx.together
        )
        scale(moved, weight, torch.zeros_like(weight), out=moved)
        return maps_of(moved, ctx.shape), d_weight, d_bias, None, None
