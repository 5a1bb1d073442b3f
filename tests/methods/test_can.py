"""CAN-style: the balance loss by hand and against a loop, and a whole small training."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from bomd.config import DeviceSettings, FitSettings
from bomd.learn.engine import Batch, fit, make_fabric, predict
from bomd.methods.base import Context, masked_cross_entropy
from bomd.methods.can import Can, balance_loss
from bomd.models import model
from bomd.networks.architectures import FusedNetwork
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(backbone="small", weights="none", epochs=2, batch=16, rate=1e-3, eps=1e-8, augment="light")
Train = tuple[LabelTable, Context]


def random_case() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    targets = (torch.rand(5, 3, generator=generator) < 0.4).double()
    targets[1, 2] = torch.nan
    return logits, targets, torch.tensor([0.9, 0.5, 0.2], dtype=torch.float64)


def test_balance_by_hand() -> None:
    """One positive in ten at p = .5: .9 times .25 times ln 2."""
    loss = balance_loss(torch.zeros(1, 1), torch.ones(1, 1), torch.tensor([0.9]), focus=2)
    assert loss.item() == pytest.approx(0.155958, abs=1e-6)
    loss = balance_loss(torch.zeros(1, 1), torch.zeros(1, 1), torch.tensor([0.9]), focus=2)
    assert loss.item() == pytest.approx(0.155958 / 9, abs=1e-6)


def test_balance_against_a_loop() -> None:
    logits, targets, negatives = random_case()
    total = 0.0
    for row in range(5):
        for c in range(3):
            p, y, weight = logits[row, c].sigmoid().item(), targets[row, c].item(), negatives[c].item()
            if y == 1:
                total -= weight * (1 - p) ** 2 * math.log(p)
            elif y == 0:
                total -= (1 - weight) * p**2 * math.log(1 - p)
    assert balance_loss(logits, targets, negatives, focus=2).item() == pytest.approx(total / 5, rel=1e-9)


def test_without_focus_and_with_even_weights_it_is_half_the_cross_entropy_of_all_classes() -> None:
    logits, targets, _ = random_case()
    targets = targets.nan_to_num()
    loss = balance_loss(logits, targets, torch.full((3,), 0.5, dtype=torch.float64), focus=0)
    torch.testing.assert_close(loss, 3 * masked_cross_entropy(logits, targets) / 2)


def test_an_unknown_label_gets_no_gradient() -> None:
    logits, targets, negatives = random_case()
    logits.requires_grad_()
    balance_loss(logits, targets, negatives, focus=2).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert ((logits.grad == 0) == targets.isnan()).all()


def test_weights_are_the_shares_of_negatives(train: Train) -> None:
    table, context = train
    values = table.values.copy()
    values[:10, 0] = [1, 0, 0, 0, np.nan, np.nan, 0, 0, 0, 0]
    values[10:, 0] = np.nan
    method = Can()
    method.prepare(table.replace(values), context)
    assert method.negatives[0].item() == pytest.approx(7 / 8)


def test_the_loss_is_balance_and_attention(train: Train) -> None:
    table, context = train
    losses = {}
    for attention in (0.0, 0.5):
        method = Can(attention=attention)
        targets = torch.as_tensor(method.prepare(table, context).targets)
        (network,) = method.build(14, FIT, seed=0)
        assert isinstance(network, FusedNetwork)
        index = torch.arange(8)
        batch = Batch(index, targets[index], context.images.batch(index), 1)
        losses[attention] = method.step([network], batch)
    logits, first, second = network.head.all(network.features(batch.view()))
    torch.testing.assert_close(losses[0.0], balance_loss(logits, batch.targets, method.negatives, 2.0))
    extra = masked_cross_entropy(first, batch.targets) + masked_cross_entropy(second, batch.targets)
    torch.testing.assert_close(losses[0.5] - losses[0.0], extra / 2)


def test_a_saved_model_predicts_what_the_method_does(train: Train, tmp_path: Path) -> None:
    table, context = train
    method = Can(width=16)
    targets = method.prepare(table, context).targets
    networks, history = fit(
        method, context.images, targets, FIT, outputs=14, fabric=FABRIC, seed=0, directory=tmp_path, what="test"
    )
    assert history[-1]["loss"] < history[0]["loss"]
    model.save(tmp_path / "model", method.deployed(networks), table.classes, 32)
    found = predict(method, networks, context.images)
    opened = model.load(tmp_path / "model", "cpu").probabilities(context.images.batch(torch.arange(48)))
    torch.testing.assert_close(opened, found)
