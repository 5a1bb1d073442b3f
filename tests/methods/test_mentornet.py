"""MentorNet: the running percentile, the curriculum's three parts and the random dropout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from bomd.config import DeviceSettings, FitSettings
from bomd.errors import InputError
from bomd.learn.engine import Predict, make_fabric
from bomd.methods.base import Context, NoiseLevel, masked_cross_entropy
from bomd.methods.mentornet import MentorNet
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(
    backbone="small", weights="none", epochs=10, batch=16, rate=1e-3, betas=(0.9, 0.999), eps=1e-8, augment="light"
)
NO_PREDICTION = cast(Predict, None)
LOSSES = torch.tensor([0.2, 0.5, 1.2, 2.0])
Train = tuple[LabelTable, Context]


def prepared(train: Train, fit_settings: FitSettings = FIT, **settings: Any) -> MentorNet:
    table, context = train
    method = MentorNet(**settings)
    method.prepare(table, replace(context, fit=fit_settings))
    return method


def logits_of(losses: Tensor) -> Tensor:
    """(B, 1) logits whose cross-entropy with a positive label is `losses`."""
    return -losses.double().expm1().log()[:, None]


class TestThreshold:
    def test_running_percentile(self, train: Train) -> None:
        """Three quarters up (.2, .5, 1.2, 2) lies 1.4; half way from 0 is .7."""
        method = prepared(train, percentile=0.75)
        method.threshold.zero_()
        method.remember(LOSSES)
        assert method.threshold.item() == pytest.approx(0.7, abs=1e-6)

    def test_the_first_batch_sets_it(self, train: Train) -> None:
        method = prepared(train, percentile=0.75)
        method.remember(LOSSES)
        assert method.threshold.item() == pytest.approx(1.4, abs=1e-6)

    def test_it_follows_the_noise_of_the_recipe_and_says_so(self, train: Train) -> None:
        table, context = train[0], replace(train[1], noise=NoiseLevel(images=0.4))
        method = MentorNet(recent=4)
        (note,) = method.prepare(table, context).notes
        assert note.startswith("mentornet: percentile = 0.60, ")
        method.remember(LOSSES)  # six tenths up (.2, .5, 1.2, 2)
        assert method.threshold.item() == pytest.approx(0.5 + 0.8 * 0.7, abs=1e-6)
        assert MentorNet(percentile=0.75).prepare(table, context).notes == ()

    def test_it_is_taken_over_recent_losses_as_a_list_would(self, train: Train) -> None:
        random = np.random.default_rng(0)
        for recent, batch in ((10, 4), (4, 4), (3, 4)):
            method = prepared(train, recent=recent, percentile=0.6, momentum=0.3)
            remembered: list[float] = []
            expected = None
            for step in range(9):
                losses = random.random(batch).astype(np.float32)
                losses[1] = np.nan if step % 2 else losses[1]
                remembered = [*remembered, *losses.tolist()][-recent:]
                current = np.nanpercentile(remembered, 60)
                expected = current if expected is None else 0.3 * expected + 0.7 * current
                method.remember(torch.as_tensor(losses))
                method.step_number += 1
                assert method.threshold.item() == pytest.approx(expected, rel=1e-5)

    def test_it_never_needs_a_gradient(self, train: Train) -> None:
        method = prepared(train)
        logits = torch.randn(4, len(train[0].classes), requires_grad=True)
        method.loss(logits, torch.zeros_like(logits), torch.arange(4)).backward()  # type: ignore[no-untyped-call]
        assert not any(tensor.requires_grad for tensor in method.buffers().values())


class TestCurriculum:
    @pytest.mark.parametrize(
        ("done", "weights"),
        [
            (0.0, [1, 1, 1, 1]),
            (0.3, [1, 1, 1, 1]),
            (0.301, [1, 1, 0, 0]),
            (0.89, [1, 1, 0, 0]),
            (0.9, [1, 1, 0.5, 0]),
            (0.99, [1, 1, 0.5, 0]),
        ],
    )
    def test_weights_follow_the_progress(self, train: Train, done: float, weights: list[float]) -> None:
        method = prepared(train)
        method.threshold.fill_(0.7)
        found = method.curriculum(LOSSES.double(), torch.tensor(done, dtype=torch.float64))
        assert found.tolist() == pytest.approx(weights, abs=1e-6)

    def test_a_whole_step_of_each_part(self, train: Train) -> None:
        """With a threshold of .7: everything counts, then .2 and .5, at last half of 1.2 too; divided by 4 images."""
        for done, expected in ((0.0, 3.9 / 4), (0.5, 0.7 / 4), (0.95, 1.3 / 4)):
            method = prepared(train, percentile=0.75, early_dropout=0, late_dropout=0)
            method.steps = 100
            method.step_number.fill_(100 * done)
            method.threshold.zero_()
            loss = method.loss(logits_of(LOSSES), torch.ones(4, 1), torch.arange(4))
            assert loss.item() == pytest.approx(expected, abs=1e-5)
            assert method.step_number.item() == pytest.approx(100 * done + 1)

    def test_progress_is_counted_to_the_end_of_the_run(self, train: Train) -> None:
        assert prepared(train).steps == 10 * 3
        assert prepared(train, replace(FIT, batch=64)).steps == 10 * 1


class TestLoss:
    def test_in_the_beginning_without_dropout_it_is_cross_entropy(self, train: Train) -> None:
        method = prepared(train, early_dropout=0)
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(16, 5, generator=generator, requires_grad=True)
        targets = (torch.rand(16, 5, generator=generator) < 0.3).float()
        targets[2, 3] = torch.nan
        targets[7] = torch.nan
        loss = method.loss(logits, targets, torch.arange(16))
        loss.backward()  # type: ignore[no-untyped-call]
        assert loss.item() == pytest.approx(masked_cross_entropy(logits, targets).item(), abs=1e-6)
        gradient = cast(Tensor, logits.grad)
        assert gradient[2, 3] == 0
        assert not gradient[7].any()
        assert method.losses.isnan().sum() == 128 - 15  # an image without labels says nothing about losses

    def test_order_does_not_matter(self, train: Train) -> None:
        generator = torch.Generator().manual_seed(1)
        logits = torch.randn(16, 5, generator=generator)
        targets = (torch.rand(16, 5, generator=generator) < 0.3).float()
        losses = []
        for order in (torch.arange(16), torch.randperm(16, generator=generator)):
            method = prepared(train)
            method.start_epoch(0, NO_PREDICTION)
            method.step_number.fill_(15)
            losses.append(method.loss(logits[order], targets[order], order).item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)


class TestDropout:
    @pytest.mark.parametrize(("step", "share"), [(0, 0.5), (16, 0.5), (17, 0.05), (99, 0.05)])
    def test_half_of_the_images_at_first_and_few_later(self, train: Train, step: int, share: float) -> None:
        method = prepared(train)
        method.steps = 100
        method.step_number.fill_(step)
        method.luck = torch.linspace(0, 1, 1001)[:1000]
        logits = torch.zeros(1000, 2, requires_grad=True)
        method.loss(logits, torch.zeros_like(logits), torch.arange(1000)).backward()  # type: ignore[no-untyped-call]
        dropped = (cast(Tensor, logits.grad)[:, 0] == 0).double().mean()
        assert dropped.item() == pytest.approx(share, abs=2e-3)

    def test_each_epoch_draws_anew_and_repeats(self, train: Train) -> None:
        method, again = prepared(train), prepared(train)
        drawn = []
        for epoch in (0, 1):
            method.start_epoch(epoch, NO_PREDICTION)
            drawn.append(method.luck.clone())
        again.start_epoch(1, NO_PREDICTION)
        assert not torch.equal(drawn[0], drawn[1])
        assert torch.equal(drawn[1], again.luck)

    @pytest.mark.parametrize("settings", [{"percentile": 1.2}, {"late_dropout": -0.1}, {"recent": 0}, {"scale": 0.0}])
    def test_impossible_settings_are_refused(self, settings: dict[str, float]) -> None:
        with pytest.raises(InputError, match=r"mentornet\."):
            MentorNet(**settings)  # type: ignore[arg-type]
