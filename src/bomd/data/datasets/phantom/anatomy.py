"""The chest itself: every patient's own body, lungs, bones, heart and vessels.

Coordinates: x runs from -1 (left of the image, the patient's right) to 1, y from -1 (top) to 1, in the
patient's axes; a length of 0.1 is about 2.3 cm. Density is what the beam has met: air 0, muscle about 0.6,
bone and belly more. Lungs are dark because they hold air; a finding takes air away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.data.datasets.phantom.draws import Draws
from bomd.data.datasets.phantom.hospitals import Hospital
from bomd.data.datasets.phantom.shapes import bump, edge, ellipse, line, noise, sample, turn

HILUM = (0.19, -0.06)  # where vessels and bronchi enter a lung


@dataclass
class Chest:
    """Maps of N chests, each (N, H, W) unless stated."""

    draws: Draws  # the random numbers of these images
    pixel: Tensor  # (N, 1, 1) side of a pixel
    supine: Tensor  # (N, 1, 1) of 0 and 1: taken from the front (AP), as in bed
    x: Tensor  # place in the patient's axes
    y: Tensor
    lung: Tensor  # 1 inside the lungs, whatever covers them
    wall: Tensor  # depth below the chest wall
    base: Tensor  # height above the diaphragm
    floor: Tensor  # (N, 1, 1) y of the lowest point of the lungs
    vessels: Tensor  # share of the air that vessels displace
    air: Tensor  # amount of air the beam meets, about 0 to 1
    density: Tensor  # of everything else

    @property
    def size(self) -> int:
        return self.x.shape[-1]

    def take(self, rows: NDArray[np.intp]) -> Chest:
        index = torch.from_numpy(rows).to(self.x.device)
        maps = {field.name: getattr(self, field.name)[index] for field in fields(self) if field.name != "draws"}
        return Chest(draws=self.draws.take(rows), **maps)


def build(draws: Draws, size: int, hospital: Hospital, supine: Tensor, severity: Mapping[str, Tensor]) -> Chest:
    """Draw the chests, shaped by those findings, each with an (N, 1, 1) severity, that change the shape of organs."""
    x, y, pixel = _position(draws, size, hospital)
    reach = x.abs()
    right_half = edge(-x, 0.02)  # the patient's right, on the left of the image

    emphysema, fibrosis = severity["Emphysema"], severity["Fibrosis"]
    lost = draws.sign("side of Atelectasis") * severity["Atelectasis"] * draws.uniform("volume lost", 0.3, 1)

    # Lungs: half an ellipse over straight walls on each side, cut off by the domes of the diaphragm.
    width = draws.uniform("thorax width", 0.60, 0.71) + 0.03 * emphysema
    centre = draws.uniform("apex place", 0.28, 0.33)
    apex = draws.uniform("apex height", -0.80, -0.70) + 0.03 * fibrosis
    breath = draws.varying("inspiration", -0.09, 0.07, steady=0.4) - 0.06 * supine
    level = draws.uniform("diaphragm", 0.47, 0.60) + breath + 0.13 * emphysema - 0.10 * fibrosis
    dome = draws.uniform("dome", 0.12, 0.20) * (1 - 0.75 * emphysema)
    across = width - centre
    shoulder = (y - 0.15).clamp(max=0) / (0.15 - apex)
    narrowing = 1 + 0.10 * (y - 0.4).clamp(-0.8, 0.5)
    outward = (reach - centre * narrowing) / (across * narrowing)
    wall = (1 - torch.sqrt(outward * outward + shoulder * shoulder + 1e-9)) * across
    inward = (reach - 0.27) * (1 / 0.36)
    sulcus = ((reach - 0.44) * 4).clamp(min=0)
    raised = draws.uniform("liver", 0.02, 0.07) * right_half + 0.16 * (lost * torch.sign(x)).clamp(min=0)
    base = level - raised - dome * (1 - inward * inward) + 0.05 * sulcus * sulcus - y
    lung = edge(wall, 0.012) * edge(base, 0.012)

    heart, middle = _heart(draws, x, y, level, supine, severity, 0.05 * lost)
    vessels = _vessels(draws, x, y, size) * (1 - 0.6 * emphysema)
    air = lung * (1 - vessels) * (1 - heart) * (1 - middle) * (1 + 0.16 * emphysema)
    air = air * margin(wall) * (1 - 0.10 * edge(y - 0.2, 0.15))  # basal lung is a little denser

    density = _soft_tissue(draws, x, y, reach, base, width, level) + _bones(draws, x, y, wall, pixel, supine)
    density = density + 0.10 * heart + 0.07 * middle - _airway(draws, x, y, pixel)
    return Chest(draws, pixel, supine, x, y, lung, wall, base, level + 0.06, vessels, air, density)


def margin(wall: Tensor) -> Tensor:
    """Thickness of the lung at a depth below the chest wall: it thins out towards its margin."""
    return 0.62 + 0.38 * edge(wall - 0.08, 0.06)


def _position(draws: Draws, size: int, hospital: Hospital) -> tuple[Tensor, Tensor, Tensor]:
    """Place (N, H, W) of each pixel in the patient's axes, and the side (N, 1, 1) of a pixel there."""
    steps = (torch.arange(size, device=draws.device, dtype=torch.float32) + 0.5) * (2 / size) - 1
    zoom = draws.varying("zoom", *hospital.zoom, steady=0.7)
    column = steps.view(1, 1, -1) - draws.varying("shift across", *hospital.off_centre, steady=0.5)
    row = steps.view(1, -1, 1) - draws.varying("shift along", *hospital.off_centre, steady=0.6)
    x, y = turn(column / zoom, row / zoom, draws.uniform("tilt", *hospital.tilt, of="image"))
    return x, y, (2 / size) / zoom


