"""Hermoza et al.: the weighted loss, its weights, and a whole small training."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from bomd.config import DeviceSettings, FitSettings
from bomd.learn.engine import fit, make_fabric, predict
from bomd.methods.base import Context, masked_cross_entropy
from bomd.methods.hermoza import Hermoza, weighted_cross_entropy
from bomd.models import model
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(backbone="small", weights="none", epochs=2, batch=16, rate=1e-3, eps=1e-8, augment="light")
Train = tuple[LabelTable, Context]


def random_case() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    targets = (torch.rand(5, 3, generator=generator) < 0.4).double()
    targets[1, 2] = torch.nan
    return logits, targets


def test_loss_against_a_loop() -> None:
    logits, targets = random_case()
    shares = [0.7, 0.2, 0.1]
    total, count = 0.0, 0
    for row in range(5):
        for c in range(3):
            p, y = logits[row, c].sigmoid().item(), targets[row, c].item()
            if not math.isnan(y):
                total -= (1 - shares[c]) * y * math.log(p) + shares[c] * (1 - y) * math.log(1 - p)
                count += 1
    found = weighted_cross_entropy(logits, targets, torch.tensor(shares, dtype=torch.float64))
    assert count == 14
    assert found.item() == pytest.approx(total / count, rel=1e-9)


def test_even_weights_give_half_the_cross_entropy() -> None:
    logits, targets = random_case()
    found = weighted_cross_entropy(logits, targets, torch.full((3,), 0.5, dtype=torch.float64))
    torch.testing.assert_close(2 * found, masked_cross_entropy(logits, targets))


def test_an_unknown_label_gets_no_gradient() -> None:
    logits, targets = random_case()
    logits.requires_grad_()
    weighted_cross_entropy(logits, targets, torch.full((3,), 0.3, dtype=torch.float64)).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert ((logits.grad == 0) == targets.isnan()).all()


def test_weights_are_shares_of_all_positives_and_the_loss_is_ten_times_the_mean(train: Train) -> None:
    table, context = train
    values = np.zeros((48, 2), dtype=np.float32)
    values[:6, 0], values[:2, 1], values[40, 1] = 1, 1, np.nan
    method = Hermoza()
    method.prepare(table.align(table.classes[:2]).replace(values), context)
    torch.testing.assert_close(method.shares, torch.tensor([0.75, 0.25]))
    found = method.loss(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    assert found.item() == pytest.approx(10 * (0.25 + 0.25) * math.log(2) / 2, rel=1e-6)


def test_a_saved_model_predicts_what_the_method_does(train: Train, tmp_path: Path) -> None:
    table, context = train
    method = Hermoza(width=16, hidden=4)
    targets = method.prepare(table, context).targets
    networks, history = fit(
        method, context.images, targets, FIT, outputs=14, fabric=FABRIC, seed=0, directory=tmp_path, what="test"
    )
    assert history[-1]["loss"] < history[0]["loss"]
    model.save(tmp_path / "model", method.deployed(networks), table.classes, 32)
    found = predict(method, networks, context.images)
    opened = model.load(tmp_path / "model", "cpu").probabilities(context.images.batch(torch.arange(48)))
    torch.testing.assert_close(opened, found)
