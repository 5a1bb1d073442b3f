"""Global-local co-training: the filter, each term of the loss, the teachers, and who listens to whom."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bomd.config import DeviceSettings, FitSettings
from bomd.errors import InputError
from bomd.learn.engine import Batch, Predict, fit, make_fabric, predict
from bomd.methods.base import Context, masked_cross_entropy
from bomd.methods.xue import (
    Xue,
    contrast_of_noisy,
    cross_entropy_of_clean,
    relation_loss,
    relations,
    symmetric_divergence,
    trusted,
)
from bomd.networks.backbone import Network
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(
    backbone="small", weights="none", epochs=3, batch=16, rate=1e-3, betas=(0.9, 0.999), eps=1e-8, augment="light"
)
Train = tuple[LabelTable, Context]


def prepared(train: Train, fit_settings: FitSettings = FIT, **settings: Any) -> Xue:
    table, context = train
    method = Xue(**settings)
    method.prepare(table, replace(context, fit=fit_settings))
    return method


def built(method: Xue, train: Train) -> list[Network]:
    return method.build(len(train[0].classes), FIT, 0)


def a_batch(train: Train, order: Tensor) -> Batch:
    return Batch(order, torch.as_tensor(train[0].values)[order], train[1].images.batch(order), 1)


class TestGlobalTerm:
    def test_hand_sized(self) -> None:
        """Rows (.7, .3) and (.5, .5) differ by (.082283 + .087177) / 2."""
        one, other = torch.tensor([[0.7, 0.3]]).log(), torch.tensor([[0.5, 0.5]]).log()
        assert symmetric_divergence(one, other).item() == pytest.approx(0.084730, abs=1e-6)
        assert symmetric_divergence(torch.cat([one, one]), torch.cat([other, one])).item() == pytest.approx(
            0.084730 / 2, abs=1e-6
        )

    def test_turned_and_stretched_features_have_the_same_relations(self) -> None:
        one, other = torch.tensor([[1.0, 0], [0, 1]]), torch.tensor([[0, -3.0], [2, 0]])
        assert relation_loss(one, other).item() == pytest.approx(0, abs=1e-7)
        assert relation_loss(one, torch.tensor([[1.0, 0], [1, 1]])).item() > 0.01

    def test_relations_as_a_loop(self) -> None:
        features = np.random.default_rng(0).normal(size=(5, 7))
        for row in range(5):
            cosines = [
                features[row] @ other / np.linalg.norm(features[row]) / np.linalg.norm(other) for other in features
            ]
            powers = np.exp(np.array(cosines) / 0.1)
            found = relations(torch.as_tensor(features))[row].exp().numpy()
            np.testing.assert_allclose(found, powers / powers.sum(), rtol=1e-9)


class TestLocalTerm:
    def test_two_orthogonal_images_with_equal_views(self) -> None:
        views = torch.eye(2)
        assert contrast_of_noisy(views, views, torch.ones(2), 1.0).item() == pytest.approx(0.551445, abs=1e-6)

    @given(st.integers(0, 10_000))
    def test_clean_images_do_not_count_as_a_loop_over_the_others_shows(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        first, second = random.normal(size=(2, 6, 4))
        noisy = random.random(6) < 0.6
        rows = np.flatnonzero(noisy)
        views = np.concatenate([first[rows], second[rows]])
        views /= np.linalg.norm(views, axis=1, keepdims=True)
        losses = []
        for place in range(len(views)):
            partner = (place + len(rows)) % len(views)
            powers = [np.exp(views[place] @ views[other] / 0.5) for other in range(len(views)) if other != place]
            losses.append(np.log(sum(powers)) - views[place] @ views[partner] / 0.5)
        weights = torch.as_tensor(noisy).double()
        found = contrast_of_noisy(torch.as_tensor(first), torch.as_tensor(second), weights, 0.5)
        assert found.item() == pytest.approx(np.mean(losses) if losses else 0, abs=1e-9)

    @pytest.mark.parametrize("noisy", [0, 1])
    def test_fewer_than_two_noisy_images_teach_nothing(self, noisy: int) -> None:
        views = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
        weights = torch.tensor([float(place < noisy) for place in range(4)])
        loss = contrast_of_noisy(views[0], views[1], weights, 0.5)
        loss.backward()  # type: ignore[no-untyped-call]
        assert loss.item() == pytest.approx(0, abs=1e-6)
        assert cast(Tensor, views.grad).abs().max() < 1e-6


class TestCleanLabels:
    def test_all_clean_is_cross_entropy_and_missing_labels_do_not_count(self) -> None:
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(8, 4, generator=generator, requires_grad=True)
        targets = (torch.rand(8, 4, generator=generator) < 0.3).float()
        targets[2, 3] = torch.nan
        clean = torch.ones(8)
        loss = cross_entropy_of_clean(logits, targets, clean)
        assert loss.item() == pytest.approx(masked_cross_entropy(logits, targets).item(), abs=1e-6)
        clean[4:] = 0
        part = cross_entropy_of_clean(logits, targets, clean)
        part.backward()  # type: ignore[no-untyped-call]
        assert part.item() == pytest.approx(masked_cross_entropy(logits[:4], targets[:4]).item(), abs=1e-6)
        gradient = cast(Tensor, logits.grad)
        assert gradient[2, 3] == 0
        assert not gradient[4:].any()
        assert cross_entropy_of_clean(logits, targets, torch.zeros(8)).item() == 0


class TestFilter:
    def test_high_losses_are_noisy_and_unlabelled_images_stay(self) -> None:
        random = np.random.default_rng(0)
        labels = (random.random((60, 4)) < 0.5).astype(np.float32)
        logits = ((2 * labels - 1) * (2 + 0.2 * random.random((60, 4)))).astype(np.float32)
        logits[:15] *= -1  # a quarter contradicts its labels
        labels[20] = np.nan
        labels[30, 1] = np.nan
        found = trusted(logits, labels, 0.5)
        assert not found[:15].any()
        assert found[15:].all()

    def test_a_lower_threshold_trusts_less(self) -> None:
        random = np.random.default_rng(1)
        labels = (random.random((400, 4)) < 0.5).astype(np.float32)
        logits = ((2 * labels - 1) * random.normal(1, 1.5, size=(400, 4))).astype(np.float32)
        strict, lenient = trusted(logits, labels, 0.5), trusted(logits, labels, 0.9)
        assert strict.sum() < lenient.sum() < 400
        assert lenient[strict].all()

    def test_threshold_falls_and_weight_rises_over_a_third_of_the_run(
        self, train: Train, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thresholds = []

        def record(logits: np.ndarray, labels: np.ndarray, threshold: float) -> np.ndarray:
            thresholds.append(threshold)
            return np.ones(len(labels), dtype=bool)

        monkeypatch.setattr("bomd.methods.xue.trusted", record)
        method = prepared(train, replace(FIT, epochs=30), warmup=0.01)
        pulls = []
        for epoch in range(12):
            method.start_epoch(epoch, cast(Predict, lambda score: torch.zeros(48, 2)))
            pulls.append(method.pull.item())
        assert thresholds[::2] == pytest.approx([0.9 - 0.04 * min(epoch, 10) for epoch in range(1, 12)])
        assert pulls == pytest.approx([np.exp(-5 * (1 - min(epoch, 10) / 10) ** 2) for epoch in range(12)])

    def test_each_teacher_judges_by_its_own_logits_after_the_warmup(self, train: Train) -> None:
        table = train[0]
        truth = torch.as_tensor(table.values).nan_to_num()
        right = (2 * truth - 1) * (2 + torch.rand(truth.shape, generator=torch.Generator().manual_seed(0)))
        wrong_rows = right.clone()
        wrong_rows[:10] *= -1
        method = prepared(train, warmup=0.3)
        answer = cast(Predict, lambda score: torch.cat([right, wrong_rows], dim=1))
        method.start_epoch(0, answer)
        assert method.clean.all()
        method.start_epoch(2, answer)
        assert not method.clean[1, :10].any()
        assert method.clean[1, 10:].all()
        assert not torch.equal(method.clean[0], method.clean[1])


class TestStep:
    def test_without_weight_and_noise_both_students_see_cross_entropy(self, train: Train) -> None:
        method = prepared(train, weight=0.0)
        networks = built(method, train)
        batch = a_batch(train, torch.arange(16))
        expected = sum(masked_cross_entropy(network(batch.view()), batch.targets).item() for network in networks[:2])
        assert method.step(networks, batch).item() == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("student", [0, 1])
    def test_a_student_listens_to_the_other_teacher(self, train: Train, student: int) -> None:
        method = prepared(train, weight=0.0)
        method.clean[1 - student] = 0  # the other teacher trusts nothing
        networks = built(method, train)
        method.step(networks, a_batch(train, torch.arange(16))).backward()  # type: ignore[no-untyped-call]
        moved = [cast(Tensor, network.head.bias.grad).abs().sum().item() > 0 for network in networks[:2]]
        assert moved[student] is False
        assert moved[1 - student] is True

    def test_every_student_weight_is_trained_and_no_teacher(self, train: Train) -> None:
        method = prepared(train)
        method.clean[:, ::2] = 0
        networks = built(method, train)
        method.step(networks, a_batch(train, torch.arange(16))).backward()  # type: ignore[no-untyped-call]
        for network in networks[:2]:
            assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in network.parameters())
            assert any(weight.grad.any() for weight in network.get_submodule("projection").parameters())  # type: ignore[union-attr]
        assert all(weight.grad is None for network in networks[2:] for weight in network.parameters())

    def test_order_does_not_matter(self, train: Train) -> None:
        losses = []
        for order in (torch.arange(16), torch.arange(16).flip(0)):
            method = prepared(train)
            method.pull.fill_(1.0)
            method.clean[:, ::3] = 0
            losses.append(method.step(built(method, train), a_batch(train, order)).item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)


class TestTeachers:
    def test_they_start_as_copies_and_students_differ(self, train: Train) -> None:
        first, second, teacher, other = built(prepared(train), train)
        for student, copied in ((first, teacher), (second, other)):
            weights = student.state_dict()
            assert all(torch.equal(value, weights[name]) for name, value in copied.state_dict().items())
        assert not torch.equal(first.head.weight, second.head.weight)  # type: ignore[arg-type]
        projections = [student.get_submodule("projection").state_dict()["0.weight"] for student in (first, second)]
        assert not torch.equal(*projections)

    def test_they_are_a_mean_at_first_and_an_average_that_forgets_later(self, train: Train) -> None:
        method = prepared(train, average=0.75)
        networks = built(method, train)
        seen = [networks[1].head.bias.detach().clone()]  # type: ignore[operator]
        expected = seen[0]
        for step in range(1, 7):
            with torch.no_grad():
                for weight in networks[1].parameters():
                    weight += step
            method.after_step(networks)
            seen.append(networks[1].head.bias.detach().clone())  # type: ignore[operator]
            expected = torch.stack(seen).mean(0) if step <= 3 else 0.75 * expected + 0.25 * seen[-1]
            torch.testing.assert_close(networks[3].head.bias.detach(), expected)  # type: ignore[operator]
        still = zip(networks[0].head.parameters(), networks[2].head.parameters(), strict=True)
        assert all(torch.allclose(one, other) for one, other in still)

    @pytest.mark.parametrize("settings", [{"weight": -1.0}, {"ramp": 1.5}, {"average": 1.0}, {"temperature": 0.0}])
    def test_impossible_settings_are_refused(self, settings: dict[str, float]) -> None:
        with pytest.raises(InputError, match=r"xue\."):
            Xue(**settings)  # type: ignore[arg-type]


def test_the_mean_of_both_teachers_is_the_prediction(train: Train, tmp_path: Path) -> None:
    table, context = train
    method = Xue()
    method.prepare(table, context)
    networks, history = fit(
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
    # Two students with two views each and two teachers; after the warm-up both teachers judge every image.
    assert [epoch["images"] for epoch in history] == [6 * 48, 8 * 48, 8 * 48]
    assert method.steps.item() == 9
    assert (method.clean == 0).any()
    one, other = (
        predict(method, networks, context.images, score=lambda built, pixels, place=place: built[place](pixels))
        for place in (2, 3)
    )
    found = predict(method, networks, context.images)
    torch.testing.assert_close(found, (one.sigmoid() + other.sigmoid()) / 2)
    students = predict(method, networks, context.images, score=lambda built, pixels: built[0](pixels).sigmoid())
    assert not torch.allclose(found, students)
