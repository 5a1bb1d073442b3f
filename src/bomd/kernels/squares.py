"""The kernel that gathers squares of pixels for `bomd.kernels.folded`."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def gather_squares(
    images, out, height, width, high, wide, batch_stride, channel_stride, y_stride, x_stride,
    CHANNELS: tl.constexpr, PLACES: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """A program writes some places of one line; most of what it reads, its neighbours have read."""
    line, lane = tl.program_id(0), tl.arange(0, LANES)
    x = tl.program_id(1) * PLACES + tl.arange(0, PLACES)
    square, rest = lane // (4 * CHANNELS), lane % (4 * CHANNELS)
    image, top = (line // high).to(tl.int64), 2 * (line % high - 2)
    down = top + rest // (2 * CHANNELS)
    across = 2 * (x[:, None] + square[None, :] - 2) + (rest // CHANNELS % 2)[None, :]
    written = (x < wide)[:, None] & (lane < 16 * CHANNELS)[None, :]
    inside = written & ((down >= 0) & (down < height))[None, :] & (across >= 0) & (across < width)
    lines = images + image * batch_stride + (rest % CHANNELS * channel_stride + down * y_stride)[None, :]
    value = tl.load(lines + across * x_stride, mask=inside, other=0.0)
    place = (line.to(tl.int64) * wide + x) * (16 * CHANNELS)
    tl.store(out + place[:, None] + lane[None, :], value.to(out.dtype.element_ty), mask=written)
