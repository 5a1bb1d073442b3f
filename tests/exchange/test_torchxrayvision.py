"""Labels of torchxrayvision's datasets, by name and with NaN where they are unknown."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bomd import exchange
from bomd.errors import InputError
from bomd.exchange import torchxrayvision as ours
from bomd.exchange.judgement import Judgement
from bomd.tables import LabelTable


@dataclass
class Dataset:
    """What CheX_Dataset has after loading: two images, three pathologies."""

    labels: np.ndarray
    pathologies: list[str]
    csv: pd.DataFrame


@pytest.fixture
def dataset() -> Dataset:
    frame = pd.DataFrame({"Path": ["p1/a.jpg", "p2/b.jpg"], "patientid": ["1", "2"], "view": ["PA", "AP"]})
    return Dataset(np.asarray([[1, np.nan, 0], [0, 1, np.nan]]), ["Cardiomegaly", "Effusion", "Fracture"], frame)


@pytest.fixture(scope="module")
def package() -> Any:
    try:
        return importlib.import_module("torchxrayvision")
    except Exception as error:  # torchvision without its compiled part raises RuntimeError
        pytest.skip(f"torchxrayvision cannot be imported: {error}")


def test_from_a_dataset(dataset: Dataset) -> None:
    table = ours.from_dataset(dataset)
    assert table.ids.tolist() == ["p1/a.jpg", "p2/b.jpg"]
    assert table.classes == ("Cardiomegaly", "Effusion", "Fracture")
    assert np.array_equal(table.values, dataset.labels, equal_nan=True)
    assert table.patients is not None
    assert table.views is not None
    assert table.views.tolist() == ["PA", "AP"]


def test_to_its_order(dataset: Dataset) -> None:
    """Each column by hand: Effusion is the eighth, Cardiomegaly the eleventh, Fracture the sixteenth."""
    array = ours.to_array(ours.from_dataset(dataset))
    assert array.shape == (2, 18)
    assert np.array_equal(array[:, [7, 10, 15]], [[np.nan, 1, 0], [1, 0, np.nan]], equal_nan=True)
    others = np.delete(array, [7, 10, 15], axis=1)
    assert np.isnan(others).all()


def test_our_other_spellings(tmp_path: Path) -> None:
    table = LabelTable(np.asarray(["a"]), ("Pleural Effusion", "Support Devices"), np.asarray([[1, 0]]))
    assert ours.to_array(table)[0, 7] == 1
    exchange.write(Judgement(table), tmp_path / "x.csv", "torchxrayvision")
    read = exchange.read(tmp_path / "x.csv", "torchxrayvision").given
    assert read.classes == ours.PATHOLOGIES
    assert np.array_equal(ours.to_array(read), ours.to_array(table), equal_nan=True)


def test_proposals_and_doubts_are_put_in_the_same_order(judgement: Judgement, tmp_path: Path) -> None:
    exchange.write(judgement, tmp_path / "x.csv", "torchxrayvision")
    read = exchange.read(tmp_path / "x.csv", "torchxrayvision")
    place = ours.PATHOLOGIES.index("Hernia")
    assert read.proposed is not None
    assert read.doubts is not None
    assert judgement.doubts is not None
    assert np.array_equal(read.given.values[:, place], judgement.given.values[:, 2], equal_nan=True)
    assert np.array_equal(read.doubts.wrong[:, place], judgement.doubts.wrong[:, 2], equal_nan=True)
    assert np.isnan(read.doubts.wrong[:, 0]).all()


def test_mistakes(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pass id_column, one of x"):
        ours.from_dataset(Dataset(dataset.labels, dataset.pathologies, pd.DataFrame({"x": [1, 2]})))
    with pytest.raises(InputError, match="labels of shape"):
        ours.from_dataset(Dataset(dataset.labels, ["Mass"], dataset.csv))
    table = LabelTable(np.asarray(["a"]), ("Cat",), np.ones((1, 1)))
    with pytest.raises(InputError, match=r"None of the classes is one of torchxrayvision's: Cat"):
        exchange.write(Judgement(table), tmp_path / "x.csv", "torchxrayvision")


def test_the_real_list(package: Any) -> None:
    assert list(ours.PATHOLOGIES) == package.datasets.default_pathologies


def test_a_real_dataset_relabelled_is_our_array(package: Any, tmp_path: Path) -> None:
    """NIH with the label file inside the package, brought to the 18 by its own function."""
    dataset = package.datasets.NIH_Dataset(str(tmp_path))
    table = ours.from_dataset(dataset)
    assert table.ids[0].endswith(".png")
    package.datasets.relabel_dataset(package.datasets.default_pathologies, dataset, silent=True)
    assert np.array_equal(ours.to_array(table), dataset.labels.astype(np.float32), equal_nan=True)
