"""A start is made once, as a model folder, by one process at a time, and goes on where it stopped."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bomd.config import DeviceSettings
from bomd.data.datasets.classes import NIH
from bomd.errors import InputError
from bomd.files import read_json
from bomd.learn import engine
from bomd.models import model
from bomd.networks.backbone import build
from bomd.networks.device import make_fabric
from bomd.pretrain import make as making
from bomd.pretrain.make import copy_to, is_there, make, place_of
from bomd.pretrain.plan import Plan

PLAN = Plan("small", "none", 32, 48, 2, batch=16)
FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))


def trunk_of(folder: Path) -> dict[str, torch.Tensor]:
    return build("small", 3, weights=folder, seed=5).trunk.state_dict()


def test_a_start_is_a_model_with_card_and_metrics_that_networks_begin_with() -> None:
    assert not is_there(PLAN)
    start = make(PLAN, FABRIC)
    assert is_there(PLAN)
    opened = model.load(start.folder, "cpu")
    assert opened.classes == NIH
    assert set(opened.metrics) == set(PLAN.hospitals)
    assert "phantom start" in (start.folder / "README.md").read_text()
    trunk = trunk_of(start.folder)
    assert all(torch.equal(trunk[name], value) for name, value in opened.networks[0].trunk.state_dict().items())
    untrained = build("small", 3, seed=5)
    assert not torch.equal(trunk["0.weight"], untrained.trunk.state_dict()["0.weight"])
    assert torch.equal(build("small", 3, weights=start.folder, seed=5).head.weight, untrained.head.weight)


def test_it_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = make(PLAN, FABRIC)
    monkeypatch.setattr(making, "fit", None)  # any call would fail
    again = make(PLAN, FABRIC)
    assert (again.folder, again.facts) == (first.folder, first.facts)
    assert PLAN.key in again.note()
    with pytest.raises(TypeError):
        make(replace(PLAN, seed=1), FABRIC)


def test_an_interrupted_start_goes_on_and_ends_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = trunk_of(make(PLAN, FABRIC).folder)
    monkeypatch.setenv("BOMD_CACHE", str(place_of(PLAN).parents[1] / "other"))
    run, epochs = engine.Steps.run, []

    def once(self: engine.Steps, *arguments: object) -> object:
        epochs.append(1)
        if len(epochs) == 2:
            raise KeyboardInterrupt
        return run(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(engine.Steps, "run", once)
    with pytest.raises(KeyboardInterrupt):
        make(PLAN, FABRIC)
    assert not is_there(PLAN)
    assert (place_of(PLAN) / "checkpoint.pt").exists()
    start = make(PLAN, FABRIC)
    assert len(epochs) == 3, "the first pass was not made again"
    found = trunk_of(start.folder)
    assert all(torch.equal(found[name], value) for name, value in usual.items())
    assert sorted(file.name for file in place_of(PLAN).iterdir() if file.name[0] != ".") == [
        "finished.json",
        "history.json",
        "model",
    ]


CODE = """
import time
from bomd.config import DeviceSettings
from bomd.networks.device import make_fabric
from bomd.pretrain import make as making
from bomd.pretrain.plan import Plan
fit, calls = making.fit, []
def slowly(*arguments, **settings):
    calls.append(1)
    time.sleep(3)
    return fit(*arguments, **settings)
making.fit = slowly
start = making.make(Plan("small", "none", 32, 48, 2, batch=16), make_fabric(DeviceSettings(accelerator="cpu")))
print(start.folder, len(calls))
"""


@pytest.mark.slow
def test_of_several_processes_one_makes_it() -> None:
    workers = [subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = [worker.communicate(timeout=300)[0].split() for worker in workers]
    assert found[0][0] == found[1][0] == str(place_of(PLAN) / "model")
    assert sorted(calls for _, calls in found) == ["0", "1"]


def test_severities_and_places_leave_a_network_of_labels() -> None:
    plan = replace(PLAN, targets=("severity", "place"), count=24, epochs=1, hospitals=("varied",))
    start = make(plan, FABRIC)
    assert model.load(start.folder, "cpu").networks[0].head.weight.shape == (len(NIH), 192)
    assert read_json(start.folder / "model.json")["facts"]["train"]["learnt"] == ["labels", "severity", "place"]


def test_a_copy_goes_to_a_free_place_only(tmp_path: Path) -> None:
    start = make(PLAN, FABRIC)
    assert model.load(copy_to(start, tmp_path / "copy"), "cpu").size == PLAN.size
    with pytest.raises(InputError, match="is there already"):
        copy_to(start, tmp_path / "copy")


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BOMD_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match="set BOMD_CACHE to another folder"):
        make(PLAN, FABRIC)


class TestStartFromFolders:
    def test_another_backbone_is_refused(self) -> None:
        start = make(PLAN, FABRIC)
        with pytest.raises(InputError, match=r"of the backbone .small., but are to start .densenet121."):
            build("densenet121", 2, weights=start.folder)

    def test_a_folder_without_weights_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"No weights in .*expected a model folder"):
            build("small", 2, weights=tmp_path)

    def test_a_name_that_was_not_made_is_refused(self) -> None:
        with pytest.raises(InputError, match="'phantom' are made before a run"):
            build("small", 2, weights="phantom")
