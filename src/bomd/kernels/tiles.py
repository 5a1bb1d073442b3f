"""What the kernels have in common: tiles of a matrix, and sums that many programs find together.

A reduction's rows are shared by programs that each leave their own sums. The last of them to be done adds these up, in
the same order every time, so that no further kernel is needed and a result never depends on who was last.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile_of(rows, columns, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Row numbers, column numbers and the mask of a program's tile."""
    blocks = tl.cdiv(columns, WIDTH)  # neighbouring programs share rows: they read the same lines of memory
    row = tl.program_id(0) // blocks * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % blocks * WIDTH + tl.arange(0, WIDTH)
    return row, column, (row < rows)[:, None] & (column < columns)[None, :]


@triton.jit
def places(row, column, stride):
    """Where the entries of a tile lie; a matrix may have more than 2^31 of them."""
    return row.to(tl.int64)[:, None] * stride + column[None, :]


@triton.jit
def is_last(counter, programs):
    """Whether all other programs that share this counter have left their sums; the last one sets it back to zero."""
    tl.debug_barrier()  # until every thread has stored its own
    last = tl.atomic_add(counter, 1, sem="acq_rel") == programs - 1
    if last:
        tl.store(counter, 0)
    return last


@triton.jit
def added_up(partial, column, columns, programs, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Two (WIDTH) sums over the programs, read past the cache that other programs cannot write to."""
    first, second = tl.zeros((ROWS, WIDTH), tl.float32), tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, programs, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < programs)[:, None] & (column < columns)[None, :]
        place = partial + row[:, None] * columns + column[None, :]
        first += tl.load(place, inside, 0.0, cache_modifier=".cg")
        second += tl.load(place + programs * columns, inside, 0.0, cache_modifier=".cg")
    return tl.sum(first, 0), tl.sum(second, 0)


@triton.jit
def leave(first, second, partial, counters, share, block, column, columns, programs):
    """This program's share of two sums of each column; whether it is the last, for which `added_up` has all of it."""
    here = column < columns
    tl.store(partial + share * columns + column, first, mask=here)
    tl.store(partial + (programs + share) * columns + column, second, mask=here)
    return is_last(counters + block, programs)


@triton.jit
def leave_sums(
    first, second, partial, counters, sums, share, block, column, columns, programs, copies,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Two sums of each column: this program's share of them, and if it is the last, all of it into (copies, 2, C)."""
    here = column < columns
    if leave(first, second, partial, counters, share, block, column, columns, programs):
        first, second = added_up(partial, column, columns, programs, ROWS, WIDTH)
        for copy in range(copies):
            tl.store(sums + 2 * copy * columns + column, first, mask=here)
            tl.store(sums + (2 * copy + 1) * columns + column, second, mask=here)
