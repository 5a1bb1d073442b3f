"""Asymmetric loss."""

from __future__ import annotations

import pytest
import torch

from bomd.errors import InputError
from bomd.methods.asl import Asl
from bomd.methods.base import masked_cross_entropy

NOTHING = torch.tensor([0])


@pytest.mark.parametrize(("label", "expected"), [(0.0, 0.001124), (1.0, 0.842781)])
def test_by_hand_at_probability_3_tenths(label: float, expected: float) -> None:
    """0.25^4 * -ln 0.75 for a negative, 0.7 * -ln 0.3 for a positive."""
    logits = torch.tensor([[0.3]], dtype=torch.float64).logit()
    found = Asl(positive_focus=1).loss(logits, torch.tensor([[label]], dtype=torch.float64), NOTHING)
    assert found.item() == pytest.approx(expected, abs=1e-6)


def test_without_focus_and_margin_it_is_cross_entropy_summed_over_classes() -> None:
    logits, targets = 3 * torch.randn(6, 4), torch.randint(2, (6, 4)).float()
    found = Asl(positive_focus=0, negative_focus=0, margin=0).loss(logits, targets, NOTHING)
    assert found.item() == pytest.approx(4 * masked_cross_entropy(logits, targets).item(), abs=1e-5)


def test_against_the_formula_with_constant_weights() -> None:
    logits = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    targets = torch.rand(5, 3).double()
    targets[1, 2] = torch.nan
    loss = Asl(positive_focus=1.0, negative_focus=2.0, margin=0.2).loss(logits, targets, NOTHING)
    loss.backward()
    total, slopes = 0.0, torch.zeros(5, 3, dtype=torch.float64)
    for i in range(5):
        for c in range(3):
            if not targets[i, c].isnan():
                z, y = logits[i, c].detach().requires_grad_(), targets[i, c]
                p = z.sigmoid()
                m = torch.maximum(p - 0.2, torch.tensor(0.0))
                entry = -y * (1 - p.detach()) * p.log() - (1 - y) * m.detach() ** 2 * (1 - m).log()
                (slopes[i, c],) = torch.autograd.grad(entry, z)
                total += entry.item()
    assert loss.item() == pytest.approx(3 * total / 14, abs=1e-9)
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, 3 * slopes / 14)
    assert logits.grad[1, 2] == 0


def test_negatives_below_the_margin_do_not_count() -> None:
    logits = torch.tensor([[0.04, 0.06]]).logit().requires_grad_()
    Asl().loss(logits, torch.zeros(1, 2), NOTHING).backward()
    assert logits.grad is not None
    assert logits.grad[0, 0] == 0
    assert logits.grad[0, 1] > 0


@pytest.mark.parametrize("margin", [0.0, 0.05])
def test_certain_predictions_stay_finite(margin: float) -> None:
    logits = torch.tensor([[200.0, -200.0, 200.0, -200.0]], requires_grad=True)
    loss = Asl(margin=margin).loss(logits, torch.tensor([[0.0, 0.0, 1.0, 1.0]]), NOTHING)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"negative_focus": -1.0}, "asl.negative_focus is -1"), ({"margin": 1.0}, "asl.margin is 1")],
)
def test_impossible_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Asl(**settings)
