"""Read PNG, JPEG and DICOM files as greyscale pictures, one or many at a time."""

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
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from bomd.errors import InputError
from bomd.threads import cores as cores

Pixels = NDArray[np.uint8]

DICOM_SUFFIXES = (".dcm", ".dicom")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", *DICOM_SUFFIXES)

# Detectors have some 30 million pixels; a small file that claims far more is damaged or hostile.
LARGEST = 80_000_000
LARGEST_FILE = 1 << 30  # bytes; that many pixels of 16-bit colour, uncompressed, are half of it


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive images of a list, decoded and resized.

    Attributes:
        start: Position of the first in the list.
        pixels: (n, size, size); zeros where the image is broken.
        original_sizes: (n, 2) height and width in the file.
        broken: Why an image cannot be used, by its row in the chunk.
    """

    start: int
    pixels: Pixels
    original_sizes: NDArray[np.int32]
    broken: dict[int, str]

    @property
    def checksums(self) -> list[int]:
        """CRC-32 of each image."""
        return [zlib.crc32(image) for image in self.pixels]


def read_image(path: Path) -> Pixels:
    """Decode one image file to 8-bit grey.

    - 16-bit grey values are divided by 256 (the full range, not the range in use, is mapped to 0..255).
    - Colour becomes luma, which leaves grey stored as colour unchanged; a palette is looked up first.
    - Transparency is ignored: radiographs that carry it are opaque.
    - An EXIF rotation is applied.
    - DICOM (by suffix or by its marker at byte 128) is left to `bomd.data.dicom`.

    Args:
        path: The file; what it is inside decides, not the suffix, except that `.dcm` is always DICOM.

    Returns:
        (H, W) pixels.

    Raises:
        InputError: The file is missing, empty, truncated, of another kind or unreasonably large; it is named.
    """
    path = Path(path)
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # reading a pipe waits for ever, and some devices never end
            raise InputError(f"Cannot read image {path}: it is not a file.")
        if found.st_size > LARGEST_FILE:
            raise InputError(f"Image {path} has {found.st_size:,} bytes, over {LARGEST_FILE:,}.")
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"No image {path}.") from error
    except InputError:
        raise
    except (OSError, ValueError) as error:  # a name with a NUL in it is a ValueError
        raise InputError(
            f"Cannot read image {str(path)[:200]!r}: {getattr(error, 'strerror', None) or error}."
        ) from error
    if not content:
        raise InputError(f"Image {path} is an empty file.")
    if path.suffix.lower() in DICOM_SUFFIXES or content[128:132] == b"DICM":
        return _read_dicom(path)
    try:
        # Formats are named so that a stray file never reaches one of Pillow's rarely used decoders.
        with warnings.catch_warnings(), Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
            warnings.simplefilter("ignore")  # Pillow's remarks about damaged remarks of cameras
            if image.width * image.height > LARGEST:
                raise InputError(f"Image {path} claims {image.width} x {image.height} pixels, over {LARGEST:,}.")
            return _grey(image)
    except InputError:
        raise
    except UnidentifiedImageError as error:
        kind = "a zip archive" if zipfile.is_zipfile(path) else "neither PNG, JPEG nor DICOM, or it is damaged"
        raise InputError(f"Image {path} is {kind}.") from error
    except MemoryError:
        raise
    except Exception as error:  # damaged files make Pillow raise OSError, SyntaxError, ValueError and others
        raise InputError(f"Image {path} is damaged: {' '.join(str(error).split())}.") from error


def find_images(places: Sequence[Path]) -> list[Path]:
    """Image files among these files and, at any depth, in these folders; each once.

    Linked folders are not entered. Files that are named directly are taken whatever they are called.

    Raises:
        InputError: A place does not exist, or a folder holds no image.
    """
    found: dict[str, None] = {}
    for place in places:
        if not place.exists():
            raise InputError(f"No image or folder {place}.")
        found.update(dict.fromkeys(_images_in(place) if place.is_dir() else [str(place)]))
    return [Path(path) for path in found]


class ImageIndex:
    """Finds the images under a folder by relative path, by name or by stem.

    Paths are plain text here: there may be hundreds of thousands, and `Path` is slow to make.

    Attributes:
        folder: Where they are, at any depth.
        paths: All of them.
    """

    def __init__(self, folder: Path):
        """List the folder once."""
        self.folder = folder
        self.paths = _images_in(folder)
        self._above = f"{folder.as_posix()}/"
        self._by_path: dict[str, str] = {}
        self._by_name: dict[str, list[str]] = {}
        for path in self.paths:
            relative = self._below(path)
            for whole in (relative, relative.rpartition(".")[0]):
                self._by_path.setdefault(whole, path)
                self._by_name.setdefault(whole.rpartition("/")[2], []).append(path)

    def knows(self, name: str) -> bool:
        """Whether any file has this name or stem, in whatever folder."""
        return name.replace("\\", "/").rpartition("/")[2] in self._by_name

    def find(self, name: str) -> str | None:
        """The file of that name, or None; a name with folders in it must be the whole path under the folder.

        Raises:
            InputError: The name leads out of the folder, or several files have it.
        """
        wanted = name.replace("\\", "/")
        if ".." in wanted.split("/") or (wanted.startswith("/") and not wanted.startswith(self._above)):
            raise InputError(f"{name[:100]!r} lies outside the images folder {self.folder}; pass the right folder.")
        if "/" in wanted:
            below = self._below(wanted).removeprefix("./")
            return self._by_path.get(below) or self._by_path.get(below.removeprefix(f"{self.folder.name}/"))
        files = self._by_name.get(wanted, [])
        if len(files) > 1:
            raise InputError(f"{name!r} may be {files[0]} or {files[1]}: name it with its folder.")
        return files[0] if files else None

    def _below(self, path: str) -> str:
        return path.replace(os.sep, "/").removeprefix(self._above)


def fit_square(pixels: Pixels, size: int) -> Pixels:
    """Resize to `size` x `size` by antialiased bilinear interpolation, the rule of the published pipelines.

    The picture is stretched, not cropped or padded, so nothing at the edges is lost and a box in relative
    coordinates stays where it was. Each output pixel averages all input pixels under it with triangular
    weights, so strong reduction does not alias. A picture that already has this size is returned as it is.

    Args:
        pixels: (H, W).
        size: Side of the result.

    Returns:
        (size, size) pixels.
    """
    if size < 1:
        raise InputError(f"An image size of {size} pixels is not possible.")
    if pixels.shape == (size, size):
        return pixels
    return np.asarray(Image.fromarray(pixels).resize((size, size), Image.Resampling.BILINEAR))


def read_chunks(paths: NDArray[np.str_], size: int, starts: Sequence[int], step: int, workers: int) -> Generator[Chunk]:
    """Decode many images in parallel, with every process busy and few chunks waiting in memory.

    Args:
        paths: (N) image files.
        size: Side of the squares they are resized to.
        starts: First positions of the chunks to read.
        step: Images in a chunk.
        workers: Processes; 1 decodes in this one.

    Yields:
        The chunks, in the order in which they are done; unreadable images are listed in them.
    """
    if workers == 1 or len(starts) < 2:
        for start in starts:
            yield _read_chunk(start, paths[start : start + step], size)
        return
    # Fresh processes: a fork of one that runs threads (torch does) can hang.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, len(starts)), mp_context=context, initializer=_start_worker)
    waiting: set[Future[Chunk]] = set()
    try:
        for start in starts:
            with _nameless_main():  # the first submission starts the processes
                waiting.add(pool.submit(_read_chunk, start, paths[start : start + step], size))
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


def _images_in(folder: Path) -> list[str]:
    images = sorted(
        f"{place}{os.sep}{name}"
        for place, _, names in os.walk(folder)
        for name in names
        if name.lower().endswith(IMAGE_SUFFIXES)
    )
    if not images:
        raise InputError(f"No images in {folder}; looked for {', '.join(IMAGE_SUFFIXES)}.")
    return images


def _grey(image: Image.Image) -> Pixels:
    """(H, W) grey pixels of an opened image in any mode PNG and JPEG know."""
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I"):  # 16-bit grey
        return np.ascontiguousarray(np.asarray(upright) // 256, dtype=np.uint8)
    if upright.mode in ("P", "PA"):
        upright = upright.convert("RGBA")  # straight to grey, Pillow warns about transparent palettes
    return np.array(upright.convert("L"))


def _read_dicom(path: Path) -> Pixels:
    try:
        dicom = importlib.import_module("bomd.data.dicom")  # only now: pydicom is optional
    except ImportError as error:
        raise InputError(f"Image {path} is DICOM, which needs pydicom (pip install pydicom): {error}.") from error
    pixels: Pixels = dicom.read_dicom(path)
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


def _read_chunk(start: int, paths: NDArray[np.str_], size: int) -> Chunk:
    pixels = np.zeros((len(paths), size, size), dtype=np.uint8)
    original_sizes = np.zeros((len(paths), 2), dtype=np.int32)
    broken: dict[int, str] = {}
    for row, path in enumerate(paths):
        try:
            picture = read_image(Path(str(path)))
            pixels[row], original_sizes[row] = fit_square(picture, size), picture.shape
        except InputError as error:
            broken[row] = str(error)
    return Chunk(start, pixels, original_sizes, broken)
