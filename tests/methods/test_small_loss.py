"""Small loss: one division after a short training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bomd.config import DeviceSettings, FitSettings
from bomd.errors import InputError
from bomd.learn.engine import make_fabric, predict
from bomd.methods.base import Context, train_plainly
from bomd.methods.small_loss import SmallLoss
from bomd.methods.two_gaussians import low_posterior
from bomd.runs import Stages
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(backbone="small", weights="none", epochs=1, batch=16, rate=2e-3, betas=(0.9, 0.999), eps=1e-8)


def test_flags_are_what_a_loop_over_the_losses_says(train: tuple[LabelTable, Context]) -> None:
    """The loss of each image is written out from the network's own probabilities."""
    table, context = train
    values = table.values.copy()
    values[5, 2] = np.nan
    table = table.replace(values)
    prepared = SmallLoss(warmup=2).prepare(table, context)
    network, history = train_plainly(table, context, 2)
    assert [line["epoch"] for line in prepared.history] == [line["epoch"] for line in history] == [1, 2]
    probabilities = predict(SmallLoss(), [network], context.images).numpy().astype(np.float64)
    losses = []
    for row, chances in zip(values, probabilities, strict=True):
        each = [-np.log(p if y == 1 else 1 - p) for y, p in zip(row, chances, strict=True) if not np.isnan(y)]
        losses.append(np.mean(each))
    wanted = low_posterior(np.array(losses)) <= 0.5
    assert prepared.flags is not None
    assert 0 < wanted.sum() < len(wanted)
    assert np.array_equal(prepared.flags.noisy, wanted)
    assert prepared.flags.margin == pytest.approx(-np.array(losses), abs=1e-5)
    assert np.isnan(prepared.flags.entry[5, 2])


def test_flagged_images_are_left_out_and_others_untouched(train: tuple[LabelTable, Context]) -> None:
    table, context = train
    prepared = SmallLoss().prepare(table, context)
    assert prepared.flags is not None
    noisy = prepared.flags.noisy
    assert np.isnan(prepared.targets[noisy]).all()
    assert np.array_equal(prepared.targets[~noisy], table.values[~noisy], equal_nan=True)


def test_the_short_training_is_as_long_as_asked(train: tuple[LabelTable, Context], tmp_path: Path) -> None:
    table, context = train
    again = replace(context, stages=Stages(tmp_path))
    assert len(SmallLoss(warmup=1).prepare(table, again).history) == 1
    with pytest.raises(InputError, match=r"small-loss\.warmup is 0"):
        SmallLoss(warmup=0)
    long = replace(again, fit=replace(FIT, epochs=7))
    assert len(SmallLoss().prepare(table, long).history) == 2  # of 2.1
    assert len(SmallLoss(share=0.0).prepare(table, long).history) == 1
    with pytest.raises(InputError, match=r"small-loss\.share is 2"):
        SmallLoss(share=2)
