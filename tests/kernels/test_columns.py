"""Per-channel operations against autograd, and, where Triton can run or be interpreted, its kernels against them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bomd import processes
from bomd.kernels import columns
from bomd.spread import Together, part_sizes

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SHAPES = [(2, 6, 4, 5), (3, 7, 5, 40), (1, 9, 10, 96)]  # batch, height, width, channels; odd sides and odd channels


@pytest.fixture(params=["formula", "kernels"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The formulas in PyTorch, and the Triton kernels: on a GPU, or interpreted (conftest.py asks for that)."""
    kernels = request.param == "kernels"
    if kernels:
        pytest.importorskip("triton")
    monkeypatch.setattr(columns, "available", lambda device: kernels)
    return str(request.param)


def draw(shape: tuple[int, int, int, int], offset: float = 0.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(sum(shape))
    batch, height, width, channels = shape
    maps = torch.randn((batch, channels, height, width), generator=generator) * 2 + offset
    weight = torch.rand(channels, generator=generator) + 0.5
    bias = torch.randn(channels, generator=generator) * 0.3
    slope = torch.randn((batch, channels, height, width), generator=generator)
    return tuple(part.to(DEVICE) for part in (maps, weight, bias, slope))  # type: ignore[return-value]


def wide(maps: Tensor) -> Tensor:
    """The rows of maps as a column slice of a wider matrix, as they lie in a dense block's buffer."""
    rows = columns.rows_of(maps)
    return torch.cat([torch.full_like(rows, 7.0), rows, rows[:, :1]], dim=1)[:, rows.shape[1] : 2 * rows.shape[1]]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_statistics(way: str, shape: tuple[int, int, int, int], offset: float) -> None:
    maps, weight, bias, _ = draw(shape, offset)
    norm = columns.statistics(wide(maps), weight, bias)
    variance, mean = torch.var_mean(columns.rows_of(maps).double(), dim=0, correction=0)
    factor = weight / (variance + columns.EPS).sqrt()
    expected = torch.stack([mean, variance, 1 / (variance + columns.EPS).sqrt(), factor, bias - mean * factor])
    torch.testing.assert_close(norm.table.double(), expected, rtol=2e-4, atol=1e-5)
    assert norm.count == shape[0] * shape[1] * shape[2]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("add", [False, True])
def test_scale_and_its_derivative(way: str, shape: tuple[int, int, int, int], averaged: bool, add: bool) -> None:
    maps, weight, bias, slope = draw(shape)
    size = shape[:3]
    leaves = [part.clone().requires_grad_() for part in (maps, weight, bias)]
    moved = torch.relu(leaves[0] * leaves[1][:, None, None] + leaves[2][:, None, None])
    expected = F.avg_pool2d(moved, 2) if averaged else moved
    slope = slope[:, :, : expected.shape[2], : expected.shape[3]]
    expected.backward(slope)
    found = (
        columns.scale_and_average(wide(maps), weight, bias, size)
        if averaged
        else columns.scale(wide(maps), weight, bias, relu=True)
    )
    torch.testing.assert_close(found, columns.rows_of(expected.detach()))
    into = wide(torch.ones_like(maps))
    d_weight, d_bias = columns.back_through_scale(
        columns.rows_of(slope), wide(maps), weight, bias, into, add=add, averaged=size if averaged else None
    )
    torch.testing.assert_close(into, columns.rows_of(_gradient(leaves[0])) + (1.0 if add else 0.0))
    torch.testing.assert_close(d_weight, _gradient(leaves[1]), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(d_bias, _gradient(leaves[2]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [*SHAPES, (2, 9, 10, 160)])
@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
def test_derivative_of_a_product_and_the_scale_before_it(
    way: str, shape: tuple[int, int, int, int], kind: torch.dtype
) -> None:
    """In 16 bits against float64 on the same rounded numbers: the kernel rounds `into` once, and its sums never."""
    maps, weight, bias, _ = draw(shape)
    generator = torch.Generator().manual_seed(5)
    slope = (torch.randn((shape[0] * shape[1] * shape[2], 16), generator=generator) / 4).to(DEVICE, kind)
    product = (torch.randn((16, shape[3]), generator=generator) / 4).to(DEVICE, kind)
    maps = maps.to(kind)
    leaves = [part.double().clone().requires_grad_() for part in (columns.rows_of(maps), weight, bias)]
    (torch.relu(leaves[0] * leaves[1] + leaves[2]) @ product.double().t()).backward(slope.double())
    into = wide(torch.ones_like(maps))
    sums = torch.tensor([[3.0], [5.0]], device=DEVICE).repeat(1, 2 * shape[3])[:, : shape[3]]  # rows of a wider matrix
    d_weight, d_bias = columns.back_through_product(slope, product, wide(maps), weight, bias, into, sums)
    once = 2.0**-11 if kind == torch.float16 and way == "kernels" else 2.0**-9 if kind == torch.float16 else 1e-5
    near = 1e-2 if kind == torch.float16 and way == "formula" else 1e-4  # the formula multiplies what it has rounded
    torch.testing.assert_close(into.double(), _gradient(leaves[0]) + 1, rtol=once, atol=once)
    torch.testing.assert_close(d_weight.double(), _gradient(leaves[1]), rtol=near, atol=near)
    torch.testing.assert_close(d_bias.double(), _gradient(leaves[2]), rtol=near, atol=near)
    added = _gradient(leaves[0])
    torch.testing.assert_close(sums[0].double(), 3 + (added * leaves[0]).sum(0), rtol=near, atol=near)
    torch.testing.assert_close(sums[1].double(), 5 + added.sum(0), rtol=near, atol=near)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("affine", [False, True])
def test_derivative_of_a_norm(way: str, shape: tuple[int, int, int, int], affine: bool) -> None:
    """With weight, bias and ReLU behind it, and alone."""
    maps, weight, bias, slope = draw(shape)
    leaves = [part.clone().requires_grad_() for part in (maps, weight, bias)]
    behind = (leaves[1], leaves[2]) if affine else (None, None)
    expected = F.batch_norm(leaves[0], None, None, *behind, training=True, eps=columns.EPS)
    (torch.relu(expected) if affine else expected).backward(slope)
    norm = columns.statistics(wide(maps), None, None)
    given = (weight, bias) if affine else ()
    moved, d_weight, d_bias = columns.back_through_norm(wide(slope), wide(maps), norm, *given)
    torch.testing.assert_close(moved, columns.rows_of(_gradient(leaves[0])), rtol=1e-4, atol=1e-5)
    if affine:
        torch.testing.assert_close(d_weight, _gradient(leaves[1]), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(d_bias, _gradient(leaves[2]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_derivative_of_a_norm_from_what_came_out_of_it(way: str, shape: tuple[int, int, int, int]) -> None:
    maps, _, _, slope = draw(shape)
    leaf = maps.clone().requires_grad_()
    expected = F.batch_norm(leaf, None, None, training=True, eps=columns.EPS)
    expected.backward(slope)
    normal, rows = columns.rows_of(expected.detach()), columns.rows_of(slope)
    sums = torch.stack([(rows * normal).sum(0), rows.sum(0)]).repeat(1, 2)[:, : shape[3]]
    norm = columns.statistics(wide(maps), None, None)
    moved = columns.back_through_normalised(wide(slope), wide(expected.detach()), norm, sums)
    torch.testing.assert_close(moved, columns.rows_of(_gradient(leaf)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("shape", "newest"), [((2, 6, 4, 5), 2), ((3, 7, 5, 40), 40), ((1, 9, 10, 96), 32)])
def test_newest_columns_are_normalised_on_the_way(way: str, shape: tuple[int, int, int, int], newest: int) -> None:
    """Some of the columns, all of them, and as many as end within a tile; the others stay what they were."""
    maps, weight, bias, _ = draw(shape)
    matrix, raw = wide(maps), wide(maps[:, -newest:] * 3 + 1)
    before, norm = matrix.clone(), columns.statistics(raw, None, None)
    matrix[:, -newest:] = torch.nan
    found = columns.normalise_and_scale(matrix, raw, norm, weight, bias)
    expected = torch.cat(
        [before[:, :-newest], (raw - raw.mean(0)) / (raw.var(0, correction=0) + columns.EPS).sqrt()], 1
    )
    torch.testing.assert_close(matrix, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found, torch.relu(expected * weight + bias), rtol=1e-4, atol=1e-5)
    assert torch.equal(matrix[:, :-newest], before[:, :-newest])


@pytest.mark.parametrize("shape", SHAPES)
def test_largest_of_nine_and_its_derivative(way: str, shape: tuple[int, int, int, int]) -> None:
    """Rounded values, so that windows have ties: the first of equals gets the gradient, as in PyTorch."""
    maps, weight, bias, slope = draw(shape)
    maps = maps.round()
    weight, bias = torch.ones_like(weight), torch.full_like(bias, 0.25)
    leaf = torch.relu(maps * weight[:, None, None] + bias[:, None, None]).requires_grad_()
    expected = F.max_pool2d(leaf, 3, stride=2, padding=1)
    slope = slope[:, :, : expected.shape[2], : expected.shape[3]]
    expected.backward(slope)
    found, winners = columns.scale_and_take_largest(wide(maps), weight, bias, shape[:3])
    torch.testing.assert_close(found, columns.rows_of(expected.detach()))
    torch.testing.assert_close(
        columns.back_to_largest(wide(slope), winners, shape[:3]), columns.rows_of(_gradient(leaf))
    )


class Answered(Together):
    """Processes of which each has said already what it will be asked for."""

    def __init__(self, images: int, said: list[Tensor]) -> None:
        super().__init__()
        self.images, self.said = images, torch.stack(said)

    def gather(self, values: Tensor) -> Tensor:
        torch.testing.assert_close(values, self.said[processes.rank()])
        return self.said

    def fill(self, rows: Tensor) -> Tensor:
        own = rows.view_as(self.said)[self.rank]
        return rows.copy_(self.gather(own).view_as(rows))

    def total(self, values: Tensor) -> Tensor:
        return values.copy_(self.gather(values).sum(0))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_statistics_of_several_processes_are_those_of_the_whole(
    way: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five images over one, two and three processes, of which some have an image more than others."""
    maps, weight, bias, slope = draw((5, 6, 4, 40))
    whole = columns.statistics(columns.rows_of(maps), weight, bias)
    moved, _, _ = columns.back_through_norm(columns.rows_of(slope), columns.rows_of(maps), whole, weight, bias)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("WORLD_SIZE", str(count))
    own, slopes = (
        [columns.rows_of(part) for part in torch.split(maps_of_all, part_sizes(5))] for maps_of_all in (maps, slope)
    )
    alone = [columns.statistics(part, None, None).table[:2] for part in own]
    sums = [
        torch.stack(columns.back_through_norm(gradient, part, whole, weight, bias)[1:])
        for gradient, part in zip(slopes, own, strict=True)
    ]
    again = []
    for rank in range(count):
        monkeypatch.setenv("RANK", str(rank))
        norm = columns.statistics(own[rank], weight, bias, Answered(5, alone))
        assert norm.count == whole.count == 120
        torch.testing.assert_close(norm.table, whole.table)
        if count == 1:
            assert torch.equal(norm.table, whole.table)
        together = Answered(5, sums)
        again.append(columns.back_through_norm(slopes[rank], own[rank], whole, weight, bias, together=together)[0])
    torch.testing.assert_close(torch.cat(again), moved)


def test_slopes_through_a_norm_are_those_of_all_processes(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given what each process has summed up; and its own sums stay what they were."""
    maps, _, _, slope = draw((5, 6, 4, 40))
    norm = columns.statistics(columns.rows_of(maps), None, None)
    normal = columns.maps_of(columns.scale(columns.rows_of(maps), norm.factor, norm.shift), (5, 6, 4))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("WORLD_SIZE", "2")
    own, slopes = ([columns.rows_of(part) for part in torch.split(every, part_sizes(5))] for every in (normal, slope))
    sums = [torch.stack([(own[rank] * slopes[rank]).sum(0), slopes[rank].sum(0)]) for rank in range(2)]
    whole = columns.back_through_normalised(columns.rows_of(slope), columns.rows_of(normal), norm, sums[0] + sums[1])
    found = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        part = sums[rank].clone()
        found.append(columns.back_through_normalised(slopes[rank], own[rank], norm, part, Answered(5, sums)))
        assert torch.equal(part, sums[rank])
    torch.testing.assert_close(torch.cat(found), whole)


def _gradient(leaf: Tensor) -> Tensor:
    assert leaf.grad is not None
    return leaf.grad
