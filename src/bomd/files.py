"""Write a file whole or not at all, so that a crash never leaves half of one."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from bomd import progress
from bomd.errors import InputError

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

_locks: dict[Path, FileLock] = {}
PACKED = (".xz", ".gz")
_HASHED = 1 << 24  # bytes that are looked at together
_BEGINNING = 1 << 18  # bytes by which a file is known: more than its headings, however many classes there are
PRIVATE = 0o700  # of folders with other people's pictures and labels: their owner alone looks inside


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Where the system refuses to write, one line names the place and the reason."""
    try:
        yield
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror or error}.") from error


@contextmanager
def reading(what: object, *kinds: type[Exception]) -> Iterator[None]:
    """The same where a file cannot be read or, by errors of these kinds, is damaged."""
    refusals: tuple[type[Exception], ...] = (OSError, *kinds)
    try:
        yield
    except InputError:
        raise
    except refusals as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()).rstrip(".") or type(error).__name__
        if "pickle" in reason:  # what numpy says of any file that it does not know, and then how to run its code
            reason = "it is not an array that NumPy saved, with numpy.save or numpy.savez"
        raise InputError(f"Cannot read {what}: {reason}.") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that takes the place of `path` when the block succeeds.

    The file is flushed to disk before it is renamed; on any error nothing appears under `path`. A link is followed.
    A device or a pipe is never replaced: what the block wrote is copied into it. Missing folders are made, and said.
    """
    path = Path(path)
    with writing(path):
        if is_stream(path):
            with _copied_into(path) as temporary:
                yield temporary
            return
        target = _followed(path)
        _make_parents(target)
        handle, temporary = _open_temporary(target)
        try:
            yield temporary
            with temporary.open("rb+") as stream:
                os.fsync(stream.fileno())
            temporary.chmod(mode_of(target))
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)  # not if it was renamed: the name may be another writer's by now
            raise
        finally:
            os.close(handle)


def make_private(folder: Path) -> None:
    """Make a folder that its owner alone may look into, with all that is missing above it; one that is there stays."""
    with writing(folder):
        missing = [place for place in (folder, *folder.parents) if not place.exists()]
        for place in reversed(missing):
            place.mkdir(mode=PRIVATE, exist_ok=True)  # another process may be making it, too
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time read a file, add to it and write it again; the same process may enter twice."""
    if is_stream(Path(path)):
        raise InputError(f"{path} is a device or a pipe, which nothing can be added to: name a file.")
    target = _followed(Path(path)).absolute()
    with writing(path):
        _make_parents(target)
        lock = _locks.setdefault(target, FileLock(target.with_name(f".{target.name}.lock")))
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def is_stream(path: Path) -> bool:
    """Whether this is a device, a pipe or a stream of this process: written into, never read back or replaced."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    if stat.S_ISREG(mode):  # /dev/stdout where a shell sends it to a file
        return path.is_symlink() and path.absolute().parts[1:2] in (("dev",), ("proc",))
    return not stat.S_ISDIR(mode)


@contextmanager
def _copied_into(path: Path) -> Iterator[Path]:
    """A temporary file elsewhere, since not every writer can do without going back in its file."""
    if stat.S_ISBLK(path.stat().st_mode):
        raise InputError(f"Cannot write {path}: it is a disk, not a file.")
    with tempfile.TemporaryDirectory(prefix="bomd-") as folder:
        temporary = Path(folder) / f"content{path.suffix}"
        yield temporary
        with temporary.open("rb") as content, path.open("ab") as stream:
            shutil.copyfileobj(content, stream)


def _followed(path: Path) -> Path:
    """The file that a link leads to, there or not; any other path as it is."""
    if not path.is_symlink():
        return path
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise InputError(f"Cannot write {path}: it is a link that leads to itself.")
    return target


def _make_parents(path: Path) -> None:
    if not path.parent.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        progress.say(f"Made the folder {path.parent}, which was not there.")


def mode_of(path: Path) -> int:
    """Who may read and write: as before, or for a new file as the user's umask and its folder allow."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    umask = os.umask(0o077)  # it cannot be asked for without being set
    os.umask(umask)
    return 0o666 & ~umask & (path.parent.stat().st_mode | 0o600)


def _open_temporary(target: Path) -> tuple[int, Path]:
    """A file beside `target` that this process alone writes, open for as long as it does.

    It has the same name every time, so that the next writer takes over what a killed one left behind. The system
    lets go of the lock when its holder dies. Where another process is writing just now, the name is a new one.
    """
    usual = target.with_name(f".{target.name}.part{target.suffix}")
    if (handle := _take(usual)) is not None:
        return handle, usual
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=target.suffix)
    return handle, Path(name)


def _take(path: Path) -> int | None:
    """Open and lock a file that is new, or that a killed process of this user left; None where it cannot be had."""
    if fcntl is None:
        return None
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held, there = os.fstat(handle), path.lstat()
        own = held.st_uid == os.geteuid() and held.st_nlink == 1 and stat.S_ISREG(held.st_mode)
        if own and os.path.samestat(held, there):  # else its last holder has just finished and renamed it
            os.ftruncate(handle, 0)
            os.fchmod(handle, 0o600)
            return handle
    except OSError:
        pass
    os.close(handle)
    return None


