"""Where radiologists saw findings in NIH images: the boxes of `BBox_List_2017.csv`."""

from __future__ import annotations

import csv
import gzip
import io
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError

SIDE = 1024  # pixels of the images that the boxes were drawn in
NAMES = {"Infiltrate": "Infiltration"}  # what the file calls a finding of the label file


@dataclass(frozen=True)
class Box:
    """One finding in one image, in shares of the image's sides.

    Attributes:
        image: File name.
        finding: As the label file calls it.
    """

    image: str
    finding: str
    left: float
    top: float
    width: float
    height: float

    def region(self, height: int, width: int) -> NDArray[np.bool_]:
        """(height, width) the box in an image of this size, at least one pixel of it."""
        rows = _between(self.top, self.height, height)
        columns = _between(self.left, self.width, width)
        found = np.zeros((height, width), dtype=np.bool_)
        found[rows, columns] = True
        return found


def read_boxes(path: Path) -> list[Box]:
    """All boxes of a file as NIH publishes it, compressed (.gz) or not."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"))))
    except (OSError, EOFError, ValueError, csv.Error) as error:
        raise InputError(f"Cannot read {path}: {error}.") from error
    if not rows or rows[0][:2] != ["Image Index", "Finding Label"]:
        raise InputError(f"{path} is not a list of boxes: its first columns must be Image Index, Finding Label.")
    found = []
    for number, row in enumerate(rows[1:], start=2):
        if not any(row):
            continue
        try:
            left, top, width, height = (float(cell) / SIDE for cell in row[2:6])
        except ValueError:
            raise InputError(f"Line {number} of {path}: a box needs four numbers x, y, w, h.") from None
        if not (all(map(math.isfinite, (left, top, width, height))) and width > 0 and height > 0):
            raise InputError(f"Line {number} of {path}: a box needs a width and a height.")
        found.append(Box(row[0], NAMES.get(row[1], row[1]), left, top, width, height))
    return found


def _between(start: float, length: float, side: int) -> slice:
    first = min(max(math.floor(start * side), 0), side - 1)
    last = min(max(math.ceil((start + length) * side), first + 1), side)
    return slice(first, last)
