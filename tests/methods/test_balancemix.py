"""BalanceMix: odds of the second sampler, refined labels, mixed images."""

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
from bomd.methods.balancemix import BalanceMix, choose, confidences, minority_odds
from bomd.methods.base import Context, masked_cross_entropy
from bomd.networks.backbone import Network
from bomd.tables import NO_FINDING, LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(
    backbone="small", weights="none", epochs=4, batch=16, rate=1e-3, betas=(0.9, 0.999), eps=1e-8, augment="light"
)
NAMES = ("Mass", "Edema", NO_FINDING)


class Plain(nn.Module):
    """One linear map from the first 4 pixels, so that a loop can follow every number."""

    def __init__(self, scale: float = 4.0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.weight = nn.Parameter(scale * torch.randn(4, 3, generator=generator))
        self.bias = nn.Parameter(torch.randn(3, generator=generator))

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :4] @ self.weight + self.bias


class Views(Batch):
    """A batch whose two views are given."""

    def view(self) -> Tensor:
        self._given[0] += 1
        return self.pixels[self._given[0] - 1]


def a_case(context: Context, names: tuple[str, ...] = NAMES) -> tuple[BalanceMix, Tensor, Tensor]:
    """Eight images after the warm-up with everything drawn at random; (2, B, 1, 2, 2) views, (B, C) labels."""
    generator = torch.Generator().manual_seed(5)
    views = torch.randn((2, 8, 1, 2, 2), generator=generator)
    labels = torch.randint(0, 2, (8, 3), generator=generator).float()
    labels[1, 1] = torch.nan
    method = BalanceMix()
    method.prepare(LabelTable(np.arange(8).astype(str), names, labels.numpy()), context)
    for tensor in (method.posteriors, method.shares, method.draws, method.odds):
        tensor.copy_(torch.rand(tensor.shape, generator=generator))
    method.posteriors[1, 1] = torch.nan
    method.refining = True
    return method, views, labels


def test_odds_by_hand() -> None:
    """Scores .6 + .95, .9 + .95 and .9 + .2 for the three rows."""
    labels = np.array([[1, 0], [0, 0], [0, 1]], dtype=np.float32)
    odds = minority_odds(labels, np.array([0.6, 0.2]), np.array([0.9, 0.95]))
    np.testing.assert_allclose(1 / odds, [1.55, 1.85, 1.10])
    np.testing.assert_allclose(odds / odds.sum(), [0.307983, 0.258040, 0.433977], atol=1e-6)


def test_unknown_labels_neither_raise_nor_lower_the_odds() -> None:
    labels = np.array([[1, np.nan], [np.nan, np.nan]], dtype=np.float32)
    odds = minority_odds(labels, np.array([0.6, 0.2]), np.array([0.9, 0.95]))
    np.testing.assert_allclose(1 / odds, [1.2, 2.0])


