"""Columns of a large table without each of its cells as a text of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

ROWS = 50_000  # that are text at a time
FEW = 1000  # different cells in so many rows; a column with more, such as ids, stays text


def gather(names: Sequence[str], rows: Iterable[Sequence[str]]) -> pd.DataFrame:
    """Rows of text as columns; one of few different cells is categorical, a byte or two for each.

    A label file has millions of cells and a handful of different ones: 0, 1 and nothing.
    """
    parts: list[list[pd.Series[Any]]] = [[] for _ in names]
    stream = iter(rows)
    while piece := list(islice(stream, ROWS)):
        for part, cells in zip(parts, zip(*piece, strict=True), strict=True):
            part.append(_compact(cells))
    joined = {place: _joined(part) if part else pd.Series([], dtype=str) for place, part in enumerate(parts)}
    return pd.DataFrame(joined, copy=False).set_axis(list(names), axis="columns")


def _compact(cells: Sequence[str]) -> pd.Series[Any]:
    codes, different = pd.factorize(pd.Series(cells, dtype=object))
    if len(different) > FEW:
        return pd.Series(cells, dtype=str)
    return pd.Series(pd.Categorical.from_codes(codes.astype(np.int16), categories=different))


def _joined(parts: list[pd.Series[Any]]) -> pd.Series[Any]:
    if all(isinstance(part.dtype, pd.CategoricalDtype) for part in parts):
        return pd.Series(union_categoricals([part.array for part in parts]))
    return pd.concat([part.astype(str) for part in parts], ignore_index=True)
