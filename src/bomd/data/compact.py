"""Columns of a large table without each of its cells as a text of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, overload

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import union_categoricals

CELLS = 1_000_000  # that are text at a time
TOGETHER = 1 << 12  # texts that are kept as one
Piece = pd.Categorical | pd.Series  # of a column
FEW = 1000  # different cells; a column with more, or with hardly any twice, such as ids, stays text


def gather(names: Sequence[str], rows: Iterable[Sequence[str]]) -> pd.DataFrame:
    """Rows of text as columns; one of few different cells is categorical, a byte or two for each.

    A label file has millions of cells and a handful of different ones: 0, 1 and nothing.
    """
    pieces: list[list[Piece]] = [[] for _ in names]
    stream = iter(rows)
    while taken := list(islice(stream, 1 + CELLS // max(1, len(names)))):
        for column, cells in zip(pieces, zip(*taken, strict=True), strict=True):
            column.append(_piece(cells))
    joined = {place: _joined(column) for place, column in enumerate(pieces)}
    return pd.DataFrame(joined, copy=False).set_axis(list(names), axis="columns")


class Texts(Sequence[str]):
    """Many texts, kept end to end: each as an object of its own takes half a hundred bytes more."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._blocks: list[tuple[bytes, NDArray[np.int64]]] = []  # of TOGETHER texts each, and where each of them ends
        self._last: list[str] = []
        for text in texts:
            self.append(text)

    def append(self, text: str) -> None:
        self._last.append(text)
        if len(self._last) == TOGETHER:
            encoded = [text.encode("utf-8", "surrogatepass") for text in self._last]
            self._blocks.append((b"".join(encoded), np.cumsum([0, *map(len, encoded)])))
            self._last = []

    def __len__(self) -> int:
        return TOGETHER * len(self._blocks) + len(self._last)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[row] for row in range(len(self))[place]]
        block, row = divmod(range(len(self))[place], TOGETHER)
        if block == len(self._blocks):
            return self._last[row]
        together, ends = self._blocks[block]
        return together[ends[row] : ends[row + 1]].decode("utf-8", "surrogatepass")


def _piece(cells: Sequence[str]) -> Piece:
    codes, different = pd.factorize(pd.Series(cells, dtype=object))
    if len(different) <= FEW and 2 * len(different) <= len(cells) + 1:
        return pd.Categorical.from_codes(codes.astype(np.int16), pd.Index(different, dtype=str))
    return pd.Series(list(cells), dtype=str)  # at once: half of the memory of as many texts


def _joined(pieces: list[Piece]) -> pd.Series[Any]:
    """A column: categorical, or text where its different cells are many."""
    few = [piece for piece in pieces if isinstance(piece, pd.Categorical)]
    if few and len(few) == len(pieces):
        whole = union_categoricals(few)
        if len(whole.categories) <= FEW:
            return pd.Series(whole)
    return pd.concat([pd.Series([], dtype=str), *(pd.Series(piece, dtype=str) for piece in pieces)], ignore_index=True)
