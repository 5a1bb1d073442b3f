"""What the published label files hold, counted once, to compare a download and the paper with."""

from __future__ import annotations

from typing import Any

from bomd.data.datasets import nih_google, openi, padchest
from bomd.data.datasets.classes import CHEXPERT_NATIVE, NIH_NATIVE


def _counts(classes: tuple[str, ...], images: int, patients: int, *positives: int) -> dict[str, int]:
    return {"images": images, "patients": patients, **dict(zip(classes, positives, strict=True))}


# fmt: off
DECLARED: dict[str, dict[str, dict[str, int]]] = {
    "nih": {
        "train": _counts(
            NIH_NATIVE, 86524, 28008,
            8280, 1707, 8659, 13782, 4034, 4708, 876, 2637, 2852, 1378, 1423, 1251, 2242, 141, 50500,
        ),
        "test": _counts(
            NIH_NATIVE, 25596, 2797,
            3279, 1069, 4658, 6112, 1748, 1623, 555, 2665, 1815, 925, 1093, 435, 1143, 86, 9861,
        ),
    },
    "chexpert": {
        "train": _counts(
            CHEXPERT_NATIVE, 172089, 58116,
            15227, 8248, 21091, 84844, 6351, 44879, 11717, 4186, 26791, 15829, 69205, 2250, 6663, 96522,
        ),
        "validation": _counts(
            CHEXPERT_NATIVE, 18935, 6415,
            1746, 939, 2293, 9366, 689, 4796, 1266, 489, 2928, 1864, 7694, 255, 773, 10648,
        ),
        "expert": _counts(
            CHEXPERT_NATIVE, 202, 200,
            26, 105, 66, 117, 1, 42, 32, 8, 75, 7, 64, 1, 0, 99,
        ),
    },
    "nih-google": {
        "test": _counts(nih_google.NATIVE, 1962, 860, 72, 195, 1135, 295),
        "validation": _counts(nih_google.NATIVE, 2414, 835, 114, 43, 1031, 310),
    },
    "openi": {
        "test": _counts(
            openi.NATIVE, 7470, 3851,
            616, 693, 286, 116, 30, 206, 77, 54, 87, 199, 36, 82, 90, 165, 509, 99, 3, 823, 4782,
        ),
    },
    "padchest": {
        "test": _counts(
            padchest.NATIVE, 22213, 22213,
            1095, 2036, 589, 1730, 132, 455, 681, 48, 16, 203, 87, 1098, 378, 660, 134, 555, 147, 351, 2103,
            1646, 1164, 123, 1046, 815, 956, 382, 505, 100, 11517,
        ),
    },
}
"""Images, patients and positives by dataset and split, as `read(root, split, classes="native")` gives them."""
# fmt: on

OPTIONS: dict[str, dict[str, Any]] = {"openi": {"views": "all"}}
"""What else these counts were read with: the file of projections is not published with OpenI's reports."""
