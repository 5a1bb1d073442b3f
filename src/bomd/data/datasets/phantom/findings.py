"""How each finding is drawn: where it occurs, from obvious to barely visible.

Cardiomegaly is the one finding that is nothing but a change of shape; it, and the shape part of Atelectasis,
Emphysema and Fibrosis, are drawn with the anatomy. Everything else takes air from the lungs, or adds some, or
adds density.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.data.datasets.phantom.anatomy import HILUM, Chest, margin
from bomd.data.datasets.phantom.draws import Draws
from bomd.data.datasets.phantom.hospitals import Hospital
from bomd.data.datasets.phantom.labels import FINDINGS
from bomd.data.datasets.phantom.shapes import bump, edge, ellipse, line, noise


@dataclass(frozen=True)
class Shadow:
    """What a finding does to N images."""

    opacity: Tensor  # (N, H, W) share of the air that is displaced; negative where there is more air than before
    density: Tensor | float = 0.0  # (N, H, W) or 0, added tissue outside the lungs' air


def severities(draws: Draws, labels: NDArray[np.float32], hospital: Hospital) -> dict[str, Tensor]:
    """(N, 1, 1) severity of each finding, 0 where it is absent, else from about 0.1 (subtle) to 1 (obvious)."""
    return {
        name: draws.varying(f"severity of {name}", *hospital.severity, steady=0.6) * draws.tensor(labels[:, column])
        for column, name in enumerate(FINDINGS)
    }


def add(chest: Chest, severity: dict[str, Tensor]) -> None:
    """Draw every finding into the air and density of the chests that have it."""
    for name, draw in DRAWN.items():
        present = severity[name].flatten() > 0
        rows = np.flatnonzero(present.cpu().numpy())
        if len(rows):
            index = torch.from_numpy(rows).to(chest.x.device)
            shadow = draw(chest.take(rows), severity[name][index])
            chest.air[index] = chest.air[index] * (1 - shadow.opacity)
            chest.density[index] = chest.density[index] + shadow.density


def _both(chest: Chest, name: str, probability: float) -> Tensor:
    """(N, 1, 1) strength on the other side: 0, or for a share of the patients 0.5 to 1."""
    other = chest.draws.chance(f"{name} on both sides", probability, of="patient")
    return chest.draws.tensor(other) * chest.draws.uniform(f"{name} on the other side", 0.5, 1.0)


def _sided(chest: Chest, side: Tensor, other: Tensor) -> Tensor:
    """(N, H, W) factor: 1 on the side of the finding, `other` on the opposite one."""
    here = edge(chest.x * side, 0.02)
    return here + other * (1 - here)


def _clouds(chest: Chest, name: str, cells: int) -> Tensor:
    """Patchy noise around 0.5 with two scales, different on every image."""
    coarse = noise(chest.draws.grid(f"{name} clouds", cells, cells, of="image"), chest.size)
    fine = noise(chest.draws.grid(f"{name} wisps", 3 * cells, 3 * cells, of="image"), chest.size)
    return 0.65 * coarse + 0.35 * fine


def atelectasis(chest: Chest, severity: Tensor) -> Shadow:
    """Plates of collapsed lung just above a raised diaphragm, in a crowded base."""
    draws = chest.draws
    side = draws.sign("side of Atelectasis")
    across, up = chest.x * side, chest.base
    plates = torch.zeros_like(across)
    for number, height in enumerate((0.09, 0.16, 0.25)):
        slope = draws.uniform(f"plate {number} slope", -0.25, 0.25, of="image")
        middle = draws.uniform(f"plate {number} place", 0.28, 0.5, of="image")
        place = up - height - draws.uniform(f"plate {number} height", -0.03, 0.04, of="image")
        length = bump(across - middle, draws.uniform(f"plate {number} length", 0.09, 0.2, of="image"))
        width = draws.uniform(f"plate {number} width", 0.011, 0.025, of="image")
        strength = draws.uniform(f"plate {number} strength", -0.3, 1.0, of="image").clamp(min=0)
        plates = torch.maximum(plates, strength * length * line(place - slope * (across - middle), width, chest.pixel))
    crowded = 0.55 * bump(up, 0.16) * edge(across - 0.02, 0.03) * draws.uniform("crowding", 0.3, 1.0)
    return Shadow((0.25 + 0.75 * severity) * (0.95 * plates + crowded * severity))


def effusion(chest: Chest, severity: Tensor) -> Shadow:
    """Fluid that rises along the wall as a meniscus, or, lying down, veils the whole side."""
    draws = chest.draws
    amount = severity * _sided(chest, draws.sign("side of Effusion"), _both(chest, "Effusion", 0.35))
    climb = ((chest.x.abs() - 0.30) * 3).clamp(min=0)
    surface = chest.floor - 0.02 - 0.40 * amount - (0.05 + 0.10 * amount) * climb * climb
    pool = edge(chest.y - surface, 0.012 + 0.05 * chest.supine) * (0.60 + 0.35 * amount) * edge(amount - 0.03, 0.01)
    veil = chest.supine * 0.35 * amount * edge(chest.y + 0.3, 0.25)
    return Shadow(1 - (1 - pool) * (1 - veil))


def infiltration(chest: Chest, severity: Tensor) -> Shadow:
    """Ill-defined patches in one or both lungs."""
    draws = chest.draws
    sides = _sided(chest, draws.sign("side of Infiltration", of="image"), _both(chest, "Infiltration", 0.5))
    across = chest.x.abs() - draws.uniform("infiltrate across", 0.25, 0.45, of="image")
    down = chest.y - draws.uniform("infiltrate down", -0.3, 0.3, of="image")
    zone = bump(torch.sqrt(across * across + (0.75 * down) ** 2), draws.uniform("infiltrate extent", 0.22, 0.42))
    patches = edge(_clouds(chest, "Infiltration", 9) - 0.5, 0.06)
    return Shadow(sides * zone * (0.12 + 0.55 * severity) * (0.25 + 0.75 * patches))


def _ball(chest: Chest, name: str, radius: Tensor) -> Tensor:
    """A round opacity somewhere in a lung, densest where a ball is thickest."""
    draws = chest.draws
    side = draws.sign(f"side of {name}")
    down = draws.uniform(f"{name} down", -0.48, 0.25)
    # Higher up the lungs are narrower, so that the place across is drawn between bounds that follow the wall.
    across = 0.22 + draws.uniform(f"{name} across", 0.0, 1.0) * (0.24 - 0.16 * (-down - 0.1).clamp(min=0))
    grid = 0.25 * (noise(draws.grid(f"{name} outline", 14, 14), chest.size) - 0.5)
    x, y = chest.x * side - across, chest.y - down
    distance = torch.sqrt(x * x + y * y + 1e-9) / radius + grid
    return (1 - distance * distance).clamp(min=0).sqrt() * edge(1 - distance, 0.05)


def mass(chest: Chest, severity: Tensor) -> Shadow:
    """A round opacity wider than 3 cm."""
    radius = chest.draws.uniform("size of Mass", 0.072, 0.09) + 0.085 * severity
    return Shadow((0.38 + 0.52 * severity) * _ball(chest, "Mass", radius))


def nodule(chest: Chest, severity: Tensor) -> Shadow:
    """One to three round opacities of less than 3 cm."""
    radius = chest.draws.uniform("size of Nodule", 0.040, 0.050) + 0.016 * severity
    opacity = _ball(chest, "Nodule", radius)
    for number, share in ((2, 0.45), (3, 0.25)):
        more = chest.draws.tensor(chest.draws.chance(f"nodule {number}", share, of="patient"))
        opacity = torch.maximum(opacity, more * _ball(chest, f"Nodule {number}", radius))
    return Shadow((0.55 + 0.45 * severity) * opacity)


def pneumonia(chest: Chest, severity: Tensor) -> Shadow:
    """A lobe filled up to its fissure, with air-filled bronchi inside."""
    draws = chest.draws
    across, down = chest.x * draws.sign("side of Pneumonia"), chest.y
    fissure = down - draws.uniform("fissure", -0.12, 0.22, of="image")
    fissure = fissure + draws.uniform("fissure slope", -0.25, 0.25, of="image") * (across - 0.35)
    upper = draws.sign("upper lobe", of="image", right=0.35)
    extent = draws.uniform("lobe extent", 0.25, 0.42, of="image")
    lobe = edge(-fissure * upper, 0.018) * edge(extent + fissure * upper, 0.06) * edge(across - 0.06, 0.03)
    wispy = edge(_clouds(chest, "Pneumonia", 8) - 0.40, 0.10)
    angle = torch.atan2(chest.y - HILUM[1], chest.x.abs() - HILUM[0])
    bronchi = 0.25 * bump(torch.sin(angle * 7 + draws.uniform("bronchi", 0, 6.28, of="image")), 0.3)
    return Shadow(lobe * (0.22 + 0.55 * severity) * (0.45 + 0.55 * wispy) * (1 - bronchi))


def pneumothorax(chest: Chest, severity: Tensor) -> Shadow:
    """Air outside the lung along apex and wall: a dark rim without vessels, inside it a fine bright line."""
    draws = chest.draws
    outside = chest.x * draws.sign("side of Pneumothorax") - 0.16
    top = edge(-chest.y + draws.uniform("collapse height", -0.15, 0.45), 0.12)
    rim = (0.022 + 0.15 * severity) * (0.45 + 0.55 * edge(-chest.y - 0.25, 0.15)) * top
    ripple = 0.012 * torch.sin(chest.y * 9 + draws.uniform("ripple", 0, 6.28))
    inside = rim + ripple * severity - chest.wall
    here = edge(outside, 0.03) * edge(chest.wall, 0.01) * edge(rim - 0.02, 0.008)
    free = here * edge(inside, 0.008)
    pleura = 0.5 * here * line(inside, 0.010, chest.pixel)
    # The freed space holds nothing but air: vessels vanish, and so does the thinning at the margin.
    full = 1 - (0.92 + 0.16 * severity) / ((1 - chest.vessels) * margin(chest.wall))
    pressed = 0.18 * severity * here * edge(-inside, 0.02)
    return Shadow(free * full + (1 - free) * (pleura + pressed).clamp(max=0.8))


def edema(chest: Chest, severity: Tensor) -> Shadow:
    """Haze around both hila like the wings of a bat, with short lines at the lateral bases."""
    across, down = chest.x.abs() - HILUM[0] - 0.05, chest.y - HILUM[1] - 0.08
    wings = bump(torch.sqrt(across * across * 1.5 + down * down * 0.75 + 1e-9), 0.20 + 0.14 * severity)
    mottled = 0.6 + 0.4 * edge(_clouds(chest, "Edema", 12) - 0.5, 0.08)
    septa = bump(torch.sin(chest.y * 90), 0.35) * bump(chest.wall, 0.07) * bump(chest.base - 0.15, 0.13)
    return Shadow((0.18 + 0.52 * severity) * (wings * mottled + 0.25 * septa) + 0.14 * severity)


def emphysema(chest: Chest, severity: Tensor) -> Shadow:
    """More air, most of all in a few bullae at the top; shape and lost vessels are in the anatomy."""
    bullae = edge(_clouds(chest, "Emphysema", 10) - 0.58, 0.03) * edge(-chest.y - 0.05, 0.15)
    return Shadow(-(0.05 + 0.10 * severity) - 0.12 * severity * bullae)


def fibrosis(chest: Chest, severity: Tensor) -> Shadow:
    """A net of coarse lines near the wall and the bases of both lungs."""
    place = bump(chest.wall, 0.13) + bump(chest.base, 0.30)
    net = torch.zeros_like(chest.x)
    for number, cells in enumerate((30, 44)):
        field = noise(chest.draws.grid(f"Fibrosis net {number}", cells, cells), chest.size)
        net = torch.maximum(net, bump(field - 0.5, 0.10))
    return Shadow((0.10 + 0.42 * severity) * place.clamp(max=1.0) * (0.30 + 0.95 * net) * edge(chest.wall, 0.01))


def pleural_thickening(chest: Chest, severity: Tensor) -> Shadow:
    """A thick bright rim inside the wall, over the apex or along the side, of uneven depth."""
    draws = chest.draws
    sides = _sided(chest, draws.sign("side of Pleural_Thickening"), _both(chest, "Pleural_Thickening", 0.4))
    apical = draws.tensor(draws.chance("apical cap", 0.5, of="patient"))
    top = edge(-chest.y - draws.uniform("cap", 0.38, 0.52), 0.05)
    flank = edge(chest.x.abs() - 0.42, 0.03) * bump(
        chest.y - draws.uniform("flank", -0.05, 0.35), draws.uniform("flank length", 0.3, 0.5)
    )
    uneven = 0.6 + 0.8 * noise(draws.grid("pleura", 16, 16), chest.size)
    depth = (0.036 + 0.08 * severity) * uneven
    return Shadow(
        sides * (apical * top + (1 - apical) * flank) * edge(depth - chest.wall, 0.010) * (0.55 + 0.4 * severity)
    )


def hernia(chest: Chest, severity: Tensor) -> Shadow:
    """Part of the stomach behind the heart: a round shadow, often with air above a level of fluid."""
    draws = chest.draws
    radius = draws.uniform("size of Hernia", 0.11, 0.13) + 0.09 * severity
    x = chest.x - draws.uniform("hernia place", 0.0, 0.13)
    y = chest.y - (chest.floor - 0.17 - 0.75 * radius)
    depth = ellipse(x, y, radius, radius * 0.9)
    inside = edge(depth, 0.010)
    rim = line(depth - 0.012, 0.014, chest.pixel)
    level = draws.uniform("fluid level", -0.03, 0.03, of="image")
    gas = edge(depth - 0.022, 0.008) * edge(level - y, 0.006)
    share = draws.uniform("hernia gas", 0.4, 1.0, of="image")
    strength = 0.5 + 0.5 * severity
    return Shadow(0.85 * inside * strength, strength * (0.10 * inside + 0.08 * rim - 0.45 * share * gas))


DRAWN: dict[str, Callable[[Chest, Tensor], Shadow]] = {
    "Atelectasis": atelectasis,
    "Effusion": effusion,
    "Infiltration": infiltration,
    "Mass": mass,
    "Nodule": nodule,
    "Pneumonia": pneumonia,
    "Pneumothorax": pneumothorax,
    "Edema": edema,
    "Emphysema": emphysema,
    "Fibrosis": fibrosis,
    "Pleural_Thickening": pleural_thickening,
    "Hernia": hernia,
}
