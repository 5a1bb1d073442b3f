"""Read DICOM radiographs as they look on the radiologist's screen."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydicom import Dataset, dcmread
from pydicom.encaps import generate_frames
from pydicom.errors import InvalidDicomError
from pydicom.multival import MultiValue
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.processing import apply_modality_lut, apply_windowing
from pydicom.pixels.utils import pixel_array
from pydicom.uid import JPEGExtended12Bit

from bomd.data.compressed import check_for_gdcm, check_frame, inflated
from bomd.data.images import LARGEST, Pixels
from bomd.errors import InputError

GREY = ("MONOCHROME1", "MONOCHROME2")
COLOUR = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")  # pydicom turns all of them into RGB
NEEDED = (
    "Rows",
    "Columns",
    "SamplesPerPixel",
    "BitsStored",
    "PixelRepresentation",
    "PhotometricInterpretation",
    "PixelData",
)

# Who decodes what. Only one is asked, and GDCM last: on damaged pixels it ends the whole process.
PLUGINS = ("pydicom", "pylibjpeg", "pyjpegls", "pillow", "gdcm")

Values = NDArray[Any]


def read_dicom(path: Path, content: bytes | None = None) -> Pixels:
    """Decode one DICOM radiograph to 8-bit grey, black to white as it is meant to be seen.

    1. The modality table or rescale slope and intercept turn stored numbers into the maker's values.
    2. What of them is shown comes from the first value-of-interest table; without one from the first window
       (linear, exact or sigmoid). Tables come first because they hold the maker's contrast curve, of which
       a window is the straight-line approximation. A file with neither is shown whole when it has at most
       8 bits, since it then already is a picture for the screen; with more bits the values between the 0.5th
       and 99.5th percentile fill the range, because a detector's nominal range is mostly empty and the
       extremes are markers and dead pixels, which must not decide the contrast. Padding is left out of the
       percentiles.
    3. MONOCHROME1 is inverted, so that bone is white. The presentation shape says the same a second time
       (the standard couples them) and is not applied.

    Colour, as in screen captures, becomes luma. Every transfer syntax that pydicom and its plugins decode works. Errors
    name the file and its transfer syntax. `content` is what is in the file, where it has been read already.
    """
    path = Path(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydicom's remarks about header values that no pixel depends on
        dataset = _open(path, content)
        with _in_words(path, f"({_compression(dataset)}) cannot be read"):
            return _displayed(_decode(dataset), dataset)


def read_dicom_size(path: Path) -> tuple[int, int]:
    """Height and width that the header of a DICOM file gives; no pixel is decoded."""
    header = _open(Path(path), pixels=False)
    if not header.get("Rows") or not header.get("Columns"):
        raise InputError(f"DICOM {path} holds no picture: its header gives no size.")
    return int(header.Rows), int(header.Columns)


def _open(path: Path, content: bytes | None = None, *, pixels: bool = True) -> Dataset:
    stream: BinaryIO
    with _in_words(path, "is damaged or cut short"):
        try:
            with path.open("rb") if content is None else io.BytesIO(content) as stream:
                return dcmread(inflated(stream), stop_before_pixels=not pixels)
        except FileNotFoundError as error:
            raise InputError(f"No image {path}.") from error
        except InvalidDicomError as error:
            raise InputError(f"{path} is not DICOM: the marker at byte 128 is missing.") from error


@contextmanager
def _in_words(path: Path, problem: str) -> Iterator[None]:
    """Say in one line what is wrong: damaged files make pydicom and the decoders raise nearly anything."""
    try:
        yield
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(f"DICOM {path} cannot be read: it takes more memory than there is.") from error
    except Exception as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise InputError(f"DICOM {path} {problem}: {reason}.") from error


def _compression(dataset: Dataset) -> str:
    syntax = getattr(dataset, "file_meta", Dataset()).get("TransferSyntaxUID")
    if not syntax:
        return "no transfer syntax"
    name = str(getattr(syntax, "name", ""))
    known = name.isprintable() and len(name) < 100  # a damaged file may say anything here
    return f"transfer syntax {name}" if known else "a damaged transfer syntax"


def _decode(dataset: Dataset) -> Values:
    """Stored numbers, (H, W) grey or (H, W, 3) colour; anything that is not one radiograph is an error."""
    absent = [name for name in NEEDED if dataset.get(name) in (None, "", b"")]
    if absent:
        raise ValueError(f"it holds no picture or is cut short ({absent[0]} is missing)")
    if int(dataset.get("NumberOfFrames") or 1) > 1:
        raise ValueError(f"it has {dataset.NumberOfFrames} frames, not one; save the wanted frame by itself")
    if dataset.PhotometricInterpretation not in (*GREY, *COLOUR):
        raise ValueError(f"its colours are {dataset.PhotometricInterpretation}; save it as grey")
    if dataset.Rows * dataset.Columns > LARGEST:
        raise ValueError(f"it claims {dataset.Columns} x {dataset.Rows} pixels, over {LARGEST:,}")
    most, samples = (16, 1) if dataset.PhotometricInterpretation in GREY else (8, 3)
    if dataset.get("SamplesPerPixel") != samples:
        raise ValueError(f"it has {dataset.get('SamplesPerPixel')} numbers in a pixel, not {samples}")
    if not 1 <= dataset.BitsStored <= most:
        raise ValueError(f"it has {dataset.BitsStored} bits in a pixel; {most} are the most for its kind")
    syntax, plugin = dataset.file_meta.TransferSyntaxUID, ""
    if syntax.is_encapsulated:
        try:
            decoder = get_decoder(syntax)
        except NotImplementedError:
            raise ValueError("its compression has no decoder; save it uncompressed") from None
        if not decoder.is_available:
            raise ValueError("its decoder is not installed; pip install 'bomd[dicom]'")
        extended = syntax == JPEGExtended12Bit and dataset.BitsStored > 8  # which Pillow cannot read
        usable = (name for name in PLUGINS if name in decoder.available_plugins)
        plugin = next((name for name in usable if not (name == "pillow" and extended)), "")
        frame = next(generate_frames(dataset.PixelData, number_of_frames=1))
        check_frame(frame, dataset)
        if plugin == "gdcm":
            check_for_gdcm(frame, dataset)
    try:
        return pixel_array(dataset, decoding_plugin=plugin)
    except RuntimeError as error:  # one line for every decoder that was tried; the last says most
        raise ValueError(f"no decoder can read its pixels ({str(error).splitlines()[-1].strip()})") from error


def _displayed(stored: Values, dataset: Dataset) -> Pixels:
    if dataset.PhotometricInterpretation not in GREY:
        return np.array(Image.fromarray(stored.astype(np.uint8)).convert("L"))
    # Everything that follows depends on a pixel's number alone, so it is worked out once per number.
    lowest, highest = int(stored.min()), int(stored.max())
    if highest - lowest >= 2**16:
        raise ValueError(f"its numbers, up to {highest}, have more bits than the {dataset.BitsStored} it declares")
    numbers = np.arange(lowest, highest + 1)
    place = stored.astype(np.intp) - lowest
    values = _modality(numbers, dataset)
    if dataset.get("VOILUTSequence"):
        item = dataset.VOILUTSequence[0]
        signed = dataset.PixelRepresentation == 1 or (dataset.get("RescaleIntercept") or 0) < 0
        table, first = _table(item, dataset, signed and not dataset.get("ModalityLUTSequence"))
        # Makers declare 16 bits for tables of 12-bit entries, so the largest entry says what white is.
        white = 2 ** max(8, int(table.max()).bit_length()) - 1
        grey = _look_up(np.rint(values).astype(np.int64), table, first) * (255 / white)
    else:
        grey = apply_windowing(values, _window(numbers, values, place, dataset))
    curve = np.rint(grey).clip(0, 255).astype(np.uint8)
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        curve = 255 - curve
    return np.ascontiguousarray(curve[place])


def _modality(numbers: Values, dataset: Dataset) -> Values:
    """The maker's value of each stored number."""
    if dataset.get("ModalityLUTSequence"):
        table, first = _table(dataset.ModalityLUTSequence[0], dataset, dataset.PixelRepresentation == 1)
        return _look_up(numbers, table, first)
    if _number(dataset, "RescaleSlope") is None or _number(dataset, "RescaleIntercept") is None:
        return numbers
    return apply_modality_lut(numbers, dataset)


