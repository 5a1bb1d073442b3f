"""A procedural chest X-ray phantom: the embedded data set, drawn when needed and known to the last label.

PyTorch is imported when the first label or picture is drawn, so that other datasets can do without.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bomd.data.datasets.classes import NIH
from bomd.data.datasets.phantom.hospitals import check_known
from bomd.errors import InputError
from bomd.tables import LabelTable

if TYPE_CHECKING:
    import torch
    from torch import Tensor

TEST_EVERY = 5  # every fifth patient belongs to the test split
_SPLITS = ("train", "test")


def read(
    root: Path | None = None,
    split: str = "train",
    *,
    hospital: str = "north",
    count: int = 5000,
    seed: int = 0,
    one_finding: bool = False,
) -> LabelTable:
    """Clean labels of the first `count` images of a hospital's split.

    The rows of a smaller count are the first rows of a larger one.

    Args:
        root: not used; nothing is on disk.
        split: "train" or "test", which share no patient.
        hospital: "north" (patients as in NIH), "south" (other patients, another appearance) or "varied" (every image
            as from a hospital of its own, with subtler and more frequent findings; to learn from).
        count: number of images N.
        seed: another number gives other patients.
        one_finding: label each image with the finding that is drawn most strongly alone, or "No Finding"; what else is
            drawn stays in the picture.

    Returns:
        Labels (N, 14) with ids such as `north-s0-p000123-1`, patients and views.
    """
    from bomd.data.datasets.phantom import labels
    from bomd.data.datasets.phantom.draws import identify

    check_known([hospital])
    if split not in _SPLITS:
        raise InputError(f"The phantom has no split {split!r}; choose from {', '.join(_SPLITS)}.")
    if count < 1:
        raise InputError(f"Asked for {count} phantom images; count must be at least 1.")
    if seed < 0:
        raise InputError(f"The phantom's seed is {seed}; it must be 0 or more.")
    # `count` patients are always enough, as each has at least one image.
    number = np.arange(count)
    number = number * TEST_EVERY + TEST_EVERY - 1 if split == "test" else number + number // (TEST_EVERY - 1)
    names = np.asarray([f"{hospital}-s{seed}-p{value:06d}" for value in number.tolist()], dtype=np.str_)
    images = labels.follow_ups(identify([f"{name}-1" for name in names]).patients)
    patients = np.repeat(names, images)[:count]
    first = np.repeat(np.cumsum(images) - images, images)[:count]
    ids = [f"{name}-{visit}" for name, visit in zip(patients, np.arange(count) - first + 1, strict=True)]
    values, supine = labels.diagnose(identify(ids))
    if one_finding:
        from bomd.data.datasets.phantom import drawing

        strength = np.column_stack([drawing.severity(ids), values[:, -1]])
        values = np.eye(len(NIH), dtype=np.float32)[strength.argmax(axis=1)]
    return LabelTable(
        np.asarray(ids, dtype=np.str_), NIH, values, patients=patients, views=np.where(supine, "AP", "PA")
    )


def render(ids: Sequence[str] | NDArray[np.str_], size: int, device: str | torch.device = "cpu") -> Tensor:
    """(N, size, size) uint8 images on the device, each of which depends on its id alone."""
    from bomd.data.datasets.phantom import drawing

    return drawing.render_with(ids, None, size, device)
