"""The lists of nearest images that a search returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.tables import Floats

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest images of Q images, nearest first.

    Attributes:
        indices: (Q, K) row numbers; -1 where there are fewer than K.
        distances: (Q, K) distance of the closest pair of descriptors; infinite where there is no image.
    """

    indices: Rows
    distances: Floats

    def __repr__(self) -> str:
        return f"Neighbours of {len(self.indices):,} images, {self.indices.shape[1]} each"

    def put(self, places: slice | NDArray[Any], found: Neighbours) -> None:
        """Fill in the rows at `places`."""
        self.indices[places], self.distances[places] = found.indices, found.distances


def nothing(rows: int, k: int) -> Neighbours:
    """Lists without an entry, to be filled in."""
    return Neighbours(np.full((rows, k), -1, dtype=np.int64), np.full((rows, k), np.inf, dtype=np.float32))
