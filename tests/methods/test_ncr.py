"""Neighbour consistency: neighbours, divergence, the queue."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from bomd.config import DeviceSettings, FitSettings
from bomd.data.batches import Images
from bomd.data.datasets import phantom
from bomd.data.store import pack
from bomd.errors import InputError
from bomd.learn.engine import Batch, Predict, fit, make_fabric
from bomd.methods.base import Context, masked_cross_entropy
from bomd.methods.ncr import Ncr, neighbour_mean
from bomd.runs import Stages

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(backbone="small", weights="none", epochs=3, batch=16, rate=1e-3, eps=1e-8, augment="light")
TABLE = phantom.read(count=48)
PLANE = torch.tensor([[1, 0], [0.8, 0.6], [0, 1]])  # features of the hand-made case
THREE = torch.arange(3)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    folder = tmp_path_factory.mktemp("ncr")
    store = pack(TABLE, folder / "store", 32, render=phantom.render)
    return Context(Images(store, TABLE.ids, FABRIC.device), FIT, FABRIC, 0, Stages(folder / "stages"))


def a_batch(context: Context, rows: list[int]) -> Batch:
    index = torch.tensor(rows)
    return Batch(index, torch.as_tensor(TABLE.values)[index], context.images.batch(index), 1)


def in_the_plane(context: Context, entries: int = 0, **settings: float) -> Ncr:
    """A method for one class whose queue holds this many empty entries of features with two numbers."""
    method = Ncr(queue=entries, **settings)  # type: ignore[arg-type]
    method.prepare(TABLE.align(TABLE.classes[:1]), context)
    method.features = torch.zeros(entries, 2)
    return method


def test_by_hand(context: Context) -> None:
    p = torch.tensor([[0.9], [0.5], [0.2]])
    q, similar = neighbour_mean(PLANE, THREE, PLANE, THREE, p, neighbours=2, power=1)
    torch.testing.assert_close(q, torch.tensor([[0.5], [0.6], [0.5]]))
    assert similar.all()
    method = in_the_plane(context, neighbours=2, temperature=1)
    known = torch.ones(3, 1, dtype=torch.bool)
    for row, expected in enumerate((0.510826, 0.020136, 0.223144)):
        alone = known & (row == THREE)[:, None]
        assert method.divergence(PLANE, p.logit(), THREE, alone).item() == pytest.approx(expected, abs=1e-6)
    assert method.divergence(PLANE, p.logit(), THREE, known).item() == pytest.approx(0.251368, abs=1e-6)


def test_against_a_loop(context: Context) -> None:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(9, 4, generator=generator)
    logits = torch.randn(9, 3, generator=generator)
    index = torch.tensor([5, 0, 8, 3, 7, 1, 2, 6, 4])
    queued = torch.randn(6, 4, generator=generator)
    queued_rows = torch.tensor([8, 20, 3, 21, 22, -1])
    queued[5] = 0
    queued_logits = torch.randn(6, 3, generator=generator)
    method = Ncr(neighbours=3, temperature=2.0, power=1.5, queue=6)
    method.prepare(TABLE.align(TABLE.classes[:3]), context)
    method.features, method.rows, method.logits = queued, queued_rows, queued_logits

    everyone = [*zip(index.tolist(), features, logits, strict=True)]
    everyone += [*zip(queued_rows.tolist(), queued, queued_logits, strict=True)]
    total, entries = 0.0, 0
    for image, feature, logit in everyone[:9]:
        found = []
        for other, other_feature, other_logit in everyone:
            if other not in (image, -1):
                cosine = float(feature @ other_feature / feature.norm() / other_feature.norm())
                found.append((max(cosine, 0) ** 1.5, (other_logit / 2).sigmoid().numpy()))
        nearest = sorted(found, key=lambda pair: -pair[0])[:3]
        weight = sum(pair[0] for pair in nearest)
        if weight > 0:
            q, p = sum(share * scores for share, scores in nearest) / weight, (logit / 2).sigmoid().numpy()
            total += 4 * float((q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p))).sum())
            entries += 3
    found_value = method.divergence(features, logits, index, torch.ones(9, 3, dtype=torch.bool)).item()
    assert found_value == pytest.approx(total / entries, abs=1e-5)


def test_rows_without_a_similar_image_do_not_count(context: Context) -> None:
    features = torch.tensor([[1.0, 0], [1, 0.1], [-1, 0]])
    logits = torch.tensor([[1.0], [-1.0], [3.0]], requires_grad=True)
    method = in_the_plane(context, entries=4)
    everything = torch.ones(3, 1, dtype=torch.bool)
    loss = method.divergence(features, logits, THREE, everything)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert logits.grad[2] == 0
    without = method.divergence(features[:2], logits.detach()[:2], THREE[:2], everything[:2])
    assert loss.item() == pytest.approx(without.item(), abs=1e-6)
    nobody = method.divergence(features[:1], logits[:1], THREE[:1], everything[:1])
    assert nobody.item() == 0


def test_only_the_own_prediction_gets_gradient_and_unknown_entries_none(context: Context) -> None:
    logits = torch.randn(3, 1, requires_grad=True)
    method = in_the_plane(context, neighbours=2)
    known = torch.tensor([[True], [False], [True]])
    method.divergence(PLANE, logits, THREE, known).backward()
    q, _ = neighbour_mean(PLANE, THREE, PLANE, THREE, (logits.detach() / 2).sigmoid(), neighbours=2, power=1)
    wanted = 4 * ((logits.detach() / 2).sigmoid() - q) / 2 / 2 * known
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, wanted)


def test_queue_overwrites_the_oldest(context: Context) -> None:
    method = in_the_plane(context, entries=5)
    for start in (10, 12, 14):
        rows = torch.tensor([start, start + 1])
        method.enqueue(rows[:, None] * torch.ones(2), rows[:, None] / 10, rows)
    assert method.rows.tolist() == [15, 11, 12, 13, 14]
    assert method.features[:, 0].tolist() == [15, 11, 12, 13, 14]
    torch.testing.assert_close(method.logits[:, 0], method.rows / 10)
    method.enqueue(torch.ones(7, 2), torch.ones(7, 1), torch.arange(7))  # more than fit
    assert sorted(method.rows.tolist()) == [0, 1, 2, 3, 4]


def test_an_image_is_not_its_own_neighbour_in_the_queue(context: Context) -> None:
    method = in_the_plane(context, entries=2, neighbours=1, temperature=1)
    method.enqueue(PLANE[:2], torch.tensor([[5.0], [-2.0]]), torch.tensor([0, 1]))
    q, _ = neighbour_mean(
        PLANE[:1], torch.tensor([0]), method.features, method.rows, method.logits.sigmoid(), neighbours=1, power=1
    )
    assert q.item() == pytest.approx(torch.tensor(-2.0).sigmoid().item())


def test_without_weight_and_while_warming_it_is_cross_entropy(context: Context) -> None:
    for method in (Ncr(weight=0), Ncr(warmup=1.0)):
        method.prepare(TABLE, context)
        method.start_epoch(0, lambda score=None: torch.empty(0))
        networks = method.build(len(TABLE.classes), FIT, seed=0)
        batch = a_batch(context, list(range(16)))
        plain = masked_cross_entropy(networks[0](batch.view()), batch.targets).item()
        assert method.step(networks, batch).item() == pytest.approx(plain, abs=1e-6)
        assert method.rows[:16].tolist() == list(range(16))  # neighbours are collected from the start
        assert not method.features.requires_grad
        assert not method.logits.requires_grad


@pytest.mark.parametrize(("epochs", "warm"), [(30, 9), (12, 4), (8, 2), (2, 1)])
def test_warm_up_is_a_share_of_the_run(context: Context, epochs: int, warm: int) -> None:
    method = Ncr()
    method.prepare(TABLE, replace(context, fit=replace(FIT, epochs=epochs)))
    phases = []
    for epoch in range(epochs):
        method.start_epoch(epoch, lambda score=None: torch.empty(0))
        phases.append(method.phase(epoch))
    assert phases == [True] * warm + [False] * (epochs - warm)


def test_interrupted_equals_uninterrupted(context: Context, tmp_path: Path) -> None:
    class Interrupted(Ncr):
        def start_epoch(self, epoch: int, predict: Predict) -> None:
            if epoch == 2:
                raise KeyboardInterrupt
            super().start_epoch(epoch, predict)

    def train(method: Ncr, place: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        targets = method.prepare(TABLE, context).targets
        networks, _ = fit(
            method,
            context.images,
            targets,
            FIT,
            outputs=len(TABLE.classes),
            fabric=FABRIC,
            seed=0,
            directory=tmp_path / place,
            what="test",
        )
        return networks[0].state_dict(), method.buffers()

    settings = {"warmup": 0.3, "queue": 40}
    whole = train(Ncr(**settings), "whole")  # type: ignore[arg-type]
    assert whole[1]["place"] == 48 * 3 % 40
    with pytest.raises(KeyboardInterrupt):
        train(Interrupted(**settings), "parts")  # type: ignore[arg-type]
    for first, second in zip(whole, train(Ncr(**settings), "parts"), strict=True):  # type: ignore[arg-type]
        assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight": 1.5}, r"ncr.weight is 1.5"),
        ({"neighbours": 0}, "ncr.neighbours is 0"),
        ({"temperature": 0.0}, "ncr.temperature is 0"),
        ({"queue": -1}, "ncr.queue is -1"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Ncr(**settings)  # type: ignore[arg-type]
