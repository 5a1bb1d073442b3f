"""Phantoms as pictures: each is drawn from its id alone, many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.data.datasets.phantom import anatomy, appearance, devices, findings, labels
from bomd.data.datasets.phantom.draws import Draws, Identity, identify
from bomd.data.datasets.phantom.hospitals import HOSPITALS, check_known
from bomd.errors import InputError

_PIXELS_AT_ONCE = {"cpu": 2**18, "cuda": 2**25}  # what fits a processor's cache, and a graphics card's memory


@dataclass(frozen=True)
class _Patients:
    identity: Identity
    labels: NDArray[np.float32]  # (N, 14)
    supine: NDArray[np.bool_]  # (N) whether the view is AP


def render_with(
    ids: Sequence[str] | NDArray[np.str_],
    values: NDArray[np.float32] | None,
    size: int,
    device: str | torch.device = "cpu",
) -> Tensor:
    """(N, size, size) uint8 images of the same patients with other findings, to see what a finding changes.

    The (N, 14) labels are drawn in place of the clean ones, which None stands for.
    """
    if size < 16:
        raise InputError(f"A phantom of {size} pixels shows nothing; size must be at least 16.")
    images = torch.empty((len(ids), size, size), dtype=torch.uint8, device=device)
    patients = _examine(ids, values)
    for rows, piece in _in_pieces(patients, patients.labels, np.arange(len(ids)), size, images.device):
        images[torch.from_numpy(rows).to(images.device)] = piece
    return images


def places(ids: Sequence[str] | NDArray[np.str_], size: int, device: str | torch.device = "cpu") -> Tensor:
    """(N, 13, size, size) uint8 on the device: how much each pixel changes when a finding is taken away.

    That is where the finding was drawn, its shape as well as its shadow, and 0 everywhere for a finding that is absent.
    Devices stay, also those that came with the finding.
    """
    whole = render_with(ids, None, size, device).to(torch.int16)
    found = torch.zeros((len(ids), len(labels.FINDINGS), size, size), dtype=torch.uint8, device=device)
    patients = _examine(ids, None)
    for column in range(len(labels.FINDINGS)):
        without = patients.labels.copy()
        without[:, column] = 0
        present = np.flatnonzero(patients.labels[:, column])
        for rows, piece in _in_pieces(patients, without, present, size, whole.device):
            index = torch.from_numpy(rows).to(whole.device)
            found[index, column] = (whole[index] - piece).abs().to(torch.uint8)
    return found


def _in_pieces(
    patients: _Patients, values: NDArray[np.float32], chosen: NDArray[np.intp], size: int, device: torch.device
) -> Iterator[tuple[NDArray[np.intp], Tensor]]:
    """Draw the chosen rows with (N, 14) labels, those of one hospital at a time and as many as the device likes best.

    The patients' own labels decide which devices they wear.
    """
    identity = patients.identity

    def draw(rows: NDArray[np.intp]) -> Tensor:
        hospital = HOSPITALS[str(identity.hospitals[rows[0]])]
        draws = Draws(identity.patients[rows], identity.images[rows], device)
        severity = findings.severities(draws, values[rows], hospital)
        chest = anatomy.build(draws, size, hospital, draws.tensor(patients.supine[rows]), severity)
        findings.add(chest, severity)
        devices.add(chest, patients.labels[rows], hospital)
        return appearance.develop(chest, hospital)

    step = max(1, _PIXELS_AT_ONCE.get(device.type, 2**18) // size**2)
    members = [chosen[identity.hospitals[chosen] == name] for name in HOSPITALS]
    pieces = [rows[start : start + step] for rows in members for start in range(0, len(rows), step)]
    workers = torch.get_num_threads() if device.type == "cpu" else 1
    with _each_on_its_own(workers) as spread:
        yield from zip(pieces, spread(draw, pieces), strict=True)


@contextmanager
def _each_on_its_own(workers: int) -> Iterator[Callable[..., Iterable[Tensor]]]:
    """A `map` that draws one piece per core, instead of sharing the work of every small step between the cores.

    Thousands of small steps would otherwise wait for the slowest core each, which takes many times as long on a
    busy machine.
    """
    if workers == 1:
        yield map
        return
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(workers) as pool:
            yield pool.map
    finally:
        torch.set_num_threads(workers)


def severity(ids: Sequence[str] | NDArray[np.str_], values: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """(N, 13) how strongly each finding is drawn: 0.1 is nearly invisible, 1 obvious, 0 absent."""
    patients = _examine(ids, values)
    identity, drawn = patients.identity, patients.labels
    stacked = np.zeros((len(drawn), len(labels.FINDINGS)), dtype=np.float32)
    for name, hospital in HOSPITALS.items():
        rows = np.flatnonzero(identity.hospitals == name)
        draws = Draws(identity.patients[rows], identity.images[rows], torch.device("cpu"))
        strengths = findings.severities(draws, drawn[rows], hospital)
        stacked[rows] = torch.cat([strengths[finding].flatten(1) for finding in labels.FINDINGS], dim=1).numpy()
    return stacked


def _examine(ids: Sequence[str] | NDArray[np.str_], values: NDArray[np.float32] | None) -> _Patients:
    identity = identify(ids)
    check_known(np.unique(identity.hospitals).tolist())
    clean, supine = labels.diagnose(identity)
    drawn = clean if values is None else np.asarray(values, dtype=np.float32)
    if drawn.shape != clean.shape:
        raise InputError(f"Labels to draw have shape {drawn.shape}, expected {clean.shape}.")
    return _Patients(identity, drawn, supine)
