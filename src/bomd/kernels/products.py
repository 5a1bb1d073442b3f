"""The way back through a 1 x 1 product and the norm and ReLU before it, in one kernel."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from bomd.kernels.tiles import added_up, leave, places


@triton.jit
def back_through_product(
    gradient, weight, matrix, into, factor, shift, partial, counters, sums, added, rows, columns, g_stride, stride,
    into_stride, added_stride, programs,
    INNER: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A program keeps its columns' weights and goes through rows; those that share rows run side by side.

    The product has few terms to add up, so that this is bound by memory: what it writes anyway it also adds and masks.
    """
    blocks = tl.cdiv(columns, WIDTH)
    share, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    column, inner = block * WIDTH + tl.arange(0, WIDTH), tl.arange(0, INNER)
    here = column < columns
    a, b = tl.load(factor + column, mask=here, other=0.0), tl.load(shift + column, mask=here, other=0.0)
    own = tl.load(weight + inner[:, None] * columns + column[None, :], mask=here[None, :], other=0.0)
    factors, shifts = tl.zeros((ROWS, WIDTH), tl.float32), tl.zeros((ROWS, WIDTH), tl.float32)
    for tile in tl.range(share, tl.cdiv(rows, ROWS), programs, num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & here[None, :]
        given = tl.load(gradient + places(row, inner, g_stride), mask=(row < rows)[:, None], other=0.0)
        value = tl.load(matrix + places(row, column, stride), mask=inside, other=0.0).to(tl.float32)
        place = into + places(row, column, into_stride)
        before = tl.load(place, mask=inside, other=0.0).to(tl.float32)
        slope = tl.dot(given, own, input_precision="ieee")
        slope = tl.where(value * a[None, :] + b[None, :] > 0, slope, 0.0)
        factors += slope * value
        shifts += slope
        tl.store(place, (before + slope * a[None, :]).to(into.dtype.element_ty), mask=inside)
    if leave(tl.sum(factors, 0), tl.sum(shifts, 0), partial, counters, share, block, column, columns, programs):
        first, second = added_up(partial, column, columns, programs, ROWS, WIDTH)
        tl.store(sums + column, first, mask=here)
        tl.store(sums + columns + column, second, mask=here)
        # What was added to a column of `into` was the masked slope times the column's factor, and so are its sums.
        place = added + column
        tl.store(place, tl.load(place, mask=here, other=0.0) + first * a, mask=here)
        tl.store(place + added_stride, tl.load(place + added_stride, mask=here, other=0.0) + second * a, mask=here)
