"""Settings have limits, warm-ups are shares of the run, and the level of noise is what was made wrong."""

from __future__ import annotations

import inspect
import typing
from pathlib import Path

import numpy as np
import pytest

from bomd.config import parse
from bomd.errors import InputError
from bomd.experiments import experiment
from bomd.experiments.records import LabelRecord
from bomd.methods import METHODS
from bomd.methods.base import NoiseLevel
from bomd.methods.settings import check_shares, note_if_idle, warm_epochs, within


@pytest.mark.parametrize(
    ("share", "epochs", "wanted"),
    [(0.3, 12, 4), (0.3, 30, 9), (0.3, 8, 2), (0.3, 2, 1), (0.3, 1, 0), (0.9, 3, 2), (0.0, 12, 0), (1.0, 12, 12)],
)
def test_a_warm_up_is_as_long_as_its_share_and_leaves_the_method_an_epoch(
    share: float, epochs: int, wanted: int
) -> None:
    assert warm_epochs(share, epochs) == wanted


@pytest.mark.parametrize("share", [-0.1, 2, float("nan")])
def test_a_number_of_epochs_is_refused(share: float) -> None:
    with pytest.raises(InputError, match="must be a share of all epochs"):
        check_shares("fine", warmup=share)


@pytest.mark.parametrize(
    ("interval", "inside", "outside", "wanted"),
    [
        ("[0, 1]", [0, 0.5, 1], [-1e-9, 1 + 1e-9], "at least 0 and at most 1"),
        ("[0, 1)", [0, 0.5], [-1e-9, 1], "at least 0 and below 1"),
        ("(0.5, 1]", [0.6, 1], [0.5, 1.1], "above 0.5 and at most 1"),
        ("[2, inf)", [2, 1e9], [1, -1e9], "at least 2"),
    ],
)
def test_a_setting_outside_its_limits_is_refused_by_name(
    interval: str, inside: list[float], outside: list[float], wanted: str
) -> None:
    within(interval, "fine", first=None, **{f"good{place}": value for place, value in enumerate(inside)})
    for value in (*outside, float("nan")):
        with pytest.raises(InputError) as caught:
            within(interval, "fine", first=inside[0], share=value)
        assert str(caught.value) == f"fine.share is {value:g}, but must be {wanted}."


def test_a_warm_up_without_end_is_told() -> None:
    assert note_if_idle("fine", 4, 12, "nothing is selected") == ()
    (note,) = note_if_idle("fine", 12, 12, "nothing is selected")
    assert note == "fine: the warm-up of 12 epochs is the whole training; nothing is selected."


@pytest.mark.parametrize("name", METHODS)
def test_no_method_counts_a_warm_up_in_epochs(name: str) -> None:
    """Epochs that are right for 30 are most of a run of 8; where the classifier is cut short they may be set."""
    hints = typing.get_type_hints(METHODS[name].__init__)
    for key, parameter in inspect.signature(METHODS[name]).parameters.items():
        if key in ("warmup", "ramp", "every", "burn_in"):
            assert hints[key] is float or parameter.default is None, f"{name}.{key}"


def test_the_level_of_noise_is_counted_over_known_labels() -> None:
    """Of 4 images the first and the last have a wrong label: 3 of 7 known ones."""
    clean = np.array([[1, 0], [0, 1], [1, np.nan], [0, 0]], dtype=np.float32)
    noisy = np.array([[0, 0], [0, 1], [1, np.nan], [1, 1]], dtype=np.float32)
    level = NoiseLevel.between(clean, noisy)
    assert level.images == 0.5
    assert level.labels == pytest.approx(3 / 7)
    assert NoiseLevel.between(clean, clean) == NoiseLevel() == NoiseLevel(0, 0)


@pytest.mark.parametrize("rows", [0.0, 0.6])
def test_a_run_tells_its_method_how_much_of_the_training_labels_is_wrong(tmp_path: Path, rows: float) -> None:
    """Counted over the images that are learnt from; without noise nothing is left out."""
    values = {
        "method": "co-teaching",
        "images": {"size": 16},
        "train": {"dataset": "phantom", "count": 60},
        "noise": {"kind": "symmetric", "rows": rows, "labels": 0.5},
        "fit": {"backbone": "small", "weights": "none", "epochs": 1, "batch": 16, "eps": 1e-8, "rate": 1e-3},
        "device": {"accelerator": "cpu"},
        "co-teaching": {"exponent": 2.0},
    }
    run = experiment.run(parse(values, METHODS), tmp_path)
    labels = LabelRecord.load(run.directory / "labels.npz")
    assert labels.clean is not None
    wrong = (labels.clean.values != labels.given.values).any(axis=1).mean()
    assert (wrong > 0.3) == (rows > 0)
    (note,) = run.result()["notes"]
    assert note.startswith(f"co-teaching: noise = {wrong:.2f}, ")
    assert run.result()["settings"] == {"noise": None, "ramp": 0.3, "exponent": 2.0, "per_label": False}
