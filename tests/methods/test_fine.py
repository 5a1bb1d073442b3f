"""FINE: selection by the main direction of each class."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bomd.config import DeviceSettings, FitSettings
from bomd.errors import InputError
from bomd.learn.engine import fit, make_fabric
from bomd.methods.base import Context, masked_cross_entropy
from bomd.methods.fine import Fine, alignment
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(
    backbone="small", weights="none", epochs=5, batch=16, rate=1e-3, betas=(0.9, 0.999), eps=1e-8, augment="light"
)


def prepared(context: Context, labels: np.ndarray, **settings: Any) -> Fine:
    names = tuple(f"class {number}" for number in range(labels.shape[1]))
    method = Fine(**settings)
    method.prepare(LabelTable(np.arange(len(labels)).astype(str), names, labels), context)
    return method


def test_alignment_by_hand() -> None:
    """The matrix of the three features is [[1.81, .09], [.09, 1.01]], with a leading eigenvalue of 1.82."""
    features = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    scores = alignment(features, torch.tensor([True, True, True]))
    assert scores.tolist() == pytest.approx([0.993884, 1.0, 0.110432], abs=1e-6)
    assert alignment(-features, torch.tensor([True, True, True])).tolist() == pytest.approx(scores.tolist())


def test_only_trusted_images_decide_about_the_direction() -> None:
    features = torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 2.0]])
    assert alignment(features, torch.tensor([True, False, False])).tolist() == pytest.approx([1.0, 0.6, 0.0])
    everyone = alignment(features, torch.tensor([True, True, True]))
    assert alignment(features, torch.tensor([False, False, False])).tolist() == pytest.approx(everyone.tolist())


def a_selection(context: Context, **settings: Any) -> tuple[Fine, Tensor, np.ndarray]:
    """60 images of class 0 and 60 of class 1; the last 12 of either lie with the other class, the first 3 have both."""
    generator = np.random.default_rng(0)
    labels = np.zeros((120, 3), dtype=np.float32)
    labels[:60, 0] = 1
    labels[60:, 1] = 1
    labels[:3, 1] = 1
    labels[117:, 2] = 1  # too few to judge
    directions = np.repeat([0, 1, 1, 0], [48, 12, 48, 12])
    features = np.eye(4)[directions] * generator.uniform(1, 3, (120, 1)) + generator.normal(0, 0.1, (120, 4))
    return prepared(context, labels, **settings), torch.from_numpy(features).float(), labels


def test_images_that_lie_with_another_class_are_rejected(train: tuple[LabelTable, Context]) -> None:
    method, features, _ = a_selection(train[1])
    kept = method.select(features, torch.ones(120, 3, dtype=torch.bool))
    wanted = np.ones((120, 3), dtype=bool)
    wanted[48:60, 0] = False
    wanted[108:, 1] = False
    wanted[:3, 1] = False  # their second label lies with class 0
    np.testing.assert_array_equal(kept.numpy(), wanted)


def test_rejected_images_have_no_weight(train: tuple[LabelTable, Context]) -> None:
    labels = np.array([[1, 0], [1, 1], [0, 1], [0, 0]], dtype=np.float32)
    logits, targets, index = torch.randn(4, 2), torch.from_numpy(labels), torch.arange(4)
    for per_label, counted in ((False, [[1, 1], [0, 0], [1, 1], [1, 1]]), (True, [[1, 1], [1, 0], [1, 1], [1, 1]])):
        method = prepared(train[1], labels, per_label=per_label)
        torch.testing.assert_close(method.loss(logits, targets, index), masked_cross_entropy(logits, targets))
        method.clean[1, 1] = 0
        masked = torch.where(torch.tensor(counted) == 1, targets, torch.nan)
        torch.testing.assert_close(method.loss(logits, targets, index), masked_cross_entropy(logits, masked))
        order = torch.tensor([2, 0, 3, 1])
        shuffled = method.loss(logits[order], targets[order], order)
        torch.testing.assert_close(shuffled, method.loss(logits, targets, index))


def test_unknown_labels_get_no_gradient_and_are_not_judged(train: tuple[LabelTable, Context]) -> None:
    labels = np.array([[1, np.nan], [np.nan, 0]], dtype=np.float32)
    method = prepared(train[1], labels, fewest=1)
    assert method.positive.tolist() == [[True, False], [False, False]]
    logits = torch.randn(2, 2, requires_grad=True)
    method.loss(logits, torch.from_numpy(labels), torch.arange(2)).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert ((logits.grad == 0) == torch.from_numpy(np.isnan(labels))).all()
    method.clean.zero_()
    assert method.loss(logits, torch.from_numpy(labels), torch.arange(2)).item() == 0


def test_selects_after_the_warm_up_and_then_every_few_epochs(train: tuple[LabelTable, Context]) -> None:
    method, features, _ = a_selection(replace(train[1], fit=replace(FIT, epochs=10)), warmup=0.2, every=0.3)
    asked = []
    for epoch in range(9):
        before = method.clean.clone()

        def predict(score: Any = None, epoch: int = epoch) -> Tensor:
            asked.append(epoch)
            return features

        method.start_epoch(epoch, predict)
        assert torch.equal(before, method.clean) == (epoch != 2)  # the second selection confirms the first
    assert asked == [2, 5, 8]
    assert not method.clean.requires_grad


def test_later_directions_come_from_what_was_kept(train: tuple[LabelTable, Context]) -> None:
    """Trust in only the wrong images of class 0 turns its direction, and so the verdict on the whole class."""
    method, features, _ = a_selection(train[1])
    before = torch.ones(120, 3, dtype=torch.bool)
    before[:48, 0] = False
    kept = method.select(features, before)[:, 0]
    assert not kept[:48].any()
    assert kept[48:].all()


def test_a_run_that_was_stopped_ends_like_one_that_was_not(train: tuple[LabelTable, Context], tmp_path: Path) -> None:
    """Stopped between two selections: the last one has to survive."""
    table, context = train

    def run(place: str, epochs: int) -> tuple[Fine, dict[str, Tensor]]:
        method = Fine(warmup=0.25, every=1.0, fewest=10)
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

    whole, expected = run("whole", 4)
    run("parts", 3)
    resumed, found = run("parts", 4)
    assert (whole.clean == 0).any()
    torch.testing.assert_close(resumed.clean, whole.clean)
    for name, value in expected.items():
        assert torch.equal(value, found[name]), name


def test_impossible_settings_get_one_line_and_a_short_run_says_so(train: tuple[LabelTable, Context]) -> None:
    table, context = train
    with pytest.raises(InputError, match=r"fine\.every is 3, but must be a share of all epochs"):
        Fine(every=3)
    assert Fine().prepare(table, context).notes == ()
    assert "nothing is selected" in Fine(warmup=1.0).prepare(table, context).notes[0]
