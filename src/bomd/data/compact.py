"""Columns of a large table without each of its cells as a text of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, overload

import numpy as np
import pandas as pd
from numpy.typing import NDArray

CELLS = 1_000_000  # that are text at a time
TOGETHER = 1 << 12  # texts that are kept as one
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


class _Column:
    """A column that grows: places of its cells among the different ones, or text where these are many."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self.codes: list[NDArray[np.integer[Any]]] = []
        self.text: list[pd.Series[str]] | None = None

    def add(self, cells: Sequence[str]) -> None:
        if self.text is None:
            codes, different = pd.factorize(pd.Series(cells, dtype=object))
            places = [self.known.setdefault(str(cell), len(self.known)) for cell in different]
            if len(self.known) <= FEW and 2 * len(different) <= len(cells) + 1:
                self.codes.append(np.asarray(places, dtype=np.min_scalar_type(len(self.known)))[codes])
                return
            words = np.asarray(list(self.known), dtype=object)
            self.text = [pd.Series(words[codes], dtype=str) for codes in self.codes]
            self.codes, self.known = [], {}
        self.text.append(pd.Series(list(cells), dtype=str))  # at once: half of the memory of as many texts

    def joined(self) -> pd.Series[Any]:
        if self.text is not None:
            return pd.concat(self.text, ignore_index=True)
        if not self.codes:
            return pd.Series([], dtype=str)
        codes = np.concatenate(self.codes)
        return pd.Series(pd.Categorical.from_codes(codes.astype(np.int16), pd.Index(list(self.known), dtype=str)))
