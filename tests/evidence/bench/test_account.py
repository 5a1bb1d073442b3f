"""The account of bytes is that of the code: what a block really passes is counted on a small one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from bomd.kernels import columns
from bomd.networks import dense
from evidence.bench import account, gpu
from evidence.rows import read_rows

COLUMNS, NARROW, GROWN = 64, dense.BOTTLENECK, dense.GROWTH


class Products(TorchDispatchMode):
    """Counts what matrix products and convolutions read and write, but for weights."""

    def __init__(self, rows: int, passed: Counter[str]) -> None:
        super().__init__()
        self.rows, self.passed = rows, passed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name == "mm":
            maps = [one for one in (*args[:2], found) if self.rows in one.shape]
            self.passed["product"] += sum(one.numel() for one in maps)
        if name in ("convolution", "mkldnn_convolution"):
            self.passed["convolution"] += args[0].numel() + found.numel()
        if name == "convolution_backward":
            self.passed["convolution"] += args[0].numel() + sum(
                given.numel() for given, wanted in zip((found[0], args[1]), args[-1], strict=False) if wanted
            )
        return found


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Numbers that the functions of `columns` read and write, by function."""
    counted: Counter[str] = Counter()

    def watch(name: str, numbers: Any) -> None:
        plain = getattr(columns, name)

        def watched(*given: Any, **named: Any) -> Any:
            before = counted.copy()
            found = plain(*given, **named)
            counted.clear()  # of what it is made of here, and is one kernel on a GPU
            counted.update(before)
            counted[name] += numbers(*given, **named)
            return found

        monkeypatch.setattr(columns, name, watched)

    def back_through_scale(gradient: Tensor, matrix: Tensor, *_: Any, add: bool, averaged: Any = None) -> int:
        return gradient.numel() + matrix.numel() * (3 if add else 2)

    def back_through_product(gradient: Tensor, weight: Tensor, matrix: Tensor, *_: Any) -> int:
        return gradient.numel() + 3 * matrix.numel()

    watch("statistics", lambda matrix, *_, **__: matrix.numel())
    watch("scale", lambda matrix, *_, **__: 2 * matrix.numel())
    watch("normalise_and_scale", lambda matrix, newest, *_: 2 * matrix.numel() + newest.numel())
    watch("scale_and_average", lambda matrix, *_: matrix.numel() * 5 // 4)
    watch("back_through_scale", back_through_scale)
    watch("back_through_product", back_through_product)
    watch("back_through_norm", lambda gradient, *_, **__: 5 * gradient.numel())  # sums read both; slopes, and written
    watch("back_through_normalised", lambda gradient, *_: 3 * gradient.numel())
    return counted


def test_a_block_passes_what_the_account_says(passed: Counter[str]) -> None:
    """Two layers on 3 images of 8 x 8 pixels; beside the layers there are the input's norm and the output's."""
    block, last = dense.DenseBlock(COLUMNS, 2), nn.BatchNorm2d(COLUMNS + 2 * GROWN)
    maps = torch.randn(3, COLUMNS, 8, 8).to(memory_format=torch.channels_last).requires_grad_()
    rows = 3 * 8 * 8  # no width of weights
    with Products(rows, passed):
        block.shared(maps, last, average=True, together=None).sum().backward()
    kinds = {"columns": COLUMNS + (COLUMNS + GROWN), "narrow": 2 * NARROW, "grown": 2 * GROWN}
    expected: Counter[str] = Counter()
    for one in account.PASSES:
        expected[one.by] += rows * sum(getattr(one, kind) * width for kind, width in kinds.items())
    given, whole = rows * COLUMNS, rows * (COLUMNS + 2 * GROWN)
    expected["statistics"] += given
    # Every layer normalises what is newest, the input or the maps of the layer before; the last layer's are left over.
    expected["normalise_and_scale"] += given - rows * GROWN
    expected["scale"] += 2 * rows * GROWN
    expected["back_through_normalised"] += 3 * given
    expected["scale_and_average"] = whole * 5 // 4
    expected["back_through_scale"] += whole // 4 + 2 * whole
    assert passed == expected


def test_the_floor_counts_countedand_bottlenecks_and_the_stem() -> None:
    one = account.elements(512)
    counted = account.passes_of("columns", [*account.PASSES, account.DONE])
    floor = counted * one["columns"] + account.passes_of("narrow") * one["narrow"]
    stem = account.STEM_PASSES * dense.STEM * 256**2
    assert gpu.training_bytes(512) == account.WIDTH * (floor + stem)


def test_what_the_kernels_pass_is_what_the_layers_the_ends_and_the_stem_pass() -> None:
    """The floor counts 11 passes over the stem's maps; by kernel they are 10.75."""
    every = sum(account.bytes_by_kernel(512).values())
    stem = account.WIDTH * dense.STEM * 256**2
    passed = gpu.training_bytes(512) + account.bytes_beyond(512) - account.bytes_of(account.DONE, 512)
    assert every == pytest.approx(passed - stem / 4, rel=1e-12)


def test_a_profile_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"device": "a GPU", "kind": "scale", "kernel": "scale", "calls": "2.0", "milliseconds": "1.500"}
    rows = [row, {**row, "milliseconds": "0.250"}, {**row, "kind": "other"}, {**row, "milliseconds": "0.000"}]
    monkeypatch.setattr(account, "profile", lambda: rows)  # which needs a GPU
    account.main(["--profile", "--results", str(tmp_path / "step.csv")])
    assert read_rows(tmp_path / "step.csv") == rows[:3]
    assert account.kinds_of(read_rows(tmp_path / "step.csv")) == {"scale": 1.75, "other": 1.5}
    assert read_rows(tmp_path / "none.csv") == []


def test_operations_of_the_network_as_published() -> None:
    """At 224 px torchvision counts 2.834 billion multiplications, its products between blocks on all pixels."""
    found = account.operations(224)
    forward = (found["1 x 1 products"] + found["3 x 3 convolutions"]) / 6 + found["stem"] / 4
    between = sum((first + 32 * layers) ** 2 / 2 * pixels for pixels, first, layers in account.blocks(224)[:-1])
    assert forward + between * 3 / 4 == pytest.approx(2.834e9, rel=0.001)


def test_no_fusion_saves_more_than_there_is() -> None:
    for kind in ("columns", "narrow"):
        assert 0 < account.passes_of(kind, account.FUSIONS) < account.passes_of(kind)


def test_kernels_are_told_apart() -> None:
    assert account.kernel_kind("moments") == "moments"
    assert account.kernel_kind("sm90_xmma_wgrad_implicit_gemm_bf16") == "convolutions"
    assert account.kernel_kind("nvjet_tst_128x128_64x4_h_bz_NTN") == "products"
    assert account.kernel_kind("multi_tensor_apply_kernel") == "other"
