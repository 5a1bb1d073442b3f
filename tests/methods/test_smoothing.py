"""Label smoothing with positive (ls) and negative (gls) shares."""

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
from bomd.learn.engine import fit, make_fabric
from bomd.methods.base import Context, Method, NoiseLevel, masked_cross_entropy
from bomd.methods.gls import Gls, undoing
from bomd.methods.ls import Ls
from bomd.runs import Stages

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(backbone="small", weights="none", epochs=6, batch=16, rate=1e-3, eps=1e-8, augment="light")
NOTHING = torch.tensor([0])


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    folder = tmp_path_factory.mktemp("smoothing")
    table = phantom.read(count=48)
    store = pack(table, folder / "store", 32, render=phantom.render)
    images = Images(store, table.ids, FABRIC.device)
    return Context(images, FIT, FABRIC, 0, Stages(folder / "stages"))


def never(score: object = None) -> Tensor:
    raise AssertionError("No pass over the training set is needed.")


def one(method: Method, logit: float, label: float) -> float:
    return method.loss(torch.tensor([[logit]], dtype=torch.float64), torch.tensor([[label]]), NOTHING).item()


@pytest.mark.parametrize(
    ("method", "label", "expected"),
    [
        (Ls(0.6), 1.0, 0.726928),
        (Ls(0.6), 0.0, 1.526928),
        (Gls(-0.4), 1.0, -0.273072),
        (Gls(-0.4), 0.0, 2.526928),
    ],
)
def test_by_hand_at_logit_2(method: Method, label: float, expected: float) -> None:
    assert one(method, 2.0, label) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("method", [Ls(0), Gls(0)])
def test_without_smoothing_it_is_cross_entropy(method: Method) -> None:
    logits, targets = torch.randn(5, 4).double(), torch.randint(2, (5, 4)).double()
    assert method.loss(logits, targets, NOTHING).item() == pytest.approx(
        masked_cross_entropy(logits, targets).item(), abs=1e-9
    )


@pytest.mark.parametrize(("method", "share"), [(Ls(), 0.6), (Gls(-0.4), -0.4)])
def test_gradient_is_prediction_less_target_and_none_where_unknown(method: Method, share: float) -> None:
    logits = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(2, (5, 4)).double()
    targets[2, 1] = torch.nan
    method.loss(logits, targets, NOTHING).backward()
    assert logits.grad is not None
    wanted = (logits.detach().sigmoid() - (1 - share) * targets - share / 2) / 19
    wanted[2, 1] = 0
    torch.testing.assert_close(logits.grad, wanted)


def test_beyond_the_limit_only_the_label_counts() -> None:
    logits = torch.tensor([[9.0, 11.0, -11.0, 11.0]], dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([[1.0, 1.0, 1.0, 0.0]]).double()
    Gls(-0.4, limit=10).loss(logits, targets, NOTHING).backward()
    assert logits.grad is not None
    wanted = logits.detach().sigmoid() - targets
    wanted[0, 0] -= 0.2
    torch.testing.assert_close(logits.grad, wanted / 4)


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize(("epochs", "warm"), [(30, 9), (12, 4), (8, 2), (6, 2), (2, 1)])
def test_gls_begins_with_cross_entropy_at_full_rate(
    context: Context, epochs: int, warm: int, schedule: Literal["constant", "cosine"]
) -> None:
    """A schedule of the recipe's is left alone: a tenth of what a cosine leaves would stop the training."""
    method = Gls(-0.4)
    method.prepare(phantom.read(count=4), replace(context, fit=replace(FIT, epochs=epochs, schedule=schedule)))
    slower = 0.1 if schedule == "constant" else 1.0
    for epoch in range(epochs):
        method.start_epoch(epoch, never)
        starting = epoch < warm
        assert method.phase(epoch) is starting
        wanted = np.log1p(np.exp(-2.0)) if starting else -0.273072
        assert one(method, 2.0, 1.0) == pytest.approx(wanted, abs=1e-6)
        for number in range(7):  # the rate falls with the first step of the first epoch after the start
            assert method.pace((epoch * 7 + number) / (epochs * 7)) == (1.0 if starting else slower)


def test_until_the_start_is_over_gls_trains_as_cross_entropy_does(context: Context, tmp_path: Path) -> None:
    table = phantom.read(count=48)

    def losses(method: Method, place: str) -> list[float]:
        targets = method.prepare(table, context).targets
        np.testing.assert_array_equal(targets, table.values)
        _, history = fit(
            method,
            context.images,
            targets,
            FIT,
            outputs=len(table.classes),
            fabric=FABRIC,
            seed=0,
            directory=tmp_path / place,
            what="test",
        )
        return [epoch["loss"] for epoch in history]

    plain, pushed = losses(Method(), "plain"), losses(Gls(-0.4, warmup=0.5), "pushed")
    assert pushed[:3] == plain[:3]
    assert pushed[3] != plain[3]


@pytest.mark.parametrize(
    ("rate", "wanted"), [(0.0, 0.0), (0.04, -0.08 / 0.92), (0.16, -0.32 / 0.68), (0.4, -2.0), (0.5, -2.0)]
)
def test_gls_follows_the_noise_of_the_recipe_and_says_so(context: Context, rate: float, wanted: float) -> None:
    method = Gls()
    noisy = replace(context, noise=NoiseLevel(images=0.9, labels=rate))
    (note,) = method.prepare(phantom.read(count=4), noisy).notes
    assert method.share == pytest.approx(wanted)
    assert note.startswith(f"gls: smoothing = {wanted:.2f}, ")
    assert Gls(-0.3).prepare(phantom.read(count=4), noisy).notes == ()


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
def test_the_share_that_undoes_flipping_makes_the_mean_loss_proportional_to_that_of_right_labels(rate: float) -> None:
    """Over both labels that a right one may have become; a factor does not matter."""
    logits = torch.tensor([[-3.0, -0.5, 0.2, 2.0]], dtype=torch.float64, requires_grad=True)
    right = torch.tensor([[1.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    method = Gls(undoing(rate))

    def slope(loss: torch.Tensor) -> torch.Tensor:
        (found,) = torch.autograd.grad(loss, logits)
        return found

    flipped, kept = method.loss(logits, 1 - right, NOTHING), method.loss(logits, right, NOTHING)
    wanted = slope(masked_cross_entropy(logits, right))
    torch.testing.assert_close(slope(rate * flipped + (1 - rate) * kept), wanted)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ls(-0.4), "use gls for negative values"),
        (lambda: Gls(1.0), "gls.smoothing is 1"),
        (lambda: Gls(warmup=2), "gls.warmup is 2"),
        (lambda: Gls(limit=0), "gls.limit is 0"),
    ],
)
def test_impossible_settings_are_refused(make: type[Method], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
