"""A file appears whole or not at all."""

from __future__ import annotations

import gzip
import lzma
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from bomd.errors import InputError
from bomd.files import (
    beside,
    fingerprint,
    read_array,
    read_arrays,
    read_json,
    read_text,
    replacing,
    spare,
    write_arrays,
    write_json,
    write_pieces,
    write_text,
)


def test_failure_inside_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert read_json(path) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]


def test_a_writer_that_begins_as_another_ends_keeps_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of one run write the same files at once; both use the usual name for what is not whole yet."""
    path, rename = tmp_path / "x.txt", Path.replace
    second = replacing(path)
    begun: list[Path] = []

    def renamed(self: Path, target: Path) -> Path:
        found = rename(self, target)
        monkeypatch.setattr(Path, "replace", rename)
        begun.append(second.__enter__())
        begun[0].write_text("second")
        return found

    monkeypatch.setattr(Path, "replace", renamed)
    write_text(path, "first")
    assert path.read_text() == "first"
    assert begun[0].read_text() == "second"
    second.__exit__(None, None, None)
    assert path.read_text() == "second"
    assert [file.name for file in tmp_path.iterdir()] == ["x.txt"]


def test_full_disk_is_one_line_and_nothing_half_written(tmp_path: Path) -> None:
    """A real refusal by the system: files may not grow beyond 64 kB in the child."""
    script = (
        "import sys, numpy as np; from pathlib import Path\n"
        "from bomd.files import write_arrays; from bomd.errors import InputError\n"
        "try: write_arrays(Path(sys.argv[1]), {'a': np.random.default_rng(0).random(100_000)})\n"
        "except InputError as error: print(error); sys.exit(2)\n"
    )

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))

    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "big.npz")],
        preexec_fn=limit,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout.startswith("Cannot write")
    assert done.stdout.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def write_by_pieces(path: Path, text: str) -> None:
    write_pieces(path, (text[start : start + 100] for start in range(0, len(text), 100)))


@pytest.mark.parametrize("write", [write_text, write_by_pieces])
@pytest.mark.parametrize(("ending", "opening"), [(".xz", lzma.open), (".gz", gzip.open)])
def test_text_is_compressed_as_its_name_says_and_the_same_text_gives_the_same_file(
    tmp_path: Path,
    ending: str,
    opening: Callable[..., IO[bytes]],
    write: Callable[[Path, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text, path = "ü\r\n" + "words " * 1000, tmp_path / f"a.jsonl{ending}"
    write(path, text)
    first = path.read_bytes()
    assert len(first) < len(text) / 10
    assert opening(path).read() == text.encode()
    assert read_text(path) == text
    monkeypatch.setattr("time.time", lambda: 2e9)
    write(path, text)
    assert path.read_bytes() == first
    for damaged in (first[:-20], b"no archive", first[:30] + bytes(20) + first[50:], b"\xff\xfe"):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"^Cannot read .*a\.jsonl") as error:
            read_text(path)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.csv.xz"])
def test_a_file_that_begins_otherwise_is_spared(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    spare(path, "file,")  # nothing is there yet
    path.touch()
    spare(path, "file,")  # nor in it
    write_text(path, "file,Mass\n")
    spare(path, "file,")
    with pytest.raises(InputError, match="holds something else"):
        spare(path, "id,")
    if path.suffix != ".csv":
        path.write_bytes(b"file,Mass\n")  # nobody can tell what this is
        with pytest.raises(InputError, match="holds something else"):
            spare(path, "file,")


def test_tables_lie_beside_records_whether_these_are_compressed_or_not() -> None:
    for name in ("a/nih-64.v2.jsonl", "a/nih-64.v2.jsonl.gz", "a/nih-64.v2.jsonl.xz"):
        assert beside(Path(name), ".csv") == Path("a/nih-64.v2.csv")


def test_arrays_come_back_and_objects_are_refused(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.npz", {"names": np.array(["ü", "b"]), "x": np.arange(3)})
    loaded = read_arrays(tmp_path / "a.npz")
    assert list(loaded["names"]) == ["ü", "b"]
    with pytest.raises(TypeError, match="pickle"):
        write_arrays(tmp_path / "b.npz", {"x": np.array([{}], dtype=object)})
    (tmp_path / "c.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:50])
    with pytest.raises(InputError, match="Cannot read"):
        read_arrays(tmp_path / "c.npz")
    (tmp_path / "d.npz").write_bytes(b"something else altogether")
    with pytest.raises(InputError, match=r"not an array that NumPy saved, with numpy.save or numpy.savez\.$"):
        read_arrays(tmp_path / "d.npz")  # and no advice to unpickle it, which nothing here ever does


@pytest.mark.parametrize("mapped", [False, True])
def test_a_damaged_array_is_one_line(tmp_path: Path, mapped: bool) -> None:
    """Cut at every byte of its head and flipped at each: numpy raises many kinds, all become one."""
    path = tmp_path / "a.npy"
    np.save(path, np.arange(6, dtype=np.float32).reshape(2, 3))
    whole = path.read_bytes()
    assert read_array(path, mapped=mapped).tolist() == [[0, 1, 2], [3, 4, 5]]
    for place in range(0, len(whole) - 24, 3):
        path.write_bytes(whole[:place])
        with pytest.raises(InputError, match="Cannot read"):
            read_array(path, mapped=mapped)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with suppress(InputError):  # padding may change without harm; anything else is refused in one line
            read_array(path, mapped=mapped)
    np.savez(tmp_path / "several.npz", a=np.zeros(1))
    with pytest.raises(InputError, match="several arrays"):
        read_array(tmp_path / "several.npz", mapped=mapped)


def test_fingerprint_sees_values_shapes_and_text() -> None:
    base = fingerprint({"a": 1}, np.zeros((2, 3)), np.array(["x"]))
    assert base == fingerprint({"a": 1}, np.zeros((2, 3)), np.array(["x"]))
    assert base != fingerprint({"a": 1}, np.zeros((3, 2)), np.array(["x"]))
    assert base != fingerprint({"a": 1}, np.zeros((2, 3)), np.array(["y"]))
    assert base != fingerprint({"a": 2}, np.zeros((2, 3)), np.array(["x"]))
    assert fingerprint("ab", "c") != fingerprint("a", "bc")
