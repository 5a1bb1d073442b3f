"""Co-teaching: who keeps what, against hand-sized cases and an obvious loop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bomd.config import DeviceSettings, FitSettings
from bomd.errors import InputError
from bomd.learn.engine import Batch, fit, make_fabric
from bomd.methods.base import Context, NoiseLevel, masked_cross_entropy
from bomd.methods.co_teaching import CoTeaching, easiest
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(
    backbone="small", weights="none", epochs=2, batch=16, rate=1e-3, betas=(0.9, 0.999), eps=1e-8, augment="light"
)


class Fixed(torch.nn.Module):
    """A network whose logits are given."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(logits)

    def forward(self, images: Tensor) -> Tensor:
        return self.logits


def a_method(share: float, **settings: Any) -> CoTeaching:
    method = CoTeaching(**settings)
    method.share = torch.tensor(share)
    return method


def step(method: CoTeaching, logits: list[Tensor], targets: Tensor) -> tuple[Tensor, list[Fixed]]:
    networks = [Fixed(part) for part in logits]
    batch = SimpleNamespace(targets=targets, index=torch.arange(len(targets)), view=lambda: None)
    return method.step(cast(Any, networks), cast(Batch, batch)), networks


def logits_of(losses: list[float]) -> Tensor:
    """(B, 1) logits whose cross-entropy with a positive label is `losses`."""
    return -torch.tensor(losses, dtype=torch.float64).expm1().log()[:, None]


class TestSelection:
    def test_each_network_learns_what_the_other_finds_easy(self) -> None:
        """Losses (.1, .9, .3, .5) keep {0, 2}, and (.2, .4, .8, .6) keep {0, 1}: both means are .5."""
        logits = [logits_of([0.1, 0.9, 0.3, 0.5]), logits_of([0.2, 0.4, 0.8, 0.6])]
        loss, networks = step(a_method(0.5), logits, torch.ones(4, 1))
        loss.backward()  # type: ignore[no-untyped-call]
        assert loss.item() == pytest.approx(0.5 + 0.5, abs=1e-6)
        moved = [cast(Tensor, network.logits.grad)[:, 0] != 0 for network in networks]
        assert moved[0].tolist() == [True, True, False, False]
        assert moved[1].tolist() == [True, False, True, False]

    def test_counts_are_rounded_down_but_something_is_kept(self) -> None:
        losses = torch.arange(16.0)[:, None]
        everyone = torch.ones(16, 1, dtype=torch.bool)
        assert easiest(losses, everyone, torch.tensor(0.8)).sum() == 12
        assert easiest(losses[:5], everyone[:5], torch.tensor(1 - 0.2)).sum() == 4
        assert easiest(losses[:10], everyone[:10], torch.tensor(1 - 0.9)).sum() == 1
        assert easiest(losses[:2], everyone[:2], torch.tensor(0.2)).flatten().tolist() == [True, False]
        assert not easiest(losses, ~everyone, torch.tensor(0.8)).any()

    @given(st.integers(0, 10_000), st.floats(0.05, 1))
    def test_labels_are_kept_within_class_and_value_as_a_loop_would(self, seed: int, share: float) -> None:
        random = np.random.default_rng(seed)
        targets = random.choice([0.0, 1.0, np.nan], p=[0.6, 0.3, 0.1], size=(12, 3)).astype(np.float32)
        losses = random.random((12, 3)).astype(np.float32)
        expected = np.zeros((12, 3), dtype=bool)
        for column in range(3):
            for value in (0, 1):
                rows = sorted(np.flatnonzero(targets[:, column] == value), key=lambda row: losses[row, column])
                count = max(1, int(np.floor(np.float32(share) * len(rows) + 1e-4)))
                expected[rows[:count], column] = True
        kept = a_method(share, per_label=True).keep(torch.as_tensor(losses), torch.as_tensor(targets))
        np.testing.assert_array_equal(kept.numpy(), expected)

    def test_rare_positives_stay_when_labels_are_selected_and_vanish_when_images_are(self) -> None:
        targets = torch.zeros(8, 2)
        targets[3, 1] = 1
        losses = torch.full((8, 2), 0.1) + 3 * targets
        assert a_method(0.7, per_label=True).keep(losses, targets)[3, 1]
        assert not a_method(0.7).keep(losses, targets)[3].any()

    def test_images_without_labels_take_no_place(self) -> None:
        targets = torch.tensor([[torch.nan, torch.nan], [1, torch.nan], [0, 0], [0, 1]])
        losses = torch.tensor([[0.0, 0.0], [0.2, 9.0], [0.4, 0.4], [0.1, 0.2]])  # row means: none, .2, .4, .15
        kept = a_method(0.67).keep(losses, targets)
        assert kept.tolist() == [[False, False], [True, False], [False, False], [True, True]]


