"""Where the classifier looked: heat maps of single findings, drawn when somebody asks for one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from bomd.errors import InputError
from bomd.review.evidence import Evidence, png, tint
from bomd.review.pictures import Pictures

if TYPE_CHECKING:
    from bomd.models.model import Model

KEPT = 128  # pictures


class HeatMaps:
    """Draws one map at a time with the run's own model, which is opened when the first is asked for."""

    def __init__(self, evidence: Evidence, pictures: Pictures) -> None:
        self.evidence, self.pictures = evidence, pictures
        self.possible = (evidence.directory / "model" / "model.json").is_file()
        self._model: Model | None = None
        self._drawn: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def ready(self) -> bool:
        """Whether the model is open: the first map takes longer than all others."""
        return self._model is not None

    def draw(self, row: int, column: int) -> bytes:
        """A PNG to lay over the image; blocks while it is drawn.

        Raises:
            InputError: There is no model, or it does not know the finding.
        """
        if not self.possible:
            raise InputError("No heat map: the run has no model.")
        with self._lock:
            if (row, column) not in self._drawn:
                self._drawn[row, column] = self._draw(row, column)
            self._drawn.move_to_end((row, column))
            while len(self._drawn) > KEPT:
                self._drawn.popitem(last=False)
            return self._drawn[row, column]

    def _draw(self, row: int, column: int) -> bytes:
        from bomd.models import model
        from bomd.models.heatmap import heat_map

        if self._model is None:
            self._model = model.load(self.evidence.directory, accelerator="cpu")
        finding = self.evidence.classes[column]
        if finding not in self._model.classes:
            raise InputError(f"No heat map: the model does not know {finding!r}.")
        return png(tint(heat_map(self._model, self.pictures.shown(row).pixels, finding)))
