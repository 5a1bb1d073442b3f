"""Decoupling: labels on which two networks disagree, and what the loss is divided by."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

from bomd.config import DeviceSettings, FitSettings
from bomd.errors import InputError
from bomd.learn.engine import Predict, fit, make_fabric
from bomd.methods.base import Context, masked_cross_entropy
from bomd.methods.decoupling import Decoupling, weighted_mean
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(
    backbone="small", weights="none", epochs=2, batch=16, rate=1e-3, betas=(0.9, 0.999), eps=1e-8, augment="light"
)
NO_PREDICTION = cast(Predict, None)
Train = tuple[LabelTable, Context]


def prepared(train: Train, warmup: float = 0.5, values: np.ndarray | None = None) -> Decoupling:
    table, context = train
    method = Decoupling(warmup)
    notes = method.prepare(table if values is None else table.replace(values), context).notes
    assert len(notes) == (1 if warmup == 1 else 0)
    return method


def sample(seed: int, classes: int) -> tuple[list[Tensor], Tensor]:
    """Logits of two networks and labels, one of them missing."""
    generator = torch.Generator().manual_seed(seed)
    logits = [torch.randn(16, classes, generator=generator, requires_grad=True) for _ in range(2)]
    targets = (torch.rand(16, classes, generator=generator) < 0.3).float()
    targets[2, 3] = torch.nan
    return logits, targets


def test_losses_are_divided_by_what_counts_or_a_tenth_of_all() -> None:
    losses = torch.tensor([0.2, 0.9, 0.4, 0.6])[:, None]
    everything = torch.ones(4, 1, dtype=torch.bool)
    chosen = torch.tensor([True, False, False, True])[:, None]
    assert weighted_mean(losses, chosen, everything, 0.1).item() == pytest.approx(0.4, abs=1e-6)
    assert weighted_mean(losses, ~everything, everything, 0.1).item() == 0
    assert weighted_mean(losses, ~everything, ~everything, 0.1).item() == 0
    one = torch.zeros(40, 1, dtype=torch.bool)
    one[7] = True  # 1 of 40 is less than a tenth: divided by 4
    assert weighted_mean(torch.ones(40, 1), one, torch.ones_like(one), 0.1).item() == pytest.approx(0.25)


class TestDisagreement:
    def test_it_is_judged_against_the_frequency_of_the_class(self, train: Train) -> None:
        """A class in a tenth of the images: probabilities .05 and .2 disagree, .2 and .8 do not."""
        method = prepared(train, warmup=0)
        method.frequency = torch.tensor([0.1])
        logits = [torch.tensor([[0.05], [0.2]]).logit(), torch.tensor([[0.2], [0.8]]).logit()]
        loss = method.loss_of_both(logits, torch.tensor([[1.0], [1.0]]))
        assert loss.item() == pytest.approx(-np.log(0.05) - np.log(0.2), rel=1e-5)

    def test_frequencies_leave_missing_labels_out(self, train: Train) -> None:
        values = np.zeros_like(train[0].values)
        values[:12] = 1
        values[24:] = np.nan
        values[:, 1] = np.nan
        expected = [0.5, 0.0] + [0.5] * (values.shape[1] - 2)
        assert prepared(train, values=values).frequency.tolist() == expected

    def test_only_labels_in_dispute_get_a_gradient(self, train: Train) -> None:
        method = prepared(train, warmup=0)
        logits, targets = sample(0, len(train[0].classes))
        method.loss_of_both(logits, targets).backward()  # type: ignore[no-untyped-call]
        first, second = (part.detach().sigmoid().numpy() > method.frequency.numpy() for part in logits)
        disputed = (first != second) & ~np.isnan(targets.numpy())
        assert 0 < disputed.sum() < disputed.size
        for part in logits:
            np.testing.assert_array_equal(cast(Tensor, part.grad).numpy() != 0, disputed)

    def test_order_does_not_matter(self, train: Train) -> None:
        method = prepared(train, warmup=0)
        logits, targets = sample(1, len(train[0].classes))
        order = torch.randperm(16, generator=torch.Generator().manual_seed(0))
        one = method.loss_of_both(logits, targets).item()
        assert method.loss_of_both([part[order] for part in logits], targets[order]).item() == pytest.approx(one)


class TestWarmUp:
    def test_it_is_cross_entropy(self, train: Train) -> None:
        method = prepared(train)
        logits, targets = sample(2, len(train[0].classes))
        expected = sum(masked_cross_entropy(part, targets).item() for part in logits)
        assert method.loss_of_both(logits, targets).item() == pytest.approx(expected, abs=1e-6)

    def test_it_ends_and_says_so(self, train: Train) -> None:
        method = prepared(train, warmup=1)
        phases = []
        for epoch in range(4):
            method.start_epoch(epoch, NO_PREDICTION)
            phases.append(method.phase(epoch))
        assert phases == [True, True, False, False]

    @pytest.mark.parametrize("settings", [{"warmup": -1}, {"minimum": 0.0}, {"minimum": 1.5}])
    def test_impossible_settings_are_refused(self, settings: dict[str, float]) -> None:
        with pytest.raises(InputError, match=r"decoupling\."):
            Decoupling(**settings)  # type: ignore[arg-type]


def test_the_rate_of_disagreement_is_counted_and_two_networks_are_trained(train: Train, tmp_path: Path) -> None:
    method = prepared(train)
    table, context = train
    networks, _ = fit(
        method,
        context.images,
        table.values,
        FIT,
        outputs=len(table.classes),
        fabric=FABRIC,
        seed=0,
        directory=tmp_path,
        what="test",
    )
    disputed, labels = method.seen.tolist()
    assert labels == table.values.size - 1  # of the last epoch alone; one is unknown
    assert 0 < disputed < labels
    assert not method.everything
    assert not torch.equal(networks[0].head.weight, networks[1].head.weight)  # type: ignore[arg-type]
