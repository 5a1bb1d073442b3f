"""DenseNet-121 whose batch norms share their statistics, which a memory-bound network has time for.

In a dense block every layer normalises all maps before it, and the statistics of a map do not depend on who asks.
Normalising each map once, when it is made, leaves each later layer a scale and a shift that compile into its ReLU:
the same function, with fewer passes over memory in both directions. The names of weights are torchvision's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYERS, GROWTH, BOTTLENECK, STEM = (6, 12, 24, 16), 32, 128, 64
EPS, MOMENTUM = 1e-5, 0.1  # of every batch norm

Statistics = tuple[Tensor, Tensor, int]  # mean and biased variance of a batch norm's input, and how many went in
Block = Callable[[Tensor, Iterable["DenseLayer"], nn.BatchNorm2d], tuple[Tensor, list[Statistics]]]


class DenseLayer(nn.Module):
    """Weights of one layer: norm, 1 x 1 convolution, norm, 3 x 3 convolution."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, BOTTLENECK, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(BOTTLENECK)
        self.conv2 = nn.Conv2d(BOTTLENECK, GROWTH, 3, padding=1, bias=False)


class Transition(nn.Module):
    """Weights of what halves maps and channels between two blocks."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.conv = nn.Conv2d(inputs, inputs // 2, 1, bias=False)


class DenseNet121(nn.Module):
    """(B, 3, H, W) images to (B, 1024) features: global averages of the last maps, after a ReLU."""

    def __init__(self) -> None:
        super().__init__()
        parts: OrderedDict[str, nn.Module] = OrderedDict()
        parts["conv0"] = nn.Conv2d(3, STEM, 7, stride=2, padding=3, bias=False)
        parts["norm0"] = nn.BatchNorm2d(STEM)
        width = STEM
        for block, layers in enumerate(LAYERS, 1):
            names = [f"denselayer{number}" for number in range(1, layers + 1)]
            parts[f"denseblock{block}"] = nn.Sequential(
                OrderedDict((name, DenseLayer(width + GROWTH * place)) for place, name in enumerate(names))
            )
            width += GROWTH * layers
            if block < len(LAYERS):
                parts[f"transition{block}"] = Transition(width)
                width //= 2
        parts["norm5"] = nn.BatchNorm2d(width)
        self.features = nn.ModuleDict(parts)
        self._compiled: Callable[..., Any] | None = None
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, images: Tensor) -> Tensor:
        return self.stages(images)[-1].mean(dim=(2, 3))

    def stages(self, images: Tensor) -> list[Tensor]:
        """The output of each of the four blocks, after norm and ReLU, at 1/4, 1/8, 1/16 and 1/32 of the side."""
        if self._compiled is None:
            return self._stages(images, _plain_block)[0]
        outputs, statistics = self._compiled(images, _shared_block)
        if self.training:
            self._track(statistics)
        return cast(list[Tensor], outputs)

    def compile(self, *arguments: Any, **options: Any) -> None:
        """Use the shared form from now on; uncompiled, it would cost more launches and memory than it saves."""
        self._compiled = torch.compile(self._stages, *arguments, **options)

    def _stages(self, images: Tensor, block: Block) -> tuple[list[Tensor], list[Statistics]]:
        outputs, statistics = [], []
        maps = self.features["conv0"](images)
        if block is _plain_block:
            maps = self.features["norm0"](maps)
        else:
            maps, found = _normalise(maps, cast(nn.BatchNorm2d, self.features["norm0"]))
            statistics += found
        maps = F.max_pool2d(torch.relu(maps), 3, stride=2, padding=1)
        for number in range(1, len(LAYERS) + 1):
            layers = cast(Iterable[DenseLayer], self.features[f"denseblock{number}"])
            final = number == len(LAYERS)
            norm = self.features["norm5"] if final else self.features[f"transition{number}"].norm
            maps, found = block(maps, layers, cast(nn.BatchNorm2d, norm))
            outputs.append(maps)
            statistics += found
            if not final:
                # A 1 x 1 convolution and an average commute; on a quarter of the pixels it costs a quarter.
                maps = self.features[f"transition{number}"].conv(F.avg_pool2d(maps, 2))
        return outputs, statistics

    @torch.no_grad()
    def _track(self, statistics: Sequence[Statistics]) -> None:
        """Move the running statistics as the batch norms' own forward passes would, all at once."""
        norms = self._norms()
        means = [norm.running_mean for norm in norms]
        variances = [norm.running_var for norm in norms]
        torch._foreach_lerp_(means, [mean for mean, _, _ in statistics], MOMENTUM)
        unbiased = torch._foreach_mul(
            [variance for _, variance, _ in statistics], [count / (count - 1) for *_, count in statistics]
        )
        torch._foreach_lerp_(variances, unbiased, MOMENTUM)
        torch._foreach_add_([norm.num_batches_tracked for norm in norms], 1)

    def _norms(self) -> list[nn.BatchNorm2d]:
        """In the order in which `_stages` reports their statistics."""
        norms = [self.features["norm0"]]
        for number in range(1, len(LAYERS) + 1):
            layers = list(cast(Iterable[DenseLayer], self.features[f"denseblock{number}"]))
            norms += [layer.norm2 for layer in layers]
            norms += [layer.norm1 for layer in layers]
            norms.append(self.features["norm5"] if number == len(LAYERS) else self.features[f"transition{number}"].norm)
        return cast(list[nn.BatchNorm2d], norms)


