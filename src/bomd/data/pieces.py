"""Several packed files as the one array that they would be, so that no byte is copied to join them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bomd.data.images import Pixels

Rows = int | np.integer | slice | NDArray[np.integer]


class Pieces:
    """Consecutive rows of several arrays that differ in length alone."""

    def __init__(self, parts: Sequence[Pixels]):
        self._parts = tuple(parts)
        self._ends = np.cumsum([len(part) for part in parts])
        self.shape: tuple[int, ...] = (int(self._ends[-1]), *parts[0].shape[1:])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Rows) -> Pixels:
        """One image without a copy, or those of a slice or a list of rows as a new array."""
        if isinstance(rows, int | np.integer):
            place = range(len(self))[rows]
            part = int(np.searchsorted(self._ends, place, side="right"))
            image: Pixels = self._parts[part][place - int(self._ends[part])]  # from the end, which needs no beginning
            return image
        chosen = [self[row] for row in np.arange(len(self))[rows]]
        return np.asarray(chosen, dtype=np.uint8).reshape(-1, *self.shape[1:])