class TestLoss:
    @pytest.mark.parametrize("per_label", [False, True])
    def test_without_noise_each_network_sees_cross_entropy(self, per_label: bool) -> None:
        generator = torch.Generator().manual_seed(0)
        logits = [torch.randn(16, 5, generator=generator) for _ in range(2)]
        targets = (torch.rand(16, 5, generator=generator) < 0.3).float()
        targets[2, 3] = torch.nan
        loss, networks = step(a_method(1.0, noise=0.0, per_label=per_label), logits, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        expected = sum(masked_cross_entropy(part, targets).item() for part in logits)
        assert loss.item() == pytest.approx(expected, abs=1e-6)
        for network in networks:
            assert cast(Tensor, network.logits.grad)[2, 3] == 0

    @pytest.mark.parametrize("per_label", [False, True])
    def test_order_does_not_matter(self, per_label: bool) -> None:
        generator = torch.Generator().manual_seed(1)
        logits = [torch.randn(16, 5, generator=generator) for _ in range(2)]
        targets = (torch.rand(16, 5, generator=generator) < 0.3).float()
        order = torch.randperm(16, generator=generator)
        method = a_method(0.6, per_label=per_label)
        one = step(method, logits, targets)[0].item()
        other = step(method, [part[order] for part in logits], targets[order])[0].item()
        assert one == pytest.approx(other, rel=1e-5)


class TestSchedule:
    def test_the_part_that_is_left_out_grows_to_the_noise(self) -> None:
        method = CoTeaching(noise=0.2, ramp=1 / 6)
        method.left_out, method.epochs = 0.2, 30
        assert [method.share_in(epoch) for epoch in (0, 1, 4, 5, 29)] == pytest.approx([1, 0.96, 0.84, 0.8, 0.8])
        method.epochs = 8  # a short run reaches the noise rate as well
        assert [method.share_in(epoch) for epoch in (0, 1, 2)] == pytest.approx([1, 1 - 0.2 * 6 / 8, 0.8])

    def test_no_ramp_starts_with_the_noise_and_the_exponent_bends_it(self) -> None:
        method = CoTeaching(noise=0.4, ramp=0)
        method.left_out, method.epochs = 0.4, 10
        assert method.share_in(0) == pytest.approx(0.6)
        bent = CoTeaching(noise=0.4, ramp=0.4, exponent=2)
        bent.left_out, bent.epochs = 0.4, 10
        assert bent.share_in(2) == pytest.approx(1 - 0.4 * 0.25)

    @pytest.mark.parametrize("settings", [{"noise": 1.0}, {"noise": -0.1}, {"ramp": 2.0}, {"exponent": 0.0}])
    def test_impossible_settings_are_refused(self, settings: dict[str, float]) -> None:
        with pytest.raises(InputError, match=r"co-teaching\.") as caught:
            CoTeaching(**settings)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("per_label", "wanted"), [(False, 0.37), (True, 0.08)])
def test_it_leaves_out_what_the_noise_of_the_recipe_made_wrong_and_says_so(
    train: tuple[LabelTable, Context], per_label: bool, wanted: float
) -> None:
    table, context = train[0], replace(train[1], noise=NoiseLevel(images=0.37, labels=0.08))
    method = CoTeaching(ramp=0, per_label=per_label)
    (note,) = method.prepare(table, context).notes
    assert note.startswith(f"co-teaching: noise = {wanted}, ")
    assert method.share.item() == pytest.approx(1 - wanted)
    set_by_hand = CoTeaching(noise=0.2, ramp=0, per_label=per_label)
    assert set_by_hand.prepare(table, context).notes == ()
    assert set_by_hand.share.item() == pytest.approx(0.8)
    quiet = CoTeaching(ramp=0, per_label=per_label)
    quiet.prepare(table, replace(context, noise=NoiseLevel()))
    assert quiet.share.item() == 1


@pytest.mark.parametrize("per_label", [False, True])
def test_two_networks_are_trained_and_follow_the_schedule(
    train: tuple[LabelTable, Context], tmp_path: Path, per_label: bool
) -> None:
    table, context = train
    method = CoTeaching(noise=0.5, ramp=0.5, per_label=per_label)
    prepared = method.prepare(table, context)
    networks, history = fit(
        method,
        context.images,
        prepared.targets,
        FIT,
        outputs=len(table.classes),
        fabric=FABRIC,
        seed=0,
        directory=tmp_path,
        what="test",
    )
    assert method.share.item() == 0.5
    assert len(networks) == len(method.deployed(networks)) == 2
    assert not torch.equal(networks[0].head.weight, networks[1].head.weight)  # type: ignore[arg-type]
    assert [epoch["images"] for epoch in history] == [96, 96]
