"""Vectors as a fast search sees them, with what is needed to bound its error."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bomd.clean import bags as blocks
from bomd.clean.arithmetic import Arithmetic
from bomd.clean.bags import Bags
from bomd.clean.plan import encoded_width

UNIT = 2.0**-23  # error of one float32 operation; tensor cores cut off where others round
AXES = 121  # of a projection, which makes 128 numbers in all
SAMPLE_BAGS = 4096  # from which axes are learnt


@dataclass(frozen=True, eq=False)
class Encoded:
    """n bags as the fast search sees them.

    Attributes:
        vectors: (bag, n, E): the rounded vector, three ones, its squared length in three parts, zeros.
        norms: (n) length of a bag's longest vector before encoding, float64.
        losses: (n) the most that encoding moved any of a bag's vectors, float64.
        share: () largest such loss of any vector in units of its length.
        width: numbers of the rounded vector.
    """

    vectors: Tensor
    norms: Tensor
    losses: Tensor
    share: Tensor
    width: int

    def as_queries(self) -> Tensor:
        """(bag * n, E): multiplied by encoded targets, these give squared distances."""
        query, width = torch.zeros_like(self.vectors), self.width
        query[..., :width] = -2 * self.vectors[..., :width]
        query[..., width : width + 3] = self.vectors[..., width + 3 : width + 6]
        query[..., width + 3 : width + 6] = 1
        return query.flatten(0, 1)


@dataclass(frozen=True, eq=False)
class Encoder:
    """Rounds vectors to what an arithmetic multiplies fast, on all axes or projected to a few.

    A projection keeps the length of what it leaves out as a number of its own. Projected vectors are therefore never
    farther apart than the vectors themselves, and as far where these lie in the space of the axes.
    """

    arithmetic: Arithmetic
    axes: Tensor | None = None  # (D, A) orthonormal, float64

    def width(self, bags: Bags) -> int:
        """Numbers in a vector of these bags, besides those that encoding adds."""
        return bags.width if self.axes is None else self.axes.shape[1] + 1

    def encode(self, bags: Bags, rows: Tensor) -> Encoded:
        """Encode the bags at `rows` (n), without waiting for the device."""
        width, device = self.width(bags), bags.device
        shape = (bags.bag, len(rows), encoded_width(width))
        vectors = torch.zeros(shape, dtype=self.arithmetic.container, device=device)
        norms, losses = torch.zeros((2, len(rows)), dtype=torch.float64, device=device)
        share = torch.zeros((), dtype=torch.float64, device=device)
        for start in range(0, len(rows), blocks.BLOCK):
            part = slice(start, start + blocks.BLOCK)
            exact = bags.centred(rows[part]).transpose(0, 1)  # (bag, n, D)
            length = _length(exact)
            kept, size = (exact, length) if self.axes is None else self._project(exact, length)
            loss = 2 * UNIT * length  # centring and projecting have rounded to float32
            if self.arithmetic.rounded:
                rounded = kept.bfloat16().float()
                loss, kept, size = loss + _length(kept - rounded), rounded, _length(rounded)
            vectors[:, part, :width] = kept.to(vectors.dtype)
            vectors[:, part, width : width + 3] = 1
            square = size.square()
            for place in range(width + 3, width + 6):
                piece = square.bfloat16()
                vectors[:, part, place] = piece.to(vectors.dtype)
                square = square - piece.double()
            norms[part], losses[part] = length.amax(dim=0), loss.amax(dim=0)
            share = torch.maximum(share, (loss / length).nan_to_num(nan=0.0).max())
        return Encoded(vectors, norms, losses, share, width)

    def _project(self, vectors: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        """(bag, n, A + 1) and their lengths."""
        assert self.axes is not None
        inside = vectors.double() @ self.axes
        outside = (length.square() - inside.square().sum(dim=-1)).clamp(min=0).sqrt()
        kept = torch.cat([inside, outside[..., None]], dim=-1).float()
        return kept, _length(kept)


def principal_axes(bags: Bags) -> Tensor:
    """(D, A): the directions in which the vectors of evenly chosen bags vary most, float64."""
    rows = torch.arange(0, len(bags), -(-len(bags) // SAMPLE_BAGS), device=bags.device)
    vectors = bags.centred(rows).reshape(-1, bags.width).double()
    axes: Tensor = torch.linalg.eigh(vectors.T @ vectors)[1]  # by growing variance
    return axes[:, -AXES:]


def _length(vectors: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(vectors, dim=-1, dtype=torch.float64)
    return length