def spare(path: Path, ours: str | Callable[[Path], bool]) -> None:
    """Refuse to write over anything but a file of this program's own of that kind.

    Labels, tasks and pages of the user's own may well have the name that somebody types; nothing brings them back.

    Args:
        ours: Tells such files: a pattern that they begin with, or a function that looks into them.
    """
    if not path.is_file() or is_stream(path) or not path.stat().st_size:
        return
    if not (ours(path) if callable(ours) else _begins(path, ours)):
        raise InputError(f"{path} is there and holds something else: name another file, or remove it.")


def _begins(path: Path, pattern: str) -> bool:
    opens: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open}
    begins = b""
    with suppress(OSError, EOFError, zlib.error, lzma.LZMAError), opens.get(path.suffix, open)(path, "rb") as stream:
        begins = stream.read(_BEGINNING)
    return re.match(pattern, begins.decode(errors="replace"), re.DOTALL) is not None


def write_bytes(path: Path, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write text, compressed where the name ends in .xz or .gz; the same text always gives the same file."""
    write_bytes(path, packed(path, text))


def packed(path: Path, text: str) -> bytes:
    """What `write_text` writes."""
    pack = {".xz": partial(lzma.compress, preset=9), ".gz": partial(gzip.compress, mtime=0)}.get(path.suffix, bytes)
    return pack(text.encode())


def read_text(path: Path) -> str:
    """The text of a file, which is compressed where its name ends in .xz or .gz."""
    unpack = {".xz": lzma.decompress, ".gz": gzip.decompress}.get(path.suffix, bytes)
    with reading(path, EOFError, ValueError, zlib.error, lzma.LZMAError):
        return unpack(path.read_bytes()).decode()


def beside(path: Path, ending: str) -> Path:
    """The same name with another ending: runs.csv beside runs.jsonl and beside runs.jsonl.xz."""
    return unpacked(path).with_suffix(ending)


def unpacked(path: Path) -> Path:
    """What a file is called once it is not compressed any more: labels.csv for labels.csv.gz."""
    return path.with_suffix("") if path.suffix.lower() in PACKED else path


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    with reading(path, ValueError, RecursionError):  # bad text, bad JSON, or JSON nested without end
        return json.loads(path.read_text(encoding="utf-8"))


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Save named arrays as one `.npz`; text arrays are fixed-width, so that nothing is ever pickled."""
    objects = [name for name, array in arrays.items() if array.dtype.hasobject]
    if objects:
        raise TypeError(f"Arrays of objects would need pickle: {objects}")
    with replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    with reading(path, Exception), np.load(path, allow_pickle=False) as archive:  # zipfile raises many kinds
        return {name: archive[name] for name in archive.files}


def write_array(path: Path, values: NDArray[Any]) -> None:
    """Save one array of float32 as `.npy`."""
    with replacing(path) as temporary, temporary.open("wb") as stream:
        np.save(stream, values.astype(np.float32, copy=False), allow_pickle=False)


def read_array(path: Path, *, mapped: bool = False) -> NDArray[Any]:
    """One array of a `.npy` file, left on disk if it is only to be mapped; nothing is ever unpickled."""
    with reading(path, Exception):  # numpy raises many kinds for a damaged file, also SyntaxError and MemoryError
        array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise InputError(f"Cannot read {path}: it holds several arrays, not one.")
    return array


@contextmanager
def mapped_array(path: Path, shape: tuple[int, ...], dtype: str = "float32") -> Iterator[NDArray[Any]]:
    """A new `.npy` file to be filled piece by piece, which need not fit in memory and appears when it is whole."""
    with replacing(path) as temporary:
        values = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.dtype(dtype), shape=shape)
        if hasattr(os, "posix_fallocate"):  # a disk that fills up under a memory map would kill the process
            with temporary.open("rb+") as stream:
                os.posix_fallocate(stream.fileno(), 0, temporary.stat().st_size)
        yield values
        values.flush()
        del values


def write_pieces(path: Path, pieces: Iterable[str]) -> None:
    """Write text that is never whole in memory, compressed as by `write_text`."""
    with replacing(path) as temporary, temporary.open("wb") as file, _text_into(file, path.suffix) as text:
        text.writelines(pieces)


def _text_into(file: BinaryIO, suffix: str) -> io.TextIOWrapper:
    """A stream of text whose closing ends what is compressed; of a compressed one the file stays open."""
    packs: dict[str, Callable[..., Any]] = {
        ".gz": partial(gzip.GzipFile, "", "wb", fileobj=file, mtime=0),
        ".xz": partial(lzma.LZMAFile, file, "wb", preset=9),
    }
    return io.TextIOWrapper(packs[suffix]() if suffix in packs else file, encoding="utf-8", newline="")


def status(path: str) -> os.stat_result | None:
    """What the system knows of a file, None where there is none; of a million, Paths would take longer than asking."""
    try:
        return os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None


def checksum(path: Path) -> str:
    """The SHA-256 of a file, by which anybody can tell whether it is still the same."""
    with reading(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fingerprint(*parts: Any) -> str:
    """A short, stable hash of settings and arrays, to recognise that nothing has changed."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            array = part if part.dtype.kind != "U" else np.char.encode(part, "utf-8")
            digest.update(f"{array.dtype}{array.shape}".encode())
            rows = np.atleast_1d(array)
            step = max(1, _HASHED // max(1, rows[:1].nbytes))
            for start in range(0, len(rows), step):  # it may be larger than memory
                digest.update(rows[start : start + step].tobytes())
        else:
            digest.update(json.dumps(part, sort_keys=True, default=str).encode())
        digest.update(b"\0")
    return digest.hexdigest()[:12]
