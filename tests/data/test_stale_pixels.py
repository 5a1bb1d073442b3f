"""Pixels that other code has packed are packed anew, beside those that runs may still look at."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import bomd
from bomd.data.growing import Part
from bomd.data.store import open_store, pack
from bomd.tables import LabelTable

SOURCE = Path(bomd.__file__).parent
PACK = """
import sys
from pathlib import Path
import numpy as np
from bomd.data.store import pack
from bomd.tables import LabelTable
files = sorted(Path(sys.argv[1]).glob("*.png"))
ids = np.asarray([file.name for file in files])
table = LabelTable(ids, ("A",), np.zeros((len(files), 1)), paths=np.asarray(files, str))
store = pack(table, Path(sys.argv[2]), 16)
print(store.directory)
"""


@pytest.fixture
def pictures(tmp_path: Path) -> LabelTable:
    folder, random = tmp_path / "pictures", np.random.default_rng(0)
    folder.mkdir()
    for number in range(3):
        Image.fromarray(random.integers(0, 256, (40, 30), np.uint8)).save(folder / f"{number}.png")
    files = sorted(folder.glob("*.png"))
    ids = np.asarray([file.name for file in files])
    return LabelTable(ids, ("A",), np.zeros((3, 1)), paths=np.asarray(files, dtype=np.str_))


def packed_by_a_copy(tmp_path: Path, before: str, after: str) -> Path:
    """The store that a copy of the package finds or makes, in which one text of `images.py` is another."""
    copy = tmp_path / "copy" / "bomd"
    copy.mkdir(parents=True)
    for file in [*SOURCE.glob("*.py"), *(SOURCE / "data").glob("*.py")]:
        (copy / file.relative_to(SOURCE)).parent.mkdir(exist_ok=True)
        shutil.copyfile(file, copy / file.relative_to(SOURCE))
    images = copy / "data" / "images.py"
    assert before in images.read_text()
    images.write_text(images.read_text().replace(before, after))
    words = [sys.executable, "-c", PACK, str(tmp_path / "pictures"), str(tmp_path / "store")]
    done = subprocess.run(
        words, env={"PYTHONPATH": str(copy.parent)}, capture_output=True, text=True, timeout=120, check=True
    )
    return Path(done.stdout.strip().splitlines()[-1])


def test_another_resizing_packs_anew_and_leaves_what_is_in_use(tmp_path: Path, pictures: LabelTable) -> None:
    first = pack(pictures, tmp_path / "store", 16)
    held = np.array(first.images)
    other = packed_by_a_copy(tmp_path, "Resampling.BILINEAR", "Resampling.NEAREST")
    assert other != first.directory
    assert not np.array_equal(open_store(other).images, held)
    expected = np.asarray(Image.open(pictures.paths[0]).resize((16, 16), Image.Resampling.NEAREST))  # type: ignore[index]
    np.testing.assert_array_equal(open_store(other).images[0], expected)
    np.testing.assert_array_equal(first.images, held)  # the map that was open all the while
    again = open_store(first.directory, deep=True, expected=first.fingerprint)
    np.testing.assert_array_equal(again.images, held)
    assert pack(pictures, tmp_path / "store", 16).directory == first.directory


def test_a_comment_packs_nothing_anew(tmp_path: Path, pictures: LabelTable) -> None:
    first = pack(pictures, tmp_path / "store", 16)
    state = (first.directory / "store.json").stat().st_mtime_ns
    assert packed_by_a_copy(tmp_path, "    if size < 1:", "    # nothing to show\n    if size < 1:") == first.directory
    assert (first.directory / "store.json").stat().st_mtime_ns == state


def test_an_interrupted_packing_is_not_continued_by_other_code(
    tmp_path: Path, pictures: LabelTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of it by one rule and half by another would be neither."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Part, "finish", killed)
    with pytest.raises(KeyboardInterrupt):
        pack(pictures, tmp_path / "store", 16)
    assert (tmp_path / "store" / "journal.jsonl").read_text().count("crc32") == 1
    other = open_store(packed_by_a_copy(tmp_path, "Resampling.BILINEAR", "Resampling.NEAREST"))
    for row, path in enumerate(pictures.paths):  # type: ignore[arg-type]
        expected = np.asarray(Image.open(path).resize((16, 16), Image.Resampling.NEAREST))
        np.testing.assert_array_equal(other.images[row], expected)
