"""Read a table of labels as text, whichever program wrote it: CSV in any usual encoding, TSV, Parquet or Excel.

A CSV or TSV may be compressed with gzip, whatever it is called.
"""

from __future__ import annotations

import codecs
import csv
import warnings
import zipfile
from collections import Counter
from pathlib import Path
from typing import BinaryIO

import pandas as pd

from bomd import progress
from bomd.data.cells import original
from bomd.data.records import LARGEST, SAVE, UTF_8, Records, Unpacked, as_records, opened, opened_text, read_separated
from bomd.errors import InputError
from bomd.files import reading

WORKBOOK = ".xlsx"
TEXTS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
TABLES = (*TEXTS, ".parquet", WORKBOOK)
WINDOWS = "cp1252"

_MARKS = {codecs.BOM_UTF8: UTF_8, codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_COMPRESSED, _ZIP = "compressed file", "zip archive"
_KINDS = {  # by the bytes that a file starts with
    b"PAR1": "Parquet file",
    b"\xd0\xcf\x11\xe0": "old Excel workbook",
    b"PK\x03\x04": _ZIP,
    b"PK\x05\x06": _ZIP,
    b"\x1f\x8b": _COMPRESSED,  # twice: once is unpacked already
    b"\xfd7zXZ\0": _COMPRESSED,
    b"BZh91AY&SY": _COMPRESSED,
    b"\x28\xb5\x2f\xfd": _COMPRESSED,
}
_PIECE = 1 << 20  # bytes that are looked at together


def read_table(file: Path) -> pd.DataFrame:
    """The columns of a file as text, without those that have no name; a blank is "".

    An apostrophe that keeps a spreadsheet from running a cell as a formula is no part of the cell.
    """
    return named(read_cells(file))


def read_verbatim(file: Path) -> tuple[pd.DataFrame, Records]:
    """The same, and the text that it was read from; a file without text has the one that it would have as a CSV."""
    frame, records = _read(file, verbatim=True)
    return named(understood(frame, str(file))), as_records(frame) if records is None else records


def read_cells(file: Path, *, least: int = 1) -> pd.DataFrame:
    """All columns of a file, which has at least so many rows, as text; a blank is ""."""
    return understood(_read(file)[0], str(file), least)


def understood(frame: pd.DataFrame, where: str, least: int = 1) -> pd.DataFrame:
    """A table of text without the apostrophes that keep a spreadsheet from running a cell as a formula."""
    if len(frame) < least:
        raise InputError(f"{where} has a header but no rows.")
    names = [original(str(name).strip()) for name in frame.columns]
    name, count = Counter(filter(None, names)).most_common(1)[0] if any(names) else ("", 0)
    if count > 1:
        raise InputError(f"{where} has {count} columns called {name!r}; rename one.")
    frame = frame.set_axis(names, axis="columns")
    return frame.assign(**{str(name): _originals(frame[name]) for name in frame})


def as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Every cell as the text that a CSV would have; what is missing is blank."""
    return frame.astype("string").fillna("").astype(str)


def named(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns that have a name."""
    return frame.drop(columns=[name for name in frame if not name or str(name).startswith("Unnamed: ")])


def _read(file: Path, *, verbatim: bool = False) -> tuple[pd.DataFrame, Records | None]:
    """Every table of labels is read here, once."""
    kind = kind_of(file)
    if kind == "Excel workbook":
        return _read_workbook(file), None
    if kind == "Parquet file":
        return _read_parquet(file), None
    if kind == _COMPRESSED:
        raise InputError(f"{file} is compressed, but is no CSV or TSV compressed with gzip: unpack it.")
    if kind != "text":
        raise InputError(f"{file} is {'an' if kind[0] in 'Eo' else 'a'} {kind}, not text: {SAVE}.")
    encoding = encoding_of(file)
    return read_separated(file, separator_of(file, encoding), encoding, verbatim=verbatim)


def kind_of(file: Path) -> str:
    """What a file is by its first bytes: an "Excel workbook", a "Parquet file", "text" or something else in words.

    Text that is compressed with gzip is "text", too.
    """
    with reading(file):
        if not file.is_file() and file.exists():  # reading a pipe would wait for ever
            raise InputError(f"Cannot read {file}: it is not a file.")
    with opened(file) as stream:
        start, packed = stream.read(512), isinstance(stream, Unpacked)
    kind = next((kind for mark, kind in _KINDS.items() if start.startswith(mark)), "text")
    if start[257:262] == b"ustar":
        kind = "tar archive"
    if packed:
        return "text" if kind == "text" else _COMPRESSED
    if kind == "text" and file.suffix.lower() == ".parquet":
        return "Parquet file"
    return _kind_of_archive(file) if kind == _ZIP else kind


def _kind_of_archive(file: Path) -> str:
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return "damaged archive"
    if "xl/workbook.xml" in names:
        return "Excel workbook"
    return "spreadsheet of another program" if "content.xml" in names else _ZIP


def encoding_of(file: Path) -> str:
    """How the text of a file, compressed with gzip or not, is encoded: UTF-8, UTF-16 or else Windows-1252."""
    with opened(file) as stream:
        start = stream.read(4096)
        for mark, encoding in _MARKS.items():
            if start.startswith(mark):
                return encoding
        for encoding, zeros in (("utf-16-le", start[1::2].count(0)), ("utf-16-be", start[::2].count(0))):
            if 4 * zeros > len(start):  # every other byte, for letters of Western scripts
                return encoding
        for encoding in (UTF_8, WINDOWS):
            stream.seek(0)
            if _decodes(stream, encoding):
                return encoding
    raise InputError(f"{file} is neither UTF-8, UTF-16 nor Windows-1252: {SAVE}.")


def guess_in_words(file: Path) -> str:
    """A remark where the encoding of a table is a guess."""
    guessed = file.is_file() and kind_of(file) == "text" and encoding_of(file) == WINDOWS
    return " (not UTF-8, so read as Windows-1252: save it as UTF-8 if names look wrong)" if guessed else ""


def separator_of(file: Path, encoding: str) -> str:
    """What stands between the columns: the sign that cuts the header into most pieces."""
    try:
        with opened_text(file, encoding) as stream:
            head = stream.readline(_PIECE)
        pieces = {sign: next(csv.reader([head.rstrip("\r\n")], delimiter=sign)) for sign in ",\t;|"}
    except UnicodeError as error:
        raise InputError(f"{file} is no text in {encoding.removesuffix('-sig').upper()}: {SAVE}.") from error
    except csv.Error as error:
        raise InputError(f"{file} does not start with the names of columns: {error}.") from error
    if not head.strip():
        raise InputError(f"{file} is empty.")
    separator = max(pieces, key=lambda sign: len(pieces[sign]))
    names = [name.strip() for name in pieces[separator] if name.strip()]
    if not names:
        raise InputError(f"{file} starts with a line that names no column.")
    if len(pieces[separator]) < 2:
        raise InputError(f"{file} has one column, {names[0]!r}: separate columns by comma, semicolon or tab.")
    return separator


def _read_parquet(file: Path) -> pd.DataFrame:
    try:
        return as_text(pd.read_parquet(file))
    except ImportError as error:
        raise InputError(f"{file} is Parquet, which needs an extra: pip install 'bomd[parquet]'.") from error
    except Exception as error:  # pyarrow raises many kinds
        raise InputError(f"Cannot read {file}: it is no sound Parquet file.") from error


def _read_workbook(file: Path) -> pd.DataFrame:
    """The first sheet of an Excel workbook."""
    with zipfile.ZipFile(file) as archive:
        if sum(member.file_size for member in archive.infolist()) > LARGEST:
            raise InputError(f"{file} unpacks to more than {LARGEST:,} bytes: {SAVE}.")
    try:
        with warnings.catch_warnings(), pd.ExcelFile(file, engine="openpyxl") as workbook:
            warnings.simplefilter("ignore")  # openpyxl's remarks about styles
            sheets = [str(name) for name in workbook.sheet_names]
            cells = workbook.parse(sheets[0], header=None, dtype=str, na_filter=False)
    except ImportError as error:
        remedy = "pip install 'bomd[excel]', or save it as CSV in UTF-8"
        raise InputError(f"{file} is an Excel workbook, which needs an extra: {remedy}.") from error
    except Exception as error:  # openpyxl raises nearly anything
        raise InputError(f"Cannot read {file}: it is no sound Excel workbook; {SAVE}.") from error
    if len(sheets) > 1:
        progress.say(f"{file} has {len(sheets)} sheets; the first, {sheets[0]!r}, is read.")
    if not len(cells):
        raise InputError(f"{file} is empty.")
    names = [str(name).strip() for name in cells.iloc[0]]
    rows = cells.iloc[1:].set_axis(names, axis="columns")
    return rows[(rows != "").any(axis=1)].reset_index(drop=True)


def _originals(column: pd.Series[str]) -> pd.Series[str]:
    marked = column.str.startswith("'")
    return column if not marked.any() else column.astype(str).mask(marked, column[marked].astype(str).map(original))


def _decodes(stream: BinaryIO, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        while piece := stream.read(_PIECE):
            if encoding == WINDOWS and b"\0" in piece:  # which is no text, although it decodes
                return False
            decoder.decode(piece)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
