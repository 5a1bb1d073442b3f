"""Tasks as Label Studio takes them, and annotations as it exports them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bomd import exchange
from bomd.errors import InputError
from bomd.exchange import label_studio
from bomd.exchange.judgement import Judgement, image_names


def choose(*names: str) -> dict[str, Any]:
    """One annotation, as Label Studio exports it."""
    region = {"from_name": "labels", "to_name": "image", "type": "choices", "value": {"choices": list(names)}}
    return {"id": 1, "completed_by": 2, "was_cancelled": False, "result": [region] if names else []}


def save(tasks: list[dict[str, Any]], path: Path) -> Path:
    path.write_text(json.dumps(tasks))
    return path


@pytest.fixture
def tasks(judgement: Judgement, tmp_path: Path) -> list[dict[str, Any]]:
    label_studio.write(judgement, tmp_path / "tasks.json", root=tmp_path)
    written: list[dict[str, Any]] = json.loads((tmp_path / "tasks.json").read_text())
    return written


def test_tasks(tasks: list[dict[str, Any]]) -> None:
    assert [task["data"]["image"] for task in tasks[:2]] == [
        "/data/local-files/?d=images/0%20%C3%BC.png",
        "/data/local-files/?d=images/1%20%C3%BC.png",
    ]
    given, proposed = tasks[0]["predictions"]
    assert given["result"][0]["value"]["choices"] == ["Mass"]
    assert proposed["result"][0]["value"]["choices"] == ["Edema, <pulmonary> & 'co'"]
    assert proposed["score"] == pytest.approx(0.2865, abs=1e-4)  # e^-1.25
    assert "score" not in tasks[2]["predictions"][1]  # nothing is expected
    assert tasks[2]["data"]["given"] == dict.fromkeys(tasks[0]["data"]["given"])


def test_the_set_up_and_predictions_are_valid_for_the_real_package(tasks: list[dict[str, Any]], tmp_path: Path) -> None:
    interface = pytest.importorskip("label_studio_sdk.label_interface")
    set_up = interface.LabelInterface((tmp_path / "tasks.xml").read_text())
    set_up.validate()
    for task in tasks:
        for prediction in task["predictions"]:
            assert set_up.validate_prediction(prediction, return_errors=True) == []


def test_decisions_come_back_beside_the_given_labels(
    tasks: list[dict[str, Any]], judgement: Judgement, tmp_path: Path
) -> None:
    """The first image was looked at by two people, the second by one who left the unknown class alone."""
    tasks[0]["annotations"] = [choose("Mass"), choose("Mass", "Hernia"), {**choose("Hernia"), "was_cancelled": True}]
    tasks[1]["annotations"] = [choose()]
    tasks.reverse()
    read = label_studio.read(save(tasks, tmp_path / "export.json"))
    assert read.proposed is not None
    found = read.proposed.select(judgement.given.ids)
    assert found.values[0].tolist() == [1, 0, 0.5, 0]
    assert np.array_equal(found.values[1], [0, 0, np.nan, 0], equal_nan=True)
    assert found.patients is not None
    assert found.patients.tolist() == ["p", "p", "q", "r", "s"]
    assert np.isnan(found.values[2:]).all(), "predictions that nobody confirmed are no decisions"
    assert np.array_equal(read.given.select(judgement.given.ids).values, judgement.given.values, equal_nan=True)


def test_somebody_elses_project(tmp_path: Path) -> None:
    uploads = ["/data/upload/3/0a1b2c3d-one.png", "/data/local-files/?d=x/two%20.png", "https://a.org/three.png?k=1"]
    tasks: list[dict[str, Any]] = [{"id": number, "data": {"image": name}} for number, name in enumerate(uploads)]
    tasks[0]["annotations"] = [choose("B", "A")]
    tasks[1]["annotations"] = [choose()]
    read = label_studio.read(save(tasks, tmp_path / "export.json"))
    assert read.proposed is None
    assert read.given.ids.tolist() == ["one.png", "x/two .png", "three.png"]
    assert read.given.classes == ("A", "B")
    assert np.array_equal(read.given.values, [[1, 1], [0, 0], [np.nan, np.nan]], equal_nan=True)


def test_images_outside_the_root_are_refused(judgement: Judgement, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\d of \d images are not below .*other, from where images are served"):
        label_studio.write(judgement, tmp_path / "tasks.json", root=tmp_path / "other")


def test_images_of_an_audit_from_a_folder_beside_them(judgement: Judgement, tmp_path: Path) -> None:
    """`bomd audit --images ../photos` keeps paths such as /data/work/../photos/a.png, which are below /data."""
    roundabout = [str(tmp_path / "work" / ".." / "photos" / f"{name}.png") for name in judgement.given.ids]
    given = replace(judgement.given, paths=np.asarray(roundabout))
    assert image_names(given, tmp_path, "")[0] == f"photos/{given.ids[0]}.png"


def test_images_of_a_folder_that_is_called_by_a_link(judgement: Judgement, tmp_path: Path) -> None:
    """A link within the folder keeps its name; one that leads to the folder is gone through."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "far.png").symlink_to(tmp_path / "elsewhere.png")
    paths = [str(tmp_path / "real" / f"{name}.png") for name in judgement.given.ids]
    assert image_names(replace(judgement.given, paths=np.asarray(paths)), tmp_path / "link", "") == [
        f"{name}.png" for name in judgement.given.ids
    ]
    paths[0] = str(tmp_path / "real" / "far.png")
    given = replace(judgement.given, paths=np.asarray(paths))
    assert image_names(given, tmp_path / "real", "")[0] == "far.png"


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ({"data": {}}, "expected a list"),
        ([], "holds no tasks"),
        ([3], "expected an object, got 3"),
        ([{"image": "a.png", "labels": "Mass"}], "task 1 has no 'data'"),
        ([{"data": {}}], "has no 'image'"),
        ([{"data": {"id": 7}}], "expected text, got 7"),
        ([{"data": {"id": "a"}}], "names no class"),
        ([{"data": {"id": "a", "given": {"Mass": 2}}}], "not a number from 0 to 1"),
        ([{"data": {"id": "a", "given": {"Mass": "1"}}}], "not a number from 0 to 1"),
        ([{"data": {"id": "a"}, "annotations": [{"result": [{"type": "choices", "value": {}}]}]}], "expected a list"),
        ([{"data": {"id": "a", "given": {"M": 1}}}] * 2, "Duplicate id"),
    ],
)
def test_mistakes(tasks: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.json").write_text(json.dumps(tasks))
    with pytest.raises(InputError, match=message):
        exchange.read(tmp_path / "tasks.json", "label-studio")
