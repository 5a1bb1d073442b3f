"""Two checkouts are timed by their own sources, and a slower one is seen to be slower."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bomd.errors import InputError
from evidence.bench import against
from evidence.rows import read_rows

SLOW = """
import time
Bce.start_epoch = lambda self, epoch, predict: time.sleep(2)
"""


@pytest.mark.slow
def test_a_version_that_waits_is_slower(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Two seconds of waiting for 8 images: 4 a second at most, and no more than this checkout's."""
    shutil.copytree(against.HERE / "src", tmp_path / "other" / "src", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "other" / "src" / "bomd" / "methods" / "bce.py").open("a") as file:
        file.write(SLOW)
    table = tmp_path / "speed.csv"
    against.main([str(tmp_path / "other"), "--quick", "--rounds", "1", "--results", str(table)])
    (row,) = read_rows(table)
    assert row["item"] == "training at 32 px, batch 4, against an earlier version"
    assert row["alternative_is"] == "the same by other"  # no commit is known in this folder
    assert float(row["alternative"]) < 4 < float(row["ours"])
    assert float(row["ratio"]) == pytest.approx(float(row["ours"]) / float(row["alternative"]), rel=1e-4)
    assert "against" in capfd.readouterr().out


def test_what_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no src/bomd"):
        against.main([str(tmp_path), "--quick"])


def test_sources_of_another_folder_are_not_taken_for_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An installed bomd must not be timed in the place of one that cannot be imported."""
    (tmp_path / "src" / "bomd").mkdir(parents=True)
    with pytest.raises(InputError, match="failed"):
        against.rates(tmp_path, against.TINY)
    assert "bomd/__init__.py was imported." in capfd.readouterr().err
