"""Predict any number of image files, some at a time, so that neither they nor the answers are all in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bomd import progress
from bomd.data.images import cores, read_chunks
from bomd.errors import InputError
from bomd.files import status
from bomd.tables import Floats

if TYPE_CHECKING:
    from bomd.models.model import Model

BATCH = 64  # files of a block
WORTH_PROCESSES = 32 << 20  # bytes of image files; below that, starting processes takes longer than decoding


@dataclass(frozen=True, eq=False)
class Block:
    """What a model says about some files."""

    files: list[str]  # (n) that could be read
    values: Floats  # (n, C) their probabilities
    broken: dict[str, str]  # why each of the others could not be read


def predict_blocks(model: Model, files: Sequence[Path | str], batch: int = BATCH) -> Iterator[Block]:
    """Probabilities of `batch` files after the other, in the order given.

    Many files are decoded by all cores while the networks work on those that are done.
    """
    if not files:
        raise InputError("No image to predict.")
    names = [str(file) for file in files]
    if len(set(names)) < len(names):  # rows go by their file
        name, times = Counter(names).most_common(1)[0]
        raise InputError(f"Image {name} is named {times} times; name every file once.")
    places, workers = np.asarray(names, dtype=object), cores() if _are_many(names) else 1
    ready: dict[int, Block] = {}
    following = 0
    with progress.bar("predict", len(names)) as advance:
        for chunk in read_chunks(places, model.size, range(0, len(names), batch), batch, workers, colour=model.colour):
            own = names[chunk.start : chunk.start + batch]
            good = [row for row in range(len(own)) if row not in chunk.broken]
            values = np.empty((0, len(model.classes)), dtype=np.float32)
            if good:
                values = model.probabilities(chunk.pixels[good]).numpy()
            broken = {own[row]: chunk.broken[row] for row in sorted(chunk.broken)}
            ready[chunk.start] = Block([own[row] for row in good], values, broken)
            advance(len(own))
            while following in ready:  # chunks come in the order in which they are done
                yield ready.pop(following)
                following += batch


def _are_many(files: Sequence[str]) -> bool:
    """Whether starting processes to decode these files is worth it; those that are not there are named later."""
    lengths = (found.st_size for file in files if (found := status(file)) is not None)
    return any(total > WORTH_PROCESSES for total in accumulate(lengths))
