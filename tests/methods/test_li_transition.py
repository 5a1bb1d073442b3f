"""Li et al. 2022: rates from pairs of classes, weights from rates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from bomd.config import DeviceSettings, FitSettings
from bomd.errors import InputError
from bomd.learn.engine import make_fabric
from bomd.methods.base import Context, masked_cross_entropy
from bomd.methods.li_transition import FirstTraining, LiTransition, dual, estimate, from_pairs, importance, pair
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(
    backbone="small", weights="none", epochs=5, batch=16, rate=1e-3, betas=(0.9, 0.999), eps=1e-8, augment="light"
)
CONDITIONAL = np.array([[0.8, 0.2], [0.4, 0.6]])  # of the other class, where class is absent and where it is there
JOINT = np.array([[0.528, 0.162], [0.152, 0.158]])  # prevalence .3, a tenth false, a fifth missing


def test_rates_by_hand() -> None:
    assert from_pairs([(CONDITIONAL, JOINT)]) == pytest.approx((0.1, 0.2), abs=1e-9)


def test_labels_without_noise_have_no_rates() -> None:
    joint = np.array([[0.56, 0.14], [0.12, 0.18]])  # .7 x .8 and so on
    assert from_pairs([(CONDITIONAL, joint)]) == pytest.approx((0.0, 0.0), abs=1e-9)


def test_a_class_that_tells_nothing_and_solutions_that_cannot_be_are_left_out() -> None:
    independent = np.array([[0.7, 0.3], [0.7, 0.3]])
    assert from_pairs([(independent, JOINT)]) is None
    assert from_pairs([(CONDITIONAL, JOINT[::-1])]) is None  # more wrong than right
    found = from_pairs([(independent, JOINT), (CONDITIONAL, JOINT)])
    assert found == pytest.approx((0.1, 0.2), abs=1e-9)
    assert from_pairs([]) is None


def test_the_pair_that_fits_all_pairs_best_decides() -> None:
    """Two pairs agree on .1 and .2, a third that is off asks for something else and is outvoted."""
    other = np.array([[0.9, 0.1], [0.3, 0.7]])
    truth, rates = np.array([0.7, 0.3]), np.array([[0.9, 0.1], [0.2, 0.8]])
    joint = np.einsum("t,tg,tb->gb", truth, rates, other)
    off = (np.array([[0.6, 0.4], [0.2, 0.8]]), np.array([[0.38, 0.31], [0.08, 0.23]]))
    alone = from_pairs([off])
    assert alone is not None
    assert alone != pytest.approx((0.1, 0.2), abs=0.01)
    assert from_pairs([off, (other, joint), (CONDITIONAL, JOINT)]) == pytest.approx((0.1, 0.2), abs=1e-9)


def test_a_pair_counts_labels() -> None:
    nan = np.nan
    labels = np.array([[1, 1], [1, 0], [1, 1], [0, 0], [0, 1], [0, 0], [nan, 1], [0, nan]], dtype=np.float32)
    clean = np.ones_like(labels, dtype=bool)
    clean[2, 0] = False
    found = pair(labels, clean, 0, 1, fewest=2)
    assert found is not None
    np.testing.assert_allclose(found[0], [[2 / 3, 1 / 3], [1 / 2, 1 / 2]])
    np.testing.assert_allclose(found[1], [[2 / 6, 1 / 6], [1 / 6, 2 / 6]])
    assert pair(labels, clean, 0, 1, fewest=3) is None


def simulated(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes that go together: labels with rates of 0, (.05, .1) and (.1, .2), and which of them are right."""
    generator = np.random.default_rng(0)
    severity = generator.random(count)[:, None]
    truth = generator.random((count, 3)) < 0.1 + 0.8 * (severity > 0.7)
    flips = generator.random((count, 3)) < np.where(truth, [0.0, 0.1, 0.2], [0.0, 0.05, 0.1])
    return (truth ^ flips).astype(np.float32), ~flips


def test_known_noise_is_found_again() -> None:
    """With a random half of the right labels selected."""
    labels, right = simulated(60_000)
    chosen = right & (np.random.default_rng(1).random(right.shape) < 0.5)
    rates, sources = estimate(labels, chosen, np.full(labels.shape, 0.2), None, fewest=50)
    assert sources == ["pairs"] * 3
    np.testing.assert_allclose(rates, [[0, 0.05, 0.1], [0, 0.1, 0.2]], atol=0.02)


def test_few_clean_labels_leave_a_class_alone() -> None:
    labels, right = simulated(4000)
    right[labels[:, 2] == 1, 2] = False
    rates, sources = estimate(labels, right, np.full(labels.shape, 0.2), None, fewest=50)
    assert sources[2] == "identity"
    assert rates[:, 2].tolist() == [0, 0]


def test_no_finding_is_never_one_of_a_pair() -> None:
    """It is predicted well enough here for dual-T, while the findings have each other."""
    labels, right = simulated(20_000)
    nothing = (labels == 0).all(axis=1)
    table = np.column_stack([labels[:, 1:], nothing]).astype(np.float32)
    clean = np.column_stack([right[:, 1:], np.ones(len(labels), dtype=bool)])
    seen = np.clip(table, 0.1, 0.9).astype(np.float64)
    rates, sources = estimate(table, clean, seen, 2, fewest=50)
    assert sources == ["pairs", "pairs", "dual-T"]
    without, _ = estimate(table[:, :2], clean[:, :2], seen[:, :2], None, fewest=50)
    np.testing.assert_array_equal(rates[:, :2], without)


