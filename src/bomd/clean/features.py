"""Features of images, which need not be in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from numpy.typing import NDArray

BLOCK = 1 << 20  # numbers that are looked at together


class Features(Protocol):
    """(N, D) numbers: an array, a memory map, or anything that gives rows of one."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, rows: Any, /) -> NDArray[Any]: ...


def blocks(count: int, features: Features) -> Iterator[slice]:
    """Consecutive rows, as many at a time as take little memory."""
    step = max(1, BLOCK // features.shape[1])
    return (slice(start, min(start + step, count)) for start in range(0, count, step))
