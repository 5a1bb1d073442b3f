"""Normalise, scale, pool and differentiate maps per channel, with as few passes over memory as there can be.

A channels-last map is a matrix with a row per pixel and a column per channel. On a GPU every function here is one or
two Triton kernels (called in `bomd.kernels.on_gpu`) that read each operand once; elsewhere it is the same formula in
PyTorch, which is also what the kernels are checked against. Matrices may be column slices of wider ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from bomd.spread import Together

EPS = 1e-5  # of every batch norm


@dataclass(frozen=True)
class Norm:
    """How columns are normalised, by the statistics of `count` rows.

    The (5, C) table has mean, biased variance, one over the deviation; then the factor and the shift that take a column
    to its normal form, with weight and bias if there are any.
    """

    table: Tensor
    count: int

    @property
    def factor(self) -> Tensor:
        return self.table[3]

    @property
    def shift(self) -> Tensor:
        return self.table[4]


def available(device: torch.device) -> bool:
    """Whether the kernels can run there."""
    return device.type == "cuda" and _installed()


@cache
def _installed() -> bool:
    return find_spec("triton") is not None


def kernels_for(matrix: Tensor) -> Any | None:
    """The module with the kernels where they can run, in float32 inside; Triton is imported for nothing elsewhere."""
    fast = available(matrix.device) and matrix.dtype != torch.float64
    return import_module("bomd.kernels.on_gpu") if fast else None


def statistics(
    matrix: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    together: Together | None = None,
    eps: float = EPS,
    *,
    out: Tensor | None = None,
) -> Norm:
    """Mean and variance of each column of a (P, C) matrix, or of the rows of all processes that share a batch.

    The norm's table is `out`, (5, C), if that is given.
    """
    count = len(matrix) if together is None else together.rows(len(matrix))
    if out is None:
        exactly = torch.float64 if matrix.dtype == torch.float64 else torch.float32
        out = torch.empty((5, matrix.shape[1]), dtype=exactly, device=matrix.device)
    if (kernels := kernels_for(matrix)) is not None:
        kernels.statistics(matrix, weight, bias, together, eps, out)
        return Norm(out, count)
    variance, mean = torch.var_mean(matrix.to(out.dtype), dim=0, correction=0)
    if together is not None:
        parts = list(zip(together.shares, together.gather(torch.stack([mean, variance])), strict=True))
        mean = torch.stack([share * part[0] for share, part in parts]).sum(0)
        variance = torch.stack([share * (part[1] + (part[0] - mean).square()) for share, part in parts]).sum(0)
    inverse = torch.rsqrt(variance + eps)
    factor = inverse if weight is None else inverse * weight
    shift = -mean * factor if bias is None else bias - mean * factor
    return Norm(torch.stack([mean, variance, inverse, factor, shift], out=out), count)


def scale(matrix: Tensor, factor: Tensor, shift: Tensor, *, relu: bool = False, out: Tensor | None = None) -> Tensor:
    """(P, C) matrix * factor + shift per column, cut off below zero if asked; written to `out` if that is given."""
    if out is None:
        out = torch.empty(matrix.shape, dtype=matrix.dtype, device=matrix.device)
    if (kernels := kernels_for(matrix)) is not None:
        kernels.scale(matrix, factor, shift, relu, out)
        return out
    moved = matrix * factor + shift
    return out.copy_(torch.relu(moved) if relu else moved)


def normalise_and_scale(matrix: Tensor, newest: Tensor, norm: Norm, factor: Tensor, shift: Tensor) -> Tensor:
    """relu(matrix * factor + shift) of a (P, C) matrix whose last N columns are written first: `newest`, normalised."""
    if (kernels := kernels_for(matrix)) is not None:
        out = torch.empty(matrix.shape, dtype=matrix.dtype, device=matrix.device)
        kernels.normalise_and_scale(matrix, newest, norm, factor, shift, out)
        return out
    scale(newest, norm.factor, norm.shift, out=matrix[:, -newest.shape[1] :])
    return scale(matrix, factor, shift, relu=True)


def scale_and_average(matrix: Tensor, factor: Tensor, shift: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """relu(matrix * factor + shift), averaged over squares of 2 x 2 pixels; an odd last line is left out.

    The rows of the matrix run over the shape: batch, height and width.
    """
    if (kernels := kernels_for(matrix)) is not None:
        return cast(Tensor, kernels.scale_and_average(matrix, factor, shift, shape))
    moved = torch.relu(matrix * factor + shift).to(matrix.dtype)
    return rows_of(F.avg_pool2d(maps_of(moved, shape), 2))


def back_through_scale(
    gradient: Tensor,
    matrix: Tensor,
    factor: Tensor,
    shift: Tensor,
    into: Tensor,
    *,
    add: bool,
    averaged: tuple[int, int, int] | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradients of factor and shift through relu(matrix * factor + shift), or `scale_and_average` over a shape.

    The (P, C) gradient of `matrix` goes `into` what is overwritten or, with `add`, added to.
    """
    if (kernels := kernels_for(matrix)) is not None:
        return cast(
            tuple[Tensor, Tensor], kernels.back_through_scale(gradient, matrix, factor, shift, into, add, averaged)
        )
    if averaged is not None:
        batch, height, width = averaged
        coarse = maps_of(gradient, (batch, height // 2, width // 2)) / 4
        fine = F.interpolate(coarse, scale_factor=2, mode="nearest")
        gradient = rows_of(F.pad(fine, (0, width - fine.shape[3], 0, height - fine.shape[2])))
    passed = gradient * (matrix * factor + shift > 0)
    moved = passed * factor
    into.copy_(into + moved if add else moved)
    return (passed * matrix).sum(dim=0), passed.sum(dim=0)


def back_through_product(
    gradient: Tensor, weight: Tensor, matrix: Tensor, factor: Tensor, shift: Tensor, into: Tensor, added: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of factor and shift through relu(matrix * factor + shift) @ weight.t(), given a (P, O) gradient of it.

    The (P, C) gradient of `matrix` is added to what is in `into`, and to (2, C) `added` its sums over rows that
    `back_through_normalised` asks for. The weight is (O, C); its own gradient is a product of two large matrices, and
    nothing that can be done better here.
    """
    kernels = kernels_for(matrix)
    # Matrix units multiply numbers of 16 bits; others are left to a library's product.
    if kernels is not None and gradient.dtype in (torch.bfloat16, torch.float16):
        found = kernels.back_through_product(gradient, weight, matrix, factor, shift, into, added)
        return cast(tuple[Tensor, Tensor], found)
    found = back_through_scale(gradient @ weight, matrix, factor, shift, into, add=True)
    added += torch.stack(found) * factor
    return found


def back_through_norm(
    gradient: Tensor,
    matrix: Tensor,
    norm: Norm,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    together: Together | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(P, C) gradient of what went into a batch norm, and those of its weight and bias in this process.

    Args:
        gradient: (P, C) of what followed it.
        matrix: (P, C) that was normalised.
        weight: With `bias`, a ReLU followed as well; without, the norm had neither.
    """
    if (kernels := kernels_for(matrix)) is not None:
        found = kernels.back_through_norm(gradient, matrix, norm, weight, bias, together)
        return cast(tuple[Tensor, Tensor, Tensor], found)
    mean, _, inverse = norm.table[:3]
    normal = (matrix - mean) * inverse
    passed = gradient if weight is None or bias is None else gradient * (normal * weight + bias > 0)
    sums = torch.stack([(passed * normal).sum(dim=0), passed.sum(dim=0)])
    means = (sums if together is None else together.total(sums.clone())) / norm.count
    steepness = inverse if weight is None else inverse * weight
    moved = steepness * (passed - means[1] - normal * means[0])
    return moved.to(matrix.dtype), sums[0], sums[1]


def back_through_normalised(
    gradient: Tensor, matrix: Tensor, norm: Norm, sums: Tensor, together: Together | None = None
) -> Tensor:
    """(P, C) gradient of what went into a batch norm without weight and bias, given what came out of it.

    No pass over memory is needed to know how much of the gradient the statistics take. Where whoever read a column only
    scaled it, by a factor f, and shifted it, the gradient is a sum of f times their masked slopes, and what is asked
    for is the same sum over f times their gradients of factor and of shift.

    Args:
        gradient: (P, C) of what came out.
        matrix: (P, C) that came out.
        sums: (2, C) over this process's rows, of the gradient times the matrix and of the gradient.
    """
    if together is not None:
        sums = together.total(sums.clone(memory_format=torch.contiguous_format))
    if (kernels := kernels_for(matrix)) is not None:
        return cast(Tensor, kernels.back_through_normalised(gradient, matrix, norm, sums))
    means = sums / norm.count
    return (norm.table[2] * (gradient - means[1] - matrix * means[0])).to(matrix.dtype)


def scale_and_take_largest(
    matrix: Tensor, factor: Tensor, shift: Tensor, shape: tuple[int, int, int]
) -> tuple[Tensor, Tensor]:
    """relu(matrix * factor + shift), then the largest of 3 x 3 pixels around every second one; and which it was."""
    if (kernels := kernels_for(matrix)) is not None:
        return cast(tuple[Tensor, Tensor], kernels.scale_and_take_largest(matrix, factor, shift, shape))
    moved = torch.relu(matrix * factor + shift).to(matrix.dtype)
    largest, winners = F.max_pool2d(maps_of(moved, shape), 3, stride=2, padding=1, return_indices=True)
    return rows_of(largest), rows_of(winners)


def back_to_largest(gradient: Tensor, winners: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """(P, C) gradient before `scale_and_take_largest` took the largest, zero for all others."""
    if (kernels := kernels_for(gradient)) is not None:
        return cast(Tensor, kernels.back_to_largest(gradient, winners, shape))
    batch, height, width = shape
    half = (batch, (height + 1) // 2, (width + 1) // 2)
    given, where = (maps_of(part, half).flatten(2) for part in (gradient, winners))
    spread = gradient.new_zeros((batch, gradient.shape[1], height * width)).scatter_add_(2, where, given)
    return rows_of(spread.reshape(*spread.shape[:2], height, width))


def rows_of(maps: Tensor) -> Tensor:
    """(B, C, H, W) maps as a (B H W, C) matrix with its columns side by side, a view where they are channels-last."""
    rows = maps.permute(0, 2, 3, 1).reshape(-1, maps.shape[1])
    return rows if rows.stride(1) == 1 else rows.contiguous()


def maps_of(matrix: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """The way back from `rows_of`, given batch, height and width."""
    return matrix.reshape(*shape, -1).permute(0, 3, 1, 2)
