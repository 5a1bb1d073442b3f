"""What a method hands back is checked before a classifier is trained on it, and the given labels are never its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bomd.config import Config, parse
from bomd.errors import InputError
from bomd.experiments import experiment
from bomd.experiments.records import LabelRecord
from bomd.methods import METHODS
from bomd.methods.base import Method, Prepared, entry_losses
from bomd.tables import Flags, LabelTable

TINY = {
    "method": "own",
    "images": {"size": 32},
    "train": {"dataset": "phantom", "hospital": "north", "count": 40},
    "noise": {"kind": "symmetric", "rows": 0.5, "labels": 0.5},
    "fit": {"backbone": "small", "weights": "none", "epochs": 1, "batch": 16, "augment": "none"},
    "device": {"accelerator": "cpu"},
}


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run of a method of which one hook is somebody's own."""

    def recipe(**hooks: Any) -> Config:
        monkeypatch.setitem(METHODS, "own", type("Own", (Method,), hooks))
        return parse(TINY, METHODS)

    return recipe


def flagged(train: LabelTable, images: int, step: int = 1, classes: int = 14) -> Flags:
    """Flags of some of the images, in their order or backwards."""
    return Flags(train.ids[:images][::step], np.ones(images, bool), np.zeros(images), np.zeros((images, classes)))


@pytest.mark.parametrize(
    ("prepared", "message"),
    [
        (lambda train: None, "`prepare` of Own must return a `Prepared`, not None"),
        (lambda train: train.values, r"`prepare` of Own must return a `Prepared`, not ndarray\.$"),
        (lambda train: Prepared(None), r"targets from `prepare` of Own must have the shape \(36, 14\), not None"),
        (lambda train: Prepared(train.values[4:]), r"the shape \(36, 14\), not \(32, 14\)"),
        (lambda train: Prepared(np.concatenate([train.values] * 2)), r"the shape \(36, 14\), not \(72, 14\)"),
        (lambda train: Prepared(train.values, scores=train.values[:, :2]), r"scores .* \(36, 14\), not \(36, 2\)"),
        (lambda train: Prepared(train.values, flags=flagged(train, 33)), "flags .* the ids of the training table"),
        (lambda train: Prepared(train.values, flags=flagged(train, 36, -1)), "flags .* in their order"),
        (lambda train: Prepared(train.values, flags=flagged(train, 36, 1, 13)), r"entry .* \(36, 14\), not \(36, 13\)"),
        (lambda train: Prepared(train.values, scores=train.values * np.nan), "scores from .* must be finite"),
        (
            lambda train: Prepared(train.values, weights=np.ones(36, np.float32)),
            r"weights .* \(36, 14\) or \(36, 1\), not \(36,\)",
        ),
    ],
)
def test_what_does_not_fit_the_labels_is_refused_before_training(
    prepared: Any, message: str, own: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "fit", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(InputError, match=message):
        experiment.run(own(prepare=lambda self, train, context: prepared(train)), tmp_path)


def test_labels_edited_in_place_leave_the_given_ones_as_they_are(own: Any, tmp_path: Path) -> None:
    def prepare(self: Method, train: Any, context: Any) -> Prepared:
        train.values[:] = 0
        return Prepared(train.values)

    plain = LabelRecord.load(experiment.run(own(), tmp_path / "plain").directory / "labels.npz")
    edited = LabelRecord.load(experiment.run(own(prepare=prepare), tmp_path / "edited").directory / "labels.npz")
    assert edited.targets.values.max() == 0
    assert np.array_equal(edited.given.values, plain.given.values, equal_nan=True)
    assert plain.given.values.max() == 1


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda self, logits, targets, index: entry_losses(logits, targets), r"not a tensor of shape \(16, 14\)"),
        (lambda self, logits, targets, index: logits.mean(dim=1), r"not a tensor of shape \(16,\)"),
        (lambda self, logits, targets, index: None, "not None"),
    ],
)
def test_a_loss_that_is_not_one_number_is_refused(loss: Any, message: str, own: Any, tmp_path: Path) -> None:
    """It would be summed over images and labels without a word, at a rate that was chosen for a mean."""
    with pytest.raises(InputError, match=message):
        experiment.run(own(loss=loss), tmp_path)