def _heart(
    draws: Draws, x: Tensor, y: Tensor, level: Tensor, supine: Tensor, severity: Mapping[str, Tensor], pull: Tensor
) -> tuple[Tensor, Tensor]:
    """How much of the lungs the heart hides, and how much the rest of the mediastinum does."""
    large, slim = severity["Cardiomegaly"], severity["Emphysema"]
    shift = draws.uniform("rotation", -0.035, 0.035, of="image") + pull
    size = draws.varying("heart size", 0.225, 0.275, steady=0.8) * (1 + 0.09 * supine)
    size = size * (1 + 0.10 * (large > 0) + 0.38 * large) * (1 - 0.18 * slim)
    height = level - 0.09 - 0.72 * size
    along, below = turn(x - shift - 0.055 - 0.28 * size, y - height, draws.uniform("heart axis", 0.45, 0.75))
    left = edge(ellipse(along, below, size * 1.22, size * 0.86), 0.014)
    right = edge(ellipse(x - shift + 0.045, y - height - 0.02, size * 0.56, size * 0.92), 0.014)
    heart = torch.maximum(left, right) * 0.86

    off = x - shift
    column = draws.uniform("mediastinum", 0.085, 0.115) * (1 + 0.12 * supine)
    trunk = edge(column + 0.09 * edge(y - 0.06, 0.07) - off.abs(), 0.014)
    knob = ellipse(off - column, y + draws.uniform("arch", 0.28, 0.36), draws.uniform("aorta", 0.055, 0.085), 0.085)
    pulmonary = ellipse(off - column + 0.01, y + 0.10, 0.055, 0.13)
    middle = torch.maximum(trunk, torch.maximum(edge(knob, 0.012) * 0.85, edge(pulmonary, 0.016) * 0.7))
    return heart, middle * 0.95


def _vessels(draws: Draws, x: Tensor, y: Tensor, size: int) -> Tensor:
    """Branches that radiate from each hilum and thin out, and a fine texture between them."""
    across, down = x.abs() - HILUM[0], y - HILUM[1]
    distance = torch.sqrt(across * across + down * down + 1e-6)
    # Branches bend with distance, and each side has its own.
    angle = torch.atan2(down, across) + 1.2 * distance * distance + torch.where(x < 0, 6.9, 0.0)
    near = sample(draws.grid("large vessels", 46, 6), (angle + 3.2) * 3.4, distance * 9)
    far = sample(draws.grid("small vessels", 112, 10), (angle + 3.2) * 8.2, distance * 11)
    branches = 0.45 * ((near - 0.52).clamp(min=0) * 2) * bump(distance, 0.30)
    twigs = 0.42 * ((far - 0.55).clamp(min=0) * 2) * bump(distance - 0.20, 0.34)
    hilum = 0.50 * bump(torch.sqrt(across * across * 2.2 + down * down * 0.8 + 1e-9), 0.115)
    fine = 0.16 * noise(draws.grid("lung texture", 40, 40, of="image"), size)
    return (branches + twigs + hilum + fine).clamp(max=0.85)


