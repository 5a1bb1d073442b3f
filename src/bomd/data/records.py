"""A separated file, read once: its cells as columns and, where it is to be written again, its text to the last sign."""

from __future__ import annotations

import codecs
import csv
import errno
import gzip
import io
import zlib
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import union_categoricals

from bomd.data.cells import csv_line, harmless
from bomd.errors import InputError
from bomd.files import reading

UTF_8 = "utf-8-sig"
LARGEST = 1 << 30  # bytes that a compressed table may unpack to
LONGEST = 1 << 24  # signs of a cell; more than that is the rest of a file after a stray quotation mark

SAVE = "save it as CSV in UTF-8"
_UNCLOSED = "a quotation mark is never closed"

CELLS = 1_000_000  # that are text at a time
TOGETHER = 1 << 12  # texts that are kept as one
Piece = pd.Categorical | pd.Series  # of a column
FEW = 1000  # different cells; a column with more, or with hardly any twice, such as ids, stays text


class Texts:
    """Many texts, to be gone through, end to end: each as an object of its own takes half a hundred bytes more."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._blocks: list[tuple[bytes, NDArray[np.int64]]] = []  # of TOGETHER texts each, and where each of them ends
        self._last: list[str] = []
        for text in texts:
            self.append(text)

    def append(self, text: str) -> None:
        self._last.append(text)
        if len(self._last) == TOGETHER:
            encoded = [text.encode("utf-8", "surrogatepass") for text in self._last]
            self._blocks.append((b"".join(encoded), np.cumsum([0, *map(len, encoded)])))
            self._last = []

    def __len__(self) -> int:
        return TOGETHER * len(self._blocks) + len(self._last)

    def __iter__(self) -> Iterator[str]:
        for together, ends in self._blocks:
            for start, end in pairwise(ends.tolist()):
                yield together[start:end].decode("utf-8", "surrogatepass")
        yield from self._last


@dataclass(frozen=True, eq=False)
class Records:
    """A separated file as text."""

    header: str  # the first record as it stands in the file, without its line end
    rows: Texts = field(repr=False)  # all other records that are not blank, likewise
    width: int  # cells of the header
    widths: Sequence[int] = field(repr=False)  # cells of each row
    separator: str
    newline: str  # between records
    mark: str  # the byte order mark, or nothing

    def lines(self) -> Iterator[str]:
        """The file, line by line."""
        yield f"{self.mark}{self.header}{self.newline}"
        yield from (f"{line}{self.newline}" for line in self.rows)

    def beside(self, header: Sequence[str], cells: Iterable[Sequence[str]]) -> Iterator[str]:
        """The file, line by line, with more columns at the right; every given character stays what and where it was.

        Only a row with a cell that a spreadsheet would run as a formula is written anew, with an apostrophe before it.
        """
        yield self.mark + self._guarded(self.header) + self.separator + self._line(header) + self.newline
        for row, width, added in zip(self.rows, self.widths, cells, strict=True):
            filled = self._guarded(row) + self.separator * (1 + self.width - width)
            yield filled + self._line(added) + self.newline

    def _guarded(self, record: str) -> str:
        cells = next(csv.reader(io.StringIO(record, newline=""), delimiter=self.separator))
        return record if all(harmless(cell) == cell for cell in cells) else self._line(cells)

    def _line(self, cells: Sequence[str]) -> str:
        return csv_line(map(harmless, cells), self.separator)


class Unpacked(gzip.GzipFile):
    """The bytes in a compressed file, up to a limit: a few can unpack to more than any memory holds."""

    def read(self, size: int | None = -1) -> bytes:
        return self._within(super().read(size))

    def read1(self, size: int = -1) -> bytes:
        return self._within(super().read1(size))

    def _within(self, piece: bytes) -> bytes:
        if self.tell() > LARGEST:
            raise OSError(errno.EFBIG, f"it unpacks to more than {LARGEST:,} bytes; if it should, unpack it first")
        return piece


@contextmanager
def opened(file: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked where they are compressed with gzip; one line says what is wrong with them."""
    with reading(file, EOFError, zlib.error), file.open("rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
        stream.seek(0)
        yield cast(BinaryIO, Unpacked(fileobj=stream)) if packed else stream


@contextmanager
def opened_text(file: Path, encoding: str) -> Iterator[io.TextIOWrapper]:
    """The same as text, with its line ends as they are."""
    with opened(file) as stream, io.TextIOWrapper(stream, encoding, newline="") as text:
        yield text


def as_records(frame: pd.DataFrame) -> Records:
    """A table that is no text file as the text that it would be."""
    rows, width = Texts(csv_line(cells) for cells in frame.itertuples(index=False, name=None)), len(frame.columns)
    return Records(csv_line(frame.columns), rows, width, (width,) * len(frame), ",", "\n", "")


def read_separated(
    file: Path, separator: str, encoding: str = UTF_8, *, columns: Collection[str] | None = None, verbatim: bool = False
) -> tuple[pd.DataFrame, Records | None]:
    """All cells of a file as text, a blank as "", and its records where they are wanted.

    What is made of a file that is not UTF-8 gets a byte order mark, by which the program that wrote it knows UTF-8.

    Args:
        file: Any text with separated columns, compressed with gzip or not; its first record names them.
        columns: Those that are wanted, if they are there; by default all.
        verbatim: Keep the text of the records.
    """
    pending: list[str] = []  # physical lines of the record that is being read: a cell may hold line ends
    head: list[str] = []
    raw, widths = Texts(), array("I")
    ends: set[str] = set()

    def lines(stream: io.TextIOBase) -> Iterator[str]:
        for line in stream:
            pending.append(line)
            yield line

    def records(stream: io.TextIOBase) -> Iterator[list[str]]:
        reader, width, last = csv.reader(lines(stream), delimiter=separator), 0, ""
        for cells in reader:
            last = "".join(pending)
            pending.clear()
            if not "".join(cells).strip() and (len(cells) < 2 or '"' not in last):
                continue  # no row: separators alone, as a spreadsheet leaves them below its last
            width = width or len(cells)
            if len(cells) > width:
                problem = f"line {reader.line_num} has {len(cells)} cells, but the header has {width}"
                raise InputError(f"Cannot read {file}: {problem}.")
            if verbatim:
                text = last.rstrip("\r\n")
                ends.add(last[len(text) :][-2:])
                if head:
                    raw.append(text)
                    widths.append(len(cells))
                else:
                    head.append(text)
            yield cells + [""] * (width - len(cells))
        if _is_open(last, separator):
            raise InputError(f"Cannot read {file}: {_UNCLOSED}.")

    before = csv.field_size_limit(LONGEST)
    try:
        with opened_text(file, encoding) as stream:
            rows: Iterator[Sequence[str]] = records(stream)
            header = next(rows, None)
            if header is None:
                raise InputError(f"Cannot read {file}: it is empty.")
            unnamed = "Unnamed: "  # and whatever keeps it apart from a column that is called so
            while any(name.startswith(unnamed) for name in header):
                unnamed += "."
            names = [name or f"{unnamed}{place}" for place, name in enumerate(header)]
            if columns is not None:
                places = [place for place, name in enumerate(names) if name in columns]
                names, rows = [names[place] for place in places], ([row[place] for place in places] for row in rows)
            frame = gather(names, rows)
    except csv.Error as error:
        problem = _UNCLOSED if "field limit" in str(error) else str(error)
        raise InputError(f"Cannot read {file}: {problem}.") from error
    except UnicodeError as error:
        raise InputError(f"{file} is no text in {encoding.removesuffix('-sig').upper()}: {SAVE}.") from error
    finally:
        csv.field_size_limit(before)
    if not verbatim:
        return frame, None
    newline = next((end for end in ("\r\n", "\n", "\r") if any(found.endswith(end) for found in ends)), "\n")
    with opened(file) as start:
        plain = encoding == UTF_8 and start.read(3) != codecs.BOM_UTF8
    mark = "" if plain else "\ufeff"
    return frame, Records(head[0], raw, len(header), widths, separator, newline, mark)


def _is_open(record: str, separator: str) -> bool:
    """Whether a record ends inside of quotation marks."""
    try:
        next(csv.reader(io.StringIO(record, newline=""), delimiter=separator, strict=True), None)
    except csv.Error as error:
        return "unexpected end" in str(error)
    return False


def gather(names: Sequence[str], rows: Iterable[Sequence[str]]) -> pd.DataFrame:
    """Rows of text as columns; one of few different cells is categorical, a byte or two for each.

    A label file has millions of cells and a handful of different ones: 0, 1 and nothing.
    """
    pieces: list[list[Piece]] = [[] for _ in names]
    stream = iter(rows)
    while taken := list(islice(stream, 1 + CELLS // max(1, len(names)))):
        for column, cells in zip(pieces, zip(*taken, strict=True), strict=True):
            column.append(_piece(cells))
    joined = {place: _joined(column) for place, column in enumerate(pieces)}
    return pd.DataFrame(joined, copy=False).set_axis(list(names), axis="columns")


def _piece(cells: Sequence[str]) -> Piece:
    codes, different = pd.factorize(pd.Series(cells, dtype=object))
    if len(different) <= FEW and 2 * len(different) <= len(cells) + 1:
        return pd.Categorical.from_codes(codes.astype(np.int16), pd.Index(different, dtype=str))
    return pd.Series(list(cells), dtype=str)  # at once: half of the memory of as many texts


def _joined(pieces: list[Piece]) -> pd.Series[Any]:
    """A column: categorical, or text where its different cells are many."""
    few = [piece for piece in pieces if isinstance(piece, pd.Categorical)]
    if few and len(few) == len(pieces):
        whole = union_categoricals(few)
        if len(whole.categories) <= FEW:
            return pd.Series(whole)
    return pd.concat([pd.Series([], dtype=str), *(pd.Series(piece, dtype=str) for piece in pieces)], ignore_index=True)
