"""Soft-edged shapes and smooth noise, the vocabulary in which the chest is drawn."""

from __future__ import annotations

import torch
from torch import Tensor


def edge(inside: Tensor, softness: float | Tensor) -> Tensor:
    """1 where `inside` is positive, 0 where it is negative, with a soft step between."""
    return torch.sigmoid(inside * (1.0 / softness))


def bump(distance: Tensor, width: float | Tensor) -> Tensor:
    """1 at distance 0, falling off as a Gaussian of this width."""
    scaled = distance * (1.0 / width)
    return torch.exp(-(scaled * scaled))


def line(distance: Tensor, width: float | Tensor, pixel: Tensor) -> Tensor:
    """A line of this half width; one thinner than a pixel fades instead of vanishing between pixels."""
    drawn = torch.sqrt(pixel * pixel * 0.36 + width * width)
    return bump(distance, drawn) * (width / drawn)


def ellipse(x: Tensor, y: Tensor, across: float | Tensor, along: float | Tensor) -> Tensor:
    """Signed depth inside an ellipse around the origin, about in units of length: positive inside."""
    radius = torch.sqrt((x * (1.0 / across)) ** 2 + (y * (1.0 / along)) ** 2 + 1e-9)
    return (1.0 - radius) * across


def turn(x: Tensor, y: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates in axes turned by an angle of shape (N, 1, 1)."""
    cosine, sine = torch.cos(angle), torch.sin(angle)
    return x * cosine + y * sine, y * cosine - x * sine


def noise(grid: Tensor, size: int) -> Tensor:
    """(N, size, size) smooth noise that passes through an (N, rows, columns) grid laid over the image.

    Written with plain sums and products, which round the same way in whatever company an image is rendered.
    """
    low, weight = _places(grid.shape[1], size, grid.device)
    weight = weight[:, None]
    rows = grid[:, low] * (1 - weight) + grid[:, low + 1] * weight
    low, weight = _places(grid.shape[2], size, grid.device)
    return rows[:, :, low] * (1 - weight) + rows[:, :, low + 1] * weight


def _places(cells: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    place = (torch.arange(size, device=device, dtype=torch.float32) + 0.5) / size * (cells - 1)
    low = place.floor().clamp(max=cells - 2)
    fraction = place - low
    return low.long(), fraction * fraction * (3 - 2 * fraction)


def sample(grid: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Value of an (N, rows, columns) grid at (N, H, W) places given in cells; outside, the nearest cell's."""
    rows, columns = grid.shape[1:]
    row, column = row.clamp(0, rows - 1.001), column.clamp(0, columns - 1.001)
    low_row, low_column = row.floor(), column.floor()
    row, column = row - low_row, column - low_column
    place = (low_row * columns + low_column).long().flatten(1)
    flat = grid.flatten(1)

    def at(step: int) -> Tensor:
        return flat.gather(1, place + step).view_as(row)

    upper = at(0) * (1 - column) + at(1) * column
    lower = at(columns) * (1 - column) + at(columns + 1) * column
    return upper * (1 - row) + lower * row
