"""How the kernels behind `bomd.kernels.columns` are called: memory, tiles and grids. Imported where there is a GPU."""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
from torch import Tensor

from bomd.kernels import norms, pools, products, squares

ROWS = 128  # of a tile
FEW = 32  # rows of a tile that looks at several pixels for each of its own
# Tiles of programs that go through many of them, and how many of these are under way at once. Chosen on an H200 by what
# a whole step took, at 224 and 512 px.
SUMMED = {"ROWS": 64, "STAGES": 3, "num_warps": 4}
MULTIPLIED = {"ROWS": 128, "STAGES": 3, "num_warps": 8}
MULTIPROCESSORS = 132  # of a large GPU: programs that share the rows of a product, and half of those that only add up
COUNTERS = 1024  # more than any matrix has blocks of columns

_counters: dict[tuple[torch.device, int], Tensor] = {}


def statistics(matrix: Tensor, weight: Tensor | None, bias: Tensor | None, together, eps: float, out: Tensor) -> None:
    """(5, C) mean, variance, inverse deviation, factor and shift of each column."""
    rows, columns = matrix.shape
    partial, grid, width = _partial(matrix)
    # Mean and variance of each process, two rows for each, then room for the rest of this one's.
    world, rank = (0, 0) if together is None else (together.count, together.rank)
    table = out if together is None else torch.empty((2 * world + 5, columns), device=matrix.device)
    own = table[2 * rank : 2 * rank + 5]
    given = [part if part is not None else out for part in (weight, bias)]
    kinds = (weight is not None, bias is not None)
    norms.moments[grid](
        matrix, partial, _counter(matrix), *given, own, rows, columns, matrix.stride(0), own.stride(0), grid[0], eps,
        *kinds, WIDTH=width, **SUMMED,
    )  # fmt: skip
    if together is not None:
        every, ranks = together.fill(table[: 2 * world]), triton.next_power_of_2(world)
        norms.join_moments[(triton.cdiv(columns, 32),)](
            every, *given, out, together.images, columns, out.stride(0), world, eps, *kinds, ranks, 32, num_warps=1
        )


def scale(matrix: Tensor, factor: Tensor, shift: Tensor, relu: bool, out: Tensor) -> None:
    rows, columns = matrix.shape
    grid, width = _tiles(rows, columns, ROWS)
    norms.scale[grid](
        matrix, out, factor, shift, rows, columns, matrix.stride(0), out.stride(0), relu, ROWS, width, num_warps=4
    )


def normalise_and_scale(matrix: Tensor, newest: Tensor, norm, factor: Tensor, shift: Tensor, out: Tensor) -> None:
    rows, columns = matrix.shape
    grid, width = _tiles(rows, columns, ROWS)
    norms.normalise_and_scale[grid](
        matrix, newest, out, norm.factor, norm.shift, factor, shift, rows, columns, columns - newest.shape[1],
        matrix.stride(0), newest.stride(0), ROWS, width, num_warps=4,
    )  # fmt: skip


