"""The contrastive loss against worked cases and an obvious loop, and the learner around it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bomd.config import FitSettings
from bomd.data.batches import Images
from bomd.data.datasets import phantom
from bomd.data.store import pack
from bomd.describe.contrast import ContrastLearner, contrast_loss, keep_features
from bomd.errors import InputError
from bomd.learn.engine import Batch
from bomd.learn.learner import prepare

FIT = FitSettings(backbone="small", weights="none", augment="light")


def loop(first: torch.Tensor, second: torch.Tensor, temperature: float) -> float:
    """Every view asks in turn which of the others is its partner."""
    views = [*first.tolist(), *second.tolist()]
    count, total = len(first), 0.0

    def likeness(a: list[float], b: list[float]) -> float:
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        return math.exp(dot / math.hypot(*a) / math.hypot(*b) / temperature)

    for i, view in enumerate(views):
        others = sum(likeness(view, views[j]) for j in range(len(views)) if j != i)
        total -= math.log(likeness(view, views[(i + count) % len(views)]) / others)
    return total / len(views)


def test_two_orthogonal_images_with_identical_views() -> None:
    """Each view has its partner at cosine 1 and two others at 0: ln(1 + 2 / e)."""
    views = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert contrast_loss(views, views, 1.0).item() == pytest.approx(0.551445, abs=1e-6)


def test_one_image_has_nobody_to_be_mistaken_for() -> None:
    assert contrast_loss(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -1.0]]), 0.1).item() == 0


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
def test_agrees_with_the_loop(temperature: float) -> None:
    generator = torch.Generator().manual_seed(4)
    first, second = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    assert contrast_loss(first, second, temperature).item() == pytest.approx(loop(first, second, temperature))


def test_neither_length_nor_order_nor_which_view_is_first_matters() -> None:
    generator = torch.Generator().manual_seed(5)
    first, second = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    expected = contrast_loss(first, second, 0.2).item()
    order = torch.randperm(6, generator=generator)
    assert contrast_loss(7 * first, second / 3, 0.2).item() == pytest.approx(expected)
    assert contrast_loss(first[order], second[order], 0.2).item() == pytest.approx(expected)
    assert contrast_loss(second, first, 0.2).item() == pytest.approx(expected)
    assert contrast_loss(first, second[order], 0.2).item() != pytest.approx(expected)


def test_gradient_is_finite_and_pulls_the_views_together() -> None:
    first = torch.tensor([[1.0, 0.2], [0.1, 1.0]], requires_grad=True)
    second = torch.tensor([[1.0, -0.3], [-0.4, 1.0]])
    loss = contrast_loss(first, second, 0.5)
    (gradient,) = torch.autograd.grad(loss, first)
    assert gradient.isfinite().all()
    assert contrast_loss(first.detach() - 0.05 * gradient, second, 0.5) < loss


@pytest.mark.parametrize(
    ("second", "temperature", "message"),
    [(torch.ones(3, 2), 1.0, "shapes"), (torch.ones(2, 2), 0.0, "temperature is 0")],
)
def test_impossible_views_are_refused(second: torch.Tensor, temperature: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        contrast_loss(torch.ones(2, 2), second, temperature)


class TestLearner:
    def test_head_has_two_layers_and_depends_on_the_seed_alone(self) -> None:
        learner = ContrastLearner()
        heads = []
        for seed in (1, 1, 2):
            torch.rand(3)  # what was drawn before must not matter
            (network,) = learner.build(learner.outputs, FIT, seed)
            heads.append(network.head.state_dict())
            assert network(torch.zeros(2, 1, 32, 32)).shape == (2, 128)
        assert len(heads[0]) == 4
        assert all(torch.equal(value, heads[1][name]) for name, value in heads[0].items())
        assert not torch.equal(heads[0]["0.weight"], heads[2]["0.weight"])

    def test_building_leaves_the_global_generator_alone(self) -> None:
        torch.manual_seed(11)
        expected = torch.rand(2)
        torch.manual_seed(11)
        ContrastLearner().build(128, FIT, 0)
        assert torch.equal(torch.rand(2), expected)

    def test_descriptors_are_features_of_length_one(self) -> None:
        learner = ContrastLearner()
        networks = learner.build(learner.outputs, FIT, 0)
        networks[0].eval()
        images = torch.randn(3, 1, 32, 32, generator=torch.Generator().manual_seed(0))
        found, features = learner.predict(networks, images), networks[0].features(images)
        assert found.shape == (3, networks[0].feature_size)
        torch.testing.assert_close(found.norm(dim=1), torch.ones(3))
        torch.testing.assert_close(found * features.norm(dim=1, keepdim=True), features)

    def test_without_augmentation_there_is_nothing_to_learn(self) -> None:
        with pytest.raises(InputError, match=r"fit\.augment must not be none"):
            ContrastLearner().build(128, replace(FIT, augment="none"), 0)


def test_a_step_compares_two_views_of_the_same_images_at_a_temperature_of_a_tenth() -> None:
    learner = ContrastLearner()
    networks = learner.build(learner.outputs, FIT, seed=0)
    networks[0].eval()
    pixels = torch.randint(0, 256, (4, 32, 32), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    batch = Batch(torch.arange(4), torch.zeros(4, 1), pixels, 1)
    with torch.no_grad():
        views = networks[0](batch.view()).double()
        assert learner.step(networks, batch).item() == pytest.approx(loop(views, views, 0.1), rel=1e-4)


def test_features_of_all_images_are_written_in_their_order(tmp_path: Path) -> None:
    table = phantom.read(count=7)
    store = pack(table, tmp_path / "store", 32, render=phantom.render)
    images, learner = Images(store, table.ids, torch.device("cpu")), ContrastLearner()
    networks = learner.build(learner.outputs, FIT, 0)
    keep_features(learner, networks, images, tmp_path / "features.npy")
    found = np.load(tmp_path / "features.npy", mmap_mode="r")
    assert found.shape == (7, 1, networks[0].feature_size)
    with torch.no_grad():
        for row in range(7):
            one = learner.predict(networks, prepare(images.batch(torch.tensor([row])).float(), 1))
            np.testing.assert_allclose(found[row], one.numpy(), rtol=1e-4, atol=1e-6)
