"""What is to be packed, and how to recognise later that it is still the same: ids, size, source files and code."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.data.images import Chunk, Pixels, shape_of
from bomd.errors import InputError
from bomd.files import fingerprint, status
from bomd.sources import code_of
from bomd.tables import LabelTable, Text

FORMAT = 1
READING = "bomd.data.images"  # what it and its imports say about reading and resizing is part of what was packed
Render = Callable[[Text, int], Pixels]
Sources = dict[str, NDArray[Any]]  # columns of N values that change when a source image changes


@dataclass(frozen=True)
class Kind:
    """What all packed images of a store have in common."""

    size: int
    colour: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.size, self.colour)

    @property
    def facts(self) -> tuple[object, ...]:
        """For fingerprints; those of grey stores are what they were before there was colour."""
        return (self.size, "colour") if self.colour else (self.size,)


@dataclass(frozen=True, eq=False)
class Wanted:
    """The images that a store is asked for."""

    table: LabelTable  # which, in this order; `paths` are their files unless they are drawn
    kind: Kind
    render: Render | None  # draws images that are not files
    sources: Sources  # changes when a source image does

    @property
    def rules(self) -> str:
        """Changes with the code that reads or draws the images."""
        return code_of(READING if self.render is None else self.render.__module__)

    @cached_property
    def request(self) -> str:
        """Changes with anything that a packed pixel depends on."""
        return fingerprint(FORMAT, self.rules, *self.kind.facts, self.table.ids, *self.sources.values())

    def part(self, rows: NDArray[np.intp]) -> Wanted:
        """The same question about some of the images."""
        table = self.table.take(rows)
        if self.render is None:
            return Wanted(table, self.kind, None, {name: column[rows] for name, column in self.sources.items()})
        return Wanted(table, self.kind, self.render, _rendered_sources(table.ids, self.kind.size, self.render))

    def keys(self, step: int) -> dict[int, str]:
        """What each chunk of `step` images depends on, by its first row."""
        rules, found = self.rules, {}
        for start in range(0, len(self.table), step):
            columns = [column[start : start + step] for column in (self.table.ids, *self.sources.values())]
            found[start] = fingerprint(FORMAT, rules, *self.kind.facts, start, *columns)
        return found

    def drawn(self, starts: list[int], step: int) -> Generator[Chunk]:
        """The chunks that begin at these rows, of images that are no files."""
        assert self.render is not None
        for start in starts:
            pixels = _render(self.table.ids[start : start + step], self.kind.size, self.render)
            pixels = np.repeat(pixels[..., None], 3, axis=-1) if self.kind.colour else pixels
            yield Chunk(start, pixels, np.full((len(pixels), 2), self.kind.size, dtype=np.int32), {})


def wanted(table: LabelTable, size: int, render: Render | None, colour: bool) -> Wanted:
    """Look at the source of every image."""
    if not len(table):
        raise InputError("There are no images to pack: the table is empty.")
    if size < 1:
        raise InputError(f"An image size of {size} pixels is not possible.")
    sources = file_state(table) if render is None else _rendered_sources(table.ids, size, render)
    return Wanted(table, Kind(size, colour), render, sources)


def file_state(table: LabelTable) -> Sources:
    """Name, length and time of every file; a missing one has length -1 and is reported when it is read."""
    if table.paths is None:
        raise InputError("The table names no image files to pack: read it with its images folder.")
    facts = np.full((len(table), 2), -1, dtype=np.int64)
    for row, path in enumerate(table.paths.tolist()):
        if (found := status(path)) is not None:
            facts[row] = found.st_size, found.st_mtime_ns
    names = np.asarray([path.rpartition(os.sep)[2] for path in table.paths.tolist()], dtype=np.str_)
    return {"source_name": names, "source_bytes": facts[:, 0], "source_time": facts[:, 1]}


def _rendered_sources(ids: Text, size: int, render: Render) -> Sources:
    """A checksum of the first images stands for whatever they are drawn from."""
    sample = zlib.crc32(_render(ids[:16], size, render).data)
    return {"source_sample": np.full(len(ids), sample, dtype=np.uint32)}


def _render(ids: Text, size: int, render: Render) -> Pixels:
    pixels = np.ascontiguousarray(render(ids, size))
    if pixels.dtype != np.uint8 or pixels.shape != (len(ids), size, size):
        raise ValueError(f"render gave {pixels.dtype} {pixels.shape}, not uint8 {(len(ids), size, size)}.")
    return pixels
