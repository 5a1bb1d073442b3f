"""Read image files of the usual kinds as pictures in grey or colour, one or many at a time.

A picture in grey is (H, W) and one in colour (H, W, 3), red first.
"""

from __future__ import annotations

import importlib
import io
import multiprocessing
import os
import signal
import stat
import sys
import threading
import warnings
import zipfile
import zlib
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.TiffImagePlugin import BITSPERSAMPLE, PHOTOMETRIC_INTERPRETATION, SAMPLEFORMAT, TiffImageFile

from bomd.data.image_files import DICOM_SUFFIXES, KINDS
from bomd.errors import InputError
from bomd.files import reading
from bomd.threads import cores as cores

Pixels = NDArray[np.uint8]

# Named, so that a stray file never reaches one of Pillow's rarely used decoders.
FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")

# Detectors have some 30 million pixels; a small file that claims far more is damaged or hostile.
LARGEST = 80_000_000
LARGEST_FILE = 1 << 30  # bytes; that many pixels of 16-bit colour, uncompressed, are half of it


def shape_of(size: int, colour: bool) -> tuple[int, ...]:
    """Of a square picture."""
    return (size, size, 3) if colour else (size, size)


class _NotOnePictureError(ValueError):
    """The file is sound and yet not one picture."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive images of a list, decoded and resized."""

    start: int  # position of the first in the list
    pixels: Pixels  # (n, size, size), or (n, size, size, 3) in colour; zeros where the image is broken
    original_sizes: NDArray[np.int32]  # (n, 2) height and width in the file
    broken: dict[int, str]  # why an image cannot be used, by its row in the chunk

    @cached_property
    def checksums(self) -> list[int]:
        """CRC-32 of each image."""
        return [zlib.crc32(image) for image in self.pixels]


def read_image(path: Path, *, colour: bool = False) -> Pixels:
    """Decode one image file to 8-bit grey, or to 8-bit colour.

    - 16-bit grey values are divided by 256 (the full range, not the range in use, is mapped to 0..255); those of a
      TIFF with fewer bits by as much less.
    - A TIFF in which 0 is white is inverted. Pages after the first are thumbnails, or else it is refused.
    - Colour becomes luma, which leaves grey stored as colour unchanged; a palette is looked up first.
    - Where colour is asked for, grey (DICOM and 16-bit files are grey) has three equal channels.
    - Transparency is ignored: radiographs that carry it are opaque.
    - An EXIF rotation is applied.
    - DICOM (by suffix or by its marker at byte 128) is left to `bomd.data.dicom`.

    What it is inside decides, not the suffix, except that `.dcm` is always DICOM. One that cannot be read, or is
    unreasonably large, is an error that names it.
    """
    path = Path(path)
    try:
        with reading(f"image {str(path)[:200]!r}", ValueError):  # a name with a NUL in it is a ValueError
            if not path.exists():
                raise InputError(f"No image {path}.")
            found = path.stat()
            if not stat.S_ISREG(found.st_mode):  # reading a pipe waits for ever, and some devices never end
                raise InputError(f"Cannot read image {path}: it is not a file.")
            if found.st_size > LARGEST_FILE:
                raise InputError(f"Image {path} has {found.st_size:,} bytes, over {LARGEST_FILE:,}.")
            content = path.read_bytes()
    except MemoryError as error:
        raise InputError(f"Image {path} takes more memory than there is.") from error
    if not content:
        raise InputError(f"Image {path} is an empty file.")
    if path.suffix.lower() in DICOM_SUFFIXES or content[128:132] == b"DICM":
        return with_colour(_read_dicom(path, content), colour)
    try:
        # Pillow remarks about sizes as soon as it opens a file, and about damaged remarks of cameras.
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(content), formats=FORMATS) as image:
            if image.width * image.height > LARGEST:
                raise InputError(f"Image {path} claims {image.width} x {image.height} pixels, over {LARGEST:,}.")
            return with_colour(_decoded(image, colour), colour)
    except InputError:
        raise
    except UnidentifiedImageError as error:
        kind = "a zip archive" if zipfile.is_zipfile(path) else f"none of {KINDS}, or it is damaged"
        raise InputError(f"Image {path} is {kind}.") from error
    except MemoryError as error:
        raise InputError(f"Image {path} takes more memory than there is.") from error
    except _NotOnePictureError as error:
        raise InputError(f"Image {path} cannot be used: {error}.") from error
    except Exception as error:  # damaged files make Pillow raise OSError, SyntaxError, ValueError and others
        raise InputError(f"Image {path} is damaged: {' '.join(str(error).split())}.") from error


def fit_square(pixels: Pixels, size: int) -> Pixels:
    """Resize (H, W) or (H, W, 3) pixels to a square by antialiased bilinear interpolation, as published pipelines do.

    The picture is stretched, not cropped or padded, so nothing at the edges is lost and a box in relative
    coordinates stays where it was. Each output pixel averages all input pixels under it with triangular
    weights, so strong reduction does not alias. A picture that already has this size is returned as it is.
    """
    if size < 1:
        raise InputError(f"An image size of {size} pixels is not possible.")
    if pixels.shape[:2] == (size, size):
        return pixels
    return np.asarray(Image.fromarray(pixels).resize((size, size), Image.Resampling.BILINEAR))


