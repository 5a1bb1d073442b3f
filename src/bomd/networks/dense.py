"""DenseNet-121, written for the memory traffic that bounds it; the names of weights are torchvision's.

In a dense block every layer normalises all maps before it, and the statistics of a map do not depend on who asks. Here
each map is normalised once, when it is made, and written into the block's one buffer; a later layer only applies its
own scale, shift and ReLU. It is the same function with fewer passes over memory, no concatenation, and gradients of
all readers added up in place.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bomd.kernels import columns
from bomd.kernels.beside import Beside
from bomd.kernels.folded import convolve_folded
from bomd.spread import Together

LAYERS, GROWTH, BOTTLENECK, STEM = (6, 12, 24, 16), 32, 128, 64
MOMENTUM = 0.1  # of every batch norm


class DenseLayer(nn.Module):
    """Weights of one layer: norm, 1 x 1 convolution, norm, 3 x 3 convolution."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, BOTTLENECK, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(BOTTLENECK)
        self.conv2 = nn.Conv2d(BOTTLENECK, GROWTH, 3, padding=1, bias=False)


class DenseBlock(nn.Sequential):
    """Layers that each read all maps before them, and the norm and ReLU behind them."""

    def __init__(self, inputs: int, layers: int) -> None:
        names = [f"denselayer{number}" for number in range(1, layers + 1)]
        super().__init__(OrderedDict((name, DenseLayer(inputs + GROWTH * place)) for place, name in enumerate(names)))

    def shared(self, maps: Tensor, last: nn.BatchNorm2d, *, average: bool, together: Together | None) -> Tensor:
        """(B, C, H, W) to (B, C + 32 layers, H, W), or half of H and W if the output is to be averaged."""
        layers = cast(list[DenseLayer], list(self))
        if not last.training:
            return _inference(maps, layers, last, average)
        weights = [weight for layer in layers for weight in layer.parameters()]
        output, *found = _Block.apply(maps, average, together, last.weight, last.bias, *weights)  # type: ignore[no-untyped-call]
        count, table, *narrow = found
        readers = [*(layer.norm1 for layer in layers), last]  # of the first so many columns
        tables = [table[:, : norm.num_features] for norm in readers]
        _track([*readers, *(layer.norm2 for layer in layers)], [*tables, *narrow], count)
        return cast(Tensor, output)

    def plain(self, maps: Tensor, last: nn.BatchNorm2d) -> Tensor:
        """The same as the architecture is usually written."""
        for layer in cast(list[DenseLayer], list(self)):
            narrow = layer.conv1(torch.relu(layer.norm1(maps)))
            maps = torch.cat([maps, layer.conv2(torch.relu(layer.norm2(narrow)))], dim=1)
        return torch.relu(last(maps))


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
        self.features = nn.Module()
        self.features.conv0 = nn.Conv2d(3, STEM, 7, stride=2, padding=3, bias=False)
        self.features.norm0 = nn.BatchNorm2d(STEM)
        width = STEM
        for block, layers in enumerate(LAYERS, 1):
            self.features.add_module(f"denseblock{block}", DenseBlock(width, layers))
            width += GROWTH * layers
            if block < len(LAYERS):
                self.features.add_module(f"transition{block}", Transition(width))
                width //= 2
        self.features.norm5 = nn.BatchNorm2d(width)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
        self.share: bool | None = None  # by default where there are kernels for it
        self.together: Together | None = None  # the processes that share a batch, where there are any

    def forward(self, images: Tensor) -> Tensor:
        return self._run(images, average=True)[-1].mean(dim=(2, 3))

    def stages(self, images: Tensor) -> list[Tensor]:
        """The output of each of the four blocks, after norm and ReLU, at 1/4, 1/8, 1/16 and 1/32 of the side."""
        return self._run(images, average=False)

    def _run(self, images: Tensor, *, average: bool) -> list[Tensor]:
        # Elsewhere the plain form is faster: PyTorch's own batch norm is one pass where this would be several.
        share = columns.available(images.device) if self.share is None else self.share
        share &= self.training or not torch.is_grad_enabled()  # in evaluation it has no derivative
        parts, outputs = self.features, []
        together = self.together if self.together is not None and self.together.images else None
        conv = cast(nn.Conv2d, parts.conv0)
        # Other than three channels are left to the library, which says what is wrong with them.
        folded = share and images.shape[1] == conv.in_channels
        maps = convolve_folded(images, conv.weight, _computing_type(images)) if folded else conv(images)
        maps = self._shared_stem(maps, together) if share and self.training else self._plain_stem(maps)
        for number in range(1, len(LAYERS) + 1):
            block = cast(DenseBlock, parts.get_submodule(f"denseblock{number}"))
            final = number == len(LAYERS)
            norm = cast(nn.BatchNorm2d, parts.get_submodule("norm5" if final else f"transition{number}.norm"))
            early = share and average and not final  # then a block's output is averaged before it is ever written
            maps = block.shared(maps, norm, average=early, together=together) if share else block.plain(maps, norm)
            outputs.append(maps)
            if not final:
                # A 1 x 1 convolution and an average commute; on a quarter of the pixels it costs a quarter.
                maps = maps if early else F.avg_pool2d(maps, 2)
                maps = parts.get_submodule(f"transition{number}.conv")(maps)
        return outputs

    def _plain_stem(self, maps: Tensor) -> Tensor:
        maps = self.features.norm0(maps)  # type: ignore[operator]
        return F.max_pool2d(torch.relu_(maps), 3, stride=2, padding=1)

    def _shared_stem(self, maps: Tensor, together: Together | None) -> Tensor:
        norm = cast(nn.BatchNorm2d, self.features.norm0)
        output, count, table = _Stem.apply(maps, together, norm.weight, norm.bias)  # type: ignore[no-untyped-call]
        _track([norm], [table], count)
        return cast(Tensor, output)


