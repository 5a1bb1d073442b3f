"""Decode every image once into one packed uint8 file that batches are cut from.

A store is a directory of three files:

- `images.u8`: (N, size, size) raw bytes, or (N, size, size, 3) in colour.
- `index.npz`: ids, original sizes, a CRC-32 per packed image, and name, length and time of every source file.
- `store.json`: format, size, count and checksums, and whether it is in colour; written last, so its presence means
  the store is complete.

While it is being packed there are `images.part` and `journal.jsonl` instead, see `bomd.data.growing`. A finished store
is never replaced by one of other images: runs that were made from it look at it again. One that is joined of shards has
their `images.u8` instead of its own, see `bomd.data.shards`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from bomd import processes, progress
from bomd.data.growing import IMAGES, JOURNAL, Part
from bomd.data.images import Pixels, cores, fit_square, read_chunks, with_colour
from bomd.data.wanted import FORMAT, Kind, Render, Sources, Wanted, wanted
from bomd.errors import InputError
from bomd.files import checksum, fingerprint, make_private, read_arrays, read_json, write_arrays, write_json, writing
from bomd.tables import LabelTable, Text, rows_of

INDEX, FACTS = "index.npz", "store.json"
SHARDS = "shard-*-of-*"  # folders of stores that are to be joined
_SPOT_CHECKS = 8
_LOOKED_AT = 32 << 20  # bytes that a thread compares at a time
_NAMED = 5  # broken images spelled out in an error
_WORTH_PROCESSES = 32 << 20  # bytes of source files; below that, starting processes takes longer than decoding


class Pieces:
    """Several packed files as the one array that they would be, so that no byte is copied to join them."""

    def __init__(self, parts: Sequence[Pixels]):
        self._parts = tuple(parts)
        self._ends = np.cumsum([len(part) for part in parts])
        self.shape: tuple[int, ...] = (int(self._ends[-1]), *parts[0].shape[1:])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: int | np.integer | slice | NDArray[np.integer]) -> Pixels:
        """One image without a copy, or those of a slice or a list of rows as a new array."""
        if isinstance(rows, int | np.integer):
            place = range(len(self))[rows]
            part = int(np.searchsorted(self._ends, place, side="right"))
            image: Pixels = self._parts[part][place - int(self._ends[part])]  # from the end, which needs no beginning
            return image
        chosen = [self[row] for row in np.arange(len(self))[rows]]
        return np.asarray(chosen, dtype=np.uint8).reshape(-1, *self.shape[1:])


@dataclass(frozen=True, eq=False)
class Store:
    """N square images in one read-only memory map.

    Attributes:
        directory: Where it lies.
        ids: (N) names, in the order of the packed rows.
        size: Side of the packed images.
        images: (N, size, size) uint8 memory map, or (N, size, size, 3) in colour; of shards, the same row by row.
        original_sizes: (N, 2) height and width before resizing.
        broken: `{"id": ..., "reason": ...}` of every image that was dropped because it could not be read.
        fingerprint: Changes when any pixel, id or the size does.
        checksums: (N) CRC-32 of each packed image.
    """

    directory: Path
    ids: Text
    size: int
    images: Pixels | Pieces
    original_sizes: NDArray[np.int32]
    broken: tuple[dict[str, str], ...]
    fingerprint: str
    checksums: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def colour(self) -> bool:
        """Whether images are kept in colour."""
        return self.images.ndim == 4

    def shows(self, row: int, picture: Pixels) -> bool:
        """Whether this is the picture that was packed, and not one that took its file's name since."""
        square = fit_square(with_colour(picture, self.colour), self.size)
        return zlib.crc32(square.tobytes()) == int(self.checksums[row])

    def rows(self, ids: Sequence[str] | Text) -> NDArray[np.intp]:
        """Packed row of each id; one that is not here is an error that names it."""
        return rows_of(self.ids, np.asarray(ids, dtype=np.str_))


