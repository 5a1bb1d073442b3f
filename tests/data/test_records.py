"""Cells come out as they are in the file, and a large file of labels takes little more memory than disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bomd.data import records
from bomd.data.records import read_separated


def test_the_same_cells_as_in_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pieces of ten rows, a column may have few different cells in one of them and many in the next."""
    monkeypatch.setattr(records, "CELLS", 60)
    monkeypatch.setattr(records, "FEW", 3)
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


READ = """
import resource, sys
from pathlib import Path
from bomd.data.datasets import folder

def held():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))

root = Path(sys.argv[1])
most = held() + int(7.5 * (root / "labels.csv").stat().st_size)
resource.setrlimit(resource.RLIMIT_DATA, (most, most))
print(sum((column == 1).sum() for column in folder.read(root).values.T))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how much memory is held")
def test_a_wide_table_is_read_within_a_limit(tmp_path: Path) -> None:
    """Of 7.5 times the file, 2.4 are the labels as numbers; a text for each cell would not fit."""
    count, columns = 6000, 1500
    (tmp_path / "images").mkdir()
    cells = np.random.default_rng(0).choice(["0", "1", ""], (count, columns))
    for row in range(count):
        (tmp_path / "images" / f"{row:06}.png").touch()
    lines = [f"{row:06}.png,{','.join(line)}" for row, line in enumerate(cells.tolist())]
    names = ",".join(f"c{column}" for column in range(columns))
    (tmp_path / "labels.csv").write_text("\n".join([f"id,{names}", *lines]) + "\n")
    words = [sys.executable, "-c", READ, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    assert int(done.stdout.split()[-1]) == (cells == "1").sum()


@pytest.mark.parametrize("count", [0, 3, 4, 11])
def test_texts_kept_end_to_end_are_the_texts(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "TOGETHER", 4)
    given = [f"{'ü' * row}\n\U0001f600\udcff{row}" if row % 3 else "" for row in range(count)]
    found = records.Texts(given)
    assert len(found) == count
    assert list(found) == given
    assert list(found) == given  # as often as one likes
