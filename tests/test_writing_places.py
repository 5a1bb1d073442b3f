"""Where files go: devices, pipes and links stay what they are, and nobody else reads what is private."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bomd import progress
from bomd.errors import InputError
from bomd.files import is_stream, make_private, replacing, write_text


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_pipe_gets_the_text_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "out.csv"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_text(pipe, "a,b\n")
    reader.join(timeout=10)
    assert read == ["a,b\n"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [file.name for file in tmp_path.iterdir()] == ["out.csv"]


def test_a_device_is_written_into_and_stays_a_device(tmp_path: Path) -> None:
    node = tmp_path / "null"
    try:
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        node.write_text("x")
    except OSError:
        pytest.skip("this user may not make devices")
    write_text(node, "x" * 1000)
    found = node.stat()
    assert stat.S_ISCHR(found.st_mode)
    assert found.st_rdev == os.makedev(1, 3)
    assert [file.name for file in tmp_path.iterdir()] == ["null"]


def test_a_disk_is_refused(tmp_path: Path) -> None:
    node = tmp_path / "disk"
    try:
        os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(7, 250))  # a loop device that is bound to nothing
    except OSError:
        pytest.skip("this user may not make devices")
    with pytest.raises(InputError, match="it is a disk"):
        write_text(node, "x")
    assert stat.S_ISBLK(node.stat().st_mode)


def test_links_are_followed_and_stay_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link, dangling, circle = (tmp_path / name for name in ("real/a.txt", "link", "dangling", "circle"))
    target.write_text("old")
    link.symlink_to(target)
    dangling.symlink_to(Path("real") / "new.txt")
    circle.symlink_to(circle)
    write_text(link, "new")
    write_text(dangling, "there")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert dangling.is_symlink()
    assert (tmp_path / "real" / "new.txt").read_text() == "there"
    with pytest.raises(InputError, match="leads to itself"):
        write_text(circle, "x")
    assert sorted(file.name for file in (tmp_path / "real").iterdir()) == ["a.txt", "new.txt"]


def test_standard_output_is_a_stream_even_where_it_goes_to_a_file(tmp_path: Path) -> None:
    script = "from pathlib import Path; from bomd.files import write_text; write_text(Path('/dev/stdout'), 'text')"
    file = tmp_path / "said"
    with file.open("w") as stream:
        subprocess.run([sys.executable, "-c", script], stdout=stream, check=True)
    assert file.read_text() == "text"
    piped = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert piped.stdout == "text"
    assert Path("/dev/stdout").is_symlink()


def test_missing_folders_are_made_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    progress.enable()
    try:
        write_text(tmp_path / "typo" / "out.csv", "x")
        write_text(tmp_path / "typo" / "again.csv", "x")
    finally:
        progress.disable()
    said = capsys.readouterr().err
    assert "Made the folder" in said
    assert said.replace("\n", "").count("typo") == 1


@pytest.mark.parametrize(("mask", "expected"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664), (0o027, 0o640)])
def test_new_files_follow_the_umask(tmp_path: Path, mask: int, expected: int) -> None:
    tmp_path.chmod(0o777)
    with umask(mask):
        write_text(tmp_path / "a", "x")
    assert mode(tmp_path / "a") == expected


def test_an_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "a").chmod(0o640)
    with umask(0o022):
        write_text(tmp_path / "a", "y")
    assert mode(tmp_path / "a") == 0o640


def test_private_folders_and_what_is_in_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with umask(0o022):
        make_private(tmp_path / "runs" / "one")
        write_text(tmp_path / "runs" / "one" / "a", "x")
    assert mode(tmp_path / "runs") == mode(tmp_path / "runs" / "one") == 0o700
    assert mode(tmp_path / "runs" / "one" / "a") == 0o600
    assert mode(tmp_path) == 0o755
    with pytest.raises(InputError, match="Cannot write"):
        make_private(tmp_path / "runs" / "one" / "a")


KILLED = """
import os, signal, sys
from pathlib import Path
from bomd.files import replacing
with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_writer_left_is_gone_after_the_next(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", KILLED, str(path)])
        assert done.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1, "litter does not pile up"
    write_text(path, "whole")
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]
    assert path.read_text() == "whole"


def test_two_writers_at_once_do_not_share_a_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with replacing(path) as first:
        first.write_text("first")
        with replacing(path) as second:
            assert second != first
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_file_that_somebody_planted_is_not_written_into(tmp_path: Path) -> None:
    """In a folder that others may write to, the usual temporary name may be a link to something of value."""
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / ".a.part").symlink_to(precious)
    write_text(tmp_path / "a", "x")
    (tmp_path / ".b.part").hardlink_to(precious)
    write_text(tmp_path / "b", "x")
    assert precious.read_text() == "kept"
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text() == "x"


def test_what_a_stream_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    assert not any(is_stream(tmp_path / name) for name in ("file", "link", "nothing", "."))
    assert is_stream(tmp_path / "pipe")
    assert is_stream(Path("/dev/null"))
