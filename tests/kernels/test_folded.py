"""The folded convolution is the plain one, in its output and in both derivatives; its kernel is its formula."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from bomd.kernels import columns
from bomd.kernels.folded import convolve_folded, fold

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SIDES = [(8, 12), (9, 7), (1, 2), (20, 75)]  # odd ones, some shorter than the kernel, one wider than a tile


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width"), SIDES)
def test_it_is_the_plain_convolution(channels: int, height: int, width: int) -> None:
    """In float64, where only an error differs."""
    generator = torch.Generator().manual_seed(height)
    images = torch.randn((2, channels, height, width), generator=generator, dtype=torch.float64)
    weight = torch.randn((5, channels, 7, 7), generator=generator, dtype=torch.float64)
    outcomes = []
    for folded in (False, True):
        leaves = [part.clone().requires_grad_() for part in (images, weight)]
        found = convolve_folded(*leaves, torch.float64) if folded else F.conv2d(*leaves, stride=2, padding=3)
        found.square().sum().backward()
        outcomes.append([found, *(leaf.grad for leaf in leaves)])
    for plain, ours in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("height", "width"), SIDES)
def test_the_kernel_folds_as_the_formula_does(
    channels: int, layout: torch.memory_format, height: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    generator = torch.Generator().manual_seed(width)
    images = torch.randn((2, channels, height, width), generator=generator).to(DEVICE, memory_format=layout)
    found = []
    for kernels in (False, True):
        monkeypatch.setattr(columns, "available", lambda device, kernels=kernels: kernels)
        found.append(fold(images, torch.float32))
    assert found[1].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(*found)