def pack(
    table: LabelTable,
    directory: Path,
    size: int,
    *,
    render: Render | None = None,
    workers: int | None = None,
    skip_broken: bool = False,
    colour: bool = False,
) -> Store:
    """Decode the images of a table into a packed store, or reopen the one that is already there.

    A finished store is returned as it is when ids, size, the name, length and time of every source file, and the code
    that reads and resizes them, are the same, after the checksums of all its images were compared; else the images
    are packed into a directory beside it. Interrupted at any moment, the same call goes on and ends with the same
    bytes. Two processes that pack into one directory take turns.

    Args:
        table: Which images, in this order; `paths` are their files unless they are rendered.
        directory: Where the store goes.
        size: Side of the packed images; see `bomd.data.images.fit_square` for the rule.
        render: Draws grey images that are not files: `render(ids, size) -> (n, size, size) uint8`, the same for
            the same ids at any time. A few are drawn again on every call to notice that it has changed.
        workers: Processes that decode; by default one per core, or none for a small job.
        skip_broken: Leave out images that cannot be read and list them in `Store.broken`.
        colour: Keep it; grey images then have three equal channels.

    Raises:
        InputError: Images cannot be read (all are tried, then counted and named), or the disk is full.
    """
    if workers is not None and workers < 1:
        raise InputError(f"Cannot pack with {workers} processes; give at least 1.")
    directory, asked = Path(directory), wanted(table, size, render, colour)
    finished = finished_store(directory, asked.request, skip_broken)
    if finished is None and _holds_others(directory, asked.request):
        progress.say(
            f"Other images than those in {directory} are wanted; it stays for the runs that were made from it."
        )
        directory = beside(directory, asked.request)
        finished = finished_store(directory, asked.request, skip_broken)
    if finished is not None:
        return finished
    if any(directory.glob(SHARDS)):
        raise InputError(f"{directory} holds shards that are not joined: run `bomd prepare` with --join first.")
    with one_at_a_time(directory):
        if finished_store(directory, asked.request, skip_broken) is None:  # another process may just have packed it
            _pack(asked, directory, workers, skip_broken)
    return open_store(directory)


def open_store(directory: Path, *, deep: bool = False, expected: str | None = None) -> Store:
    """Open a finished store after checking that it is whole.

    Args:
        deep: Compare the checksum of every image instead of a few.
        expected: The fingerprint that it had when it was last used.
    """
    directory = Path(directory)
    if not (directory / FACTS).exists():
        unfinished = (directory / JOURNAL).exists()
        hint = "packing was interrupted, run it again" if unfinished else "pack them first"
        raise InputError(f"No packed images in {directory}: {hint}.")
    facts = read_json(directory / FACTS)
    found = facts.get("format") if isinstance(facts, dict) else None
    if found != FORMAT:
        raise InputError(f"{directory / FACTS} has format {found}, not {FORMAT}: pack the images again.")
    try:
        count, broken = int(facts["count"]), tuple(facts["broken"])
        kind = Kind(int(facts["size"]), facts.get("colour", False) is True)  # stores in grey do not say so
        same_index = checksum(directory / INDEX) == facts["index_sha256"]
        shards = {str(name): int(own) for name, own in facts.get("shards", {".": count}).items()}
        files = {directory / name / IMAGES: own for name, own in shards.items()}
        lengths = {file: file.stat().st_size for file in files}
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise InputError(f"The store in {directory} is not whole ({error}): pack it again.") from error
    if not same_index:
        raise InputError(f"{directory / INDEX} has changed since it was written: pack the images again.")
    for file, length in lengths.items():
        expected_length = files[file] * math.prod(kind.shape)
        if length != expected_length:
            raise InputError(f"{file} has {length:,} bytes, not {expected_length:,}: pack the images again.")
    index = read_arrays(directory / INDEX)
    maps = [np.memmap(file, dtype=np.uint8, mode="r", shape=(own, *kind.shape)) for file, own in files.items()]
    images = maps[0] if len(maps) == 1 else Pieces(maps)
    rows = np.arange(count) if deep else np.unique(np.linspace(0, count - 1, _SPOT_CHECKS).astype(np.intp))
    wrong = _first_wrong(images, index["crc32"], rows)
    if wrong is not None:
        name = str(index["ids"][wrong])
        raise InputError(f"Packed image {name!r} in {directory} has changed on disk: pack it again.")
    identity = fingerprint(FORMAT, *kind.facts, index["ids"], index["crc32"])
    if expected is not None and identity != expected:
        raise InputError(f"{directory} holds other images than this run was made from: run it again.")
    return Store(directory, index["ids"], kind.size, images, index["original_sizes"], broken, identity, index["crc32"])


