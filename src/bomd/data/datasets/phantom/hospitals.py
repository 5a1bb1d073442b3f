"""The hospitals: what differs between them besides the patients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bomd.errors import InputError

Range = tuple[float, float]


@dataclass(frozen=True)
class Hospital:
    """How images of one hospital are taken and developed; a range is low and high of an even draw per image.

    What is not said is as in a teaching hospital with digital detectors, whose patients are those of NIH.
    """

    shift: tuple[float, ...] = (0.0,) * 14  # of the normal numbers of findings and AP view: above 0, more frequent
    tilt: Range = (-0.06, 0.06)  # how far patients lean, in radians
    zoom: Range = (1.02, 1.28)  # how large the chest appears
    exposure: Range = (-0.04, 0.06)  # added to the density before the tone curve
    contrast: Range = (3.6, 4.8)  # slope of the tone curve
    haze: Range = (0.0, 0.06)  # scattered light, which lifts the blacks
    grain: Range = (0.008, 0.022)  # standard deviation of the noise
    blur: Range = (0.001, 0.003)  # of the detector, as a fraction of the image's side
    border: float = 0.25  # how often collimation leaves a border
    border_shade: Range = (0.0, 0.05)  # its brightness
    marker: str = "L"  # letters, one of them on each image; seen from the front, "L" is on the right of the image
    marker_side: int = 1  # 1 for the right of the image, -1 for the left, 0 for either
    devices: float = 1.0  # factor on the frequency of lines, tubes and stickers
    severity: Range = (0.1, 1.0)  # from the least to the most visible that a finding gets
    off_centre: Range = (-0.08, 0.08)  # how far the chest lies from the middle of the image, across and along
    inverted: float = 0.0  # how often bright and dark are exchanged
    lying: float = 0.0  # how often the patient lies on a side, so that the image is turned by a quarter


HOSPITALS = {
    "north": Hospital(),
    # An acute hospital with older plates: sicker patients, more of them in bed, greyer, grainier, softer.
    # The rarest findings are shifted most, so that a test set of some thousand images has enough to score.
    "south": Hospital(
        shift=(0.2, 0.3, 0.2, 0.1, 0.2, 0.2, 0.4, 0.2, 0.4, 0.3, 0.3, 0.3, 0.6, 0.5),
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
    # Every image as from a hospital of its own, to learn from and not to test on: wider ranges than any one hospital
    # has, subtler findings, and more of each, the rarest most.
    "varied": Hospital(
        shift=(0.5, 0.8, 0.5, 0.3, 0.7, 0.6, 1.0, 0.8, 0.9, 0.9, 0.9, 0.8, 1.3, 0.0),
        tilt=(-0.22, 0.22),
        zoom=(0.82, 1.55),
        exposure=(-0.14, 0.18),
        contrast=(2.0, 6.0),
        haze=(0.0, 0.25),
        grain=(0.0, 0.06),
        blur=(0.0005, 0.011),
        border=0.4,
        border_shade=(0.0, 1.0),
        marker="LR",
        marker_side=0,
        devices=1.7,
        severity=(0.04, 0.8),
        off_centre=(-0.18, 0.18),
        inverted=0.08,
        lying=0.03,
    ),
}


def check_known(names: Sequence[str]) -> None:
    for name in names:
        if name not in HOSPITALS:
            raise InputError(f"There is no hospital {name!r} in the phantom; choose from {', '.join(HOSPITALS)}.")
