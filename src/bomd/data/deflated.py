"""Inflate a deflated DICOM file, but never to more than its header says that it holds."""

from __future__ import annotations

import io
import zlib
from typing import BinaryIO

from pydicom import Dataset
from pydicom.filereader import read_dataset, read_preamble
from pydicom.uid import DeflatedExplicitVRLittleEndian

# Bytes of a header, or of what follows the pixels. Real ones have some thousands, a thumbnail in them perhaps more.
MARGIN = 1 << 24
PIXELS = 0x7FE0  # group of the pixels, which come last

# A preamble and one element that says "explicit VR, little endian": what a deflated file is, once inflated.
_PLAIN = b"\0" * 128 + b"DICM\x02\x00\x10\x00UI\x14\x001.2.840.10008.1.2.1\0"


def inflated(stream: BinaryIO) -> BinaryIO:
    """The same DICOM file, from its start, as one that is not deflated.

    Raises:
        ValueError: It inflates to more than a picture of the size that its header gives, or is cut short.
    """
    start = stream.tell()
    read_preamble(stream, force=False)
    meta = read_dataset(stream, False, True, stop_when=lambda tag, vr, length: tag.group != 2)
    if meta.get("TransferSyntaxUID") != DeflatedExplicitVRLittleEndian:
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
