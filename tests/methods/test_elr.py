"""Early-learning regularisation for pairs of outcomes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bomd.config import DeviceSettings, FitSettings
from bomd.data.batches import Images
from bomd.data.datasets import phantom
from bomd.data.store import pack
from bomd.errors import InputError
from bomd.learn.engine import make_fabric
from bomd.methods.base import Context, masked_cross_entropy
from bomd.methods.elr import Elr
from bomd.runs import Stages

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
ROW = torch.tensor([7])


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    folder = tmp_path_factory.mktemp("elr")
    table = phantom.read(count=16)
    store = pack(table, folder / "store", 32, render=phantom.render)
    images = Images(store, table.ids, FABRIC.device)
    return Context(images, FitSettings(backbone="small", weights="none"), FABRIC, 0, Stages(folder / "stages"))


def prepared(context: Context, **settings: float) -> Elr:
    """For 16 images of 2 classes."""
    table = phantom.read(count=16)
    method = Elr(**settings)  # type: ignore[arg-type]
    method.prepare(table.align(table.classes[:2]), context)
    return method


def test_first_visit_by_hand(context: Context) -> None:
    """q+ = 0.3 p and q- = 0.3 (1 - p), so the terms are ln(1 - 0.204) and ln(1 - 0.246)."""
    logits, labels = torch.tensor([[0.8, 0.1]]).logit(), torch.tensor([[1.0, 0.0]])
    for weight, expected in ((0.0, 0.164252), (3.0, -0.601526)):
        method = prepared(context, momentum=0.7, weight=weight)
        assert method.loss(logits, labels, ROW).item() == pytest.approx(expected, abs=1e-5)
    wanted = torch.tensor([[0.24, 0.03], [0.06, 0.27]])
    torch.testing.assert_close(method.memory[7].float(), wanted)


def test_each_term_by_hand(context: Context) -> None:
    for column, expected in ((0, -0.228156), (1, -0.282363)):
        logits = torch.tensor([[0.8, 0.1]]).logit()
        labels = torch.full((1, 2), torch.nan)
        labels[0, column] = 1 - column
        with_term = prepared(context, momentum=0.7, weight=1.0).loss(logits, labels, ROW)
        without = prepared(context, momentum=0.7, weight=0.0).loss(logits, labels, ROW)
        assert (with_term - without).item() == pytest.approx(expected, abs=1e-6)


def test_one_sided_remembers_positives_only(context: Context) -> None:
    logits, labels = torch.tensor([[0.8, 0.1]]).logit(), torch.tensor([[1.0, 0.0]])
    found = prepared(context, momentum=0.7, weight=1.0, one_sided=True).loss(logits, labels, ROW).item()
    expected = masked_cross_entropy(logits, labels).item() + np.log([1 - 0.24 * 0.8, 1 - 0.03 * 0.1]).mean()
    assert found == pytest.approx(expected, abs=1e-6)


def test_memory_follows_its_own_row_without_gradient(context: Context) -> None:
    method = prepared(context)
    labels = torch.tensor([[1.0, 0.0]])
    method.loss(torch.randn(1, 2, requires_grad=True), labels, ROW).backward()
    first = method.memory.clone()
    assert not method.memory.requires_grad
    method.loss(torch.randn(1, 2, requires_grad=True), labels, torch.tensor([3])).backward()
    torch.testing.assert_close(method.memory[7], first[7])
    method.loss(torch.randn(1, 2, requires_grad=True), labels, ROW).backward()
    assert (method.memory[7] != first[7]).all()
    assert not method.memory[[number for number in range(16) if number not in (3, 7)]].any()


def test_the_term_holds_on_to_the_average(context: Context) -> None:
    """Remembered as positive, a label of 0 pulls less; remembered as negative, the term pulls down with it."""
    slopes = []
    for remembered in (4.0, -4.0):
        method = prepared(context, weight=3.0)
        for _ in range(30):
            method.loss(torch.full((1, 2), remembered), torch.zeros(1, 2), ROW)
        logits = torch.full((1, 2), 1.0, requires_grad=True)
        method.loss(logits, torch.zeros(1, 2), ROW).backward()
        assert logits.grad is not None
        slopes.append(logits.grad[0, 0].item())
    plain = torch.tensor(1.0).sigmoid().item() / 2
    assert slopes[0] < plain < slopes[1]


def test_gradient_treats_the_average_as_a_constant_and_skips_unknown_labels(context: Context) -> None:
    method = prepared(context, momentum=0.7, weight=2.0)
    logits = torch.tensor([[0.5, -1.0], [2.0, 0.3]], requires_grad=True)
    labels = torch.tensor([[1.0, torch.nan], [0.0, 1.0]])
    method.loss(logits, labels, torch.tensor([1, 2])).backward()
    p = logits.detach().sigmoid()
    positive, negative = 0.3 * p, 0.3 * (1 - p)
    slope = -2 * (positive - negative) * p * (1 - p) / (1 - positive * p - negative * (1 - p))
    wanted = (p - labels + slope) / 3
    wanted[0, 1] = 0
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, wanted)


def test_certain_predictions_stay_finite(context: Context) -> None:
    method = prepared(context, momentum=0.0)
    logits = torch.tensor([[90.0, -90.0]], requires_grad=True)
    for _ in range(3):
        loss = method.loss(logits, torch.tensor([[1.0, 0.0]]), ROW)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("certain", [7.0, 9.0, 12.0])
def test_the_term_keeps_its_digits_where_prediction_and_average_agree(context: Context, certain: float) -> None:
    """Close to agreement 1 - <q, p> is 0.0002, of which a difference in single precision has three digits."""
    method = prepared(context, weight=1.0, momentum=0.0)
    logits, unknown = torch.full((1, 2), certain), torch.tensor([[1.0, torch.nan]])
    p = min(1 / (1 + math.exp(-certain)), 1 - 1e-4)
    wanted = math.log(1 - p * p - (1 - p) * (1 - p)) + math.log1p(math.exp(-certain))
    assert method.loss(logits, unknown, ROW).item() == pytest.approx(wanted, rel=1e-6)


def test_impossible_momentum_is_refused() -> None:
    with pytest.raises(InputError, match=r"elr\.momentum is 1, but must be at least 0 and below 1"):
        Elr(momentum=1.0)
