"""Lines, tubes, pacemakers and stickers: bright things that are not findings.

They are more frequent in bed and with some findings, as in life, but never decide one: most patients with a
pneumothorax have no drain, and drains remain after the air has gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.data.datasets.phantom.anatomy import Chest
from bomd.data.datasets.phantom.draws import Draws
from bomd.data.datasets.phantom.hospitals import Hospital
from bomd.data.datasets.phantom.labels import FINDINGS
from bomd.data.datasets.phantom.shapes import edge, ellipse, line, turn


def add(chest: Chest, labels: NDArray[np.float32], hospital: Hospital) -> None:
    """Draw the devices of each image into its density."""
    supine = chest.supine.flatten().cpu().numpy()
    for name, worn in wear(chest.draws, labels, supine, hospital).items():
        rows = np.flatnonzero(worn)
        if len(rows):
            index = torch.from_numpy(rows).to(chest.x.device)
            chest.density[index] = chest.density[index] + DRAWN[name](chest.take(rows))


def wear(
    draws: Draws, labels: NDArray[np.float32], supine: NDArray[Any], hospital: Hospital
) -> dict[str, NDArray[np.bool_]]:
    """(N) who wears each device, given (N, 14) labels and (N) whether the view is AP."""
    air_outside = labels[:, FINDINGS.index("Pneumothorax")]
    weak_heart = np.maximum(labels[:, FINDINGS.index("Cardiomegaly")], labels[:, FINDINGS.index("Edema")])
    frequency = {
        "stickers": 0.04 + 0.36 * supine,
        "breathing tube": 0.005 + 0.12 * supine,
        "feeding tube": 0.01 + 0.14 * supine,
        "central line": 0.03 + 0.22 * supine,
        "pacemaker": 0.02 + 0.06 * weak_heart,
        "drain": 0.015 + 0.22 * air_outside,
    }
    return {name: draws.chance(name, share * hospital.devices) for name, share in frequency.items()}


def stickers(chest: Chest) -> Tensor:
    """Three electrodes and their wires."""
    drawn = torch.zeros_like(chest.x)
    for number, (across, down) in enumerate(((-0.42, -0.45), (0.42, -0.48), (0.46, 0.30))):
        x = chest.x - across - chest.draws.uniform(f"sticker {number} across", -0.12, 0.12, of="image")
        y = chest.y - down - chest.draws.uniform(f"sticker {number} down", -0.12, 0.12, of="image")
        sway = chest.draws.uniform(f"wire {number}", -0.5, 0.5, of="image")
        wire = line(x - sway * y + 0.08 * torch.sin(y * 5 + 9 * sway), 0.005, chest.pixel) * edge(y, 0.01)
        drawn = torch.maximum(drawn, torch.maximum(edge(0.022 - torch.sqrt(x * x + y * y), 0.006), 0.7 * wire))
    return 0.25 * drawn


def breathing_tube(chest: Chest) -> Tensor:
    tip = chest.draws.uniform("breathing tube tip", -0.45, -0.28, of="image")
    return 0.14 * line(chest.x.abs() - 0.012, 0.007, chest.pixel) * edge(tip - chest.y, 0.01)


def feeding_tube(chest: Chest) -> Tensor:
    below = (chest.y - 0.25).clamp(min=0)
    path = chest.x - 0.01 - 0.02 * torch.sin(chest.y * 3) - 0.9 * below * below
    return 0.16 * line(path, 0.009, chest.pixel)


def central_line(chest: Chest) -> Tensor:
    """From a vein of the neck or below the clavicle down to the heart."""
    draws = chest.draws
    side = draws.sign("central line side", of="image", right=0.3)
    entry = draws.uniform("central line entry", 0.05, 0.38, of="image")
    tip = draws.uniform("central line tip", -0.2, 0.1, of="image")
    above = (-0.38 - chest.y).clamp(min=0)
    path = chest.x + 0.085 - (side * entry + 0.085) * (above * 3.5).clamp(max=1) ** 2
    return 0.15 * line(path, 0.007, chest.pixel) * edge(tip - chest.y, 0.01)


def pacemaker(chest: Chest) -> Tensor:
    """A box below a clavicle and a lead into the heart."""
    side = chest.draws.sign("pacemaker side", right=0.85)
    x, y = chest.x * side - 0.46, chest.y + chest.draws.uniform("pacemaker height", 0.36, 0.46)
    box = edge(ellipse(x, y, 0.085, 0.07), 0.008)
    along = (chest.x * side - 0.08).clamp(0, 0.34) / 0.34
    upper = line(chest.y + 0.46 + 0.08 * torch.sin(along * 3.1), 0.007, chest.pixel) * edge(along - 0.01, 0.01)
    upper = upper * edge(0.98 - along, 0.01)
    reach = (chest.y + 0.46).clamp(min=0)
    lower = line(chest.x - 0.08 * side - (0.20 - 0.08 * side) * (reach / 0.85) ** 2, 0.007, chest.pixel)
    lower = lower * edge(chest.y + 0.46, 0.01) * edge(0.36 - chest.y, 0.01)
    return 0.42 * box + 0.22 * torch.maximum(upper, lower)


def drain(chest: Chest) -> Tensor:
    """A chest tube from the flank up towards the apex."""
    draws = chest.draws
    across, along = turn(
        chest.x * draws.sign("drain side", of="image") - 0.50,
        chest.y - 0.05,
        draws.uniform("drain angle", -0.45, -0.1, of="image"),
    )
    path = across - 0.25 * along * along
    return 0.15 * line(path.abs() - 0.010, 0.006, chest.pixel) * edge(0.40 - along, 0.01) * edge(along + 0.45, 0.02)


DRAWN: dict[str, Callable[[Chest], Tensor]] = {
    "stickers": stickers,
    "breathing tube": breathing_tube,
    "feeding tube": feeding_tube,
    "central line": central_line,
    "pacemaker": pacemaker,
    "drain": drain,
}
