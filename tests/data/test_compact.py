"""Cells come out as they are in the file, and a large file of labels takes little more memory than disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bomd.data import compact
from bomd.data.records import read_separated


def test_the_same_cells_as_in_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pieces of ten rows, a column may have few different cells in one of them and many in the next."""
    monkeypatch.setattr(compact, "ROWS", 10)
    monkeypatch.setattr(compact, "FEW", 3)
    random = np.random.default_rng(0)
    rows = [f'{row},{row % 2},{"same" if row < 10 else row},"a, {random.integers(3)}",,ü' for row in range(47)]
    file = tmp_path / "a.csv"
    file.write_text("\n".join(["id,Mass,late,text,blank,umlaut", *rows]) + "\n", encoding="utf-8")
    found = read_separated(file, ",")[0]
    expected = pd.read_csv(file, dtype=str, na_filter=False)
    assert list(found.columns) == list(expected.columns)
    for name in expected:
        assert found[name].tolist() == expected[name].tolist()


def test_a_table_of_labels_takes_less_memory_than_its_file(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    lines = [
        f"images/{row:08}.png," + ",".join(cells)
        for row, cells in enumerate(random.choice(["0", "1", ""], (60_000, 20)))
    ]
    file = tmp_path / "big.csv"
    file.write_text("\n".join(["id," + ",".join(f"c{column}" for column in range(20)), *lines]) + "\n")
    found = read_separated(file, ",")[0]
    labels = found.drop(columns="id")
    assert labels.memory_usage(deep=True).sum() < 0.7 * file.stat().st_size
    assert labels.shape == (60_000, 20)
