"""F-correction: rates from the surest images, and the loss through them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bomd.config import DeviceSettings, FitSettings
from bomd.errors import InputError
from bomd.learn.engine import make_fabric, predict
from bomd.methods.base import Context, Method, masked_cross_entropy, train_plainly
from bomd.methods.f_correction import FCorrection, corrected_cross_entropy, estimate
from bomd.runs import Stages
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(
    backbone="small", weights="none", epochs=1, batch=16, rate=1e-3, betas=(0.9, 0.999), eps=1e-8, augment="light"
)
Train = tuple[LabelTable, Context]


class TestRates:
    def test_the_surest_images_after_trimming_tell(self) -> None:
        """100 images with probabilities 0, .01, ..., .99: three set aside at either end leave .03 and .96."""
        probabilities = np.random.default_rng(0).permutation(100)[:, None].astype(np.float32) / 100
        rates, cut = estimate(probabilities, 0.03)
        np.testing.assert_allclose(rates[:, 0], [0.03, 0.04], atol=1e-6)
        assert not cut.any()
        np.testing.assert_allclose(estimate(probabilities, 0)[0][:, 0], [0, 0.01], atol=1e-6)

    def test_they_are_cut_where_a_class_is_never_sure(self) -> None:
        rare = np.linspace(0.01, 0.1, 50)  # at most .1: nine of ten labels would be missed
        common = np.linspace(0.6, 0.7, 50)  # at least .6: with .3 missed, that leaves too little to tell
        sure = np.linspace(0, 1, 50)
        rates, cut = estimate(np.stack([rare, common, sure], axis=1).astype(np.float32), 0)
        np.testing.assert_allclose(rates, [[0.01, 0.59, 0], [0.5, 0.3, 0]], atol=1e-6)
        assert cut.tolist() == [True, True, False]
        assert (rates.sum(0) < 0.9).all()

    def test_a_known_channel_is_recovered(self) -> None:
        """Sure images seen through rates of .1 and .2 show them."""
        clean = np.random.default_rng(1).choice([0.0, 1.0, 0.5], size=(400, 2))
        seen = 0.1 * (1 - clean) + 0.8 * clean
        np.testing.assert_allclose(estimate(seen.astype(np.float32), 0.03)[0], [[0.1] * 2, [0.2] * 2], atol=1e-6)


class TestLoss:
    def test_hand_sized(self) -> None:
        """p = .6 through rates .1 and .2 becomes .52."""
        logits, rates = torch.tensor([[0.6]]).logit(), torch.tensor([[0.1], [0.2]])
        found = corrected_cross_entropy(logits, torch.ones(1, 1), rates).item()
        assert found == pytest.approx(0.653926, abs=1e-6)
        negative = corrected_cross_entropy(logits, torch.zeros(1, 1), rates).item()
        assert negative == pytest.approx(-np.log(0.48), abs=1e-6)

    @given(st.integers(0, 10_000))
    def test_equals_cross_entropy_of_noisy_probabilities(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        logits = 4 * torch.randn(6, 3, generator=generator, dtype=torch.float64)
        targets = torch.rand(6, 3, generator=generator, dtype=torch.float64)
        rates = torch.rand(2, 3, generator=generator, dtype=torch.float64) * 0.44
        noisy = rates[0] * (1 - logits.sigmoid()) + (1 - rates[1]) * logits.sigmoid()
        expected = torch.nn.functional.binary_cross_entropy(noisy, targets)
        assert corrected_cross_entropy(logits, targets, rates).item() == pytest.approx(expected.item(), rel=1e-9)

    def test_without_noise_it_is_cross_entropy_and_missing_labels_do_not_count(self) -> None:
        generator = torch.Generator().manual_seed(0)
        logits = (10 * torch.randn(16, 5, generator=generator)).requires_grad_()
        targets = (torch.rand(16, 5, generator=generator) < 0.3).float()
        targets[2, 3] = torch.nan
        loss = corrected_cross_entropy(logits, targets, torch.zeros(2, 5))
        loss.backward()  # type: ignore[no-untyped-call]
        assert loss.item() == pytest.approx(masked_cross_entropy(logits, targets).item(), rel=1e-6)
        gradient = cast(Tensor, logits.grad)
        assert gradient.isfinite().all()
        assert gradient[2, 3] == 0

    def test_extreme_logits_stay_finite(self) -> None:
        logits = torch.tensor([[1e4, -1e4]]).requires_grad_()
        for rates in (torch.zeros(2, 2), torch.full((2, 2), 0.3)):
            loss = corrected_cross_entropy(logits, torch.tensor([[0.0, 1.0]]), rates)
            (gradient,) = torch.autograd.grad(loss, logits)
            assert loss.isfinite()
            assert gradient.isfinite().all()


class TestStages:
    def test_the_first_network_is_trained_once_and_its_cost_is_told(self, train: Train, tmp_path: Path) -> None:
        table, context = train[0], replace(train[1], stages=Stages(tmp_path))
        first = FCorrection()
        prepared = first.prepare(table, context)
        assert [epoch["images"] for epoch in prepared.history] == [48]
        np.testing.assert_array_equal(prepared.targets, table.values)

        (checkpoint,) = tmp_path.glob("cross-entropy-*/checkpoint.pt")
        written = checkpoint.stat().st_mtime_ns
        again = FCorrection(trim=0.1)
        assert again.prepare(table, context).history == prepared.history
        assert FCorrection().prepare(table, replace(context, fit=replace(FIT, select="best"))).history
        assert not torch.equal(first.rates, again.rates)
        assert [checkpoint] == list(tmp_path.glob("cross-entropy-*/checkpoint.pt"))
        assert checkpoint.stat().st_mtime_ns == written

    def test_other_labels_need_another_network(self, train: Train, tmp_path: Path) -> None:
        table, context = train[0], replace(train[1], stages=Stages(tmp_path))
        for values in (table.values, 1 - table.values):
            FCorrection().prepare(table.replace(values), context)
        assert len(list(tmp_path.glob("cross-entropy-*"))) == 2

    def test_rates_are_those_of_the_first_network_and_cuts_are_noted(self, train: Train, tmp_path: Path) -> None:
        table, context = train[0], replace(train[1], stages=Stages(tmp_path))
        method = FCorrection()
        prepared = method.prepare(table, context)
        network, _ = train_plainly(table, context)
        probabilities = predict(Method(), [network], context.images).numpy()
        assert probabilities.shape == table.values.shape
        rates, cut = estimate(probabilities, 0.03)
        np.testing.assert_array_equal(method.rates.numpy(), rates)
        assert cut.any()  # after one epoch no network is sure of a rare finding
        noted = [name for name in table.classes if name in prepared.notes[0]]
        assert noted == [name for name, was_cut in zip(table.classes, cut, strict=True) if was_cut]

    @pytest.mark.parametrize("trim", [-0.1, 0.5])
    def test_impossible_settings_are_refused(self, trim: float) -> None:
        with pytest.raises(InputError, match=r"f-correction\.trim"):
            FCorrection(trim)
