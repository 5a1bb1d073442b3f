"""Phantoms as pictures: each is drawn from its id alone, many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.data.datasets.phantom import anatomy, appearance, devices, findings, labels
from bomd.data.datasets.phantom.draws import Draws, Identity, identify
from bomd.data.datasets.phantom.hospitals import HOSPITALS, check_known
from bomd.errors import InputError

_PIXELS_AT_ONCE = {"cpu": 2**18, "cuda": 2**25}  # what fits a processor's cache, and a graphics card's memory


def render_with(
    ids: Sequence[str] | NDArray[np.str_],
    values: NDArray[np.float32] | None,
    size: int,
    device: str | torch.device = "cpu",
) -> Tensor:
    """The same patients with other findings, to see what a finding changes.

    Args:
        ids: (N) ids as `read` gives them.
        values: (N, 14) labels to draw in place of the clean ones, which None stands for.
        size: side of the images in pixels, 16 or more.

    Returns:
        (N, size, size) uint8 on the device.
    """
    _check_size(size)
    target = torch.device(device)
    identity, drawn, supine = _examine(ids, values)
    images = torch.empty((len(drawn), size, size), dtype=torch.uint8, device=target)

    def draw(rows: NDArray[np.intp]) -> Tensor:
        return _draw(identity, rows, drawn[rows], drawn[rows], supine[rows], size, target)

    for rows, piece in _in_pieces(draw, identity, np.arange(len(drawn)), size, target):
        images[torch.from_numpy(rows).to(target)] = piece
    return images


def places(ids: Sequence[str] | NDArray[np.str_], size: int, device: str | torch.device = "cpu") -> Tensor:
    """(N, 13, size, size) uint8 on the device: how much each pixel changes when a finding is taken away.

    That is where the finding was drawn, its shape as well as its shadow, and 0 everywhere for a finding that is absent.
    Devices stay, also those that came with the finding.

    Args:
        size: side of the images in pixels, 16 or more.
    """
    _check_size(size)
    target = torch.device(device)
    identity, labelled, supine = _examine(ids, None)
    found = torch.zeros((len(labelled), len(labels.FINDINGS), size, size), dtype=torch.uint8, device=target)
    whole = render_with(ids, None, size, target).to(torch.int16)
    for column in range(len(labels.FINDINGS)):
        without = labelled.copy()
        without[:, column] = 0

        def draw(rows: NDArray[np.intp], without: NDArray[np.float32] = without) -> Tensor:
            return _draw(identity, rows, without[rows], labelled[rows], supine[rows], size, target)

        present = np.flatnonzero(labelled[:, column])
        for rows, piece in _in_pieces(draw, identity, present, size, target):
            index = torch.from_numpy(rows).to(target)
            found[index, column] = (whole[index] - piece).abs().to(torch.uint8)
    return found


def _check_size(size: int) -> None:
    if size < 16:
        raise InputError(f"A phantom of {size} pixels shows nothing; size must be at least 16.")


def _in_pieces(
    draw: Callable[[NDArray[np.intp]], Tensor],
    identity: Identity,
    chosen: NDArray[np.intp],
    size: int,
    device: torch.device,
) -> Iterator[tuple[NDArray[np.intp], Tensor]]:
    """Draw the chosen rows, those of one hospital at a time and as many at once as the device likes best."""
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
    """(N, 13) how strongly each finding is drawn: 0.1 is nearly invisible, 1 obvious, 0 absent.

    Args:
        values: (N, 14) labels to draw in place of the clean ones, which None stands for.
    """
    identity, drawn, _ = _examine(ids, values)
    stacked = np.zeros((len(drawn), len(labels.FINDINGS)), dtype=np.float32)
    for name, hospital in HOSPITALS.items():
        rows = np.flatnonzero(identity.hospitals == name)
        draws = Draws(identity.patients[rows], identity.images[rows], torch.device("cpu"))
        strengths = findings.severities(draws, drawn[rows], hospital)
        stacked[rows] = torch.cat([strengths[finding].flatten(1) for finding in labels.FINDINGS], dim=1).numpy()
    return stacked


def _examine(
    ids: Sequence[str] | NDArray[np.str_], values: NDArray[np.float32] | None
) -> tuple[Identity, NDArray[np.float32], NDArray[np.bool_]]:
    """Who the (N) ids are, the (N, 14) labels to draw, and (N) whether the view is AP."""
    identity = identify(ids)
    check_known(np.unique(identity.hospitals).tolist())
    clean, supine = labels.diagnose(identity)
    drawn = clean if values is None else np.asarray(values, dtype=np.float32)
    if drawn.shape != clean.shape:
        raise InputError(f"Labels to draw have shape {drawn.shape}, expected {clean.shape}.")
    return identity, drawn, supine


def _draw(
    identity: Identity,
    rows: NDArray[np.intp],
    values: NDArray[np.float32],
    treated: NDArray[np.float32],
    supine: NDArray[np.bool_],
    size: int,
    device: torch.device,
) -> Tensor:
    """Images (n, size, size) of some rows, all from one hospital.

    Args:
        values: (n, 14) labels to draw.
        treated: (n, 14) labels that decide which devices a patient wears.
    """
    hospital = HOSPITALS[str(identity.hospitals[rows[0]])]
    draws = Draws(identity.patients[rows], identity.images[rows], device)
    severity = findings.severities(draws, values, hospital)
    chest = anatomy.build(draws, size, hospital, draws.tensor(supine), severity)
    findings.add(chest, severity)
    devices.add(chest, treated, hospital)
    return appearance.develop(chest, hospital)
