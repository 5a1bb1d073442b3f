"""The hospitals: what differs between them besides the patients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError

Range = tuple[float, float]


@dataclass(frozen=True)
class Hospital:
    """How images of one hospital are taken and developed; a range is low and high of an even draw per image.

    Attributes:
        shift: (14) added to the normal number of each finding and of the AP view, in standard deviations:
            positive means more frequent than in NIH.
        tilt: how far patients lean, in radians.
        zoom: how large the chest appears.
        exposure: added to the density before the tone curve.
        contrast: slope of the tone curve.
        haze: scattered light, which lifts the blacks.
        grain: standard deviation of the noise.
        blur: of the detector, as a fraction of the image's side.
        border: how often collimation leaves a border.
        border_shade: brightness of the border.
        marker: letters put on the image; in the view from the front, "L" is on the right of the image.
        marker_side: 1 for the right of the image, -1 for the left.
        devices: factor on the frequency of lines, tubes and stickers.
    """

    shift: NDArray[np.float64]
    tilt: Range
    zoom: Range
    exposure: Range
    contrast: Range
    haze: Range
    grain: Range
    blur: Range
    border: float
    border_shade: Range
    marker: str
    marker_side: int
    devices: float


HOSPITALS = {
    # A teaching hospital with digital detectors; its patients are those of NIH.
    "north": Hospital(
        shift=np.zeros(14),
        tilt=(-0.06, 0.06),
        zoom=(1.02, 1.28),
        exposure=(-0.04, 0.06),
        contrast=(3.6, 4.8),
        haze=(0.0, 0.06),
        grain=(0.008, 0.022),
        blur=(0.001, 0.003),
        border=0.25,
        border_shade=(0.0, 0.05),
        marker="L",
        marker_side=1,
        devices=1.0,
    ),
    # An acute hospital with older plates: sicker patients, more of them in bed, greyer, grainier, softer.
    # The rarest findings are shifted most, so that a test set of some thousand images has enough to score.
    "south": Hospital(
        shift=np.array([0.2, 0.3, 0.2, 0.1, 0.2, 0.2, 0.4, 0.2, 0.4, 0.3, 0.3, 0.3, 0.6, 0.5]),
        tilt=(-0.10, 0.10),
        zoom=(0.92, 1.18),
        exposure=(-0.08, 0.12),
        contrast=(2.6, 3.6),
        haze=(0.05, 0.16),
        grain=(0.015, 0.04),
        blur=(0.003, 0.007),
        border=0.5,
        border_shade=(0.0, 0.9),
        marker="R",
        marker_side=-1,
        devices=1.5,
    ),
}


def check_known(names: Sequence[str]) -> None:
    for name in names:
        if name not in HOSPITALS:
            raise InputError(f"There is no hospital {name!r} in the phantom; choose from {', '.join(HOSPITALS)}.")
