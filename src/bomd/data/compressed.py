"""What is compressed in a DICOM file, compared with its header before much memory is spent on it.

A decoder takes memory for the size that the pixels claim, which a hostile file chooses freely, as it does what a
deflated file inflates to; GDCM moreover ends the whole process when it meets a damaged header.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from pydicom import Dataset, uid
from pydicom.filereader import read_dataset, read_preamble

SIZE_OF_WAVELETS = b"\xff\x4f\xff\x51"  # the start of a codestream and the marker of its size

# Markers in the header of a JPEG: the size, for each kind that only GDCM reads, the Huffman codes, the start of the
# pixels, the end, and what a decoder may do without.
LOSSLESS, LS, EXTENDED, CODES, START, END = 0xC3, 0xF7, 0xC1, 0xC4, 0xDA, 0xD9
FRAMES = {uid.JPEGLossless: LOSSLESS, uid.JPEGLosslessSV1: LOSSLESS, uid.JPEGLSLossless: LS, uid.JPEGLSNearLossless: LS}
SIZES = {*range(0xC0, 0xD0), LS} - {CODES, 0xC8, 0xCC}  # of JPEGs of every kind
WITHOUT_LENGTH = (0x00, 0x01, *range(0xD0, 0xD9))
HARMLESS = (0xDB, 0xDD, 0xF8, 0xFE, *range(0xE0, 0xF0))
SLACK = 1 << 20  # bytes by which compressed pixels may exceed twice the plain ones

# Bytes of a header, or of what follows the pixels. Real ones have some thousands, a thumbnail in them perhaps more.
MARGIN = 1 << 24
PIXELS = 0x7FE0  # group of the pixels, which come last

# A preamble and one element that says "explicit VR, little endian": what a deflated file is, once inflated.
_PLAIN = b"\0" * 128 + b"DICM\x02\x00\x10\x00UI\x14\x001.2.840.10008.1.2.1\0"


def inflated(stream: BinaryIO) -> BinaryIO:
    """The same DICOM file as one that is not deflated, unless that is more than a picture of the size in its header."""
    start = stream.tell()
    read_preamble(stream, force=False)
    meta = read_dataset(stream, False, True, stop_when=lambda tag, vr, length: tag.group != 2)
    if meta.get("TransferSyntaxUID") != uid.DeflatedExplicitVRLittleEndian:
        stream.seek(start)
        return stream
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    content = inflater.decompress(stream.read(), MARGIN)
    if inflater.unconsumed_tail and not inflater.eof:
        content += inflater.decompress(inflater.unconsumed_tail, _declared(content) + MARGIN)
    if not inflater.eof:
        too_large = "it inflates to far more than the picture that its header declares"
        raise ValueError(too_large if inflater.unconsumed_tail else "its deflated part ends too early")
    return io.BytesIO(_PLAIN + content)


def _declared(start: bytes) -> int:
    """Bytes of the pixels by the header at the start of a data set."""
    stream = io.BytesIO(start)
    header: Dataset = read_dataset(stream, False, True, stop_when=lambda tag, vr, length: tag.group >= PIXELS)
    sides = (header.get(name) or 0 for name in ("Rows", "Columns", "SamplesPerPixel", "BitsAllocated"))
    rows, columns, samples, bits = map(int, sides)
    return rows * columns * samples * bits // 8


def check_frame(content: bytes, dataset: Dataset) -> None:
    """Refuse compressed pixels that claim to be another picture than the header describes."""
    syntax = dataset.file_meta.TransferSyntaxUID
    expected = (dataset.Rows, dataset.Columns, dataset.SamplesPerPixel)
    if len(content) > 2 * math.prod(expected) * dataset.BitsAllocated // 8 + SLACK:
        raise ValueError("its compressed pixels are far larger than the picture")
    if syntax in uid.JPEG2000TransferSyntaxes:
        claimed = list(_sizes_of_wavelets(content))
    elif syntax in (*uid.JPEGTransferSyntaxes, *uid.JPEGLSTransferSyntaxes):
        claimed = list(_sizes_of_jpeg(content))
    else:
        return
    if not claimed:
        raise ValueError("the header of its compressed pixels is damaged")
    for rows, columns, samples in claimed:
        if (rows, columns, samples) != expected:
            size = f"{dataset.Columns} x {dataset.Rows} x {dataset.SamplesPerPixel}"
            raise ValueError(f"its compressed pixels claim {columns} x {rows} x {samples}, its header {size}")


def check_for_gdcm(content: bytes, dataset: Dataset) -> None:
    """Refuse a damaged header of a JPEG, at which GDCM would end the whole process instead of raising an error."""
    pieces: dict[int, bytes] = {}
    place = 2 if content[:2] == b"\xff\xd8" else len(content)
    while START not in pieces and place + 4 <= len(content) and content[place] == 0xFF:
        length = int.from_bytes(content[place + 2 : place + 4], "big")
        pieces[content[place + 1]] = content[place + 4 : place + 2 + length]
        place += 2 + max(length, 2)
    kind = FRAMES.get(dataset.file_meta.TransferSyntaxUID, EXTENDED)
    frame = pieces.get(kind, b"")
    if (
        place > len(content)
        or not pieces.keys() >= ({START} if kind == LS else {START, CODES})
        or not pieces.keys() <= {START, CODES, kind, *HARMLESS}
        or len(frame) < 6
        or not 2 <= frame[0] <= dataset.BitsAllocated
    ):
        raise ValueError("the header of its compressed pixels is damaged")


def _sizes_of_wavelets(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Rows, columns and components wherever a JPEG 2000 codestream starts, in a JP2 file or by itself."""
    place = content.find(SIZE_OF_WAVELETS)
    while place >= 0:
        numbers = content[place + 8 : place + 42]
        right, bottom, left, top = (int.from_bytes(numbers[start : start + 4], "big") for start in (0, 4, 8, 12))
        yield bottom - top, right - left, int.from_bytes(numbers[32:34], "big")
        place = content.find(SIZE_OF_WAVELETS, place + 1)


def _sizes_of_jpeg(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Rows, columns and components in every frame header before the pixels, as forgiving as decoders are."""
    place = content.find(b"\xff", 2)
    while place >= 0 and place + 4 <= len(content):
        marker = content[place + 1]
        if marker in (START, END):
            return
        if marker == 0xFF:
            place += 1
            continue
        length = 0 if marker in WITHOUT_LENGTH else int.from_bytes(content[place + 2 : place + 4], "big")
        if marker in SIZES:
            size = content[place + 5 : place + 10]
            yield int.from_bytes(size[:2], "big"), int.from_bytes(size[2:4], "big"), int.from_bytes(size[4:], "big")
        place = content.find(b"\xff", place + 2 + length)