def test_dual_by_hand() -> None:
    """Surest .9 and .1; of 60 images predicted positive 48 are labelled so, of 40 negative ones 4.

    False: .9 x .1 + .1 x .8 = .17; missing: .9 x .2 + .1 x .9 = .27.
    """
    seen = np.array([0.9] * 60 + [0.1] * 40)
    given = np.array([True] * 48 + [False] * 12 + [True] * 4 + [False] * 36)
    assert dual(given, seen, fewest=40) == pytest.approx((0.17, 0.27))
    assert dual(given, seen, fewest=41) is None
    outliers = np.concatenate([seen, [0.999, 0.001]])  # fewer than 3 % at either end
    found = dual(np.concatenate([given, [True, False]]), outliers, fewest=40)
    assert found == pytest.approx((0.9 * 4 / 41 + 0.1 * 49 / 61, 0.9 * 12 / 61 + 0.1 * 37 / 41))


def test_dual_is_capped_and_refuses_what_cannot_be() -> None:
    seen = np.array([0.9] * 50 + [0.1] * 50)
    mostly_absent = np.array([True] * 10 + [False] * 90)
    assert dual(mostly_absent, seen, fewest=10) == pytest.approx((0.02, 0.5))
    turned = np.array([False] * 50 + [True] * 50)
    assert dual(turned, seen, fewest=10) is None


def test_weights_by_hand() -> None:
    """.7 / (.1 x .3 + .8 x .7) for a positive label, .3 / .41 for a negative one."""
    here, absent = importance(torch.tensor([[0.7]]), torch.tensor([[0.1], [0.2]]))
    assert here.item() == pytest.approx(1.186441, abs=1e-6)
    assert absent.item() == pytest.approx(0.3 / 0.41, abs=1e-6)


def made(rates: list[list[float]]) -> LiTransition:
    method = LiTransition()
    method.rates = torch.tensor(rates)
    return method


def test_without_noise_the_loss_is_cross_entropy() -> None:
    logits = torch.tensor([[0.3, -12.0], [25.0, 2.0]])
    labels = torch.tensor([[1.0, 0.0], [0.0, torch.nan]])
    found = made([[0.0, 0.0], [0.0, 0.0]]).loss(logits, labels, torch.arange(2))
    torch.testing.assert_close(found, masked_cross_entropy(logits, labels), rtol=0, atol=1e-6)


def test_loss_by_hand_and_weights_have_no_gradient() -> None:
    """At p = .7 the gradient of the cross-entropy is p - y, here times the weight over 2 known labels."""
    logits = torch.tensor([[0.7, 0.7, 0.7]]).logit().requires_grad_()
    labels = torch.tensor([[1.0, 0.0, torch.nan]])
    loss = made([[0.1] * 3, [0.2] * 3]).loss(logits, labels, torch.tensor([4]))
    weights = 0.7 / 0.59, 0.3 / 0.41
    wanted = (weights[0] * -np.log(0.7) + weights[1] * -np.log(0.3)) / 2
    assert loss.item() == pytest.approx(wanted, abs=1e-6)
    loss.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([weights[0] * -0.3 / 2, weights[1] * 0.7 / 2, 0], abs=1e-6)


def test_losses_are_averaged_over_the_last_third(train: tuple[LabelTable, Context]) -> None:
    """Of 15 epochs those after 11, 12, 13 and 14 at the start of the next, and the last at the end."""
    table, context = train
    learner = FirstTraining(table.values, context, epochs=15)
    asked = []
    for epoch in range(15):

        def predict(score: object = None, epoch: int = epoch) -> torch.Tensor:
            asked.append(epoch)
            return torch.full(table.values.shape, float(epoch))

        learner.start_epoch(epoch, predict)
    assert asked == [11, 12, 13, 14]
    assert learner.window == 5
    assert learner.losses[5, 2].isnan()
    negative = tuple(np.argwhere(table.values == 0)[0])
    assert learner.losses[negative].item() == pytest.approx(sum(np.log1p(np.exp(asked))), rel=1e-5)


def test_first_training_is_done_once_and_its_cost_counted(train: tuple[LabelTable, Context]) -> None:
    table, context = train
    prepared = LiTransition().prepare(table, context)
    assert [record["epoch"] for record in prepared.history] == [1, 2, 3]
    assert prepared.history[0]["images"] == 48
    assert prepared.history[0]["stage"] == "watch losses"
    assert "classes come from: 0 pairs, 0 dual-T" in prepared.notes[0]  # 48 images are too few
    np.testing.assert_array_equal(prepared.targets, table.values)

    assert prepared.flags is not None
    entry = prepared.flags.entry
    np.testing.assert_array_equal(np.isnan(entry), np.isnan(table.values))
    assert (entry < 0.5).any()
    np.testing.assert_array_equal(prepared.flags.noisy, (entry <= 0.5).any(axis=1))
    np.testing.assert_array_equal(prepared.flags.margin, np.nanmin(entry, axis=1))

    eager = LiTransition(fewest=1)
    eager.prepare(table, context)
    assert len(list(context.stages.root.glob("first-training-*"))) == 1
    assert (eager.rates > 0).any()
    assert (eager.rates.sum(0) < 1).all()
    LiTransition(epochs=1).prepare(table, replace(context, fit=replace(FIT, epochs=2)))  # the same 1 epoch
    LiTransition().prepare(table, replace(context, fit=replace(FIT, epochs=2)))
    assert len(list(context.stages.root.glob("first-training-*"))) == 2


def test_impossible_settings_get_one_line() -> None:
    with pytest.raises(InputError, match=r"li-transition\.epochs is 0"):
        LiTransition(epochs=0)
