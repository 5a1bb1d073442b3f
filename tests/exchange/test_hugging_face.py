"""Datasets, Parquet and image folders against the real package."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bomd import exchange
from bomd.errors import InputError
from bomd.exchange import hugging_face
from bomd.exchange.judgement import Judgement


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Any:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("datasets")


def check(dataset: Any, judgement: Judgement) -> None:
    names = list(judgement.given.classes)
    assert dataset.features["labels"].feature.names == names
    assert dataset["labels"][:] == [[0], [1], [], [3], [0, 1]]
    assert dataset["given"][1] == [0, 1, None, 0]
    assert dataset["flag"][:] == [True, False, False, False, True]
    assert dataset["expected"][2] is None


def compare(read: Judgement, judgement: Judgement) -> None:
    assert read.given.ids.tolist() == judgement.given.ids.tolist()
    assert np.array_equal(read.given.values, judgement.given.values, equal_nan=True)
    assert read.proposed is not None
    assert judgement.proposed is not None
    assert np.array_equal(read.proposed.values, judgement.proposed.values, equal_nan=True)
    assert read.doubts is not None
    assert judgement.doubts is not None
    assert np.array_equal(read.doubts.expected, judgement.doubts.expected, equal_nan=True)


def test_in_memory(package: Any, judgement: Judgement) -> None:
    dataset = hugging_face.to_dataset(judgement)
    check(dataset, judgement)
    compare(hugging_face.from_dataset(dataset), judgement)
    shown = dataset.cast_column("path", package.Image())
    assert shown[3]["path"].size == (4, 4)


def test_parquet_is_what_the_package_writes_and_reads(package: Any, judgement: Judgement, tmp_path: Path) -> None:
    exchange.write(judgement, tmp_path / "ours.parquet", "hugging-face")
    opened = package.Dataset.from_parquet(str(tmp_path / "ours.parquet"), cache_dir=str(tmp_path / "cache"))
    check(opened, judgement)
    hugging_face.to_dataset(judgement).to_parquet(str(tmp_path / "theirs.parquet"))
    compare(exchange.read(tmp_path / "theirs.parquet", "hugging-face"), judgement)


@pytest.mark.parametrize("name", ["metadata.jsonl", "metadata.csv"])
def test_an_image_folder_opens_with_its_labels(package: Any, judgement: Judgement, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    exchange.write(judgement, folder / name, "image-folder")
    opened = package.load_dataset("imagefolder", data_dir=str(folder), cache_dir=str(tmp_path / "cache"))["train"]
    rows = {row["id"]: row for row in opened}
    assert set(rows) == set(judgement.given.ids.tolist())
    row = rows["deep/b.png"]
    assert row["image"].size == (4, 4)
    if name == "metadata.jsonl":
        assert row["labels"] == [judgement.given.classes[1]]
        assert row["given"] == {
            **dict.fromkeys(judgement.given.classes, 0),
            judgement.given.classes[1]: 1,
            "Hernia": None,
        }
    else:
        assert row["Hernia"] is None
        assert row["flag"] is False
    compare(exchange.read(folder / name, "image-folder"), judgement)


def test_somebody_elses_dataset(package: Any) -> None:
    """Class labels alone: an image without a list is unknown, one with an empty list has none of the classes."""
    features = package.Features(
        {"image_id": package.Value("string"), "labels": package.Sequence(package.ClassLabel(names=["A", "B"]))}
    )
    dataset = package.Dataset.from_dict({"image_id": ["x", "y", "z"], "labels": [[1], [], None]}, features)
    read = hugging_face.from_dataset(dataset)
    assert read.given.ids.tolist() == ["x", "y", "z"]
    assert np.array_equal(read.given.values, [[0, 1], [0, 0], [np.nan, np.nan]], equal_nan=True)


def test_an_image_folder_elsewhere(judgement: Judgement, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"put metadata.jsonl in the folder above them"):
        exchange.write(judgement, tmp_path / "other/metadata.jsonl")
    lines = [{"file_name": "a.png", "labels": ["B"]}, {"file_name": "b.png", "labels": []}, {"file_name": "c.png"}]
    (tmp_path / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    read = exchange.read(tmp_path / "metadata.jsonl", classes=["A"])
    assert read.given.classes == ("A", "B")
    assert np.array_equal(read.given.values, [[0, 1], [0, 0], [np.nan, np.nan]], equal_nan=True)


def test_without_the_packages_there_is_one_line(
    judgement: Judgement, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"bomd\[exchange\]"):
        hugging_face.to_dataset(judgement)
    for form in ("parquet", "hugging-face"):
        with pytest.raises(InputError, match=r"bomd\[parquet\]"):
            exchange.write(judgement, tmp_path / "x.parquet", form)


def test_plain_parquet_is_not_taken_for_a_dataset(judgement: Judgement, tmp_path: Path) -> None:
    exchange.write(judgement, tmp_path / "x.parquet")
    with pytest.raises(InputError, match="read it as parquet"):
        exchange.read(tmp_path / "x.parquet", "hugging-face")