def scale_and_average(matrix: Tensor, factor: Tensor, shift: Tensor, shape: tuple[int, int, int]) -> Tensor:
    batch, height, width = shape
    rows, columns = batch * (height // 2) * (width // 2), matrix.shape[1]
    out = torch.empty((rows, columns), dtype=matrix.dtype, device=matrix.device)
    grid, block = _tiles(rows, columns, FEW)
    pools.scale_and_average[grid](
        matrix, out, factor, shift, rows, columns, matrix.stride(0), height, width, FEW, block, num_warps=4
    )
    return out


def back_through_scale(gradient, matrix, factor, shift, into, add, averaged) -> tuple[Tensor, Tensor]:
    rows, columns = matrix.shape
    partial, grid, width = _partial(matrix)
    sums = torch.empty((2, columns), device=matrix.device)
    strides = (gradient.stride(0), matrix.stride(0), into.stride(0))
    _, high, wide = averaged or (0, 0, 0)
    norms.back_through_scale[grid](
        gradient, matrix, into, factor, shift, partial, _counter(matrix), sums, rows, columns, *strides, grid[0],
        high, wide, add, averaged is not None, WIDTH=width, **SUMMED,
    )  # fmt: skip
    return sums[0], sums[1]


def back_through_product(gradient, weight, matrix, factor, shift, into, added) -> tuple[Tensor, Tensor]:
    (rows, columns), inner = matrix.shape, weight.shape[0]
    width = 64
    blocks = triton.cdiv(columns, width)
    programs = max(1, min(triton.cdiv(rows, MULTIPLIED["ROWS"]), MULTIPROCESSORS // blocks))
    partial = torch.empty((2, programs, columns), device=matrix.device)
    sums = torch.empty((2, columns), device=matrix.device)
    strides = (gradient.stride(0), matrix.stride(0), into.stride(0), added.stride(0))
    products.back_through_product[(blocks * programs,)](
        gradient, weight, matrix, into, factor, shift, partial, _counter(matrix), sums, added, rows, columns, *strides,
        programs, inner, WIDTH=width, **MULTIPLIED,
    )  # fmt: skip
    return sums[0], sums[1]


def back_through_norm(gradient, matrix, norm, weight, bias, together) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = matrix.shape
    partial, grid, width = _partial(matrix)
    mean, inverse, masked = norm.table[0], norm.table[2], weight is not None
    given = (weight, bias) if masked else (mean, mean)
    strides = (gradient.stride(0), matrix.stride(0))
    copies = 1 if together is None else 2
    sums = torch.empty((copies, 2, columns), device=matrix.device)
    norms.norm_sums[grid](
        gradient, matrix, mean, inverse, *given, partial, _counter(matrix), sums, rows, columns, *strides, grid[0],
        copies, masked, WIDTH=width, **SUMMED,
    )  # fmt: skip
    everywhere = sums[0] if together is None else together.total(sums[1])
    return _slopes(gradient, matrix, norm, given, everywhere, masked, False), sums[0, 0], sums[0, 1]


def back_through_normalised(gradient: Tensor, matrix: Tensor, norm, sums: Tensor) -> Tensor:
    return _slopes(gradient, matrix, norm, (norm.table[0], norm.table[0]), sums, False, True)


def _slopes(gradient, matrix, norm, given, sums, masked: bool, normalised: bool) -> Tensor:
    rows, columns = matrix.shape
    out = torch.empty((rows, columns), dtype=matrix.dtype, device=matrix.device)
    grid, width = _tiles(rows, columns, ROWS)
    norms.back_through_norm[grid](
        gradient, matrix, out, norm.table[0], norm.table[2], *given, sums, 1 / norm.count, rows, columns,
        gradient.stride(0), matrix.stride(0), sums.stride(0), masked, normalised, ROWS, width, num_warps=4,
    )  # fmt: skip
    return out


def scale_and_take_largest(matrix, factor, shift, shape) -> tuple[Tensor, Tensor]:
    batch, height, width = shape
    rows, columns = batch * ((height + 1) // 2) * ((width + 1) // 2), matrix.shape[1]
    out = torch.empty((rows, columns), dtype=matrix.dtype, device=matrix.device)
    winners = torch.empty((rows, columns), dtype=torch.uint8, device=matrix.device)
    grid, block = _tiles(rows, columns, FEW)
    pools.take_largest[grid](
        matrix, out, winners, factor, shift, rows, columns, matrix.stride(0), height, width, FEW, block, num_warps=4
    )
    return out, winners


def back_to_largest(gradient: Tensor, winners: Tensor, shape: tuple[int, int, int]) -> Tensor:
    batch, height, width = shape
    rows, columns = batch * height * width, gradient.shape[1]
    out = torch.empty((rows, columns), dtype=gradient.dtype, device=gradient.device)
    grid, block = _tiles(rows, columns, FEW)
    pools.back_to_largest[grid](
        gradient, winners, out, rows, columns, gradient.stride(0), height, width, FEW, block, num_warps=4
    )
    return out


def gather_squares(images: Tensor, out: Tensor) -> None:
    (batch, channels, height, width), (_, high, wide, numbers) = images.shape, out.shape
    strides = (images.stride(place) for place in range(4))
    squares.gather_squares[(batch * high, triton.cdiv(wide, FEW))](
        images, out, height, width, high, wide, *strides, channels, FEW, triton.next_power_of_2(numbers), num_warps=4
    )


def _width(columns: int) -> int:
    """Columns of a tile: a power of two, at most 128 bytes or so of each row."""
    return 32 if columns <= 32 else 64


def _tiles(rows: int, columns: int, height: int) -> tuple[tuple[int], int]:
    """One program per tile, in one dimension: the others are limited to 65,535."""
    width = _width(columns)
    return (triton.cdiv(columns, width) * triton.cdiv(rows, height),), width


def _partial(matrix: Tensor) -> tuple[Tensor, tuple[int, int], int]:
    rows, columns = matrix.shape
    width = _width(columns)
    blocks = triton.cdiv(columns, width)
    programs = max(1, min(triton.cdiv(rows, SUMMED["ROWS"]), 2 * MULTIPROCESSORS * 64 // width // blocks))
    return torch.empty((2, programs, columns), device=matrix.device), (programs, blocks), width


def _counter(matrix: Tensor) -> Tensor:
    """Zeros that a kernel counts its programs with and leaves as zeros; kernels of two streams may run at once."""
    on_gpu = matrix.device.type == "cuda"
    key = matrix.device, torch.cuda.current_stream(matrix.device).cuda_stream if on_gpu else 0
    if key not in _counters:
        _counters[key] = torch.zeros(COUNTERS, dtype=torch.int32, device=matrix.device)
    return _counters[key]
