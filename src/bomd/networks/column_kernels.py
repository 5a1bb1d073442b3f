"""The Triton kernels behind `bomd.networks.columns`, imported where there is a GPU."""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 128  # of a tile
FEW = 32  # rows of a tile that also keeps sums
PROGRAMS = 1056  # that share the rows of a reduction: eight for each multiprocessor of a large GPU


def statistics(matrix: Tensor, weight: Tensor | None, bias: Tensor | None, together, eps: float) -> Tensor:
    """(5, C) mean, variance, inverse deviation, factor and shift of each column."""
    rows, columns = matrix.shape
    partial, grid, width = _partial(matrix)
    _moments[grid](matrix, partial, rows, columns, matrix.stride(0), grid[0], FEW, width, num_warps=4)
    # Mean and variance of each process, two rows for each, then what all have together; this one's are made in place.
    world, rank = (0, 0) if together is None else (together.count, together.rank)
    table, finish = torch.empty((2 * world + 5, columns), device=matrix.device), (triton.cdiv(columns, 32),)
    own, found = table[2 * rank : 2 * rank + 5], table[2 * world :]
    given = [part if part is not None else found for part in (weight, bias)]
    kinds = (weight is not None, bias is not None)
    _finish_moments[finish](partial, matrix, *given, own, rows, columns, grid[0], eps, *kinds, 64, 32, num_warps=4)
    if together is not None:
        every, ranks = together.fill(table[: 2 * world]), triton.next_power_of_2(world)
        _join_moments[finish](
            every, *given, found, together.images, columns, world, eps, *kinds, ranks, 32, num_warps=1
        )
    return found


def scale(matrix: Tensor, factor: Tensor, shift: Tensor, relu: bool, out: Tensor) -> None:
    rows, columns = matrix.shape
    grid, width = _tiles(rows, columns)
    _scale[grid](
        matrix, out, factor, shift, rows, columns, matrix.stride(0), out.stride(0), relu, ROWS, width, num_warps=4
    )