def with_colour(pixels: Pixels, colour: bool) -> Pixels:
    """The same picture in colour or in grey: grey gets three equal channels, colour becomes luma."""
    if (pixels.ndim == 3) == colour:
        return pixels
    if colour:
        return np.repeat(pixels[..., None], 3, axis=-1)
    return np.array(Image.fromarray(pixels).convert("L"))


def read_chunks(
    paths: NDArray[np.str_], size: int, starts: Sequence[int], step: int, workers: int, *, colour: bool = False
) -> Generator[Chunk]:
    """Decode many images in parallel, with every process busy and few chunks waiting in memory; one worker is this one.

    The chunks that begin at these places come in the order in which they are done, with unreadable images listed.
    """
    if workers == 1 or len(starts) < 2:
        for start in starts:
            yield _read_chunk(start, paths[start : start + step], size, colour)
        return
    # Fresh processes: a fork of one that runs threads (torch does) can hang.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, len(starts)), mp_context=context, initializer=_start_worker)
    waiting: set[Future[Chunk]] = set()
    try:
        for start in starts:
            with _nameless_main():  # the first submission starts the processes
                waiting.add(pool.submit(_read_chunk, start, paths[start : start + step], size, colour))
            if len(waiting) > 2 * workers:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    except BrokenProcessPool as error:
        raise InputError("A process that decodes images died, perhaps out of memory: use one worker.") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _decoded(image: Image.Image, colour: bool) -> Pixels:
    """Pixels of an opened image in any mode that the formats know; deep grey is grey whatever is asked for."""
    _refuse_several(image)
    bits, white_is_zero = _depth(image)
    image.load()  # a TIFF is turned upright by this, and older Pillows would turn it again
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I"):  # 16-bit grey
        values = np.asarray(upright) >> (bits - 8)
        return np.ascontiguousarray(255 - values if white_is_zero else values, dtype=np.uint8)
    if upright.mode in ("P", "PA"):
        upright = upright.convert("RGBA")  # straight to grey, Pillow warns about transparent palettes
    return np.array(upright.convert("RGB" if colour else "L"))


def _depth(image: Image.Image) -> tuple[int, bool]:
    """Bits of deep grey, and whether 0 means white in it, which Pillow leaves to others."""
    if not isinstance(image, TiffImageFile):
        return 16, False
    bits = max(image.tag_v2.get(BITSPERSAMPLE, (1,)))
    if image.mode == "F" or (image.mode == "I" and bits != 16) or max(image.tag_v2.get(SAMPLEFORMAT, (1,))) > 1:
        raise _NotOnePictureError("its pixels are signed or 32-bit numbers; save it with 8 or 16 bits")
    return bits, image.tag_v2.get(PHOTOMETRIC_INTERPRETATION) == 0


def _refuse_several(image: Image.Image) -> None:
    """A film or a stack has no one picture; a smaller second page is a thumbnail."""
    if image.format == "WEBP" and getattr(image, "is_animated", False):
        raise _NotOnePictureError("it is animated; save one frame")
    if image.format == "TIFF":
        first = image.size
        try:
            image.seek(1)
        except EOFError:
            return
        if image.size == first:
            raise _NotOnePictureError("it has several pages; save the wanted one by itself")
        image.seek(0)


def _read_dicom(path: Path, content: bytes) -> Pixels:
    try:
        dicom = importlib.import_module("bomd.data.dicom")  # only now: pydicom is optional
    except ImportError as error:
        raise InputError(f"Image {path} is DICOM, which needs an extra: pip install 'bomd[dicom]'.") from error
    pixels: Pixels = dicom.read_dicom(path, content)
    return pixels


@contextmanager
def _nameless_main() -> Iterator[None]:
    """Start processes that do not import the main script again, which may be slow or have no guard for that."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _start_worker() -> None:
    """Leave interrupts to the parent, and end with it even when it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _read_chunk(start: int, paths: NDArray[np.str_], size: int, colour: bool) -> Chunk:
    pixels = np.zeros((len(paths), *shape_of(size, colour)), dtype=np.uint8)
    original_sizes = np.zeros((len(paths), 2), dtype=np.int32)
    broken: dict[int, str] = {}
    for row, path in enumerate(paths):
        try:
            picture = read_image(Path(str(path)), colour=colour)
            pixels[row], original_sizes[row] = fit_square(picture, size), picture.shape[:2]
        except InputError as error:
            broken[row] = str(error)
        except MemoryError:  # one image that is too large to be made smaller
            broken[row] = f"Image {path} takes more memory than there is."
    return Chunk(start, pixels, original_sizes, broken)
