"""The nearest images, searched for once, by all processes together, and kept as they are found.

A search grows with the square of the images. An interrupted one goes on where it was, and a run that needs its result
again, since the classifier was interrupted or has other settings, finds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bomd import processes, spread
from bomd.clean.features import Features, blocks
from bomd.clean.graph import Reading, nearest_images
from bomd.clean.neighbours import Neighbours
from bomd.files import mapped_array, read_array
from bomd.runs import Stages
from bomd.shares import own_share

LOOKED_AT = 50_000  # images, the first in the order of review, that others are shown for: for all it would be a square


def find_nearest(
    vectors: Features,
    k: int,
    rows: NDArray[np.int64],
    stages: Stages,
    key: Sequence[object],
    *,
    by_angle: bool = False,
    groups: NDArray[Any] | None = None,
    reading: Reading = "images",
    device: str | torch.device | None = None,
) -> Neighbours:
    """The neighbours of these rows, as `nearest_images` finds them.

    Args:
        vectors: (N, M, D) descriptors, or features.
        key: What tells these vectors from all others, such as themselves.
        by_angle: Only the direction of (N, D) features counts.
    """
    with stages.enter("nearest", *key, k, rows, by_angle, groups, reading, by=(__name__,)) as stage:
        path = stage.directory / "nearest.npy"
        if not stage.finished:
            shape = (len(rows), 2, k)  # row numbers, then distances: float64 holds both as they are
            with own_share(path, shape, "", "float64") as file, _compared(vectors, stage.directory, by_angle) as space:
                nearest_images(
                    space,
                    k,
                    rows=rows[spread.own_part(len(rows))],
                    groups=groups,
                    reading=reading,
                    device=device,
                    done=file.done,
                    keep=lambda near: file.add(np.stack([near.indices, near.distances], axis=1)),
                )
            stage.finish(images=len(rows))
        found = read_array(path)
        return Neighbours(found[:, 0].astype(np.int64), found[:, 1].astype(np.float32))


@contextmanager
def _compared(vectors: Features, folder: Path, by_angle: bool) -> Iterator[Any]:
    """What is compared: the vectors or, where their angle counts, copies of length one, in a file that then goes.

    Of several processes the first writes it for all: it may be as large as the disk has room for.
    """
    if not by_angle:
        yield vectors
        return
    path = folder / "angles.npy"
    with processes.first_before_others():
        if processes.first():
            _write_angles(path, vectors)
    try:
        yield read_array(path, mapped=True)
        processes.wait()  # nobody reads it any more
    finally:
        if processes.first():
            path.unlink()


def _write_angles(path: Path, vectors: Features) -> None:
    with mapped_array(path, vectors.shape) as values:
        for rows in blocks(len(vectors), vectors):
            lengths = np.linalg.norm(vectors[rows], axis=1, keepdims=True)
            values[rows] = vectors[rows] / np.where(lengths > 0, lengths, np.float32(1))
