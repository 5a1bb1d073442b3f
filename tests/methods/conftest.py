"""What the methods are tried on: generated X-rays, packed once, in a context of each test file's own."""

from __future__ import annotations

import numpy as np
import pytest

from bomd.config import DeviceSettings
from bomd.data.batches import Images
from bomd.data.datasets import phantom
from bomd.data.store import Store, pack
from bomd.learn.engine import make_fabric
from bomd.methods.base import Context
from bomd.runs import Stages
from bomd.tables import LabelTable

COUNT, SIZE = 48, 32
UNKNOWN = (5, 2)  # row and column of the one label that nobody knows


@pytest.fixture(scope="session")
def phantoms(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """48 phantoms of 32 pixels; stores are only read."""
    return pack(phantom.read(count=COUNT), tmp_path_factory.mktemp("phantoms") / "store", SIZE, render=phantom.render)


@pytest.fixture(scope="module")
def train(
    request: pytest.FixtureRequest, phantoms: Store, tmp_path_factory: pytest.TempPathFactory
) -> tuple[LabelTable, Context]:
    """Their labels, one of which is unknown, and a context with the settings `FIT` of the test file."""
    table = phantom.read(count=COUNT)
    values = table.values.copy()
    values[UNKNOWN] = np.nan
    table, fabric = table.replace(values), make_fabric(DeviceSettings(accelerator="cpu"))
    stages = Stages(tmp_path_factory.mktemp(request.module.__name__.replace(".", "_")) / "stages")
    return table, Context(Images(phantoms, table.ids, fabric.device), request.module.FIT, fabric, 0, stages)
