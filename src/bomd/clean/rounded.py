"""Vectors rounded to a short type, by how much that moved them, and all squared distances by one product."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from bomd.clean.bags import Bags

EXTRA = 6  # numbers of a rounded vector besides its own
ALIGNMENT = 8  # numbers; matrix units want rows that start at multiples of 16 bytes


@dataclass(frozen=True, eq=False)
class Rounded:
    """n bags."""

    vectors: Tensor  # (bag, n, E): the rounded vector, three ones, its squared length in three parts, zeros
    lengths: Tensor  # (n) length of a bag's longest vector before rounding, float64
    share: Tensor  # () the most that rounding moved a vector, in units of its length


def round_bags(bags: Bags, exact: Tensor, dtype: torch.dtype) -> Rounded:
    """Vectors (n, bag, D) of `bags`, moved, scaled and rounded."""
    width, moved = bags.width, bags.move(exact, sums_in(dtype)).transpose(0, 1)
    kept, length = moved.to(dtype), _length(moved)
    loss = 2 * unit(dtype) * length + _length(moved - kept.to(moved.dtype))  # of moving and of rounding
    vectors = torch.zeros((*kept.shape[:2], rounded_width(width)), dtype=dtype, device=kept.device)
    vectors[..., :width] = kept
    vectors[..., width : width + 3] = 1
    rest = _length(kept.to(moved.dtype)).square()
    for place in range(width + 3, width + EXTRA):
        vectors[..., place] = rest.to(dtype)
        rest = rest - vectors[..., place].double()
    return Rounded(vectors, length.amax(dim=0), (loss / length).nan_to_num(nan=0.0).max())


def as_queries(vectors: Tensor, width: int) -> Tensor:
    """(bag, n, E) that multiplied by rounded vectors give squared distances."""
    query = torch.zeros_like(vectors)
    query[..., :width] = -2 * vectors[..., :width]
    query[..., width : width + 3] = vectors[..., width + 3 : width + EXTRA]
    query[..., width + 3 : width + EXTRA] = 1
    return query


def squares(query: Tensor, target: Tensor) -> Tensor:
    """(q, n) squared distance of the closest vectors of bags, from `as_queries` (p, q, E) and targets (m, n, E)."""
    first, second = query.flatten(0, 1), target.flatten(0, 1).T
    if query.dtype != torch.bfloat16:
        products = first @ second
    elif query.is_cuda:
        products = torch.mm(first, second, out_dtype=torch.float32)
    else:  # the same products, for tests
        products = first.float() @ second.float()
    products = products.view(*query.shape[:2], *target.shape[:2])
    for dim in (2, 0) if products.is_cuda else (0, 2):
        products = products.amin(dim=dim, keepdim=True) if products.shape[dim] > 1 else products
    return products[0, :, 0]


def sums_in(dtype: torch.dtype) -> torch.dtype:
    """The type in which products of a type are added up."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def unit(dtype: torch.dtype) -> float:
    """Error of one operation on such sums; tensor cores cut off where others round."""
    return 2.0**-52 if dtype == torch.float64 else 2.0**-23


def rounded_width(width: int) -> int:
    """Numbers of a rounded vector."""
    return -(-(width + EXTRA) // ALIGNMENT) * ALIGNMENT


@cache
def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether a device multiplies bfloat16 fast, and this PyTorch returns the sums in float32."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    ones = torch.ones(16, 16, dtype=torch.bfloat16, device=device)
    try:
        return torch.mm(ones, ones, out_dtype=torch.float32).dtype == torch.float32
    except (NotImplementedError, RuntimeError, TypeError):
        return False


@contextmanager
def full_precision() -> Iterator[None]:
    """Multiply float32 as such, and afterwards restore what training had chosen."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _length(vectors: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(vectors, dim=-1, dtype=torch.float64)
    return length
