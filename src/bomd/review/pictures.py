"""What is shown of an image: its file, as long as that is what the run has judged, else the packed one; heat maps."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from bomd.data.images import Pixels, read_image
from bomd.errors import InputError
from bomd.review.evidence import Evidence, png, tint

if TYPE_CHECKING:
    from bomd.models.model import Model

LARGEST_SIDE = 2048  # pixels of an original that a browser gets
KEPT = 8  # pictures: whoever asks for the evidence on an image asks for its picture, too
KEPT_MAPS = 128


@dataclass(frozen=True, eq=False)
class Shown:
    """A picture for people: the file itself, or the packed one, and why not the file where one would expect it."""

    pixels: Pixels
    original: bool
    why: str = ""


class Pictures:
    """The pictures of a run."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.files = evidence.originals and evidence.record.given.paths is not None  # else nothing is decoded
        self._decoded = functools.lru_cache(maxsize=KEPT)(self._decode)
        self._lock = threading.Lock()

    def shown(self, row: int) -> Shown:
        """The picture of an image; whoever asks at the same time waits instead of decoding it, too."""
        if not self.files:
            return Shown(self.evidence.packed(row), False)
        with self._lock:
            return self._decoded(row)

    def _decode(self, row: int) -> Shown:
        packed, paths = self.evidence.packed(row), self.evidence.record.given.paths
        assert paths is not None
        file = Path(str(paths[row]))
        if not file.is_file():
            return Shown(packed, False, "The image file is not there any more: this is the packed picture.")
        try:
            pixels = read_image(file, colour=self.evidence.store.colour)
        except InputError:
            return Shown(packed, False, "The image file cannot be read any more: this is the packed picture.")
        if not self.evidence.store.shows(int(self.evidence.places[row]), pixels):
            return Shown(packed, False, "The image file has changed since the run: this is the picture it has judged.")
        image = Image.fromarray(pixels)
        image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
        return Shown(np.asarray(image), True)


class HeatMaps:
    """Where the classifier looked: one map at a time, by the run's model, which the first that is asked for opens."""

    def __init__(self, evidence: Evidence, pictures: Pictures) -> None:
        self.evidence, self.pictures = evidence, pictures
        self.possible = (evidence.directory / "model" / "model.json").is_file()
        self._model: Model | None = None
        self._drawn = functools.lru_cache(maxsize=KEPT_MAPS)(self._draw)
        self._lock = threading.Lock()

    @property
    def ready(self) -> bool:
        """Whether the model is open: the first map takes longer than all others."""
        return self._model is not None

    def draw(self, row: int, column: int) -> bytes:
        """A PNG of a single finding to lay over the image; blocks while it is drawn."""
        if not self.possible:
            raise InputError("No heat map: the run has no model.")
        with self._lock:
            return self._drawn(row, column)

    def _draw(self, row: int, column: int) -> bytes:
        from bomd.models import model
        from bomd.models.heatmap import heat_map

        if self._model is None:
            self._model = model.load(self.evidence.directory, accelerator="cpu")
        finding = self.evidence.classes[column]
        if finding not in self._model.classes:
            raise InputError(f"No heat map: the model does not know {finding!r}.")
        return png(tint(heat_map(self._model, self.pictures.shown(row).pixels, finding)))
