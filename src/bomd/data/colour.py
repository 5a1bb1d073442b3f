"""Whether images are kept in grey or in colour: looked up in a sample of their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from bomd.data.images import FORMATS, Pixels, read_image
from bomd.errors import InputError
from bomd.tables import LabelTable, Text

Mode = Literal["auto", "grey", "colour"]

SAMPLE = 32  # files that are looked at, spread evenly over the list
_TINGED = 24  # of 255: a larger distance between the channels of a pixel is not the noise of a JPEG
_SHARE = 0.02  # of the pixels; coloured letters on a radiograph take less
_COLOUR_MODES = ("RGB", "RGBA", "RGBX", "P", "PA", "CMYK", "YCbCr", "LAB", "HSV")  # what Pillow calls them


@dataclass(frozen=True)
class Keeping:
    """How the images of a run are kept."""

    colour: bool
    converted: bool = False  # whether they are in colour and kept in grey, because that was asked for
    notes: tuple[str, ...] = ()


def is_coloured(pixels: Pixels) -> bool:
    """Whether a picture shows colour rather than grey in three channels; a (H, W) picture never does."""
    if pixels.ndim == 2:
        return False
    tinged = pixels.max(axis=-1) - pixels.min(axis=-1) > _TINGED
    return bool(tinged.mean() > _SHARE)


def file_is_coloured(path: Path) -> bool:
    """Whether a file shows colour; one that cannot be read does not, and is named when it is to be used."""
    if not path.is_file():
        return False
    try:
        with Image.open(path, formats=FORMATS) as image:
            if image.mode not in _COLOUR_MODES:  # known without decoding
                return False
        return is_coloured(read_image(path, colour=True))
    except Exception:  # DICOM, which is grey, and damaged files, at which Pillow raises anything
        return False


def sample_of(paths: Sequence[str] | Text) -> list[Path]:
    """Some of the files, spread evenly; the same for the same list."""
    places = np.unique(np.linspace(0, len(paths) - 1, min(SAMPLE, len(paths))).astype(np.intp))
    return [Path(str(paths[place])) for place in places.tolist()]


def first_coloured(paths: Sequence[str] | Text | None) -> Path | None:
    """The first file of a sample that shows colour."""
    return None if paths is None else next(filter(file_is_coloured, sample_of(paths)), None)


def keeping(mode: Mode, train: LabelTable, tests: Mapping[str, LabelTable] | None = None) -> Keeping:
    """Decide once for a training set and all that is tested with it: a network sees one kind of image.

    "auto" keeps colour if a sample of the training files has any; a test set alone may not be in colour.
    """
    found = None if mode == "colour" else first_coloured(train.paths)
    if mode == "grey":
        converted = ('Images in colour are converted to grey: images.mode = "grey".',)
        return Keeping(False) if found is None else Keeping(False, True, converted)
    others = {name: first_coloured(test.paths) for name, test in (tests or {}).items()}
    if mode == "auto" and found is None:
        for name, other in others.items():
            if other is not None:
                raise InputError(
                    f"Test set {name!r} is in colour, such as {other}, and the training set is not: set images.mode "
                    'to "grey" to convert it, or to "colour" to keep it.'
                )
        return Keeping(False)
    reason = "as the mode says" if found is None else f"such as {found.name}; the mode grey converts all"
    grey = [name for name, other in others.items() if other is None]
    shown = [f"Test set {name!r} is in grey: it is shown as three equal channels." for name in grey]
    return Keeping(True, notes=(f"Images are kept in colour, {reason}.", *shown))


def check_fits(paths: Sequence[str], *, colour: bool) -> str | None:
    """Compare image files with the kind that a model learnt from, in colour or not, and note where they are converted.

    Raises:
        InputError: Most images are in colour, and the model has seen none such.
    """
    sample = sample_of(paths)
    coloured = [path for path in sample if file_is_coloured(path)]
    if colour:
        return None if coloured else "The images are in grey; the model, which learnt from colour, sees equal channels."
    if 2 * len(coloured) > len(sample):
        raise InputError(
            f"The images are in colour, such as {coloured[0]}, and the model learnt from grey ones: train one with "
            'images.mode = "colour", or pass --grey to convert them.'
        )
    return f"Images in colour, such as {coloured[0]}, are converted to grey." if coloured else None