def _plain_block(maps: Tensor, layers: Iterable[DenseLayer], last: nn.BatchNorm2d) -> tuple[Tensor, list[Statistics]]:
    """A dense block as it is usually written."""
    for layer in layers:
        narrow = layer.conv1(torch.relu(layer.norm1(maps)))
        maps = torch.cat([maps, layer.conv2(torch.relu(layer.norm2(narrow)))], dim=1)
    return torch.relu(last(maps)), []


def _shared_block(maps: Tensor, layers: Iterable[DenseLayer], last: nn.BatchNorm2d) -> tuple[Tensor, list[Statistics]]:
    """The same block; in training each map is normalised once, for all layers that read it."""
    training, count = last.training, maps.numel() // maps.shape[1]
    pieces: list[Tensor] = []
    means: list[Tensor] = []
    variances: list[Tensor] = []
    statistics: list[Statistics] = []

    def add(piece: Tensor) -> None:
        if training:
            variance, mean = torch.var_mean(piece.float(), dim=(0, 2, 3), correction=0)
            piece = _affine(piece, torch.rsqrt(variance + EPS), -mean * torch.rsqrt(variance + EPS))
            means.append(mean.detach())
            variances.append(variance.detach())
        pieces.append(piece)

    def read(norm: nn.BatchNorm2d) -> Tensor:
        scale, shift = (norm.weight, norm.bias) if training else _running(norm)
        return torch.relu(_affine(torch.cat(pieces, dim=1), scale, shift))

    add(maps)
    widths = []
    for layer in layers:
        widths.append(layer.conv1.in_channels)
        narrow, found = _normalise(layer.conv1(read(layer.norm1)), layer.norm2)
        statistics += found
        add(layer.conv2(torch.relu(narrow)))
    if training:
        mean, variance = torch.cat(means), torch.cat(variances)
        statistics += [(mean[:width], variance[:width], count) for width in (*widths, len(mean))]
    return read(last), statistics


def _normalise(maps: Tensor, norm: nn.BatchNorm2d) -> tuple[Tensor, list[Statistics]]:
    """Batch norm that leaves its running statistics alone and reports what they should be moved by."""
    if not norm.training:
        return _affine(maps, *_running(norm)), []
    variance, mean = torch.var_mean(maps.float(), dim=(0, 2, 3), correction=0)
    scale = norm.weight * torch.rsqrt(variance + EPS)
    moved = _affine(maps, scale, norm.bias - mean * scale)
    return moved, [(mean.detach(), variance.detach(), maps.numel() // maps.shape[1])]


def _running(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """What a batch norm multiplies with and adds when it does not train."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight * torch.rsqrt(norm.running_var + EPS)
    return scale, norm.bias - norm.running_mean * scale


def _affine(maps: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """In float32 whatever the maps are, and back."""
    return (maps.float() * scale[:, None, None] + shift[:, None, None]).to(maps.dtype)
