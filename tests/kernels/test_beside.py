"""Work beside: in order, with its results and its errors; on a GPU also beside other work."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bomd.kernels.beside import BEHIND, Beside

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def test_what_was_found_is_there_after_the_wait() -> None:
    """More pieces than may be under way, each of memory that is given back at once and written over by what follows."""
    beside, found, expected = Beside(DEVICE), [], []
    for piece in range(4 * BEHIND):
        given = torch.full((512, 512), float(piece), device=DEVICE)
        found.append(beside.do(lambda matrix: (matrix @ matrix).sum(), given))
        expected.append(512.0**3 * piece**2)
        del given
        torch.full((512, 512), torch.nan, device=DEVICE)
    beside.wait()
    assert [float(one) for one in found] == expected


def test_an_error_is_the_callers() -> None:
    def fails(_: Tensor) -> Tensor:
        raise ValueError("here")

    work: Callable[[Tensor], Tensor] = fails
    with pytest.raises(ValueError, match="here"):
        Beside(DEVICE).do(work, torch.zeros(1, device=DEVICE))