def scale_and_average(matrix: Tensor, factor: Tensor, shift: Tensor, shape: tuple[int, int, int]) -> Tensor:
    batch, height, width = shape
    rows, columns = batch * (height // 2) * (width // 2), matrix.shape[1]
    out = torch.empty((rows, columns), dtype=matrix.dtype, device=matrix.device)
    grid, block = _tiles(rows, columns)
    _scale_and_average[grid](
        matrix, out, factor, shift, rows, columns, matrix.stride(0), height, width, ROWS, block, num_warps=4
    )
    return out


def back_through_scale(gradient, matrix, factor, shift, into, add, averaged) -> tuple[Tensor, Tensor]:
    rows, columns = matrix.shape
    partial, grid, width = _partial(matrix)
    strides = (gradient.stride(0), matrix.stride(0), into.stride(0))
    _, high, wide = averaged or (0, 0, 0)
    _back_through_scale[grid](
        gradient, matrix, into, factor, shift, partial, rows, columns, *strides, grid[0], high, wide,
        add, averaged is not None, FEW, width, num_warps=4,
    )  # fmt: skip
    sums = _summed(partial)[0]
    return sums[0], sums[1]


def back_through_norm(gradient, matrix, norm, weight, bias, normalised, together) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = matrix.shape
    partial, grid, width = _partial(matrix)
    mean, inverse, masked = norm.table[0], norm.table[2], weight is not None
    given = (weight, bias) if masked else (mean, mean)
    strides = (gradient.stride(0), matrix.stride(0))
    _norm_sums[grid](
        gradient, matrix, mean, inverse, *given, partial, rows, columns, *strides, grid[0],
        masked, normalised, FEW, width, num_warps=4,
    )  # fmt: skip
    sums = _summed(partial, copies=1 if together is None else 2)
    everywhere = sums[0] if together is None else together.total(sums[1])
    out = torch.empty((rows, columns), dtype=matrix.dtype, device=matrix.device)
    grid, width = _tiles(rows, columns)
    _back_through_norm[grid](
        gradient, matrix, out, mean, inverse, *given, everywhere, 1 / norm.count, rows, columns, *strides,
        masked, normalised, ROWS, width, num_warps=4,
    )  # fmt: skip
    return out, sums[0, 0], sums[0, 1]


def scale_and_take_largest(matrix, factor, shift, shape) -> tuple[Tensor, Tensor]:
    batch, height, width = shape
    rows, columns = batch * ((height + 1) // 2) * ((width + 1) // 2), matrix.shape[1]
    out = torch.empty((rows, columns), dtype=matrix.dtype, device=matrix.device)
    winners = torch.empty((rows, columns), dtype=torch.uint8, device=matrix.device)
    grid, block = _tiles(rows, columns)
    _take_largest[grid](
        matrix, out, winners, factor, shift, rows, columns, matrix.stride(0), height, width, ROWS, block, num_warps=4
    )
    return out, winners


def back_to_largest(gradient: Tensor, winners: Tensor, shape: tuple[int, int, int]) -> Tensor:
    batch, height, width = shape
    rows, columns = batch * height * width, gradient.shape[1]
    out = torch.empty((rows, columns), dtype=gradient.dtype, device=gradient.device)
    grid, block = _tiles(rows, columns)
    _back_to_largest[grid](
        gradient, winners, out, rows, columns, gradient.stride(0), height, width, ROWS, block, num_warps=4
    )
    return out


def _width(columns: int) -> int:
    """Columns of a tile: a power of two, at most 128 bytes or so of each row."""
    return 32 if columns <= 32 else 64


def _tiles(rows: int, columns: int) -> tuple[tuple[int], int]:
    """One program per tile, in one dimension: the others are limited to 65,535."""
    width = _width(columns)
    return (triton.cdiv(columns, width) * triton.cdiv(rows, ROWS),), width


def _partial(matrix: Tensor) -> tuple[Tensor, tuple[int, int], int]:
    rows, columns = matrix.shape
    width = _width(columns)
    blocks = triton.cdiv(columns, width)
    programs = max(1, min(triton.cdiv(rows, FEW), PROGRAMS // blocks))
    return torch.empty((2, programs, columns), device=matrix.device), (programs, blocks), width


def _summed(partial: Tensor, copies: int = 1) -> Tensor:
    """(copies, 2, C) sums over the programs that shared the rows."""
    _, programs, columns = partial.shape
    sums = torch.empty((copies, 2, columns), device=partial.device)
    _finish_sums[(triton.cdiv(columns, 32), 2, copies)](partial, sums, columns, programs, 64, 32, num_warps=4)
    return sums


@triton.jit
def _tile(rows, columns, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    blocks = tl.cdiv(columns, WIDTH)  # neighbouring programs share rows: they read the same lines of memory
    row = tl.program_id(0) // blocks * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % blocks * WIDTH + tl.arange(0, WIDTH)
    return row.to(tl.int64), column, (row < rows)[:, None] & (column < columns)[None, :]


@triton.jit
def _scale(
    matrix, out, factor, shift, rows, columns, stride, out_stride,
    RELU: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, column, inside = _tile(rows, columns, ROWS, WIDTH)
    here = column < columns
    value = tl.load(matrix + row[:, None] * stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
    a, b = tl.load(factor + column, mask=here, other=0.0), tl.load(shift + column, mask=here, other=0.0)
    value = value * a[None, :] + b[None, :]
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(out + row[:, None] * out_stride + column[None, :], value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _scale_and_average(
    matrix, out, factor, shift, rows, columns, stride, height, width, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    row, column, inside = _tile(rows, columns, ROWS, WIDTH)
    here = column < columns
    a, b = tl.load(factor + column, mask=here, other=0.0), tl.load(shift + column, mask=here, other=0.0)
    across, rest = row % (width // 2), row // (width // 2)
    down, image = rest % (height // 2), rest // (height // 2)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for corner in tl.static_range(4):
        source = (image * height + 2 * down + corner // 2) * width + 2 * across + corner % 2
        value = tl.load(matrix + source[:, None] * stride + column[None, :], mask=inside, other=0.0)
        total += tl.maximum(value.to(tl.float32) * a[None, :] + b[None, :], 0.0)
    tl.store(out + row[:, None] * columns + column[None, :], (total / 4).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _take_largest(
    matrix, out, winners, factor, shift, rows, columns, stride, height, width,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, column, inside = _tile(rows, columns, ROWS, WIDTH)
    here = column < columns
    a, b = tl.load(factor + column, mask=here, other=0.0), tl.load(shift + column, mask=here, other=0.0)
    half_width, half_height = (width + 1) // 2, (height + 1) // 2
    across, rest = row % half_width, row // half_width
    down, image = rest % half_height, rest // half_height
    largest = tl.full((ROWS, WIDTH), -1.0, tl.float32)
    winner = tl.zeros((ROWS, WIDTH), tl.int32)
    for place in tl.static_range(9):
        y, x = 2 * down + place // 3 - 1, 2 * across + place % 3 - 1
        valid = inside & ((y >= 0) & (y < height) & (x >= 0) & (x < width))[:, None]
        source = (image * height + y) * width + x
        value = tl.load(matrix + source[:, None] * stride + column[None, :], mask=valid, other=0.0).to(tl.float32)
        value = tl.maximum(value * a[None, :] + b[None, :], 0.0).to(out.dtype.element_ty).to(tl.float32)
        better = valid & (value > largest)
        largest = tl.where(better, value, largest)
        winner = tl.where(better, place, winner)
    tl.store(out + row[:, None] * columns + column[None, :], largest.to(out.dtype.element_ty), mask=inside)
    tl.store(winners + row[:, None] * columns + column[None, :], winner.to(tl.uint8), mask=inside)


@triton.jit
def _back_to_largest(
    gradient, winners, out, rows, columns, stride, height, width, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    row, column, inside = _tile(rows, columns, ROWS, WIDTH)
    half_width, half_height = (width + 1) // 2, (height + 1) // 2
    x, rest = row % width, row // width
    y, image = rest % height, rest // height
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    # A pixel lies in the windows around the even pixels next to it: one in each direction, or two if it is odd.
    for choice in tl.static_range(4):
        down, across = (y + choice // 2) // 2, (x + choice % 2) // 2
        again = ((choice // 2 == 1) & (y % 2 == 0)) | ((choice % 2 == 1) & (x % 2 == 0))
        valid = inside & ((down < half_height) & (across < half_width) & ~again)[:, None]
        source = ((image * half_height + down) * half_width + across)[:, None]
        place = (y - 2 * down + 1) * 3 + x - 2 * across + 1
        winner = tl.load(winners + source * columns + column[None, :], mask=valid, other=255).to(tl.int32)
        slope = tl.load(gradient + source * stride + column[None, :], mask=valid, other=0.0).to(tl.float32)
        total += tl.where(valid & (winner == place[:, None]), slope, 0.0)
    tl.store(out + row[:, None] * columns + column[None, :], total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _shared_tile(tile, rows, columns, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row = tile * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    return row.to(tl.int64), column, (row < rows)[:, None] & (column < columns)[None, :]


@triton.jit
def _moments(matrix, partial, rows, columns, stride, programs, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Sums of squares are taken around the first row, so that a mean far from zero does not swallow the spread."""
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    here = column < columns
    centre = tl.load(matrix + column, mask=here, other=0.0).to(tl.float32)
    total, squares = tl.zeros((ROWS, WIDTH), tl.float32), tl.zeros((ROWS, WIDTH), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(rows, ROWS), programs):
        row, _, inside = _shared_tile(tile, rows, columns, ROWS, WIDTH)
        value = tl.load(matrix + row[:, None] * stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        value = tl.where(inside, value - centre[None, :], 0.0)
        total += value
        squares += value * value
    place = partial + tl.program_id(0) * columns + column
    tl.store(place, tl.sum(total, 0), mask=here)
    tl.store(place + programs * columns, tl.sum(squares, 0), mask=here)


@triton.jit
def _finish_moments(
    partial, matrix, weight, bias, found, rows, columns, programs, eps,
    WEIGHTED: tl.constexpr, BIASED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    here = column < columns
    total, squares = tl.zeros((ROWS, WIDTH), tl.float32), tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, programs, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < programs)[:, None] & here[None, :]
        place = partial + row[:, None] * columns + column[None, :]
        total += tl.load(place, mask=inside, other=0.0)
        squares += tl.load(place + programs * columns, mask=inside, other=0.0)
    moved = tl.sum(total, 0) / rows
    variance = tl.maximum(tl.sum(squares, 0) / rows - moved * moved, 0.0)
    mean = tl.load(matrix + column, mask=here, other=0.0).to(tl.float32) + moved
    _write(found, mean, variance, weight, bias, column, columns, eps, WEIGHTED, BIASED)


@triton.jit
def _join_moments(
    every, weight, bias, found, images, columns, world, eps,
    WEIGHTED: tl.constexpr, BIASED: tl.constexpr, RANKS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Shares of the images are as `spread.own_part` cuts them; that of a process alone is 1 to the last digit."""
    rank, column = tl.arange(0, RANKS), tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    inside = (rank < world)[:, None] & (column < columns)[None, :]
    own = (rank + 1) * images // world - rank * images // world
    share = tl.where(own == images, 1.0, own / images)[:, None]
    place = every + 2 * rank[:, None] * columns + column[None, :]
    means = tl.load(place, mask=inside, other=0.0)
    mean = tl.sum(share * means, 0)
    away = tl.where(inside, means - mean[None, :], 0.0)
    variance = tl.sum(share * (tl.load(place + columns, mask=inside, other=0.0) + away * away), 0)
    _write(found, mean, variance, weight, bias, column, columns, eps, WEIGHTED, BIASED)


@triton.jit
def _write(found, mean, variance, weight, bias, column, columns, eps, WEIGHTED: tl.constexpr, BIASED: tl.constexpr):
    here = column < columns
    inverse = 1 / tl.sqrt(variance + eps)
    factor = inverse
    if WEIGHTED:
        factor = inverse * tl.load(weight + column, mask=here, other=0.0)
    shift = -mean * factor
    if BIASED:
        shift += tl.load(bias + column, mask=here, other=0.0)
    tl.store(found + column, mean, mask=here)
    tl.store(found + columns + column, variance, mask=here)
    tl.store(found + 2 * columns + column, inverse, mask=here)
    tl.store(found + 3 * columns + column, factor, mask=here)
    tl.store(found + 4 * columns + column, shift, mask=here)


@triton.jit
def _finish_sums(partial, sums, columns, programs, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    column = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    here = column < columns
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, programs, ROWS):
        row = tl.program_id(1) * programs + start + tl.arange(0, ROWS)
        inside = (start + tl.arange(0, ROWS) < programs)[:, None] & here[None, :]
        total += tl.load(partial + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
    tl.store(sums + (2 * tl.program_id(2) + tl.program_id(1)) * columns + column, tl.sum(total, 0), mask=here)


@triton.jit
def _back_through_scale(
    gradient, matrix, into, factor, shift, partial, rows, columns, g_stride, stride, into_stride, programs,
    height, width, ADD: tl.constexpr, AVERAGED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    here = column < columns
    a, b = tl.load(factor + column, mask=here, other=0.0), tl.load(shift + column, mask=here, other=0.0)
    factors, shifts = tl.zeros((ROWS, WIDTH), tl.float32), tl.zeros((ROWS, WIDTH), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(rows, ROWS), programs):
        row, _, inside = _shared_tile(tile, rows, columns, ROWS, WIDTH)
        value = tl.load(matrix + row[:, None] * stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        if AVERAGED:
            x, rest = row % width, row // width
            y, image = rest % height, rest // height
            kept = inside & ((y // 2 < height // 2) & (x // 2 < width // 2))[:, None]
            source = (image * (height // 2) + y // 2) * (width // 2) + x // 2
            slope = tl.load(gradient + source[:, None] * g_stride + column[None, :], mask=kept, other=0.0)
            slope = slope.to(tl.float32) / 4
        else:
            slope = tl.load(gradient + row[:, None] * g_stride + column[None, :], mask=inside, other=0.0)
            slope = slope.to(tl.float32)
        slope = tl.where(value * a[None, :] + b[None, :] > 0, slope, 0.0)
        factors += slope * value
        shifts += slope
        moved = slope * a[None, :]
        place = into + row[:, None] * into_stride + column[None, :]
        if ADD:
            moved += tl.load(place, mask=inside, other=0.0).to(tl.float32)
        tl.store(place, moved.to(into.dtype.element_ty), mask=inside)
    place = partial + tl.program_id(0) * columns + column
    tl.store(place, tl.sum(factors, 0), mask=here)
    tl.store(place + programs * columns, tl.sum(shifts, 0), mask=here)


@triton.jit
def _norm_sums(
    gradient, matrix, mean, inverse, weight, bias, partial, rows, columns, g_stride, stride, programs,
    MASKED: tl.constexpr, NORMALISED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    here = column < columns
    centre, spread = tl.load(mean + column, mask=here, other=0.0), tl.load(inverse + column, mask=here, other=0.0)
    a, b = tl.load(weight + column, mask=here, other=0.0), tl.load(bias + column, mask=here, other=0.0)
    first, second = tl.zeros((ROWS, WIDTH), tl.float32), tl.zeros((ROWS, WIDTH), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(rows, ROWS), programs):
        row, _, inside = _shared_tile(tile, rows, columns, ROWS, WIDTH)
        value = tl.load(matrix + row[:, None] * stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        if not NORMALISED:
            value = (value - centre[None, :]) * spread[None, :]
        slope = tl.load(gradient + row[:, None] * g_stride + column[None, :], mask=inside, other=0.0)
        slope = slope.to(tl.float32)
        if MASKED:
            slope = tl.where(value * a[None, :] + b[None, :] > 0, slope, 0.0)
        first += slope * value
        second += slope
    place = partial + tl.program_id(0) * columns + column
    tl.store(place, tl.sum(first, 0), mask=here)
    tl.store(place + programs * columns, tl.sum(second, 0), mask=here)


@triton.jit
def _back_through_norm(
    gradient, matrix, out, mean, inverse, weight, bias, sums, share, rows, columns, g_stride, stride,
    MASKED: tl.constexpr, NORMALISED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, column, inside = _tile(rows, columns, ROWS, WIDTH)
    here = column < columns
    centre, spread = tl.load(mean + column, mask=here, other=0.0), tl.load(inverse + column, mask=here, other=0.0)
    first = tl.load(sums + column, mask=here, other=0.0) * share
    second = tl.load(sums + columns + column, mask=here, other=0.0) * share
    value = tl.load(matrix + row[:, None] * stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
    if not NORMALISED:
        value = (value - centre[None, :]) * spread[None, :]
    slope = tl.load(gradient + row[:, None] * g_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
    steepness = spread
    if MASKED:
        a, b = tl.load(weight + column, mask=here, other=0.0), tl.load(bias + column, mask=here, other=0.0)
        slope = tl.where(value * a[None, :] + b[None, :] > 0, slope, 0.0)
        steepness = spread * a
    slope = steepness[None, :] * (slope - second[None, :] - value * first[None, :])
    tl.store(out + row[:, None] * columns + column[None, :], slope.to(out.dtype.element_ty), mask=inside)
