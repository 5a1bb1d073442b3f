"""DivideMix: division by loss, refined labels, mixed images."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bomd.config import DeviceSettings, FitSettings
from bomd.errors import InputError
from bomd.learn.engine import Batch, fit, make_fabric
from bomd.methods.base import Context, masked_cross_entropy
from bomd.methods.dividemix import DivideMix, clean_posterior, divergence, sharpen
from bomd.networks.backbone import Network
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(
    backbone="small", weights="none", epochs=4, batch=16, rate=1e-3, betas=(0.9, 0.999), eps=1e-8, augment="light"
)


class Plain(nn.Module):
    """One linear map from the first 4 pixels, so that a loop can follow every number."""

    def __init__(self, classes: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(4, classes, generator=generator))
        self.bias = nn.Parameter(torch.randn(classes, generator=generator))

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :4] @ self.weight + self.bias


class Views(Batch):
    """A batch whose two views are given."""

    def view(self) -> Tensor:
        self._given[0] += 1
        return self.pixels[self._given[0] - 1]


def dividing(context: Context, labels: Tensor, **settings: Any) -> DivideMix:
    """In the phase after the warm-up, with posteriors, shares and places drawn at random."""
    count, classes = labels.shape
    names = tuple(f"class {number}" for number in range(classes))
    table = LabelTable(np.arange(count).astype(str), names, labels.numpy())
    method = DivideMix(**settings)
    method.prepare(table, context)
    generator = torch.Generator().manual_seed(7)
    for tensor in (method.posteriors, method.shares, method.places):
        tensor.copy_(torch.rand(tensor.shape, generator=generator))
    method.dividing = True
    return method


def a_case(count: int = 6, classes: int = 3) -> tuple[list[Network], Tensor, Tensor]:
    """Two networks, (2, B, 1, 2, 2) views and (B, C) labels of which one is unknown."""
    generator = torch.Generator().manual_seed(1)
    views = torch.randn((2, count, 1, 2, 2), generator=generator)
    labels = torch.randint(0, 2, (count, classes), generator=generator).float()
    labels[1, 2] = torch.nan
    return cast(list[Network], [Plain(classes, 1), Plain(classes, 2)]), views, labels


def test_sharpening_by_hand() -> None:
    """0.64 / (0.64 + 0.04) and, from 0.7 x 1 + 0.3 x 0.4 = 0.82, 0.6724 / (0.6724 + 0.0324)."""
    refined = 0.7 * 1 + 0.3 * 0.4
    sharp = sharpen(torch.tensor([0.8, refined, 0.0, 1.0]), 0.5)
    assert sharp.tolist() == pytest.approx([0.941176, 0.954030, 0.0, 1.0], abs=1e-6)
    torch.testing.assert_close(sharpen(torch.tensor([0.2, 0.9]), 1.0), torch.tensor([0.2, 0.9]))


def test_divergence_of_prevalences() -> None:
    mean = torch.tensor([0.3, 0.5, 0.5, 0.5], requires_grad=True)
    found = divergence(torch.tensor([0.3, 0.0, 0.7, 1.0]), mean)
    wanted = [0.0, math.log(2), 0.7 * math.log(1.4) + 0.3 * math.log(0.6), math.log(2)]
    assert found.tolist() == pytest.approx(wanted, abs=1e-6)
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert mean.grad is not None
    assert mean.grad.tolist() == pytest.approx([0, 2, -0.8, -2], abs=1e-5)


@pytest.mark.parametrize("per_label", [False, True])
def test_step_agrees_with_a_loop(train: tuple[LabelTable, Context], per_label: bool) -> None:
    networks, views, labels = a_case()
    method = dividing(train[1], labels, per_label=per_label, unlabelled_weight=25.0)
    method.growing.fill_(5.0)
    index = torch.tensor([3, 0, 5, 1])
    found = method.step(networks, Views(index, labels[index], views[:, index], 1))

    def guess(number: int, row: int, column: int) -> float:
        return float(np.mean([networks[number](view[row : row + 1])[0, column].sigmoid().item() for view in views]))

    total = 0.0
    for own in (0, 1):
        items = []  # view by view: image, target, trusted, known, share, place
        for view in (0, 1):
            for row in index.tolist():
                target, trusted, known = [], [], []
                for column in range(3):
                    clean = float(method.posteriors[1 - own, row, column if per_label else 0])
                    given = float(labels[row, column])
                    known.append(not math.isnan(given))
                    trusted.append(known[-1] and clean > 0.5)
                    both = (guess(0, row, column) + guess(1, row, column)) / 2
                    value = clean * given + (1 - clean) * guess(own, row, column) if trusted[-1] else both
                    target.append(value**2 / (value**2 + (1 - value) ** 2))
                share = float(method.shares[own, view, row])
                place = float(method.places[own, view, row])
                items.append((views[view, row], target, trusted, known, max(share, 1 - share), place))
        circle = sorted(range(8), key=lambda item: items[item][5])
        first, second = [], []
        means: list[list[float]] = [[], [], []]
        for place, item in enumerate(circle):
            image, target, trusted, known, share, _ = items[item]
            other, goal, *_ = items[circle[place - 1]]
            logits = networks[own]((share * image + (1 - share) * other)[None])[0]
            for column in range(3):
                aim = share * target[column] + (1 - share) * goal[column]
                seen = logits[column].sigmoid().item()
                if known[column]:
                    means[column].append(seen)
                if trusted[column]:
                    first.append(-aim * math.log(seen) - (1 - aim) * math.log(1 - seen))
                elif known[column]:
                    second.append((seen - aim) ** 2)
        assert first
        assert second
        total += float(np.mean(first)) + 5.0 * float(np.mean(second))
        for column in range(3):
            prevalence, mean = np.nanmean(labels[:, column]), np.mean(means[column])
            total += prevalence * math.log(prevalence / mean)
            total += (1 - prevalence) * math.log((1 - prevalence) / (1 - mean))
    assert found.item() == pytest.approx(total, rel=1e-5)


def test_the_other_network_decides_whom_to_trust(train: tuple[LabelTable, Context]) -> None:
    networks, views, labels = a_case()
    index = torch.arange(6)
    gradients = []
    for changed in (None, 0, 1):
        method = dividing(train[1], labels)
        method.posteriors.fill_(0.9)
        if changed is not None:
            method.posteriors[changed, :3] = 0.2
        for network in networks:
            network.zero_grad()
        method.step(networks, Views(index, labels, views, 1)).backward()  # type: ignore[no-untyped-call]
        gradients.append([cast(Plain, network).weight.grad for network in networks])
    same = [
        [torch.equal(cast(Tensor, one), cast(Tensor, two)) for one, two in zip(gradients[0], later, strict=True)]
        for later in gradients[1:]
    ]
    assert same == [[True, False], [False, True]]


def test_order_in_the_batch_does_not_matter(train: tuple[LabelTable, Context]) -> None:
    networks, views, labels = a_case()
    method = dividing(train[1], labels)
    losses = []
    for order in ([0, 1, 2, 3, 4, 5], [4, 2, 0, 5, 3, 1]):
        index = torch.tensor(order)
        losses.append(method.step(networks, Views(index, labels[index], views[:, index], 1)).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_trusting_everything_unmixed_and_blunt_is_cross_entropy_of_both_views(
    train: tuple[LabelTable, Context],
) -> None:
    """Then only the penalty is left beside it."""
    networks, views, labels = a_case()
    method = dividing(train[1], labels, temperature=1.0)
    method.posteriors.fill_(1)
    method.shares.fill_(1)
    index = torch.arange(6)
    found = method.step(networks, Views(index, labels, views, 1))
    wanted = torch.zeros(())
    for network in networks:
        logits = network(views.flatten(0, 1))
        both, known = labels.repeat(2, 1), ~labels.repeat(2, 1).isnan()
        mean = (logits.sigmoid() * known).sum(0) / known.sum(0)
        wanted = wanted + masked_cross_entropy(logits, both) + divergence(method.prevalence, mean).sum()
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)  # labels keep 1e-6 from 0 and 1


def test_a_batch_without_trust_still_has_a_loss(train: tuple[LabelTable, Context]) -> None:
    networks, views, labels = a_case()
    method = dividing(train[1], labels)
    method.posteriors.fill_(0.1)
    loss = method.step(networks, Views(torch.arange(6), labels, views, 1))
    assert loss.isfinite()
    loss.backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("divided", [False, True])
def test_an_unknown_class_gets_no_gradient(train: tuple[LabelTable, Context], divided: bool) -> None:
    networks, views, labels = a_case()
    labels[:, 1] = torch.nan
    method = dividing(train[1], labels, unlabelled_weight=1.0)
    method.growing.fill_(1.0)
    method.dividing = divided
    method.step(networks, Views(torch.arange(6), labels, views, 1)).backward()  # type: ignore[no-untyped-call]
    for network in networks:
        gradient = cast(Tensor, cast(Plain, network).bias.grad)
        assert gradient[1] == 0
        assert (gradient[[0, 2]] != 0).all()


def test_images_are_divided_by_their_mean_loss_over_known_labels() -> None:
    losses = np.tile([[0.1, 0.3], [1.0, 3.0], [0.2, np.nan], [np.nan, 2.2], [np.nan, np.nan]], (10, 1))
    posterior = clean_posterior(losses, np.zeros_like(losses, dtype=np.float32), per_label=False)
    assert posterior.shape == (50, 1)
    np.testing.assert_allclose(posterior[:5, 0], [1, 0, 1, 0, np.nan], atol=1e-3)


def run(train: tuple[LabelTable, Context], directory: Path, epochs: int, **settings: Any) -> tuple[DivideMix, Any]:
    table, context = train
    method = DivideMix(**settings)
    prepared = method.prepare(table, context)
    networks, _ = fit(
        method,
        context.images,
        prepared.targets,
        replace(FIT, epochs=epochs),
        outputs=len(table.classes),
        fabric=FABRIC,
        seed=3,
        directory=directory,
        what="test",
    )
    return method, networks


@pytest.mark.slow
@pytest.mark.parametrize("per_label", [False, True])
def test_a_run_that_was_stopped_ends_like_one_that_was_not(
    train: tuple[LabelTable, Context], tmp_path: Path, per_label: bool
) -> None:
    whole, expected = run(train, tmp_path / "whole", 3, per_label=per_label, warmup=0.3)
    run(train, tmp_path / "parts", 2, per_label=per_label, warmup=0.3)
    resumed, found = run(train, tmp_path / "parts", 3, per_label=per_label, warmup=0.3)
    for one, two in zip(expected, found, strict=True):
        for name, value in one.state_dict().items():
            assert torch.equal(value, two.state_dict()[name]), name
    torch.testing.assert_close(resumed.posteriors, whole.posteriors, rtol=0, atol=0, equal_nan=True)
    assert whole.posteriors.shape == (2, 48, len(train[0].classes) if per_label else 1)
    assert not whole.posteriors.requires_grad
    assert not torch.equal(whole.posteriors[0], whole.posteriors[1])
    assert (whole.posteriors[0] <= 0.5).any()


def test_the_warm_up_is_plain_and_a_short_run_says_so(train: tuple[LabelTable, Context]) -> None:
    table, context = train
    assert "nothing is divided" in DivideMix(warmup=1.0).prepare(table, context).notes[0]
    method = DivideMix(warmup=0.5)
    assert method.prepare(table, context).notes == ()
    phases = []
    for epoch in range(4):
        method.start_epoch(epoch, lambda score=None: torch.randn(48, 2 * len(table.classes)))
        phases.append(method.phase(epoch))
    assert phases == [False, False, True, True]


def test_the_weight_of_guesses_grows(train: tuple[LabelTable, Context]) -> None:
    table, context = train
    method = DivideMix(warmup=0.1, unlabelled_weight=8.0, ramp=0.5)
    method.prepare(table, replace(context, fit=replace(FIT, epochs=8)))
    weights = []
    for epoch in range(7):
        method.start_epoch(epoch, lambda score=None: torch.randn(48, 2 * len(table.classes)))
        weights.append(method.growing.item())
    assert weights == [0, 0, 2, 4, 6, 8, 8]


def test_impossible_settings_get_one_line() -> None:
    for settings in ({"temperature": 0.0}, {"mixing": 0.0}):
        with pytest.raises(InputError, match="must be above 0"):
            DivideMix(**settings)
