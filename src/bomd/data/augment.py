"""Random crop, flip and affine motion of a whole batch as one resampling on the device.

Every random number is drawn on the CPU from the given generator, the same count for every batch of the same
length, so that the augmentation of a run does not depend on the device. All motions of an image become one
2 x 3 matrix that leads from output to input coordinates, and the batch is interpolated once: several
resamplings in a row would blur it.

Interpolation is bilinear without low-pass filter. That is right for crops, which enlarge, and for the
shrinking by at most about a tenth that the kinds below can do; a matrix that shrinks much more would alias.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bomd.errors import InputError

_DRAWS = 12  # random numbers per image, whatever the kind


@dataclass(frozen=True)
class Kind:
    """Ranges that an augmentation draws from."""

    crop: tuple[float, float]  # area as a share of the image
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # width over height of the crop
    degrees: float = 0.0  # largest rotation either way
    translate: float = 0.0  # largest shift either way, as a share of the side
    scale: tuple[float, float] = (1.0, 1.0)  # magnification
    shear: float = 0.0  # largest horizontal shear angle either way, in degrees
    jitter: tuple[float, float] = (1.0, 1.0)  # factor on brightness, and on contrast around the mean


KINDS = {
    "paper": Kind(crop=(0.2, 1.0)),
    "release": Kind(crop=(0.2, 1.0), degrees=10, translate=0.15, scale=(0.95, 1.05), shear=10, jitter=(0.9, 1.1)),
    # Small images lose findings in small crops, and short runs do not see enough of them.
    "light": Kind(crop=(0.8, 1.0), degrees=5, translate=0.05, scale=(0.9, 1.1)),
}


@dataclass(frozen=True)
class Motion:
    """What is done to each image of a batch."""

    matrix: Tensor  # (B, 2, 3) from output to input coordinates, both from -1 to 1 over the side of the image
    brightness: Tensor  # (B) factor on all values
    contrast: Tensor  # (B) factor on the distance from the image's mean, over all its channels
    # "zeros" puts black outside the image, as there is around a radiograph, and as the release does.
    # "border" is for motions that stay inside: it keeps the outermost half pixel from fading.
    padding: str

    def to(self, device: torch.device) -> Motion:
        """The same on a device."""
        return Motion(self.matrix.to(device), self.brightness.to(device), self.contrast.to(device), self.padding)

    def take(self, rows: Tensor | slice) -> Motion:
        """The motions of some images."""
        return Motion(self.matrix[rows], self.brightness[rows], self.contrast[rows], self.padding)


def draw(count: int, kind: str, generator: torch.Generator) -> Motion:
    """Draw the motion of `count` images, on the CPU.

    "paper" is a resized crop and a flip, "release" also affine motion and jitter, "light" a mild version without
    jitter, for small images and short runs. The area of the crop is uniform in its range, the logarithm of its ratio
    uniform in the part of the range that fits into the image. (Drawing both until they fit, as is usual, takes any
    number of draws.)
    """
    if kind not in KINDS:
        raise InputError(f"Unknown augmentation {kind!r}; choose from none, {', '.join(KINDS)}.")
    ranges = KINDS[kind]
    uniform = torch.rand((count, _DRAWS), generator=generator, dtype=torch.float64).unbind(1)
    area = _between(uniform[0], *ranges.crop)
    narrowest = torch.maximum(area, torch.full_like(area, ranges.ratio[0])).log()
    widest = torch.minimum(1 / area, torch.full_like(area, ranges.ratio[1])).log()
    ratio = (narrowest + uniform[1] * (widest - narrowest)).exp()
    width, height = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
    flip = torch.where(uniform[2] < 0.5, -1.0, 1.0).double()
    across, down = _between(uniform[3], -1, 1) * (1 - width), _between(uniform[4], -1, 1) * (1 - height)
    box = _affine(width * flip, 0, across, 0, height, down)

    angle = _between(uniform[5], -1, 1) * math.radians(ranges.degrees)
    slant = (_between(uniform[6], -1, 1) * math.radians(ranges.shear)).tan()
    scale = _between(uniform[7], *ranges.scale)
    right, below = (_between(uniform[place], -2, 2) * ranges.translate for place in (8, 9))
    cosine, sine = angle.cos() * scale, angle.sin() * scale
    moved = _affine(cosine, cosine * slant - sine, right, sine, sine * slant + cosine, below)

    matrix = box @ torch.linalg.inv(moved)  # the output is a moved view of the crop; read it backwards
    leaves_frame = ranges.degrees > 0 or ranges.translate > 0 or ranges.shear > 0 or ranges.scale[0] < 1
    brightness, contrast = (_between(uniform[place], *ranges.jitter).float() for place in (10, 11))
    return Motion(matrix[:, :2].float(), brightness, contrast, "zeros" if leaves_frame else "border")


def move(images: Tensor, motion: Motion) -> Tensor:
    """Resample each image by its own matrix, then jitter it; (B, S, S) or, in colour, (B, S, S, 3) float32 in 0..255.

    Brightness and contrast are applied together and clipped once; the channels of an image in colour move and change
    alike, and its mean is that of all of them.
    """
    colour = images.ndim == 4 and images.shape[3] == 3
    if (images.ndim != 3 and not colour) or images.shape[1] != images.shape[2]:
        raise ValueError(f"Expected (B, S, S) or (B, S, S, 3) square images, got {tuple(images.shape)}.")
    pixels = images.float().permute(0, 3, 1, 2) if colour else images.float()[:, None]
    matrix = motion.matrix.to(images.device, non_blocking=True)[..., None, None]
    # Written out because F.affine_grid rounds its pixel centres, and drops to half precision under autocast.
    centres = (2 * torch.arange(images.shape[1], device=images.device) + 1) / images.shape[1] - 1
    grid = matrix[:, :, 0] * centres + matrix[:, :, 1] * centres[:, None] + matrix[:, :, 2]
    grid = grid.permute(0, 2, 3, 1)  # (B, S, S, 2)
    moved = F.grid_sample(pixels, grid, "bilinear", motion.padding, align_corners=False)
    moved = moved.permute(0, 2, 3, 1) if colour else moved[:, 0]
    each = (slice(None), *[None] * (moved.ndim - 1))  # one number for each image
    brightness = motion.brightness.to(images.device, non_blocking=True)[each]
    contrast = motion.contrast.to(images.device, non_blocking=True)[each]
    bright = moved * brightness
    mean = bright.mean(dim=tuple(range(1, moved.ndim)), keepdim=True)
    return torch.lerp(mean, bright, contrast).clamp(0, 255)


def _between(uniform: Tensor, low: float, high: float) -> Tensor:
    return low + uniform * (high - low)


def _affine(*rows: Tensor | float) -> Tensor:
    """(B, 3, 3) matrices from the six numbers of their first two rows."""
    template = next(value for value in rows if isinstance(value, Tensor))
    values = [torch.as_tensor(value, dtype=torch.float64).expand_as(template) for value in (*rows, 0, 0, 1)]
    return torch.stack(values, dim=1).reshape(-1, 3, 3)
