"""A file that is filled row by row ends as if nothing had happened, whatever interrupts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bomd.errors import InputError
from bomd.filling import filling

VALUES = np.random.default_rng(0).normal(size=(50, 2, 3)).astype(np.float32)


class StoppedError(Exception):
    pass


def fill(path: Path, *, key: str = "k", dtype: str = "float32", step: int = 7, stop: int = 1000) -> int:
    """Fill in what is missing, by steps; gives the number of rows that were added. It stops after so many steps."""
    with filling(path, VALUES.shape, key, dtype) as file:
        begun = file.done
        for number, start in enumerate(range(file.done, len(VALUES), step)):
            if number == stop:
                raise StoppedError
            file.add(VALUES[start : start + step])
        return file.done - begun


def test_it_is_an_ordinary_file_once_it_is_full(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "x.npy"
    assert fill(path) == 50
    np.testing.assert_array_equal(np.load(path, allow_pickle=False), VALUES)
    assert np.load(path, mmap_mode="r").flags.c_contiguous
    assert sorted(file.name for file in path.parent.iterdir()) == ["x.npy", "x.npy.rows"]
    assert fill(path) == 0  # nothing is done again


@given(stops=st.lists(st.integers(0, 5), max_size=5), step=st.integers(1, 20))
def test_any_interruptions_end_in_the_same_file(
    tmp_path_factory: pytest.TempPathFactory, stops: list[int], step: int
) -> None:
    path, added = tmp_path_factory.mktemp("filling") / "x.npy", 0
    for stop in stops:
        try:
            added += fill(path, step=step, stop=stop)
        except StoppedError:
            assert not path.exists()
            added += step * stop
    added += fill(path, step=step)
    assert added == 50
    np.testing.assert_array_equal(np.load(path), VALUES)


@pytest.mark.parametrize(("key", "dtype"), [("other", "float32"), ("k", "float16")])
def test_what_was_meant_otherwise_is_dropped(key: str, dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    with pytest.raises(StoppedError):
        fill(path, stop=3)
    assert fill(path, key=key, dtype=dtype) == 50
    np.testing.assert_array_equal(np.load(path), VALUES.astype(dtype))


def test_a_full_file_of_another_key_is_replaced_when_the_new_one_is_full(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    fill(path, dtype="float16")
    with pytest.raises(StoppedError):
        fill(path, key="other", stop=2)
    assert np.load(path).dtype == np.float16
    assert fill(path, key="other") == 36
    assert np.load(path).dtype == np.float32


@pytest.mark.parametrize("told", ["", "{", "[]", '{"rows": "x"}', '{"rows": 1000}', '{"rows": -1}'])
def test_a_damaged_note_costs_no_more_than_the_work(told: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    with pytest.raises(StoppedError):
        fill(path, stop=3)
    (tmp_path / "x.npy.rows").write_text(told)
    assert fill(path) == 50
    np.testing.assert_array_equal(np.load(path), VALUES)


def test_rows_that_are_told_of_and_not_there_are_made_again(tmp_path: Path) -> None:
    path, part = tmp_path / "x.npy", tmp_path / "x.npy.part"
    with pytest.raises(StoppedError):
        fill(path, stop=3)
    os.truncate(part, part.stat().st_size // 4)
    assert fill(path) == 50
    np.testing.assert_array_equal(np.load(path), VALUES)


def test_killed_between_the_last_row_and_the_name(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    fill(path)
    path.rename(tmp_path / "x.npy.part")
    assert fill(path) == 0
    np.testing.assert_array_equal(np.load(path), VALUES)


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from bomd.filling import filling
with filling(Path(sys.argv[1]), (50, 2, 3), "k", every=float(sys.argv[2])) as file:
    for start in range(0, 35, 7):
        file.add(np.load(sys.argv[3])[start : start + 7])
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("every", "left"), [(0.0, 15), (1e9, 50)])
def test_a_killed_process_loses_only_what_was_not_yet_safe(every: float, left: int, tmp_path: Path) -> None:
    path, values = tmp_path / "x.npy", tmp_path / "values.npy"
    np.save(values, VALUES)
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(every), str(values)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert fill(path) == left
    np.testing.assert_array_equal(np.load(path), VALUES)


@pytest.mark.parametrize("stop", [3, 1000])
def test_an_old_note_says_nothing_of_a_file_that_was_begun_anew(stop: int, tmp_path: Path) -> None:
    """Begun with one purpose or even full, then begun with another and killed at once, then wanted as before."""
    path, values = tmp_path / "x.npy", tmp_path / "values.npy"
    np.save(values, VALUES[::-1])
    with suppress(StoppedError):
        fill(path, key="other", stop=stop)
    subprocess.run([sys.executable, "-c", KILLED, str(path), "1e9", str(values)], check=False)
    assert fill(path, key="other") == 50
    np.testing.assert_array_equal(np.load(path), VALUES)


def test_others_may_look_into_it_where_they_may_look_into_its_folder(tmp_path: Path) -> None:
    for folder, mode in {"private": 0o600, "open": 0o644}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder).chmod(0o700 if folder == "private" else 0o755)
        fill(tmp_path / folder / "x.npy")
        assert (tmp_path / folder / "x.npy").stat().st_mode & 0o777 == mode & ~_umask()


def _umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


def test_wrong_numbers_of_rows_are_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has 7 of 50 rows"), filling(tmp_path / "x.npy", VALUES.shape, "k") as file:
        file.add(VALUES[:7])
    for rows in (np.concatenate([VALUES, VALUES]), VALUES[:1, :1]):
        with pytest.raises(ValueError, match="rows of"), filling(tmp_path / "y.npy", VALUES.shape, "k") as file:
            file.add(rows)
    with filling(tmp_path / "none.npy", (0, 4), "k"):
        pass
    assert np.load(tmp_path / "none.npy").shape == (0, 4)


def test_numbers_that_float16_cannot_hold_are_refused(tmp_path: Path) -> None:
    with filling(tmp_path / "numbers.npy", (1, 2), "k", "float16") as file:
        for large in (65520, -7e4):  # the largest is 65504, and what lies nearer to it is rounded to it
            with pytest.raises(InputError, match="Numbers are too large for float16; keep them as float32"):
                file.add(np.array([[0.0, large]], dtype=np.float32))
        file.add(np.array([[65519, np.nan]], dtype=np.float32))  # what is not a number is for others to judge
    np.testing.assert_array_equal(np.load(tmp_path / "numbers.npy"), [[65504, np.nan]])


FULL = """
import resource, signal, sys
from pathlib import Path
from bomd.errors import InputError
from bomd.filling import filling
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    with filling(Path(sys.argv[1]), (50, 2, 3), "k"):
        print("began")
except InputError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits files as Linux does")
def test_a_disk_that_is_too_small_is_noticed_before_any_work(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path / "x.npy")], capture_output=True, text=True)
    assert done.stdout.startswith(f"Cannot write {tmp_path / 'x.npy.part'}: "), done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert not list(tmp_path.iterdir())
