"""AUC margin: the value of the game, its moves, its two parts."""

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
from bomd.learn.engine import Predict, fit, make_fabric
from bomd.methods.auc_margin import AucMargin, margin_loss, occupancy
from bomd.methods.base import Context, masked_cross_entropy
from bomd.runs import Stages
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(backbone="small", weights="none", epochs=4, batch=16, rate=1e-3, eps=1e-8, augment="light")
TABLE = phantom.read(count=48)
HALF = [[1], [0], [0], [1]]
SCORES = torch.tensor([[0.9], [0.4], [0.2], [0.6]])
FOUR = torch.arange(4)


def never(score: object = None) -> Tensor:
    raise AssertionError("No pass over the training set is needed.")


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    folder = tmp_path_factory.mktemp("auc")
    store = pack(TABLE, folder / "store", 32, render=phantom.render)
    return Context(Images(store, TABLE.ids, FABRIC.device), FIT, FABRIC, 0, Stages(folder / "stages"))


def prepared(context: Context, values: object, **settings: float) -> AucMargin:
    rows = np.asarray(values, dtype=np.float32)
    classes = tuple(f"class {number}" for number in range(rows.shape[1]))
    method = AucMargin(**settings)
    method.prepare(LabelTable(np.array([str(number) for number in range(len(rows))]), classes, rows), context)
    return method


def test_by_hand(context: Context) -> None:
    """0.02125 + 0.0025 + 2 * 0.2 * 0.1375 - 0.25 * 0.04 = 0.06875."""
    method = prepared(context, HALF)
    method.game.copy_(torch.tensor([[0.5], [0.3], [0.2]]))
    loss = method.loss(SCORES.logit(), torch.tensor(HALF).float(), FOUR)
    assert loss.item() == pytest.approx(0.06875, abs=1e-6)


