"""A packed file while it grows, and the journal of what is safely in it.

The journal names the chunks that are in place, with their checksums, so that a packing that was killed goes on where
it stopped.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.data.images import Chunk
from bomd.errors import InputError
from bomd.files import replacing, write_text, writing

IMAGES, PART, JOURNAL = "images.u8", "images.part", "journal.jsonl"


class Part:
    """The file and its journal; a context that keeps the file open."""

    def __init__(self, directory: Path, count: int, shape: tuple[int, ...]):
        self.directory, self.count, self.shape = directory, count, shape
        self.bytes = math.prod(shape)  # of one image
        self.path, self.journal = directory / PART, directory / JOURNAL
        self.checksums = np.zeros(count, dtype=np.uint32)
        self.original_sizes = np.zeros((count, 2), dtype=np.int32)

    def __enter__(self) -> Part:
        final = self.directory / IMAGES
        if final.exists() and not self.path.exists():  # killed between the last rename and `store.json`
            final.replace(self.path)
        length = self.count * self.bytes
        taken = self.path.stat().st_blocks * 512 if self.path.exists() else 0
        free = shutil.disk_usage(self.directory).free
        if length - taken > free:
            need = f"{(length - taken) / 1e6:,.1f} MB"
            raise InputError(f"Packing needs {need} in {self.directory}, where {free / 1e6:,.1f} MB are free.")
        with writing(self.path):
            self.path.touch()
            os.truncate(self.path, length)
        self.stream = self.path.open("r+b", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()

    def resume(self, keys: dict[int, str]) -> set[int]:
        """Where the chunks start that an earlier call put in place, each compared with its checksums."""
        lines = self.journal.read_text(encoding="utf-8").splitlines() if self.journal.exists() else []
        kept: dict[int, str] = {}
        for line in lines:
            try:
                record = json.loads(line)
                start, expected = record["start"], record["crc32"]
                if keys.get(start) != record["key"]:
                    continue
            except (ValueError, KeyError, TypeError):  # the last line of a killed process may be cut short
                continue
            self.stream.seek(start * self.bytes)
            pixels = self.stream.read(len(expected) * self.bytes)
            found = [zlib.crc32(pixels[at : at + self.bytes]) for at in range(0, len(pixels), self.bytes)]
            if found == expected:
                kept[start] = line
                self._note(start, expected, record["original_sizes"])
        write_text(self.journal, "".join(f"{line}\n" for line in kept.values()))
        return set(kept)

    def write(self, chunk: Chunk, key: str) -> None:
        """Put a chunk in its place, then say so; one with a broken image is tried again by the next call."""
        with writing(self.path):
            self.stream.seek(chunk.start * self.bytes)
            left = chunk.pixels.data.cast("B")
            while left:
                left = left[self.stream.write(left) :]
        self._note(chunk.start, chunk.checksums, chunk.original_sizes)
        if not chunk.broken:
            record: dict[str, Any] = {"start": chunk.start, "key": key, "crc32": chunk.checksums}
            record["original_sizes"] = chunk.original_sizes.tolist()
            with writing(self.journal), self.journal.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(record) + "\n")

    def _note(self, start: int, checksums: Sequence[int], sizes: Any) -> None:
        rows = slice(start, start + len(checksums))
        self.checksums[rows], self.original_sizes[rows] = checksums, sizes

    def finish(self, kept: NDArray[np.bool_]) -> None:
        """Turn the part into the final file, without the rows that are not kept."""
        final = self.directory / IMAGES
        if kept.all():
            with writing(self.path), self.path.open("r+b") as stream:
                os.fsync(stream.fileno())
            self.path.replace(final)
            return
        images = np.memmap(self.path, dtype=np.uint8, mode="r", shape=(self.count, *self.shape))
        with replacing(final) as temporary, temporary.open("wb") as stream:
            for row in np.flatnonzero(kept):
                stream.write(images[row].tobytes())
        self.path.unlink()
