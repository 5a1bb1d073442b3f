"""Non-volatile unbiased memory: the term, the memory, the averaged network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from bomd.config import DeviceSettings, FitSettings
from bomd.data.batches import Images
from bomd.data.datasets import phantom
from bomd.data.store import pack
from bomd.errors import InputError
from bomd.learn.engine import Batch, Predict, fit, make_fabric, predict
from bomd.methods.base import Context, masked_cross_entropy
from bomd.methods.nvum import Nvum, class_prior
from bomd.models import model
from bomd.runs import Stages
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(backbone="small", weights="none", epochs=3, batch=16, rate=1e-3, eps=1e-8, augment="light")
TABLE = phantom.read(count=48)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    folder = tmp_path_factory.mktemp("nvum")
    store = pack(TABLE, folder / "store", 32, render=phantom.render)
    return Context(Images(store, TABLE.ids, FABRIC.device), FIT, FABRIC, 0, Stages(folder / "stages"))


def prepared(context: Context, **settings: float) -> Nvum:
    method = Nvum(**settings)  # type: ignore[arg-type]
    method.prepare(TABLE, context)
    return method


def a_batch(context: Context, rows: list[int]) -> Batch:
    index = torch.tensor(rows)
    return Batch(index, torch.as_tensor(TABLE.values)[index], context.images.batch(index), 1)


def one_class(positives: int, context: Context, **settings: float) -> Nvum:
    """A method for 10 images of one class, so many of them positive."""
    values = np.zeros((10, 1), dtype=np.float32)
    values[:positives] = 1
    method = Nvum(**settings)  # type: ignore[arg-type]
    method.prepare(LabelTable(np.array([str(number) for number in range(10)]), ("Mass",), values), context)
    return method


def test_by_hand(context: Context) -> None:
    """Memory 0.1 (1 - ln 0.1) = 0.330259, term -softplus(0.330259 * 0.731059) = -0.821135."""
    row, logits, label = torch.tensor([4]), torch.ones(1, 1), torch.ones(1, 1)
    for weight, expected in ((1.0, -0.507874), (0.0, 0.313262)):
        method = one_class(1, context, weight=weight)
        method.remember(logits, row)
        assert method.memory[4].item() == pytest.approx(0.330259, abs=1e-6)
        assert method.loss(logits, label, row).item() == pytest.approx(expected, abs=1e-6)


def test_memory_follows_its_own_row_without_gradient(context: Context) -> None:
    method = one_class(1, context)
    method.remember(torch.full((1, 1), 2.0, requires_grad=True), torch.tensor([4]))
    first = method.memory.clone()
    method.remember(torch.full((1, 1), 2.0, requires_grad=True), torch.tensor([5]))
    assert method.memory[4] == first[4]
    method.remember(torch.full((1, 1), 2.0, requires_grad=True), torch.tensor([4]))
    assert method.memory[4].item() == pytest.approx(0.19 * (2 - np.log(0.1)), abs=1e-6)
    assert not method.memory.requires_grad
    assert (method.memory != 0).sum() == 2


def test_gradient_flows_through_the_prediction_and_skips_unknown_labels(context: Context) -> None:
    method = one_class(5, context, weight=2.0)
    rows, labels = torch.tensor([0, 1, 2]), torch.tensor([[1.0], [torch.nan], [0.0]])
    method.remember(torch.tensor([[3.0], [3.0], [-2.0]]), rows)
    logits = torch.tensor([[0.5], [1.0], [-1.5]], requires_grad=True)
    method.loss(logits, labels, rows).backward()
    p, memory = logits.detach().sigmoid(), method.memory[rows]
    wanted = (p - labels - 2 * (memory * p).sigmoid() * memory * p * (1 - p)) / 2
    wanted[1] = 0
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, wanted)
    plain = (p - labels) / 2
    assert logits.grad[0] < plain[0]  # remembered as positive: up
    assert logits.grad[2] > plain[2]  # remembered as negative: down


def test_prior_of_findings_is_scaled_by_how_often_there_is_any() -> None:
    nan = np.nan
    values = np.array([[1, 0, 0], [0, 0, 1], [1, nan, 0], [0, 0, 1]], dtype=np.float32)
    ids = np.array(list("abcd"))
    found = class_prior(LabelTable(ids, ("Mass", "Nodule", "No Finding"), values))
    np.testing.assert_allclose(found, [0.5 * 0.5, 0, 0.5])
    np.testing.assert_allclose(class_prior(LabelTable(ids, ("Mass", "Nodule", "Edema"), values)), [0.5, 0, 0.5])


def test_mixing_keeps_at_least_half_of_an_images_own_memory(context: Context) -> None:
    rows, labels = torch.tensor([0, 1]), torch.tensor([[0.0], [torch.nan]])  # only the first image counts
    logits = torch.tensor([[0.0], [0.0]])
    method = one_class(5, context, mix=True)
    method.memory[1] = 4.0
    torch.manual_seed(0)
    found = [method.loss(logits, labels, rows).item() - np.log(2) for _ in range(200)]
    memories = 2 * np.log(np.expm1(-np.array(found)))  # of term = -softplus(memory / 2)
    assert memories.min() == pytest.approx(0, abs=1e-5)  # the other image is often the image itself
    assert 1.9 < memories.max() <= 2 + 1e-5


def test_without_weight_it_is_cross_entropy(context: Context) -> None:
    method = prepared(context, weight=0.0)
    networks = method.build(len(TABLE.classes), FIT, seed=0)
    batch = a_batch(context, list(range(16)))
    plain = masked_cross_entropy(networks[0](batch.view()), batch.targets).item()
    assert method.step(networks, batch).item() == pytest.approx(plain, abs=1e-6)


def test_memory_is_written_by_the_averaged_network_in_training_mode(context: Context) -> None:
    method = prepared(context, momentum=0.0)
    networks = method.build(len(TABLE.classes), FIT, seed=0)
    for weight in networks[1].head.parameters():
        weight.data.mul_(2)
    for network in networks:
        network.train()
    batch = a_batch(context, [3, 1, 40, 7])
    method.step(networks, batch)
    wanted = networks[1](batch.view()).detach() - torch.as_tensor(class_prior(TABLE) + 1e-12).log().float()
    torch.testing.assert_close(method.memory[[3, 1, 40, 7]], wanted)
    assert (method.memory != 0).any(1).sum() == 4


def test_average_of_weights_by_hand(context: Context) -> None:
    """The mean of the weights 1, 2 and 4 (times the start), then 0.3 of the way to 10 and back to 0."""
    method = prepared(context, average=0.7)
    networks = method.build(3, FIT, seed=0)
    trained, averaged = ([*network.parameters()] for network in networks)
    start = [weight.detach().clone() for weight in trained]
    for before, after in zip(trained, averaged, strict=True):
        assert torch.equal(before, after)
    for factor, wanted in ((1, 1), (2, 1.5), (4, 7 / 3), (10, 7 / 3 * 0.7 + 3), (0, 0.7 * (7 / 3 * 0.7 + 3))):
        for weight, first in zip(trained, start, strict=True):
            weight.data.copy_(factor * first)
        method.after_step(networks)
        for weight, first in zip(averaged, start, strict=True):
            torch.testing.assert_close(weight, wanted * first)
    assert not any(weight.requires_grad for weight in averaged)
    assert all(weight.requires_grad for weight in trained)


def test_averaged_network_collects_statistics_of_its_own(context: Context) -> None:
    method = prepared(context)
    networks = method.build(len(TABLE.classes), FIT, seed=0)
    with torch.no_grad():
        next(networks[1].parameters()).mul_(3)  # its first convolution, whose output the first statistics describe
    for network in networks:
        network.train()
    method.step(networks, a_batch(context, [3, 1, 40, 7]))
    method.after_step(networks)
    variances = [
        next(values for name, values in network.state_dict().items() if name.endswith("running_var"))
        for network in networks
    ]
    torch.testing.assert_close(variances[1] - 0.9, 9 * (variances[0] - 0.9), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("schedule", "last"), [("constant", 0.01), ("cosine", 1.0)])
def test_rate_falls_twice_where_the_recipe_leaves_it_constant(
    context: Context, schedule: Literal["constant", "cosine"], last: float
) -> None:
    method = Nvum()
    method.prepare(TABLE, replace(context, fit=replace(FIT, schedule=schedule)))
    found = [method.pace(done) for done in (0, 0.69, 0.7, 0.89, 0.9, 0.99)]
    assert found == [1, 1, last**0.5, last**0.5, last, last]


def test_interrupted_equals_uninterrupted_and_the_average_is_kept(context: Context, tmp_path: Path) -> None:
    class Interrupted(Nvum):
        def start_epoch(self, epoch: int, predict: Predict) -> None:
            if epoch == 2:
                raise KeyboardInterrupt

    def train(method: Nvum, place: str) -> tuple[list[dict[str, Tensor]], Tensor, Tensor]:
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
        scores = predict(method, networks, context.images)
        model.save(tmp_path / place / "model", method.deployed(networks), TABLE.classes, 32)
        return [network.state_dict() for network in networks], method.memory, scores

    weights, memory, scores = train(Nvum(average=0.5), "whole")
    assert not torch.equal(weights[0]["head.weight"], weights[1]["head.weight"])
    assert (memory != 0).any(1).all()
    with pytest.raises(KeyboardInterrupt):
        train(Interrupted(average=0.5), "parts")
    weights_again, memory_again, scores_again = train(Nvum(average=0.5), "parts")
    assert torch.equal(memory, memory_again)
    assert torch.equal(scores, scores_again)
    for first, second in zip(weights, weights_again, strict=True):
        assert all(torch.equal(first[name], second[name]) for name in first)

    saved = model.load(tmp_path / "parts" / "model")
    assert len(saved.networks) == 1
    torch.testing.assert_close(saved.probabilities(context.images.batch(torch.arange(48))), scores)


@pytest.mark.parametrize("settings", [{"momentum": 1.0}, {"average": -0.1}])
def test_impossible_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InputError, match="must be at least 0 and below 1"):
        Nvum(**settings)  # type: ignore[arg-type]
