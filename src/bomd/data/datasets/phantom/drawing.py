"""Phantoms as pictures: each is drawn from its id alone, many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.data.datasets.classes import NIH
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
        device: where to draw.

    Returns:
        (N, size, size) uint8 on the device.
    """
    if size < 16:
        raise InputError(f"A phantom of {size} pixels shows nothing; size must be at least 16.")
    target = torch.device(device)
    identity, drawn, supine = _examine(ids, values)
    images = torch.empty((len(drawn), size, size), dtype=torch.uint8, device=target)
    step = max(1, _PIXELS_AT_ONCE.get(target.type, 2**18) // size**2)
    members = [np.flatnonzero(identity.hospitals == name) for name in HOSPITALS]
    pieces = [rows[start : start + step] for rows in members for start in range(0, len(rows), step)]

    def draw(rows: NDArray[np.intp]) -> Tensor:
        return _draw(identity, rows, drawn[rows], supine[rows], size, target)

    workers = torch.get_num_threads() if target.type == "cpu" else 1
    with _each_on_its_own(workers) as spread:
        for rows, piece in zip(pieces, spread(draw, pieces), strict=True):
            images[torch.from_numpy(rows).to(target)] = piece
    return images


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
        ids: (N) ids as `read` gives them.
        values: (N, 14) labels to draw in place of the clean ones, which None stands for.
    """
    identity, drawn, _ = _examine(ids, values)
    draws = Draws(identity.patients, identity.images, torch.device("cpu"))
    strengths = findings.severities(draws, drawn)
    stacked: NDArray[np.float32] = torch.cat([strengths[name].flatten(1) for name in NIH[:-1]], dim=1).numpy()
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
    supine: NDArray[np.bool_],
    size: int,
    device: torch.device,
) -> Tensor:
    """Images (n, size, size) of some rows, all from one hospital."""
    hospital = HOSPITALS[str(identity.hospitals[rows[0]])]
    draws = Draws(identity.patients[rows], identity.images[rows], device)
    severity = findings.severities(draws, values)
    chest = anatomy.build(draws, size, hospital, draws.tensor(supine), severity)
    findings.add(chest, severity)
    devices.add(chest, values, hospital)
    return appearance.develop(chest, hospital)
