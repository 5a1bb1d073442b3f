"""A file that several processes fill holds the same in the end, however many there were before an interruption."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bomd import spread
from bomd.shares import own_share

VALUES = np.arange(60, dtype=np.float32).reshape(30, 2)


class StoppedError(Exception):
    pass


def fill(path: Path, patch: pytest.MonkeyPatch, count: int, stopped: int | None = None) -> int:
    """What a group of processes does, the first of them last, who finds then what it joins; gives rows that were added.

    One of them may be stopped after its first row.
    """
    added = 0
    for rank in reversed(range(count)):
        for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": str(count), "RANK": str(rank)}.items():
            patch.setenv(name, value)
        rows = spread.own_part(len(VALUES))
        with own_share(path, VALUES.shape, "k") as file:
            for row in range(rows.start + file.done, rows.stop):
                file.add(VALUES[row : row + 1])
                added += 1
                if rank == stopped:
                    raise StoppedError
    return added


@pytest.mark.parametrize(("before", "after"), [(7, 8), (8, 7), (4, 2), (3, 1), (1, 3), (5, 5)])
def test_a_group_of_another_size_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, after: int
) -> None:
    """Shares of sevenths and of eighths have as many rows, but not the same ones."""
    path = tmp_path / "x.npy"
    with pytest.raises(StoppedError):
        fill(path, monkeypatch, before, stopped=0)
    assert not path.exists()
    added = fill(path, monkeypatch, after)
    np.testing.assert_array_equal(np.load(path, allow_pickle=False), VALUES)
    if before == after:
        assert added == -(-len(VALUES) // before) - 1  # the rest of the share that was interrupted
    kept = {"x.npy", "x.npy.rows"} if after == 1 else {"x.npy"}  # a single process finds it again by its note
    assert {file.name for file in tmp_path.iterdir()} == kept
