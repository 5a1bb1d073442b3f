"""What a method says it costs is what a run of 30 epochs, the default, counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bomd.config import DeviceSettings, FitSettings
from bomd.data.batches import Images
from bomd.data.datasets import phantom
from bomd.data.store import pack
from bomd.learn.engine import fit, make_fabric
from bomd.methods import METHODS
from bomd.methods.base import Context
from bomd.methods.describe import describe
from bomd.runs import Stages
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(backbone="small", weights="none", epochs=30, batch=32, rate=1e-3, betas=(0.9, 0.999), eps=1e-8)


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> tuple[LabelTable, Images]:
    table = phantom.read(count=32)
    store = pack(table, tmp_path_factory.mktemp("costs") / "store", 32, render=phantom.render)
    return table, Images(store, table.ids, FABRIC.device)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_the_documented_cost_is_what_a_run_counts(name: str, train: tuple[LabelTable, Images], tmp_path: Path) -> None:
    """Every epoch of 32 images counts those that went through a network; plain training shows each once."""
    table, images = train
    method = METHODS[name]()
    prepared = method.prepare(table, Context(images, FIT, FABRIC, 0, Stages(tmp_path / "stages")))
    _, history = fit(
        method,
        images,
        prepared.targets,
        FIT,
        outputs=len(table.classes),
        fabric=FABRIC,
        seed=0,
        directory=tmp_path / "classifier",
        what="test",
    )
    counted = sum(epoch["images"] for epoch in (*prepared.history, *history)) / (30 * 32)
    assert describe(name).cost == pytest.approx(counted, rel=0.05)