class _Stem(torch.autograd.Function):
    """Norm, ReLU and the largest of 3 x 3 pixels, without writing what lies between."""

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, together: Together | None, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, int, Tensor]:
        matrix, shape = columns.rows_of(maps), _shape(maps)
        norm = columns.statistics(matrix, weight, bias, together)
        largest, winners = columns.scale_and_take_largest(matrix, norm.factor, norm.shift, shape)
        ctx.save_for_backward(matrix, winners, norm.table, weight, bias)
        ctx.shape, ctx.count, ctx.together = shape, norm.count, together
        half = (shape[0], (shape[1] + 1) // 2, (shape[2] + 1) // 2)
        ctx.mark_non_differentiable(norm.table)
        return columns.maps_of(largest, half), norm.count, norm.table

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        matrix, winners, table, weight, bias = ctx.saved_tensors
        norm = columns.Norm(table, ctx.count)
        slopes = columns.back_to_largest(columns.rows_of(gradient), winners, ctx.shape)
        moved, d_weight, d_bias = columns.back_through_norm(slopes, matrix, norm, weight, bias, together=ctx.together)
        return columns.maps_of(moved, ctx.shape), None, d_weight, d_bias


class _Block(torch.autograd.Function):
    """A dense block in training: its output, and the statistics of the buffer's columns and of each bottleneck."""

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, average: bool, together: Together | None, scale: Tensor, shift: Tensor, *weights: Tensor
    ) -> tuple[Tensor | int, ...]:
        shape, inputs, kind = _shape(maps), maps.shape[1], _computing_type(maps)
        layers = _grouped(weights, 6)
        width = inputs + GROWTH * len(layers)
        buffer = maps.new_empty((maps.numel() // inputs, width), dtype=kind)
        table = torch.empty((5, width), device=maps.device, dtype=scale.dtype)  # as `columns.Norm` has it
        narrow_tables: list[Tensor] = []
        saved: list[Tensor] = []
        newest, seen = columns.rows_of(maps.to(kind)), inputs  # the last of so many columns, still to be normalised

        def of_newest() -> columns.Norm:
            return columns.statistics(newest, None, None, together, out=table[:, seen - newest.shape[1] : seen])

        converted = _grouped(_converted([weight for layer in layers for weight in (layer[2], layer[5])], kind), 2)
        for (scale1, shift1, _, scale2, shift2, _), (first, second) in zip(layers, converted, strict=True):
            first_kind = first.flatten(1)
            read = columns.normalise_and_scale(buffer[:, :seen], newest, of_newest(), scale1, shift1)
            narrow = read @ first_kind.t()
            norm = columns.statistics(narrow, scale2, shift2, together)
            active = columns.scale(narrow, norm.factor, norm.shift, relu=True)
            grown = F.conv2d(columns.maps_of(active, shape), second, padding=1)
            newest, seen = columns.rows_of(grown), seen + GROWTH
            narrow_tables.append(norm.table)
            saved += [read, narrow, active, norm.table, first_kind, second]
        norm = of_newest()
        columns.scale(newest, norm.factor, norm.shift, out=buffer[:, -newest.shape[1] :])
        if average:
            output = columns.scale_and_average(buffer, scale, shift, shape)
            out_shape = (shape[0], shape[1] // 2, shape[2] // 2)
        else:
            output, out_shape = columns.scale(buffer, scale, shift, relu=True), shape
        ctx.save_for_backward(buffer, table, scale, shift, *weights, *saved)
        ctx.shape, ctx.count, ctx.together, ctx.average, ctx.layers = shape, norm.count, together, average, len(layers)
        ctx.mark_non_differentiable(table, *narrow_tables)
        return (columns.maps_of(output, out_shape), norm.count, table, *narrow_tables)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        buffer, table, scale, shift, *rest = ctx.saved_tensors
        layers, saved = _grouped(rest[: 6 * ctx.layers], 6), _grouped(rest[6 * ctx.layers :], 6)
        kind, count, together = buffer.dtype, ctx.count, ctx.together
        inputs = buffer.shape[1] - GROWTH * ctx.layers
        slopes = torch.empty_like(buffer)  # gradient of the buffer, added up from the last reader to the first
        last = columns.back_through_scale(
            columns.rows_of(gradient.to(kind)), buffer, scale, shift, slopes,
            add=False, averaged=ctx.shape if ctx.average else None,
        )  # fmt: skip
        sums = torch.stack(last) * scale  # over all rows, of slopes times buffer and of slopes; added up as these are

        def back_to_maps(start: int, end: int) -> Tensor:
            """The gradient of what was normalised into these columns."""
            part = slice(start, end)
            norm = columns.Norm(table[:, part], count)
            moved = columns.back_through_normalised(slopes[:, part], buffer[:, part], norm, sums[:, part], together)
            return columns.maps_of(moved, ctx.shape)

        beside, gradients = Beside(buffer.device), list[Tensor]()
        for place in reversed(range(ctx.layers)):
            scale1, shift1, scale2, shift2 = (layers[place][which] for which in (0, 1, 3, 4))
            read, narrow, active, narrow_table, first, second = saved[place]
            seen = inputs + GROWTH * place
            given = back_to_maps(seen, seen + GROWTH), columns.maps_of(active, ctx.shape), second
            d_second = beside.do(_slopes_of_convolution, *given)
            d_active = _back_through_convolution(*given, [True, False, False])[0]
            norm = columns.Norm(narrow_table, count)
            d_narrow, d_scale2, d_shift2 = columns.back_through_norm(
                columns.rows_of(d_active), narrow, norm, scale2, shift2, together=together
            )
            d_first = beside.do(_slopes_of_product, d_narrow, read)
            d_scale1, d_shift1 = columns.back_through_product(
                d_narrow, first, buffer[:, :seen], scale1, shift1, slopes[:, :seen], sums[:, :seen]
            )
            gradients[:0] = [d_scale1, d_shift1, d_first, d_scale2, d_shift2, d_second]
        gradients[2::3] = beside.do(_converted, gradients[2::3], scale.dtype)
        d_maps = back_to_maps(0, inputs)
        beside.wait()
        return (d_maps, None, None, *last, *gradients)


def _slopes_of_product(gradient: Tensor, matrix: Tensor) -> Tensor:
    """Of the weight of a 1 x 1 convolution."""
    return (gradient.t() @ matrix)[:, :, None, None]


def _slopes_of_convolution(gradient: Tensor, maps: Tensor, weight: Tensor) -> Tensor:
    """Of its weight."""
    return _back_through_convolution(gradient, maps, weight, [False, True, False])[1]


def _back_through_convolution(gradient: Tensor, maps: Tensor, weight: Tensor, wanted: list[bool]) -> Sequence[Tensor]:
    """Slopes of what a 3 x 3 convolution read, of its weight and of no bias, as far as they are wanted."""
    one, none = [1, 1], [0, 0]
    found = torch.ops.aten.convolution_backward(gradient, maps, weight, None, one, one, one, False, none, 1, wanted)
    return cast(Sequence[Tensor], found)


def _inference(maps: Tensor, layers: Sequence[DenseLayer], last: nn.BatchNorm2d, average: bool) -> Tensor:
    """The block in evaluation mode: batch norms are scales and shifts by their running statistics."""
    shape, inputs, kind = _shape(maps), maps.shape[1], _computing_type(maps)
    buffer = maps.new_empty((maps.numel() // inputs, last.num_features), dtype=kind)
    buffer[:, :inputs] = columns.rows_of(maps)
    weights = _converted([weight for layer in layers for weight in (layer.conv1.weight, layer.conv2.weight)], kind)
    for place, (layer, (first, second)) in enumerate(zip(layers, _grouped(weights, 2), strict=True)):
        seen = inputs + GROWTH * place
        read = columns.scale(buffer[:, :seen], *_running(layer.norm1), relu=True)
        narrow = read @ first.flatten(1).t()
        columns.scale(narrow, *_running(layer.norm2), relu=True, out=narrow)
        grown = F.conv2d(columns.maps_of(narrow, shape), second, padding=1)
        buffer[:, seen : seen + GROWTH] = columns.rows_of(grown)
    if average:
        pooled = columns.scale_and_average(buffer, *_running(last), shape)
        return columns.maps_of(pooled, (shape[0], shape[1] // 2, shape[2] // 2))
    return columns.maps_of(columns.scale(buffer, *_running(last), relu=True), shape)


def _running(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """What a batch norm multiplies with and adds when it does not train."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight * torch.rsqrt(norm.running_var + columns.EPS)
    return scale, norm.bias - norm.running_mean * scale


@torch.no_grad()
def _track(norms: Sequence[nn.BatchNorm2d], tables: Sequence[Tensor], count: int) -> None:
    """Move running statistics as the norms' own forward passes would."""
    names = ("running_mean", "running_var", "num_batches_tracked")
    means, variances, batches = ([getattr(norm, name) for norm in norms] for name in names)
    unbiased = torch._foreach_mul([table[1] for table in tables], count / max(1, count - 1))
    torch._foreach_lerp_(means, [table[0] for table in tables], MOMENTUM)
    torch._foreach_lerp_(variances, unbiased, MOMENTUM)
    torch._foreach_add_(batches, 1)


def _computing_type(maps: Tensor) -> torch.dtype:
    kind = maps.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else maps.dtype


def _grouped(tensors: Sequence[Tensor], size: int) -> list[Sequence[Tensor]]:
    return [tensors[start : start + size] for start in range(0, len(tensors), size)]


def _shape(maps: Tensor) -> tuple[int, int, int]:
    """Batch, height and width."""
    return maps.shape[0], maps.shape[2], maps.shape[3]


def _converted(weights: Sequence[Tensor], kind: torch.dtype) -> list[Tensor]:
    """Weights of convolutions, or their slopes, in another type: a few kernels for any number of them."""
    made = [torch.empty_like(weight, dtype=kind) for weight in weights]
    torch._foreach_copy_(made, list(weights))
    return made
