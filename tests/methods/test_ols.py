"""Online label smoothing by class (ols) and by image (ols-sample)."""

from __future__ import annotations

import copy
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
from bomd.learn.engine import Predict, fit, make_fabric
from bomd.methods.base import Context, Method, masked_cross_entropy
from bomd.methods.ols import Ols, given_means
from bomd.methods.ols_sample import OlsSample
from bomd.runs import Stages
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(backbone="small", weights="none", epochs=3, batch=16, rate=1e-3, eps=1e-8, augment="light")
PAIR = torch.tensor([0, 1])


def never(score: object = None) -> Tensor:
    raise AssertionError("No pass over the training set is needed.")


def table_of(values: object) -> LabelTable:
    rows = np.asarray(values, dtype=np.float32)
    classes = tuple(f"class {number}" for number in range(rows.shape[1]))
    return LabelTable(np.array([f"image {number}" for number in range(len(rows))]), classes, rows)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    folder = tmp_path_factory.mktemp("ols")
    table = phantom.read(count=48)
    store = pack(table, folder / "store", 32, render=phantom.render)
    return Context(Images(store, table.ids, FABRIC.device), FIT, FABRIC, 0, Stages(folder / "stages"))


class TestByClass:
    def test_table_by_hand(self, context: Context) -> None:
        """Both images are right about all their positives: row 0 is the mean of two, row 1 the second's alone."""
        labels = table_of([[1, 0], [1, 1]])
        method = Ols()
        method.prepare(labels, context)
        logits = torch.tensor([[0.8, 0.3], [0.6, 0.7]]).logit()
        method.loss(logits, torch.as_tensor(labels.values), PAIR)
        method.start_epoch(1, never)
        torch.testing.assert_close(method.table, torch.tensor([[0.7, 0.5], [0.6, 0.7]]))
        assert not method.sums.any()
        assert not method.counts.any()
        found = method.loss(logits, torch.as_tensor(labels.values), PAIR)
        wanted = torch.tensor([[(1 + 0.7) / 2, (0 + 0.5) / 2], [(1 + 0.65) / 2, (1 + 0.6) / 2]])
        torch.testing.assert_close(found, masked_cross_entropy(logits, wanted))

    def test_against_a_loop(self, context: Context) -> None:
        generator = torch.Generator().manual_seed(0)
        values = (torch.rand(30, 5, generator=generator) < 0.4).float()
        values[3] = 0  # without a positive: learns from its own label
        values[4, :2] = torch.nan
        method = Ols(weight=0.3)
        method.prepare(table_of(values.numpy()), context)
        wanted = np.zeros((5, 5))
        for k in range(5):
            for c in range(5):
                among = [float(row[c]) for row in values if row[k] == 1 and not row[c].isnan()]
                wanted[k, c] = np.mean(among) if among else 0
        np.testing.assert_allclose(method.table.numpy(), wanted, atol=1e-6)

        for epoch in range(2):
            method.start_epoch(epoch, never)
            sums, counts, total, entries = np.zeros((5, 5)), np.zeros(5), 0.0, 0
            logits = torch.randn(30, 5, generator=generator)
            for i in range(30):
                known = [c for c in range(5) if not values[i, c].isnan()]
                positives = [c for c in known if values[i, c] == 1]
                highest = sorted(known, key=lambda c: -logits[i, c].item())[: len(positives)]
                for k in set(positives) & set(highest):
                    sums[k] += logits[i].sigmoid().numpy()
                    counts[k] += 1
                for c in known:
                    soft = np.mean([wanted[k, c] for k in positives]) if positives else float(values[i, c])
                    target = 0.7 * float(values[i, c]) + 0.3 * soft
                    p = logits[i, c].sigmoid().item()
                    total -= target * np.log(p) + (1 - target) * np.log(1 - p)
                    entries += 1
            together = copy.deepcopy(method).loss(logits, values, torch.arange(30))
            assert together.item() == pytest.approx(total / entries, abs=1e-5)
            for part in torch.arange(30).split(10):
                method.loss(logits[part], values[part], part)
            np.testing.assert_allclose(method.sums.numpy(), sums, atol=1e-5)
            np.testing.assert_array_equal(method.counts.numpy(), counts)
            wanted = np.where(counts[:, None] > 0, sums / counts.clip(min=1)[:, None], wanted)

    def test_a_class_that_nobody_was_right_about_keeps_its_row(self, context: Context) -> None:
        labels = table_of([[1, 0, 0], [0, 1, 1]])
        method = Ols()
        method.prepare(labels, context)
        before = method.table.clone()
        method.loss(torch.tensor([[-3.0, 3.0, 0.0], [5.0, 4.0, -4.0]]), torch.as_tensor(labels.values), PAIR)
        method.start_epoch(1, never)
        torch.testing.assert_close(method.table[[0, 2]], before[[0, 2]])
        torch.testing.assert_close(method.table[1], torch.tensor([5.0, 4.0, -4.0]).sigmoid())

    def test_labels_given_a_class(self) -> None:
        nan = torch.nan
        labels = torch.tensor([[1.0, 0.0, 1.0], [1.0, nan, 0.0], [0.0, 1.0, nan]])
        wanted = torch.tensor([[1.0, 0.0, 0.5], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
        torch.testing.assert_close(given_means(labels), wanted)


class TestBySample:
    def test_by_hand(self, context: Context) -> None:
        labels = table_of([[1, 0], [0, 1]])
        method = OlsSample(smoothing=0.4)
        method.prepare(labels, context)
        index, target = torch.tensor([1]), torch.as_tensor(labels.values[1:])
        logits = torch.tensor([[0.3, 0.2]]).logit()
        found = method.loss(logits, target, index)
        average = torch.tensor([[0.03, 0.92]])
        torch.testing.assert_close(method.memory, torch.tensor([[1, 0], [0.03, 0.92]]))
        torch.testing.assert_close(found, masked_cross_entropy(logits, 0.6 * target + 0.4 * average))
        method.loss(logits, target, index)
        torch.testing.assert_close(method.memory, torch.tensor([[1, 0], [0.057, 0.848]]))
        assert not method.memory.requires_grad


@pytest.mark.parametrize("kind", [Ols, OlsSample])
class TestBoth:
    def test_without_weight_it_is_cross_entropy(self, kind: type[Method], context: Context) -> None:
        method = Ols(weight=0) if kind is Ols else OlsSample(smoothing=0)
        labels = table_of((torch.rand(6, 4) < 0.4).float().numpy())
        method.prepare(labels, context)
        logits, targets = torch.randn(6, 4), torch.as_tensor(labels.values)
        expected = masked_cross_entropy(logits, targets).item()
        assert method.loss(logits, targets, torch.arange(6)).item() == pytest.approx(expected, abs=1e-6)

    def test_unknown_entries_get_no_gradient(self, kind: type[Method], context: Context) -> None:
        labels = table_of([[1, np.nan, 0], [0, 1, 1]])
        method = kind()
        method.prepare(labels, context)
        logits = torch.randn(2, 3, requires_grad=True)
        method.loss(logits, torch.as_tensor(labels.values), PAIR).backward()
        assert logits.grad is not None
        assert logits.grad[0, 1] == 0
        assert (logits.grad != 0).sum() == 5
        assert all(values.isfinite().all() and not values.requires_grad for values in method.buffers().values())

    def test_interrupted_equals_uninterrupted(self, kind: type[Method], context: Context, tmp_path: Path) -> None:
        class Interrupted(kind):  # type: ignore[valid-type, misc]
            def start_epoch(self, epoch: int, predict: Predict) -> None:
                if epoch == 2:
                    raise KeyboardInterrupt
                super().start_epoch(epoch, predict)

        labels = phantom.read(count=48)

        def train(method: Method, place: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
            targets = method.prepare(labels, context).targets
            networks, _ = fit(
                method,
                context.images,
                targets,
                FIT,
                outputs=len(labels.classes),
                fabric=FABRIC,
                seed=0,
                directory=tmp_path / place,
                what="test",
            )
            return networks[0].state_dict(), method.buffers()

        whole = train(kind(), "whole")
        with pytest.raises(KeyboardInterrupt):
            train(Interrupted(), "parts")
        for first, second in zip(whole, train(kind(), "parts"), strict=True):
            assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("kind", "settings"), [(Ols, {"weight": 1.5}), (OlsSample, {"smoothing": -1}), (OlsSample, {"momentum": 2})]
)
def test_impossible_settings_are_refused(kind: type[Method], settings: dict[str, float]) -> None:
    with pytest.raises(InputError, match=rf"{next(iter(settings))} is .* must be at least 0 and at most 1"):
        kind(**settings)
