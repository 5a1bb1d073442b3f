"""What a start from generated X-rays is made of: how many, from which hospitals, learnt for how long."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bomd.config import LARGEST_SIZE
from bomd.data.datasets.phantom.hospitals import HOSPITALS, check_known
from bomd.errors import InputError
from bomd.files import fingerprint
from bomd.networks.backbone import BACKBONES
from bomd.sources import understood

Target = Literal["severity", "place"]
TARGETS: tuple[Target, ...] = ("severity", "place")
SMALLEST = 32  # pixels; below that a chest shows nothing
LARGEST = {"cpu": 128, "cuda": 256}  # pixels: larger phantoms cost more time than a start is worth
NO_IMAGENET = "There are no ImageNet weights of {!r}: use phantom or self alone."
LEARNING = ("make.py", "plan.py", "teach.py")  # files of this room that decide about what is learnt
_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Plan:
    """All that decides about a start, so that it also names it."""

    backbone: str  # a key of `BACKBONES`
    base: Literal["none", "imagenet"]  # what it is put on top of
    size: int  # side of the images in pixels
    count: int  # phantoms to learn from, an equal share from each hospital
    epochs: int  # passes over them
    hospitals: tuple[str, ...] = tuple(HOSPITALS)  # where they are taken
    targets: tuple[Target, ...] = ()  # what is learnt of each finding beside its label
    batch: int = 256
    rate: float = 0.002  # the highest learning rate of one cycle
    seed: int = 0

    def __post_init__(self) -> None:
        check_known(self.hospitals)
        if self.backbone not in BACKBONES:
            known = ", ".join(BACKBONES)
            raise InputError(f"No backbone {self.backbone!r} to learn phantoms with: use one of {known}.")
        if self.base == "imagenet" and BACKBONES[self.backbone].load is None:
            raise InputError(NO_IMAGENET.format(self.backbone))
        if not self.hospitals:
            raise InputError("Phantoms come from at least one hospital: name one.")
        unknown = [target for target in self.targets if target not in TARGETS]
        if unknown:
            raise InputError(f"Phantoms cannot teach {unknown[0]!r}: choose from {', '.join(TARGETS)}.")
        if not SMALLEST <= self.size <= LARGEST_SIZE:
            raise InputError(f"Phantoms of {self.size} pixels: choose from {SMALLEST} to {LARGEST_SIZE}.")
        least = 4 * len(self.hospitals)
        if self.count < least:
            raise InputError(f"{self.count} phantoms are too few to learn from: at least {least} are needed.")
        if self.epochs < 1 or self.batch < 2 or self.rate <= 0 or self.seed < 0:
            raise InputError("A start needs epochs >= 1, batch >= 2, a rate above 0 and seed >= 0.")

    @property
    def name(self) -> str:
        """As `fit.weights` calls it."""
        return "phantom" if self.base == "none" else f"{self.base}+phantom"

    @property
    def key(self) -> str:
        """Changes with every setting, and with the code that draws and learns phantoms."""
        return fingerprint(asdict(self), code_fingerprint())

    def describe(self) -> str:
        """In words."""
        taught = "".join(f", {target}" for target in self.targets)
        return (
            f"{self.count:,} generated X-rays of {self.size} pixels ({', '.join(self.hospitals)}), "
            f"{self.epochs} pass{'es' * (self.epochs > 1)}, labels{taught}"
        )


def usual(backbone: str, base: Literal["none", "imagenet"], size: int, device: str, **changes: Any) -> Plan:
    """The plan that fits "cpu" or "cuda", but for `changes`: minutes on either, so that a CPU gets fewer phantoms.

    `size` is that of the images that the network is for; phantoms are never larger than the device can afford.
    """
    affordable = max(SMALLEST, min(size, LARGEST[device]))
    count, epochs, large = (120_000, 3, 128) if device == "cuda" else (16_000, 2, 64)
    # Of large images fewer are drawn, so that a start takes minutes whatever their size.
    settings = {"size": affordable, "count": count if affordable <= large else count // 2, "epochs": epochs, **changes}
    return Plan(backbone, base, **settings)


@functools.cache
def code_fingerprint() -> str:
    """Changes with the code that draws phantoms and learns them; comments and docstrings do not count."""
    drawing = sorted((_PACKAGE / "data" / "datasets" / "phantom").glob("*.py"))
    files = [*drawing, *(_PACKAGE / "pretrain" / name for name in LEARNING)]
    return fingerprint(*((file.name, understood(file.read_text("utf-8"))[0]) for file in files))
