"""A convolution of every second pixel, on squares of four pixels at once.

A GPU's libraries want a multiple of eight channels, and pad three colours to that. Four squares of 2 x 2 pixels side by
side have 48 numbers: taken as the channels of one place, nothing has to be padded, a stride of two becomes one of one,
and what was a kernel of 7 x 7 pixels is one of four places below each other.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from bomd.kernels.columns import kernels_for

REACH = 4  # squares that a kernel covers in each direction


def convolve_folded(images: Tensor, weight: Tensor, kind: torch.dtype) -> Tensor:
    """`F.conv2d(images, weight, stride=2, padding=3)` for (B, C, H, W) images and a (O, C, 7, 7) weight."""
    return F.conv2d(fold(images, kind), fold_weight(weight).to(kind, memory_format=torch.channels_last))


def fold(images: Tensor, kind: torch.dtype) -> Tensor:
    """(B, 16 C, h + 3, w) squares: two lines of zeros before them and one behind, for what a kernel reaches.

    A place's numbers run over four squares, two lines and two columns of each, and channels. The kernel has no
    derivative: images that want one are folded by the formula.
    """
    batch, channels, height, width = images.shape
    high, wide = (height + 1) // 2, (width + 1) // 2
    if (kernels := kernels_for(images)) is not None and not images.requires_grad:
        out = torch.empty((batch, high + 3, wide, 16 * channels), dtype=kind, device=images.device)
        kernels.gather_squares(images, out)
        return out.permute(0, 3, 1, 2)
    lines = F.pad(images, (4, 2 + width % 2, 4, 2 + height % 2)).to(kind)
    squares = lines.reshape(batch, channels, high + 3, 2, wide + 3, 2).permute(0, 2, 4, 3, 5, 1).flatten(3)
    return torch.cat([squares[:, :, place : place + wide] for place in range(REACH)], dim=3).permute(0, 3, 1, 2)


def fold_weight(weight: Tensor) -> Tensor:
    """(O, 16 C, 4, 1): the kernel begins one line after the first of its squares does, hence the zeros."""
    outputs, channels = weight.shape[:2]
    squares = F.pad(weight, (1, 0, 1, 0)).reshape(outputs, channels, REACH, 2, REACH, 2)
    return squares.permute(0, 4, 3, 5, 1, 2).reshape(outputs, 16 * channels, REACH, 1)