def random_case(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits and labels (8, 3), two of them unknown, and a state of the game."""
    generator = torch.Generator().manual_seed(seed)
    targets = (torch.rand(8, 3, generator=generator) < 0.4).float()
    targets[0, 1] = targets[5, 2] = torch.nan
    return torch.randn(8, 3, generator=generator), targets, torch.rand(3, 3, generator=generator)


def test_value_against_a_loop(context: Context) -> None:
    logits, targets, game = random_case()
    method = prepared(context, targets.numpy(), margin=0.8)
    method.game.copy_(game)
    total = 0.0
    for c in range(3):
        known = [i for i in range(8) if not targets[i, c].isnan()]
        q = np.mean([targets[i, c].item() for i in known])
        a, b, alpha = game[:, c].tolist()
        terms = []
        for i in known:
            h = (logits[i, c] - np.log(q / (1 - q))).sigmoid().item()
            if targets[i, c] == 1:
                terms.append((1 - q) * (h - a) ** 2 - 2 * alpha * (1 - q) * h)
            else:
                terms.append(q * (h - b) ** 2 + 2 * alpha * q * h)
        total += np.mean(terms) + 2 * alpha * q * (1 - q) * 0.8 - q * (1 - q) * alpha**2
    assert method.loss(logits, targets, torch.arange(8)).item() == pytest.approx(total, abs=1e-6)


def test_moves_are_gradient_steps_of_the_value(context: Context) -> None:
    logits, targets, start = random_case(1)
    method = prepared(context, targets.numpy(), rate=0.2)
    method.game.copy_(start)
    method.loss(logits, targets, torch.arange(8))
    game = start.clone().requires_grad_()
    margin_loss((logits - method.share.logit()).sigmoid(), *occupancy(targets), method.share, game, 1.0).backward()
    assert game.grad is not None
    torch.testing.assert_close(method.game[:2], start[:2] - 0.2 * game.grad[:2])
    torch.testing.assert_close(method.game[2], (start[2] + 0.2 * game.grad[2]).clamp(min=0))
    assert not method.game.requires_grad


def test_game_settles_at_the_class_means_and_the_missing_margin(context: Context) -> None:
    method = prepared(context, HALF)
    for _ in range(100):
        method.loss(SCORES.logit(), torch.tensor(HALF).float(), FOUR)
    torch.testing.assert_close(method.game[:, 0], torch.tensor([0.75, 0.3, 1 - (0.75 - 0.3)]))


def test_alpha_is_never_negative(context: Context) -> None:
    """Positives and negatives are further apart than a margin of 0.2 asks for."""
    method = prepared(context, HALF, margin=0.2)
    for _ in range(20):
        method.loss(SCORES.logit(), torch.tensor(HALF).float(), FOUR)
    assert method.game[2].item() == 0


def test_gradient_separates_classes_and_skips_unknown_labels(context: Context) -> None:
    logits, targets, _ = random_case(2)
    method = prepared(context, targets.numpy())
    for _ in range(200):
        method.loss(logits, targets, torch.arange(8))
    logits = method.share.logit().expand(8, 3).clone().requires_grad_()  # nothing is known yet
    method.game[:2] = 0.5
    method.loss(logits, targets, torch.arange(8)).backward()
    assert logits.grad is not None
    assert (logits.grad[targets == 1] < 0).all()
    assert (logits.grad[targets == 0] > 0).all()
    assert (logits.grad[targets.isnan()] == 0).all()


def test_a_class_without_positives_gives_nothing(context: Context) -> None:
    targets = torch.zeros(4, 1)
    method = prepared(context, targets.numpy())
    logits = torch.randn(4, 1, requires_grad=True)
    method.loss(logits, targets, FOUR).backward()
    assert logits.grad is not None
    assert not logits.grad.any()
    assert not method.game[1:].any()


def test_rare_classes_do_not_start_where_a_sigmoid_is_flat(context: Context) -> None:
    """Once cross-entropy has learnt the priors alone, the pull on a positive is the same for every class."""
    labels = np.zeros((1000, 2))
    labels[:500, 0] = labels[:2, 1] = 1
    method = prepared(context, labels)
    method.game.copy_(torch.tensor([[0.5, 0.5], [0.5, 0.5], [1.0, 1.0]]))
    logits = method.share.logit()[None].clone().requires_grad_()
    method.loss(logits, torch.ones(1, 2), torch.tensor([0])).backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, -2 * (1 - method.share)[None] / 4)


def test_first_part_is_cross_entropy_and_the_game_follows(context: Context) -> None:
    logits, targets, _ = random_case(3)
    method = prepared(context, targets.numpy())
    expected = []
    for epoch in range(4):
        method.start_epoch(epoch, never)
        expected.append(method.phase(epoch))
        loss = method.loss(logits, targets, torch.arange(8)).item()
        if epoch < 2:
            assert loss == pytest.approx(masked_cross_entropy(logits, targets).item(), abs=1e-6)
            assert method.game.any()
    assert expected == [True, True, False, False]


@pytest.mark.parametrize(("epochs", "warm"), [(30, 15), (12, 6), (8, 4), (1, 0)])
def test_warm_up_is_a_share_of_the_run(context: Context, epochs: int, warm: int) -> None:
    method = AucMargin()
    method.prepare(TABLE, replace(context, fit=replace(FIT, epochs=epochs)))
    assert method.warm_epochs == warm


def test_interrupted_equals_uninterrupted(context: Context, tmp_path: Path) -> None:
    class Interrupted(AucMargin):
        def start_epoch(self, epoch: int, predict: Predict) -> None:
            if epoch == 3:
                raise KeyboardInterrupt
            super().start_epoch(epoch, predict)

    def train(method: AucMargin, place: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
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

    whole = train(AucMargin(), "whole")
    with pytest.raises(KeyboardInterrupt):
        train(Interrupted(), "parts")
    for first, second in zip(whole, train(AucMargin(), "parts"), strict=True):
        assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("settings", "message"), [({"warmup": 1.5}, "auc-margin.warmup is 1.5"), ({"rate": 0.0}, "auc-margin.rate is 0")]
)
def test_impossible_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        AucMargin(**settings)
