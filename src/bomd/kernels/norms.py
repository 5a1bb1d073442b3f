"""Kernels of batch norms: moments of columns, scaling them, and the way back through both."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from bomd.kernels.tiles import added_up, leave, leave_sums, places, tile_of


@triton.jit
def scale(
    matrix, out, factor, shift, rows, columns, stride, out_stride,
    RELU: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, column, inside = tile_of(rows, columns, ROWS, WIDTH)
    here = column < columns
    value = tl.load(matrix + places(row, column, stride), mask=inside, other=0.0).to(tl.float32)
    a, b = tl.load(factor + column, mask=here, other=0.0), tl.load(shift + column, mask=here, other=0.0)
    value = value * a[None, :] + b[None, :]
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(out + places(row, column, out_stride), value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def normalise_and_scale(
    matrix, newest, out, norm_factor, norm_shift, factor, shift, rows, columns, earlier, stride, newest_stride,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, column, inside = tile_of(rows, columns, ROWS, WIDTH)
    here, new = column < columns, column >= earlier
    place = matrix + places(row, column, stride)
    value = tl.load(place, mask=inside & ~new[None, :], other=0.0)
    if tl.max(column, 0) >= earlier:
        fresh = inside & new[None, :]
        a = tl.load(norm_factor + column - earlier, mask=here & new, other=0.0)
        b = tl.load(norm_shift + column - earlier, mask=here & new, other=0.0)
        raw = tl.load(newest + places(row, column - earlier, newest_stride), mask=fresh, other=0.0).to(tl.float32)
        normal = (raw * a[None, :] + b[None, :]).to(matrix.dtype.element_ty)
        tl.store(place, normal, mask=fresh)
        value = tl.where(new[None, :], normal, value)
    a, b = tl.load(factor + column, mask=here, other=0.0), tl.load(shift + column, mask=here, other=0.0)
    value = tl.maximum(value.to(tl.float32) * a[None, :] + b[None, :], 0.0)
    tl.store(out + places(row, column, columns), value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def moments(
    matrix, partial, counters, weight, bias, found, rows, columns, stride, found_stride, programs, eps,
    WEIGHTED: tl.constexpr, BIASED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Sums of squares are taken around the first row, so that a mean far from zero does not swallow the spread."""
    share, block = tl.program_id(0), tl.program_id(1)
    column = block * WIDTH + tl.arange(0, WIDTH)
    here = column < columns
    centre = tl.load(matrix + column, mask=here, other=0.0).to(tl.float32)
    total, squares = tl.zeros((ROWS, WIDTH), tl.float32), tl.zeros((ROWS, WIDTH), tl.float32)
    for tile in tl.range(share, tl.cdiv(rows, ROWS), programs, num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & here[None, :]
        value = tl.load(matrix + places(row, column, stride), mask=inside, other=0.0).to(tl.float32)
        value = tl.where(inside, value - centre[None, :], 0.0)
        total += value
        squares += value * value
    if leave(tl.sum(total, 0), tl.sum(squares, 0), partial, counters, share, block, column, columns, programs):
        moved, spread = added_up(partial, column, columns, programs, ROWS, WIDTH)
        moved = moved / rows
        variance = tl.maximum(spread / rows - moved * moved, 0.0)
        _write(found, centre + moved, variance, weight, bias, column, columns, found_stride, eps, WEIGHTED, BIASED)


@triton.jit
def join_moments(
    every, weight, bias, found, images, columns, found_stride, world, eps,
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
    _write(found, mean, variance, weight, bias, column, columns, found_stride, eps, WEIGHTED, BIASED)


@triton.jit
def _write(
    found, mean, variance, weight, bias, column, columns, stride, eps, WEIGHTED: tl.constexpr, BIASED: tl.constexpr
):
    here = column < columns
    inverse = 1 / tl.sqrt(variance + eps)
    factor = inverse
    if WEIGHTED:
        factor = inverse * tl.load(weight + column, mask=here, other=0.0)
    shift = -mean * factor
    if BIASED:
        shift += tl.load(bias + column, mask=here, other=0.0)
    tl.store(found + column, mean, mask=here)
    tl.store(found + stride + column, variance, mask=here)
    tl.store(found + 2 * stride + column, inverse, mask=here)
    tl.store(found + 3 * stride + column, factor, mask=here)
    tl.store(found + 4 * stride + column, shift, mask=here)


@triton.jit
def back_through_scale(
    gradient, matrix, into, factor, shift, partial, counters, sums, rows, columns, g_stride, stride, into_stride,
    programs, height, width,
    ADD: tl.constexpr, AVERAGED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    share, block = tl.program_id(0), tl.program_id(1)
    column = block * WIDTH + tl.arange(0, WIDTH)
    here = column < columns
    a, b = tl.load(factor + column, mask=here, other=0.0), tl.load(shift + column, mask=here, other=0.0)
    factors, shifts = tl.zeros((ROWS, WIDTH), tl.float32), tl.zeros((ROWS, WIDTH), tl.float32)
    for tile in tl.range(share, tl.cdiv(rows, ROWS), programs, num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & here[None, :]
        value = tl.load(matrix + places(row, column, stride), mask=inside, other=0.0).to(tl.float32)
        if AVERAGED:
            x, rest = row % width, row // width
            y, image = rest % height, rest // height
            kept = inside & ((y // 2 < height // 2) & (x // 2 < width // 2))[:, None]
            source = (image * (height // 2) + y // 2) * (width // 2) + x // 2
            slope = tl.load(gradient + places(source, column, g_stride), mask=kept, other=0.0).to(tl.float32) / 4
        else:
            slope = tl.load(gradient + places(row, column, g_stride), mask=inside, other=0.0).to(tl.float32)
        slope = tl.where(value * a[None, :] + b[None, :] > 0, slope, 0.0)
        factors += slope * value
        shifts += slope
        moved = slope * a[None, :]
        place = into + places(row, column, into_stride)
        if ADD:
            moved += tl.load(place, mask=inside, other=0.0).to(tl.float32)
        tl.store(place, moved.to(into.dtype.element_ty), mask=inside)
    leave_sums(
        tl.sum(factors, 0), tl.sum(shifts, 0), partial, counters, sums, share, block, column, columns, programs, 1,
        ROWS, WIDTH,
    )  # fmt: skip


@triton.jit
def norm_sums(
    gradient, matrix, mean, inverse, weight, bias, partial, counters, sums, rows, columns, g_stride, stride, programs,
    copies, MASKED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    share, block = tl.program_id(0), tl.program_id(1)
    column = block * WIDTH + tl.arange(0, WIDTH)
    here = column < columns
    centre, spread = tl.load(mean + column, mask=here, other=0.0), tl.load(inverse + column, mask=here, other=0.0)
    a, b = tl.load(weight + column, mask=here, other=0.0), tl.load(bias + column, mask=here, other=0.0)
    first, second = tl.zeros((ROWS, WIDTH), tl.float32), tl.zeros((ROWS, WIDTH), tl.float32)
    for tile in tl.range(share, tl.cdiv(rows, ROWS), programs, num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & here[None, :]
        value = tl.load(matrix + places(row, column, stride), mask=inside, other=0.0).to(tl.float32)
        value = (value - centre[None, :]) * spread[None, :]
        slope = tl.load(gradient + places(row, column, g_stride), mask=inside, other=0.0).to(tl.float32)
        if MASKED:
            slope = tl.where(value * a[None, :] + b[None, :] > 0, slope, 0.0)
        first += slope * value
        second += slope
    leave_sums(
        tl.sum(first, 0), tl.sum(second, 0), partial, counters, sums, share, block, column, columns, programs, copies,
        ROWS, WIDTH,
    )  # fmt: skip


@triton.jit
def back_through_norm(
    gradient, matrix, out, mean, inverse, weight, bias, sums, part, rows, columns, g_stride, stride, sums_stride,
    MASKED: tl.constexpr, NORMALISED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, column, inside = tile_of(rows, columns, ROWS, WIDTH)
    here = column < columns
    centre, spread = tl.load(mean + column, mask=here, other=0.0), tl.load(inverse + column, mask=here, other=0.0)
    first = tl.load(sums + column, mask=here, other=0.0) * part
    second = tl.load(sums + sums_stride + column, mask=here, other=0.0) * part
    value = tl.load(matrix + places(row, column, stride), mask=inside, other=0.0).to(tl.float32)
    if not NORMALISED:
        value = (value - centre[None, :]) * spread[None, :]
    slope = tl.load(gradient + places(row, column, g_stride), mask=inside, other=0.0).to(tl.float32)
    steepness = spread
    if MASKED:
        a, b = tl.load(weight + column, mask=here, other=0.0), tl.load(bias + column, mask=here, other=0.0)
        slope = tl.where(value * a[None, :] + b[None, :] > 0, slope, 0.0)
        steepness = spread * a
    slope = steepness[None, :] * (slope - second[None, :] - value * first[None, :])
    tl.store(out + places(row, column, columns), slope.to(out.dtype.element_ty), mask=inside)
