"""Folders as FiftyOne imports and exports them; the package itself is too large to be a dependency of the tests."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bomd import exchange
from bomd.errors import InputError
from bomd.exchange import fiftyone
from bomd.exchange.judgement import Judgement


def test_samples(judgement: Judgement, tmp_path: Path) -> None:
    fiftyone.write(judgement, tmp_path / "set")
    first, second = json.loads((tmp_path / "set/samples.json").read_text())["samples"][:2]
    assert first["tags"] == ["flagged"]
    assert first["given"]["classifications"] == [{"_cls": "Classification", "label": "Mass"}]
    assert [item.get("confidence") for item in first["proposed"]["classifications"]] == [0.1, 0.7]
    assert second["tags"] == []
    assert second["unknown"] == ["Hernia"]
    assert Path(first["filepath"]).is_file()


def test_the_real_importer_takes_our_folder(judgement: Judgement, tmp_path: Path) -> None:
    """Samples are made without FiftyOne's database, which does not run everywhere."""
    pytest.importorskip("fiftyone")
    importers = pytest.importorskip("fiftyone.utils.data.importers")
    fiftyone.write(judgement, tmp_path / "set")
    importer = importers.FiftyOneDatasetImporter(str(tmp_path / "set"))
    assert importer._is_legacy_format_data()
    legacy = importer._to_legacy_importer()
    legacy.setup()
    samples = list(legacy)
    assert [sample["image_id"] for sample in samples] == judgement.given.ids.tolist()
    assert [item.label for item in samples[4]["given"].classifications] == list(judgement.given.classes[:2])
    assert samples[0]["flag"] is True
    assert samples[0]["margin"] == -1.25
    assert legacy.get_dataset_info() == {"classes": list(judgement.given.classes)}


def test_an_export_of_the_present_version(tmp_path: Path) -> None:
    """Database documents, a label field of another name, one sample without labels."""
    kind = {"_cls": "Classifications"}
    labels = [{"_id": {"$oid": "1"}, "_cls": "Classification", "label": "B", "confidence": None}]
    samples = [
        {"_id": {"$oid": "2"}, "filepath": "data/a.png", "ground_truth": {**kind, "classifications": labels}},
        {"_id": {"$oid": "3"}, "filepath": "data/b.png", "ground_truth": {**kind, "classifications": []}},
        {"_id": {"$oid": "4"}, "filepath": "data/c.png", "ground_truth": None},
    ]
    (tmp_path / "samples.json").write_text(json.dumps({"samples": samples}))
    (tmp_path / "metadata.json").write_text(json.dumps({"version": "1.0", "default_classes": ["A", "B"]}))
    read = exchange.read(tmp_path)
    assert read.given.ids.tolist() == ["data/a.png", "data/b.png", "data/c.png"]
    assert read.given.classes == ("A", "B")
    assert np.array_equal(read.given.values, [[0, 1], [0, 0], [np.nan, np.nan]], equal_nan=True)


def test_the_simple_classification_form(tmp_path: Path) -> None:
    labels: dict[str, Any] = {"a": 1, "b": [0, 1], "c": None, "d": ["new"], "e": [{"label": 0, "confidence": 0.5}]}
    (tmp_path / "labels.json").write_text(json.dumps({"classes": ["A", "B"], "labels": labels}))
    read = exchange.read(tmp_path, "fiftyone").given
    assert read.classes == ("A", "B", "new")
    expected = [[0, 1, 0], [1, 1, 0], [np.nan] * 3, [0, 0, 1], [0.5, 0, 0]]
    assert np.array_equal(read.values, expected, equal_nan=True)


def test_without_the_package_there_is_one_line(judgement: Judgement, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fiftyone", None)
    with pytest.raises(InputError, match="pip install fiftyone"):
        fiftyone.to_dataset(judgement)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("other.json", {}, "is no export of FiftyOne"),
        ("samples.json", [], "expected an object"),
        ("samples.json", {"samples": []}, "holds no samples"),
        ("samples.json", {"samples": [{"filepath": "a"}]}, "no field with labels"),
        ("samples.json", {"samples": [{"given": {"_cls": "Classification"}}]}, "has no 'label'"),
        ("samples.json", {"samples": [{"given": {"_cls": "Classification", "label": "A"}}]}, "has no 'filepath'"),
        ("labels.json", {"labels": {}}, "labels no image"),
        ("labels.json", {"classes": ["A"], "labels": {"a": 5}}, "no class number 5"),
        ("labels.json", {"labels": {"a": {"label": "A", "confidence": "x"}}}, "not a number from 0 to 1"),
    ],
)
def test_mistakes(name: str, content: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        exchange.read(tmp_path, "fiftyone")