def _first_wrong(images: Pixels | Pieces, checksums: NDArray[np.uint32], rows: NDArray[np.intp]) -> int | None:
    """The first of these rows whose bytes are not those that were packed; all cores look, each as fast as it reads."""

    def look(part: NDArray[np.intp]) -> int | None:
        return next((int(row) for row in part if zlib.crc32(images[row].data) != checksums[row]), None)

    parts = np.array_split(rows, max(1, images[0].size * len(rows) // _LOOKED_AT)) if len(rows) else []
    if len(parts) < 2:
        return look(rows)
    with ThreadPoolExecutor(cores()) as pool, progress.bar("Checking packed images", len(rows)) as advance:
        for part, wrong in zip(parts, pool.map(look, parts), strict=True):
            if wrong is not None:
                pool.shutdown(cancel_futures=True)
                return wrong
            advance(len(part))
    return None


def _pack(asked: Wanted, directory: Path, workers: int | None, skip_broken: bool) -> None:
    if (directory / FACTS).exists():
        for name in (IMAGES, INDEX, FACTS):  # in this order, so that what is left never looks complete
            (directory / name).unlink(missing_ok=True)
    table, kind, N = asked.table, asked.kind, len(asked.table)
    step = max(8, min(64 if asked.render is None else 1024, (16 << 20) // math.prod(kind.shape)))
    keys = asked.keys(step)
    broken: dict[int, str] = {}
    with Part(directory, N, kind.shape) as part, progress.bar("Packing images", N) as advance:
        done = part.resume(keys)
        advance(sum(min(step, N - start) for start in done))
        starts = [start for start in keys if start not in done]
        if asked.render is not None:
            chunks = asked.drawn(starts, step)
        else:
            assert table.paths is not None
            decoders = workers or (cores() if asked.sources["source_bytes"].sum() > _WORTH_PROCESSES else 1)
            chunks = read_chunks(table.paths, kind.size, starts, step, decoders, colour=kind.colour)
        with closing(chunks):
            for chunk in chunks:
                part.write(chunk, keys[chunk.start])
                broken.update({chunk.start + row: reason for row, reason in chunk.broken.items()})
                advance(len(chunk.pixels), note=f"{len(broken)} broken" if broken else "")
    if broken and (not skip_broken or len(broken) == N):
        raise _broken_error([broken[row] for row in sorted(broken)], N)
    kept = np.ones(N, dtype=np.bool_)
    kept[list(broken)] = False
    part.finish(kept)
    index = {"ids": table.ids, "original_sizes": part.original_sizes, "crc32": part.checksums, **asked.sources}
    left_out = [{"id": str(table.ids[row]), "reason": broken[row]} for row in sorted(broken)]
    complete(directory, asked, {name: column[kept] for name, column in index.items()}, left_out)
    (directory / JOURNAL).unlink(missing_ok=True)


def complete(
    directory: Path, asked: Wanted, index: Sources, broken: list[dict[str, str]], shards: dict[str, int] | None = None
) -> None:
    """Write down what the packed images are, which makes a store of them.

    Where they are not in this folder, `shards` has the images in each of their folders, in the order of the index.
    """
    write_arrays(directory / INDEX, index)
    facts = {
        "format": FORMAT,
        "size": asked.kind.size,
        **({"colour": True} if asked.kind.colour else {}),
        "count": len(index["ids"]),
        "request": asked.request,
        "index_sha256": checksum(directory / INDEX),
        "broken": broken,
        **({"shards": shards} if shards is not None else {}),
    }
    write_json(directory / FACTS, facts)


def finished_store(directory: Path, request: str, skip_broken: bool) -> Store | None:
    """The store that answers this request, if it is there and every byte of it is right."""
    if request_of(directory) != request:
        return None
    try:
        store = open_store(directory, deep=processes.first())
    except InputError as error:
        if any(directory.glob(SHARDS)):  # one process would take long for what many have packed
            raise InputError(f"{error} Run `bomd prepare` with --shard for the damaged shard, then --join.") from error
        progress.say(f"{error} Packing anew.")
        return None
    refuse_broken(store, skip_broken)
    return store


def refuse_broken(store: Store, skip_broken: bool) -> None:
    """Say which images a store was packed without, unless that is wanted."""
    if store.broken and not skip_broken:
        reasons = [image["reason"] for image in store.broken]
        raise _broken_error(reasons, len(store) + len(reasons))


def _holds_others(directory: Path, request: str) -> bool:
    """Whether a whole store of other images is here; a damaged one is of no use to anybody."""
    if request_of(directory) in (None, request):
        return False
    try:
        open_store(directory)
    except InputError:
        return False
    return True


def beside(directory: Path, request: str) -> Path:
    """Where images go that are not those of the store that is already here."""
    return directory.with_name(f"{directory.name}-{request[:6]}")


def request_of(directory: Path) -> str | None:
    """What the finished store here was packed for; None where there is none."""
    if not (directory / FACTS).exists():
        return None
    try:
        return str(read_json(directory / FACTS)["request"])
    except (InputError, KeyError, TypeError) as error:
        progress.say(f"The store in {directory} is damaged ({error}). Packing anew.")
        return None


@contextmanager
def one_at_a_time(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, which the system lets go of when its holder dies."""
    lock = FileLock(directory / ".lock")
    make_private(directory)
    with writing(directory):
        lock.acquire()
    try:
        for name in (IMAGES, INDEX, FACTS, JOURNAL):
            for left in directory.glob(f".{name}.*"):  # temporary files of a process that was killed
                left.unlink()
        yield
    finally:
        lock.release()


def _broken_error(reasons: Sequence[str], count: int) -> InputError:
    more = f" And {len(reasons) - _NAMED} more." if len(reasons) > _NAMED else ""
    return InputError(
        f"{len(reasons)} of {count} images cannot be read: {' '.join(reasons[:_NAMED])}{more} "
        f"Replace them, or leave them out with skip_broken (--skip-broken)."
    )