def test_confidences_by_hand() -> None:
    predicted = np.array([[0.9, 0.2, 0.5], [0.5, 0.4, 0.5], [0.2, 0.8, 0.5]], dtype=np.float32)
    labels = np.array([[1, 0, 0], [1, 0, np.nan], [0, np.nan, 0]], dtype=np.float32)
    present, absent = confidences(predicted, labels)
    np.testing.assert_allclose(present, [0.7, 1.0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(absent, [0.8, 0.7, 0.5], rtol=1e-6)


def test_partners_are_drawn_with_their_odds() -> None:
    odds, index = torch.tensor([1.0, 2.0, 5.0]), torch.tensor([40, 7, 12])
    draws = (torch.arange(8000) + 0.5) / 8000
    counts = torch.zeros(3)
    for part in draws.unfold(0, 3, 3):
        counts += torch.bincount(choose(odds, part, index), minlength=3)
    np.testing.assert_allclose(counts / counts.sum(), odds / 8, atol=0.002)
    assert choose(odds, torch.tensor([0.0, 0.9999999, 0.3]), index).tolist() == [1, 0, 2]  # in the order of rows


def test_labels_are_kept_replaced_or_doubted(train: tuple[LabelTable, Context]) -> None:
    method, *_ = a_case(train[1], names=("a", "b", "c"))
    labels = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    known = torch.tensor([[True, True, True], [True, True, False]])
    clean = torch.tensor([[0.6, 0.4, 0.3], [0.1, 0.5, torch.nan]])
    seen = torch.tensor([[0.01, 0.98, 0.97], [0.02, 0.02, 0.99]])
    refined, trust = method.refine(labels, known, clean, seen)
    assert refined.tolist() == [[1, 1, 1], [0, 0, 0]]
    np.testing.assert_allclose(trust, [[1, 1, 0.3], [1, 1, 0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "clean", "seen", "refined", "trust"),
    [
        ([0, 0, 1], [0.1, 0.9, 0.9], [0.99, 0.5, 0.5], [1, 0, 0], [1, 1, 1]),  # a finding ends "No Finding"
        ([1, 0, 0], [0.1, 0.9, 0.2], [0.01, 0.5, 0.5], [0, 0, 1], [1, 1, 1]),  # without any it comes back
        ([1, 0, 0], [0.9, 0.9, 0.1], [0.5, 0.5, 0.99], [1, 0, 0], [1, 1, 1]),  # and not beside a finding
        ([1, 0, 1], [0.9, 0.9, 0.3], [0.5, 0.5, 0.5], [1, 0, 1], [1, 1, 0.3]),  # nothing replaced: as given
        ([0, 0, 1], [0.9, 0.1, 0.3], [0.5, 0.01, 0.5], [0, 0, 1], [1, 1, 0.3]),  # agrees already
    ],
)
def test_no_finding_agrees_with_the_findings_where_labels_were_replaced(
    train: tuple[LabelTable, Context],
    given: list[float],
    clean: list[float],
    seen: list[float],
    refined: list[float],
    trust: list[float],
) -> None:
    method, *_ = a_case(train[1])
    known = torch.ones((1, 3), dtype=torch.bool)
    tensors = (torch.tensor([row], dtype=torch.float32) for row in (given, clean, seen))
    labels, posterior, predicted = tensors
    found, counts = method.refine(labels, known, posterior, predicted)
    assert found.tolist() == [refined]
    np.testing.assert_allclose(counts, [trust], rtol=1e-6)


@pytest.mark.parametrize("refining", [False, True])
def test_step_agrees_with_a_loop(train: tuple[LabelTable, Context], refining: bool) -> None:
    method, views, labels = a_case(train[1], names=("a", "b", "c"))
    method.refining = refining
    network = Plain()
    index = torch.tensor([6, 1, 0, 3, 4])
    found = method.step([cast(Network, network)], Views(index, labels[index], views[:, index], 1))

    rows = index.tolist()
    replaced = 0
    table: dict[int, list[tuple[float, float]]] = {}  # label and trust of each class, by row
    for row in rows:
        both = network(views[:, row]).detach().sigmoid()
        seen = (both[0] + both[1]) / 2
        table[row] = []
        for column in range(3):
            label, clean = float(labels[row, column]), float(method.posteriors[row, column])
            trust = 1.0
            if refining and not clean > 0.5 and not math.isnan(label):
                if 0.025 <= float(seen[column]) <= 0.975:
                    trust = clean
                else:
                    label = float(seen[column] > 0.5)
                    replaced += 1
            table[row].append((label, trust))
    assert replaced > 0 or not refining
    losses = []
    for row in rows:
        point = float(method.draws[row]) * sum(float(method.odds[other]) for other in rows)
        for partner in sorted(rows):
            point -= float(method.odds[partner])
            if point < 0:
                break
        share = max(float(method.shares[row]), 1 - float(method.shares[row]))
        logits = network((share * views[0, row] + (1 - share) * views[1, partner])[None])[0]
        for column in range(3):
            (label, trust), (other, _) = table[row][column], table[partner][column]
            if math.isnan(label) or math.isnan(other):
                continue
            aim, p = share * label + (1 - share) * other, logits[column].double().sigmoid().item()
            losses.append(trust * (-aim * math.log(p) - (1 - aim) * math.log(1 - p)))
    assert found.item() == pytest.approx(float(np.mean(losses)), rel=1e-4)


def test_unmixed_and_all_clean_is_cross_entropy(train: tuple[LabelTable, Context]) -> None:
    method, views, labels = a_case(train[1])
    labels = labels.nan_to_num(1.0)
    method.posteriors.fill_(1)
    method.shares.fill_(1)
    network = Plain()
    found = method.step([cast(Network, network)], Views(torch.arange(8), labels, views, 1))
    torch.testing.assert_close(found, masked_cross_entropy(network(views[0]), labels), rtol=0, atol=1e-6)


def test_order_in_the_batch_does_not_matter(train: tuple[LabelTable, Context]) -> None:
    method, views, labels = a_case(train[1])
    losses = []
    for order in (list(range(8)), [4, 2, 0, 7, 5, 3, 6, 1]):
        index = torch.tensor(order)
        batch = Views(index, labels[index], views[:, index], 1)
        losses.append(method.step([cast(Network, Plain())], batch).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.parametrize("refining", [False, True])
def test_an_unknown_class_gets_no_gradient(train: tuple[LabelTable, Context], refining: bool) -> None:
    method, views, labels = a_case(train[1])
    labels[:, 1] = torch.nan
    method.posteriors[:, 1] = torch.nan
    method.refining = refining
    network = Plain(scale=0.5)
    batch = Views(torch.arange(8), labels, views, 1)
    method.step([cast(Network, network)], batch).backward()  # type: ignore[no-untyped-call]
    gradient = cast(Tensor, network.bias.grad)
    assert gradient[1] == 0
    assert (gradient[[0, 2]] != 0).all()


def test_odds_from_the_second_epoch_and_posteriors_after_the_warm_up(train: tuple[LabelTable, Context]) -> None:
    table, context = train
    method = BalanceMix(warmup=0.5)
    method.prepare(table, context)
    logits = torch.randn(48, len(table.classes), generator=torch.Generator().manual_seed(0))
    seen = []
    for epoch in range(4):
        method.start_epoch(epoch, lambda score=None: logits)
        seen.append((bool((method.odds == 1).all()), bool((method.posteriors == 1).all()), method.phase(epoch)))
    assert seen == [(True, True, False), (False, True, False), (False, False, True), (False, False, True)]
    assert not method.posteriors.requires_grad


@pytest.mark.slow
def test_a_run_that_was_stopped_ends_like_one_that_was_not(train: tuple[LabelTable, Context], tmp_path: Path) -> None:
    table, context = train

    def run(place: str, epochs: int) -> tuple[BalanceMix, dict[str, Tensor]]:
        method = BalanceMix(warmup=0.25)
        networks, _ = fit(
            method,
            context.images,
            method.prepare(table, context).targets,
            replace(FIT, epochs=epochs),
            outputs=len(table.classes),
            fabric=FABRIC,
            seed=3,
            directory=tmp_path / place,
            what="test",
        )
        return method, networks[0].state_dict()

    whole, expected = run("whole", 3)
    run("parts", 2)
    resumed, found = run("parts", 3)
    assert (whole.posteriors < 0.5).any()
    torch.testing.assert_close(resumed.posteriors, whole.posteriors, rtol=0, atol=0, equal_nan=True)
    for name, value in expected.items():
        assert torch.equal(value, found[name]), name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mixing": 0.0}, "mixing is 0"),
        ({"confident": 1.5}, "confident is 1.5"),
        ({"confident": 0.3}, "0.5 and at most 1"),
    ],
)
def test_impossible_settings_get_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        BalanceMix(**settings)


def test_a_short_run_says_so(train: tuple[LabelTable, Context]) -> None:
    table, context = train
    assert BalanceMix().prepare(table, context).notes == ()
    assert "labels stay as given" in BalanceMix(warmup=1.0).prepare(table, context).notes[0]
