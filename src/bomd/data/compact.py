"""Read the cells of a large separated file without holding each of them as a text of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

ROWS = 50_000  # that are text at a time
FEW = 1000  # different cells in so many rows; a column with more, such as ids, stays text


def read_compactly(file: Path, separator: str, encoding: str = "utf-8-sig") -> pd.DataFrame:
    """All cells as text, a blank as ""; a column of few different cells is categorical, a byte or two for each.

    A label file has millions of cells and a handful of different ones: 0, 1 and nothing.
    """
    parts: dict[Any, list[pd.Series[Any]]] = {}
    chunks = pd.read_csv(
        file, sep=separator, dtype=str, na_filter=False, index_col=False, encoding=encoding, chunksize=ROWS
    )
    with chunks:
        for chunk in chunks:
            for name in chunk.columns:
                parts.setdefault(name, []).append(_compact(chunk[name]))
    return pd.DataFrame({name: _joined(parts.pop(name)) for name in list(parts)}, copy=False)


def _compact(column: pd.Series[Any]) -> pd.Series[Any]:
    codes, cells = pd.factorize(column)
    if len(cells) > FEW:
        return column
    return pd.Series(pd.Categorical.from_codes(codes.astype(np.int16), categories=cells))


def _joined(parts: list[pd.Series[Any]]) -> pd.Series[Any]:
    if all(isinstance(part.dtype, pd.CategoricalDtype) for part in parts):
        return pd.Series(union_categoricals([part.array for part in parts]))
    return pd.concat([part.astype(str) for part in parts], ignore_index=True)
