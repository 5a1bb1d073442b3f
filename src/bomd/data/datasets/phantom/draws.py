"""Random numbers that belong to a name: an image id alone fixes everything that is drawn for it.

Every number is a hash of (patient or image, what the number is for), so that images can be made in any order,
in any company and on any machine, and a new number in the code leaves all others as they were.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.errors import InputError

Keys = NDArray[np.uint64]
Owner = Literal["patient", "image"]

_ID = re.compile(r"([a-z]+)-s(\d+)-p(\d+)-(\d+)")


@dataclass(frozen=True)
class Identity:
    """What an id such as `north-s0-p000123-1` says."""

    hospitals: NDArray[np.str_]  # (N) where the image was taken
    patients: Keys  # (N) hash of hospital, seed and patient number
    images: Keys  # (N) hash of the patient and the number of the image


def identify(ids: Sequence[str] | NDArray[np.str_]) -> Identity:
    """Read hospital, patient and image from (N) ids; one that is not a phantom's is an error."""
    hospitals, patients, images = [], [], []
    for name in ids:
        match = _ID.fullmatch(str(name))
        if match is None:
            raise InputError(f"{str(name)!r} is not a phantom's id; expected one like 'north-s0-p000123-1'.")
        hospitals.append(match[1])
        patients.append(_hash_text(str(name).rpartition("-")[0]))
        images.append(int(match[4]))
    patient_keys = np.asarray(patients, dtype=np.uint64)
    image_keys = _mix(patient_keys + np.asarray(images, dtype=np.uint64) * np.uint64(0xD1B54A32D192ED03))
    return Identity(np.asarray(hospitals, dtype=np.str_), patient_keys, image_keys)


def uniforms(keys: Keys, name: str, count: int = 1) -> NDArray[np.float64]:
    """(N, count) numbers in (0, 1) that depend on the key and the name only."""
    start = _mix(keys ^ np.uint64(_hash_text(name)))
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits = _mix(start[:, None] + steps[None, :]) >> np.uint64(11)
    return (bits.astype(np.float64) + 0.5) / 2.0**53


def _mix(keys: Keys) -> Keys:
    """The finaliser of the splitmix64 generator: every input bit reaches every output bit."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


@cache
def _hash_text(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True)
class Draws:
    """Named random numbers of N images as tensors that broadcast against (N, H, W).

    A patient's numbers are the same on all of the patient's images.
    """

    patients: Keys
    images: Keys
    device: torch.device

    def take(self, rows: NDArray[np.intp]) -> Draws:
        return Draws(self.patients[rows], self.images[rows], self.device)

    def uniform(self, name: str, low: float, high: float, of: Owner = "patient") -> Tensor:
        """(N, 1, 1) evenly between low and high."""
        return self.tensor(low + (high - low) * self._numbers(name, of)[:, 0])

    def varying(self, name: str, low: float, high: float, steady: float = 0.75) -> Tensor:
        """(N, 1, 1) between low and high: mostly the patient's own value, partly that of the day."""
        mixed = steady * self._numbers(name, "patient") + (1 - steady) * self._numbers(name, "image")
        return self.tensor(low + (high - low) * mixed[:, 0])

    def sign(self, name: str, of: Owner = "patient", right: float = 0.5) -> Tensor:
        """(N, 1, 1) of -1 (left half of the image) or, with probability `right`, 1."""
        return self.tensor(np.where(self._numbers(name, of)[:, 0] < right, 1.0, -1.0))

    def chance(self, name: str, probability: float | NDArray[Any], of: Owner = "image") -> NDArray[np.bool_]:
        """(N) whether something happens."""
        happens: NDArray[np.bool_] = self._numbers(name, of)[:, 0] < probability
        return happens

    def grid(self, name: str, rows: int, columns: int, of: Owner = "patient") -> Tensor:
        """(N, rows, columns) evenly between 0 and 1."""
        numbers = self._numbers(name, of, rows * columns)
        return torch.from_numpy(numbers.astype(np.float32)).to(self.device).view(-1, rows, columns)

    def tensor(self, values: NDArray[Any]) -> Tensor:
        """(N) numbers as an (N, 1, 1) tensor."""
        return torch.from_numpy(np.asarray(values, dtype=np.float32)).to(self.device).view(-1, 1, 1)

    def _numbers(self, name: str, of: Owner, count: int = 1) -> NDArray[np.float64]:
        return uniforms(self.patients if of == "patient" else self.images, name, count)