def _soft_tissue(
    draws: Draws, x: Tensor, y: Tensor, reach: Tensor, base: Tensor, width: Tensor, level: Tensor
) -> Tensor:
    """Muscle, fat, breasts and the belly, inside the outline of the body."""
    side = width + draws.uniform("flesh", 0.09, 0.30)
    arms = 0.30 * edge(draws.uniform("armpit", -0.42, -0.25) - y, 0.03)
    waist = 0.25 * (y - 0.15).clamp(-0.3, 0.45) ** 2
    outline = edge(side + arms - waist - reach, 0.02)
    slope = draws.uniform("shoulder slope", 0.25, 0.5)
    shoulders = edge(y + draws.uniform("shoulder height", 0.86, 1.0) - slope * (reach - 0.3).clamp(min=0) ** 2, 0.02)
    neck = edge(draws.uniform("neck", 0.24, 0.31) - reach, 0.02)
    body = outline * torch.maximum(shoulders, neck)

    roundness = (1 - (reach / (side * 1.25)) ** 2).clamp(min=0)
    thickness = 0.46 + 0.15 * roundness + 0.07 * edge(y + 0.2, 0.4)
    belly = 0.20 * edge(-base, 0.03) * edge(width + 0.05 - reach, 0.05)
    stomach = ellipse(x - 0.30, y - level - 0.10, draws.uniform("gas width", 0.05, 0.13, of="image"), 0.055)
    gas = draws.uniform("gas", -0.1, 0.30, of="image").clamp(min=0) * edge(stomach, 0.012) * edge(-base - 0.03, 0.01)

    fullness = draws.uniform("breasts", -1.0, 1.0).clamp(min=0)  # half of the patients are men
    breast = ellipse(reach - 0.42, y - draws.uniform("breast height", 0.28, 0.42), 0.27 + 0.06 * fullness, 0.26)
    lower = edge(breast, 0.05) * (0.4 + 0.6 * edge(y - 0.25, 0.12))
    return body * (thickness + belly - gas + 0.19 * fullness * lower)


def _bones(draws: Draws, x: Tensor, y: Tensor, wall: Tensor, pixel: Tensor, supine: Tensor) -> Tensor:
    """Ribs as a wave along a curved axis, clavicles, shoulder blades and spine."""
    reach = x.abs()
    cage = edge(wall + 0.035, 0.012) * (0.35 + 0.65 * edge(0.42 - y, 0.05)) * edge(0.75 - y, 0.06)
    spacing = draws.uniform("rib spacing", 0.142, 0.162)
    start = draws.uniform("first rib", 0.0, 0.15)
    bend = draws.uniform("rib bend", 0.55, 0.8)
    behind = y - bend * (reach - 0.20) ** 2 + 0.05 * reach - start
    back = _wave(behind / spacing, draws.uniform("rib width", -0.1, 0.25)) * edge(reach - 0.05, 0.02)
    before = y - draws.uniform("front rib slope", 0.45, 0.65) * (0.62 - reach) - 0.5 * (reach - 0.6).clamp(min=0)
    front = _wave(before / (spacing * 1.12), 0.3) * edge(reach - 0.20, 0.05) * edge(y + 0.45, 0.05)
    ribs = cage * (0.085 * back + 0.045 * front) * draws.uniform("rib density", 0.75, 1.25)

    turned = draws.uniform("rotation", -0.035, 0.035, of="image") * torch.sign(x)
    along = reach - 0.08 - turned
    height = draws.uniform("clavicle height", -0.66, -0.56) + 0.05 * supine
    curve = height - draws.uniform("clavicle slope", 0.05, 0.28) * along + 0.035 * torch.sin(along * 11)
    thick = 0.024 + 0.012 * bump(along, 0.12)
    clavicle = edge(thick - (y - curve).abs(), 0.008) * edge(along, 0.015) * edge(0.56 - along, 0.03)

    out = draws.uniform("scapula", 0.66, 0.76) - 0.12 * supine
    blade, down = turn(reach - out, y + 0.30, draws.uniform("scapula turn", -0.25, -0.05))
    scapula = edge(ellipse(blade, down, 0.14, 0.34), 0.02)
    rim = line(ellipse(blade, down, 0.14, 0.34) - 0.01, 0.014, pixel) * edge(0.05 - blade, 0.04)

    middle = x - draws.uniform("spine bend", -0.03, 0.03) * torch.sin(y * 2.2)
    discs = 0.75 + 0.25 * torch.cos(y * (6.2832 / 0.125))
    spine = edge(0.062 - middle.abs(), 0.012) * discs
    return ribs + 0.11 * clavicle + 0.04 * scapula + 0.05 * rim + 0.09 * spine


def _wave(phase: Tensor, offset: Tensor | float) -> Tensor:
    """Bands with bright margins, one per unit of phase, as ribs have a hollow middle."""
    height = torch.cos(phase * 6.2832) - offset
    band = edge(height, 0.14)
    return band * (0.72 + 0.28 * bump(height - 0.22, 0.3))


def _airway(draws: Draws, x: Tensor, y: Tensor, pixel: Tensor) -> Tensor:
    """Air in the trachea and the two main bronchi, to be taken from the density."""
    carina = draws.uniform("carina", -0.26, -0.18)
    bent = x - draws.uniform("trachea", -0.025, 0.02) * edge(y + 0.55, 0.1)
    trachea = edge(0.038 - bent.abs(), 0.010) * edge(carina - y, 0.02)
    below = (y - carina).clamp(min=0)
    bronchi = (
        line(bent.abs() - 0.035 - 0.75 * below, 0.022, pixel) * edge(y - carina + 0.02, 0.01) * edge(0.16 - below, 0.03)
    )
    return 0.15 * trachea + 0.08 * bronchi
