"""Columns of a large table without each of its cells as a text of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

CELLS = 1_000_000  # that are text at a time
FEW = 1000  # different cells; a column with more, or with hardly any twice, such as ids, stays text


def gather(names: Sequence[str], rows: Iterable[Sequence[str]]) -> pd.DataFrame:
    """Rows of text as columns; one of few different cells is categorical, a byte or two for each.

    A label file has millions of cells and a handful of different ones: 0, 1 and nothing.
    """
    columns = [_Column() for _ in names]
    stream = iter(rows)
    while piece := list(islice(stream, 1 + CELLS // max(1, len(names)))):
        for column, cells in zip(columns, zip(*piece, strict=True), strict=True):
            column.add(cells)
    joined = {place: column.joined() for place, column in enumerate(columns)}
    return pd.DataFrame(joined, copy=False).set_axis(list(names), axis="columns")


class _Column:
    """A column that grows: places of its cells among the different ones, or text where these are many."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self.codes: list[NDArray[np.integer[Any]]] = []
        self.text: list[str] | None = None

    def add(self, cells: Sequence[str]) -> None:
        if self.text is None:
            codes, different = pd.factorize(pd.Series(cells, dtype=object))
            places = [self.known.setdefault(str(cell), len(self.known)) for cell in different]
            if len(self.known) <= FEW and 2 * len(different) <= len(cells) + 1:
                self.codes.append(np.asarray(places, dtype=np.min_scalar_type(len(self.known)))[codes])
                return
            words = list(self.known)
            self.text = [words[code] for codes in self.codes for code in codes.tolist()]
            self.codes, self.known = [], {}
        self.text += cells

    def joined(self) -> pd.Series[Any]:
        if self.text is not None or not self.codes:
            return pd.Series(self.text or [], dtype=str)
        codes = np.concatenate(self.codes)
        return pd.Series(pd.Categorical.from_codes(codes.astype(np.int16), pd.Index(list(self.known), dtype=str)))
