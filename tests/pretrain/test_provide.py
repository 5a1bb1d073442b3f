"""Starts by name in whole runs, through the command line too: every network of a run begins with them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from bomd.cli import main
from bomd.config import Config, DeviceSettings, FitSettings, parse
from bomd.errors import InputError
from bomd.experiments import experiment
from bomd.learn import learner
from bomd.methods import METHODS
from bomd.networks.backbone import build
from bomd.networks.device import make_fabric
from bomd.networks.weights import WEIGHTS
from bomd.pretrain import provide
from bomd.pretrain.make import make
from bomd.pretrain.plan import usual

FEW = {"count": 24, "epochs": 1, "batch": 8}
FIT = {"backbone": "small", "epochs": 1, "batch": 16, "rate": 0.001, "eps": 1e-8, "augment": "light"}
FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual plan with fewer phantoms, or every test would take minutes."""
    monkeypatch.setattr(provide, "usual", partial(usual, **FEW))
    monkeypatch.setattr(provide, "PRESENTED", 64)


def config(weights: str, method: str = "bce", **changes: Any) -> Config:
    values = {
        "method": method,
        "validation": 0.0,
        "images": {"size": 32},
        "train": {"dataset": "phantom", "hospital": "north", "count": 32},
        "fit": {**FIT, "weights": weights},
        "device": {"accelerator": "cpu"},
        **changes,
    }
    return parse(values, METHODS)


def beginnings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, torch.Tensor]]:
    """Filled with the weights file and the first layer of every network that training builds."""
    seen: list[tuple[str, torch.Tensor]] = []

    def noted(name: str, outputs: int, **arguments: Any) -> Any:
        network = build(name, outputs, **arguments)
        seen.append((str(arguments.get("weights")), network.trunk.state_dict()["0.weight"].clone()))
        return network

    monkeypatch.setattr(learner, "build", noted)
    return seen


@pytest.mark.parametrize("method", ["bce", "bomd", "bomd-plus"])
def test_every_network_of_a_run_begins_with_the_phantoms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    start = make(usual("small", "none", 32, "cpu", **FEW), FABRIC)
    first_layer = build("small", 1, weights=start.folder, seed=0).trunk.state_dict()["0.weight"]
    seen = beginnings(monkeypatch)
    settings = {"bomd": {"epochs": 1, "batch": 16}} if method == "bomd" else {}
    done = experiment.run(config("phantom", method, **settings), tmp_path / "runs")
    trained = seen[1:]  # the first only shows that a network can be built
    assert len(trained) >= (1 if method == "bce" else 2)
    assert all(weights == str(start.folder) for weights, _ in trained)
    assert all(torch.equal(layer, first_layer) for _, layer in trained)
    assert done.config()["fit"]["weights"] == "phantom", "the name stays, wherever the weights lie"
    assert any(start.facts["key"] in note for note in done.result()["notes"])


def test_own_images_teach_a_start_once_for_all_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = beginnings(monkeypatch)
    experiment.run(config("self"), tmp_path)
    (folder,) = tmp_path.glob("stages/self-*")
    assert (folder / WEIGHTS).is_file()
    assert seen[-1][0] == str(folder)
    before = (folder / WEIGHTS).stat().st_mtime_ns
    experiment.run(config("self", noise={"kind": "symmetric", "rows": 0.5, "labels": 0.2}), tmp_path)
    assert [place.stat().st_mtime_ns for place in tmp_path.glob(f"stages/self-*/{WEIGHTS}")] == [before]


def test_own_images_come_on_top_of_phantoms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = beginnings(monkeypatch)
    experiment.run(config("phantom+self"), tmp_path)
    contrast, classifier = seen[-2][0], seen[-1][0]
    assert "phantom-small-32-" in contrast
    assert "self-" in classifier


def test_a_model_folder_is_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = experiment.run(config("none"), tmp_path)
    seen = beginnings(monkeypatch)
    experiment.run(config(str(first.directory / "model")), tmp_path)
    assert torch.equal(seen[-1][1], build("small", 1, weights=first.directory / "model").trunk.state_dict()["0.weight"])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("phantoms", "fit.weights is 'phantoms': use none, imagenet, phantom"),
        ("phantom+imagenet", "fit.weights is 'phantom\\+imagenet': use none"),
        ("imagenet+phantom", "no ImageNet weights of 'small': use phantom or self alone"),
        ("nowhere/model", "Backbone 'small' has no pretrained weights"),
    ],
)
def test_bad_names_are_one_line_before_anything_is_spent(tmp_path: Path, weights: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        experiment.run(config(weights), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_too_few_images_of_ones_own(tmp_path: Path) -> None:
    few = {"dataset": "phantom", "hospital": "north", "count": 6}
    with pytest.raises(InputError, match="6 are too few"):
        experiment.run(config("self", train=few, fit={**FIT, "weights": "self", "batch": 2}), tmp_path)


def bomd(*words: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    return int(stop.value.code or 0)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("pretrain", "small", "--size", "32", "--count", "24", "--epochs", "1", "--hospitals", "varied")
    assert bomd(*words, "-o", str(tmp_path / "start")) == 0
    said = capsys.readouterr()
    assert "are made once, from 24 generated X-rays" in said.err
    assert "That takes about" in said.err
    assert f"Weights: {tmp_path / 'start'}" in said.out
    assert build("small", 2, weights=tmp_path / "start").channels == 1
    assert bomd(*words) == 0
    assert "made once, from" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["small", "--weights", "self"], '"self" needs images'),
        (["small", "--weights", "imagenet+phantom"], "no ImageNet weights of 'small'"),
        (["big"], "No backbone 'big'"),
        (["small", "--targets", "age"], "cannot teach 'age'"),
        (["small", "--hospitals", "west"], "no hospital 'west'"),
        (["small", "--count", "2"], "2 phantoms are too few"),
    ],
)
def test_mistakes_are_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bomd("pretrain", *words) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_settings_without_a_start_are_left_alone() -> None:
    fit = FitSettings(weights="none")
    assert provide.provide(fit, None, FABRIC, None, 0) == (fit, ())  # type: ignore[arg-type]
