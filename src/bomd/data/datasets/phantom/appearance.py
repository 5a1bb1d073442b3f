"""From density to the picture a hospital stores: exposure, tone curve, blur, grain, borders and markers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bomd.data.datasets.phantom.anatomy import Chest
from bomd.data.datasets.phantom.hospitals import Hospital
from bomd.data.datasets.phantom.shapes import edge, turn

AIR_DEPTH = 0.42  # density that a lung full of air takes away

_LETTERS = {  # five columns by seven rows
    "L": "10000 10000 10000 10000 10000 10000 11111",
    "R": "11110 10001 10001 11110 10100 10010 10001",
}


def develop(chest: Chest, hospital: Hospital) -> Tensor:
    """(N, H, W) uint8 images of the chests as this hospital would store them."""
    draws = chest.draws
    beam = chest.density - AIR_DEPTH * chest.air
    exposure = draws.varying("exposure", *hospital.exposure, steady=0.3) + 0.03 * chest.supine
    contrast = draws.varying("contrast", *hospital.contrast, steady=0.3) * (1 - 0.12 * chest.supine)
    film = torch.sigmoid((beam + exposure - 0.47) * contrast)
    haze = draws.uniform("haze", *hospital.haze, of="image")
    film = haze + (1 - haze) * film * (0.35 + 0.65 * edge(beam - 0.05, 0.03))  # bare film behind the patient is black
    film = _blur(film, draws.uniform("blur", *hospital.blur, of="image"), hospital.blur[1])
    film = film + draws.uniform("grain", *hospital.grain, of="image") * _grain(chest)
    film = _present(_mark(film, chest, hospital), chest, hospital)
    return (film.clamp(0, 1) * 255).round().to(torch.uint8)


def _blur(film: Tensor, width: Tensor, widest: float) -> Tensor:
    """Gaussian blur of each image by its own width, given as a fraction of the side."""
    size = film.shape[-1]
    reach = max(1, round(2.5 * widest * size))
    sigma = width * size
    weights = [torch.exp(-0.5 * (step / sigma) ** 2) for step in range(reach + 1)]
    total = weights[0] + 2 * torch.stack(weights[1:]).sum(0)
    for axis in (1, 2):
        place = torch.arange(size, device=film.device)
        mixed = film * (weights[0] / total)
        for step in range(1, reach + 1):
            before, after = (place - step).clamp(min=0), (place + step).clamp(max=size - 1)
            neighbours = film.index_select(axis, before) + film.index_select(axis, after)
            mixed = mixed + neighbours * (weights[step] / total)
        film = mixed
    return film


def _grain(chest: Chest) -> Tensor:
    """(N, H, W) noise of mean 0 and deviation 1, a hash of image and pixel: no shared stream of numbers."""
    # Far apart from pixel to pixel.
    counter = torch.arange(chest.size**2, device=chest.x.device, dtype=torch.int32) * 0x3C6EF372
    key = torch.from_numpy((chest.draws.images & np.uint64(0x7FFFFFFF)).astype(np.int64)).to(torch.int32)
    bits = key.to(chest.x.device).view(-1, 1, 1) + counter.view(chest.size, chest.size)
    for shift, keep, factor in ((16, 0xFFFF, 0x7FEB352D), (15, 0x1FFFF, 0x5BD1E995), (16, 0xFFFF, 1)):
        bits = (bits ^ ((bits >> shift) & keep)) * factor
    halves = (bits & 0xFFFF) + ((bits >> 16) & 0xFFFF)  # two even draws make a triangular one
    return (halves.float() - 65535.0) * (1 / 26755.0)


def _mark(film: Tensor, chest: Chest, hospital: Hospital) -> Tensor:
    """Collimation, which leaves a border on some images, and a lead letter in an upper corner."""
    draws = chest.draws
    size = chest.size
    place = (torch.arange(size, device=film.device, dtype=torch.float32) + 0.5) * (2 / size) - 1
    column, row = place.view(1, 1, -1), place.view(1, -1, 1)

    side = hospital.marker_side or draws.sign("marker side", of="image")
    x = column - side * draws.uniform("marker across", 0.74, 0.88, of="image")
    y = row + draws.uniform("marker height", 0.72, 0.9, of="image")
    x, y = turn(x, y, draws.uniform("marker turn", -0.15, 0.15, of="image"))
    drawn = [[[float(bit) for bit in line] for line in _LETTERS[name].split()] for name in hospital.marker]
    letters = torch.nn.functional.pad(torch.tensor(drawn), (1, 1, 1, 1)).to(film.device)
    pick = draws.uniform("marker letter", 0, len(letters), of="image").long().clamp(max=len(letters) - 1)
    pick_row = (y * (1 / 0.016) + 4.5).floor().clamp(0, 8).long()
    pick_column = (x * (1 / 0.016) + 3.5).floor().clamp(0, 6).long()
    film = torch.maximum(film, 0.92 * letters[pick, pick_row, pick_column])

    bordered = draws.tensor(draws.chance("border", hospital.border))
    x, y = turn(column, row, draws.uniform("border turn", -0.03, 0.03, of="image"))
    for name, distance in (("left", 1 + x), ("right", 1 - x), ("top", 1 + y), ("bottom", 1 - y)):
        inset = draws.uniform(f"{name} border", -0.10, 0.13, of="image")
        covered = bordered * edge(inset - distance, 0.006)
        film = film + covered * (draws.uniform("border shade", *hospital.border_shade, of="image") - film)
    return film


def _present(film: Tensor, chest: Chest, hospital: Hospital) -> Tensor:
    """Some images are shown inverted, and those of patients who lie on a side as they lie."""
    if hospital.inverted:
        inverted = chest.draws.tensor(chest.draws.chance("inverted", hospital.inverted))
        film = film + inverted * (1 - 2 * film)
    if hospital.lying:
        lying = torch.from_numpy(chest.draws.chance("lying", hospital.lying)).to(film.device)
        left = (chest.draws.sign("lies on", of="image") > 0).flatten()
        for rows, turns in ((lying & left, 1), (lying & ~left, -1)):
            film[rows] = film[rows].rot90(turns, (1, 2))
    return film
