"""Kernels that scale maps and make them smaller in one pass, and the way back from the largest of nine."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from bomd.kernels.tiles import places, tile_of


@triton.jit
def scale_and_average(
    matrix, out, factor, shift, rows, columns, stride, height, width, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    row, column, inside = tile_of(rows, columns, ROWS, WIDTH)
    here = column < columns
    a, b = tl.load(factor + column, mask=here, other=0.0), tl.load(shift + column, mask=here, other=0.0)
    across, rest = row % (width // 2), row // (width // 2)
    down, image = rest % (height // 2), rest // (height // 2)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for corner in tl.static_range(4):
        source = (image * height + 2 * down + corner // 2) * width + 2 * across + corner % 2
        value = tl.load(matrix + places(source, column, stride), mask=inside, other=0.0).to(tl.float32)
        total += tl.maximum(value * a[None, :] + b[None, :], 0.0)
    tl.store(out + places(row, column, columns), (total / 4).to(out.dtype.element_ty), mask=inside)


@triton.jit
def take_largest(
    matrix, out, winners, factor, shift, rows, columns, stride, height, width,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, column, inside = tile_of(rows, columns, ROWS, WIDTH)
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
        value = tl.load(matrix + places(source, column, stride), mask=valid, other=0.0).to(tl.float32)
        value = tl.maximum(value * a[None, :] + b[None, :], 0.0).to(out.dtype.element_ty).to(tl.float32)
        better = valid & (value > largest)
        largest = tl.where(better, value, largest)
        winner = tl.where(better, place, winner)
    tl.store(out + places(row, column, columns), largest.to(out.dtype.element_ty), mask=inside)
    tl.store(winners + places(row, column, columns), winner.to(tl.uint8), mask=inside)


@triton.jit
def back_to_largest(
    gradient, winners, out, rows, columns, stride, height, width, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    row, column, inside = tile_of(rows, columns, ROWS, WIDTH)
    half_width, half_height = (width + 1) // 2, (height + 1) // 2
    x, rest = row % width, row // width
    y, image = rest % height, rest // height
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    # A pixel lies in the windows around the even pixels next to it: one in each direction, or two if it is odd.
    for choice in tl.static_range(4):
        down, across = (y + choice // 2) // 2, (x + choice % 2) // 2
        again = ((choice // 2 == 1) & (y % 2 == 0)) | ((choice % 2 == 1) & (x % 2 == 0))
        valid = inside & ((down < half_height) & (across < half_width) & ~again)[:, None]
        source = (image * half_height + down) * half_width + across
        place = (y - 2 * down + 1) * 3 + x - 2 * across + 1
        winner = tl.load(winners + places(source, column, columns), mask=valid, other=255).to(tl.int32)
        slope = tl.load(gradient + places(source, column, stride), mask=valid, other=0.0).to(tl.float32)
        total += tl.where(valid & (winner == place[:, None]), slope, 0.0)
    tl.store(out + places(row, column, columns), total.to(out.dtype.element_ty), mask=inside)
