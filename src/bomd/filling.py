"""An array in a file that is filled from the first row to the last, and goes on where it was interrupted.

It need not fit in memory. While it is being filled there is `NAME.part`; `NAME.rows` says what it is filled with, and
how many rows are safely in it.
"""

from __future__ import annotations

import io
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError
from bomd.files import mode_of, read_json, write_json, writing

EVERY = 10.0  # seconds of work that an interruption costs at most


class Filling:
    """Takes rows in their order; `done` says how many there are."""

    def __init__(self, path: Path, shape: tuple[int, ...], key: str, dtype: np.dtype[Any], every: float) -> None:
        self.path, self.shape, self.dtype, self.every = path, shape, dtype, every
        self.part, self.told = (path.with_name(f"{path.name}.{end}") for end in ("part", "rows"))
        self.purpose = {"key": key, "shape": list(shape), "dtype": dtype.name}
        self.header = _header(shape, dtype)
        self.done, self._saved = self._found(), time.monotonic()

    @property
    def complete(self) -> bool:
        return self.done == self.shape[0]

    def add(self, rows: NDArray[Any]) -> None:
        """The next rows."""
        if rows.shape[1:] != self.shape[1:] or self.done + len(rows) > self.shape[0]:
            raise ValueError(f"{rows.shape} after {self.done} rows of {self.shape}")
        with np.errstate(over="ignore"):
            values = np.ascontiguousarray(rows, dtype=self.dtype)
        if (np.isinf(values) & np.isfinite(rows)).any():
            raise InputError(f"{self.path.stem.capitalize()} are too large for {self.dtype}; keep them as float32.")
        with writing(self.part):
            left = values.data.cast("B")
            while left:
                left = left[self._stream.write(left) :]
        self.done += len(rows)
        if time.monotonic() - self._saved >= self.every:
            self.save()

    def save(self) -> None:
        """From now on nothing of what was added is lost."""
        with writing(self.part):
            os.fsync(self._stream.fileno())
        write_json(self.told, {**self.purpose, "rows": self.done})
        self._saved = time.monotonic()

    def open(self) -> None:
        """Go on behind the last row that is safe, or begin; a disk that is too small for all is noticed now."""
        with writing(self.part):
            if not self.done:
                self._begin()
            self._stream = self.part.open("r+b", buffering=0)
            self._stream.seek(self._end(self.done))

    def _begin(self) -> None:
        """A file with room for all rows. An older note goes first: it would vouch for rows that are not there."""
        self.part.parent.mkdir(parents=True, exist_ok=True)
        self.told.unlink(missing_ok=True)
        try:
            with self.part.open("wb") as stream:
                stream.write(self.header)
                stream.flush()
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(stream.fileno(), 0, self._end(self.shape[0]))
        except OSError:
            self.part.unlink(missing_ok=True)
            raise

    def close(self) -> None:
        """Give the file its name if it is full; else keep what there is of it."""
        try:
            self.save()
        finally:
            self._stream.close()
        if self.complete:
            self.part.chmod(mode_of(self.path))
            self.part.replace(self.path)

    def _end(self, rows: int) -> int:
        """Bytes of the file up to this row."""
        return len(self.header) + rows * math.prod(self.shape[1:]) * self.dtype.itemsize

    def _found(self) -> int:
        """Rows of the same purpose that an earlier process left."""
        try:
            told = read_json(self.told)
            rows = int(told.pop("rows"))
        except (InputError, AttributeError, KeyError, TypeError, ValueError):
            return 0
        file = self.part if self.part.exists() or rows < self.shape[0] else self.path
        whole = file.exists() and file.stat().st_size >= self._end(rows)
        return rows if told == self.purpose and whole and 0 <= rows <= self.shape[0] else 0


@contextmanager
def filling(
    path: Path, shape: tuple[int, ...], key: str, dtype: str = "float32", *, every: float = EVERY
) -> Iterator[Filling]:
    """Fill a `.npy` file of this shape, which appears when all of its rows are there.

    Args:
        key: whatever decides about the rows; what was filled with another is dropped.
        every: seconds after which rows are made safe, for whoever may be killed.
    """
    file = Filling(path, shape, key, np.dtype(dtype), every)
    if file.complete and path.exists() and not file.part.exists():
        yield file
        return
    file.open()
    try:
        yield file
    finally:
        file.close()
    if not file.complete:
        raise ValueError(f"{path} has {file.done} of {shape[0]} rows")


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """How a `.npy` file begins."""
    stream = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, described)
    return stream.getvalue()
