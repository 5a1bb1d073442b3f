"""What a model of other people takes for an image."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

from bomd.data.batches import SCALES
from bomd.errors import InputError
from bomd.progress import say

Resampling = Literal["nearest-exact", "bilinear", "bicubic"]


@dataclass(frozen=True)
class Sight:
    """What a model takes for an image.

    Attributes:
        channels: 1 or 3.
        height: In pixels; so is `width`.
        mean: Of each channel, after a value from 0 to 1 was multiplied by `scale`.
        deviation: Of each channel, likewise.
    """

    channels: int
    height: int
    width: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    resampling: Resampling = "bilinear"
    scale: float = 1.0

    def __post_init__(self) -> None:
        good = self.channels in SCALES and len(self.mean) == len(self.deviation) == self.channels
        if not good or min(self.height, self.width) < 1 or min(self.deviation) <= 0:
            raise InputError(f"No network takes such images: {self}.")


@functools.cache
def announce(text: str) -> None:
    """Say it once, however many networks are built."""
    say(text)