def _number(dataset: Dataset, name: str) -> float | None:
    """What the header says, the first of several windows; None for nothing, or spaces, which some programs write."""
    try:
        found = dataset.get(name)
        if found is None or found == "":
            return None
        number = float(found[0] if isinstance(found, MultiValue) and name.startswith("Window") else found)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):  # a picture by it would be black or white all over
        raise ValueError(f"its {name} is no number")
    return number


def _window(numbers: Values, values: Values, place: Values, dataset: Dataset) -> Dataset:
    """The window to show, in a dataset of its own that has pydicom scale the result to 0..255.

    Given are every stored number in the range in use, the maker's value of each, and (H, W) which of them a pixel has.
    """
    window = Dataset()
    window.PhotometricInterpretation, window.BitsStored, window.PixelRepresentation = "MONOCHROME2", 8, 0
    if _number(dataset, "WindowCenter") is not None and _number(dataset, "WindowWidth") is not None:
        window.WindowCenter, window.WindowWidth = dataset.WindowCenter, dataset.WindowWidth
        window.VOILUTFunction = dataset.get("VOILUTFunction") or "LINEAR"
        return window
    bits = dataset.BitsStored
    if bits <= 8:
        lowest = -(2 ** (bits - 1)) if dataset.PixelRepresentation == 1 else 0
        low, high = np.sort(_modality(np.array([lowest, lowest + 2**bits - 1]), dataset))
    else:
        counts = np.bincount(place.ravel())
        if dataset.get("PixelPaddingValue") is not None:  # of pixels outside the picture
            limit = dataset.get("PixelPaddingRangeLimit")
            ends = [int(dataset.PixelPaddingValue), int(dataset.PixelPaddingValue if limit is None else limit)]
            counts[(numbers >= min(ends)) & (numbers <= max(ends))] = 0
        order = np.argsort(values)
        rank = np.cumsum(counts[order])
        low, high = values[order[np.searchsorted(rank, [0.005 * rank[-1], 0.995 * rank[-1]])]]
    window.VOILUTFunction = "LINEAR_EXACT"
    # As numbers, since the usual type is text of at most 16 characters; a blank picture has no range.
    window.add_new("WindowCenter", "FD", float(low + high) / 2)
    window.add_new("WindowWidth", "FD", max(float(high - low), 1e-6))
    return window


def _table(item: Dataset, dataset: Dataset, signed: bool) -> tuple[Values, int]:
    """Entries of a look-up table and the number that the first one stands for.

    pydicom 3.0 reads neither 8-bit entries that are packed two to a word, as the standard asks, nor an index
    beyond 255 into them.
    """
    count, first = (int(number) % 2**16 for number in item.LUTDescriptor[:2])
    count = count or 2**16
    if signed and first >= 2**15:
        first -= 2**16
    little = dataset.file_meta.TransferSyntaxUID.is_little_endian
    content = item.LUTData
    if not isinstance(content, bytes):
        words = np.atleast_1d(np.asarray(content, dtype=np.int64)) % 2**16
        content, little = words.astype("<u2").tobytes(), True
    if len(content) >= 2 * count:
        return np.frombuffer(content, "<u2" if little else ">u2", count), first
    if len(content) >= count:
        return np.frombuffer(content, np.uint8, count), first
    raise ValueError(f"its look-up table has {len(content)} bytes for {count} entries")


def _look_up(numbers: Values, table: Values, first: int) -> Values:
    found: Values = table[np.clip(numbers - first, 0, len(table) - 1)].astype(np.int64)
    return found
