"""The pointing game from a saved model to a table, on phantoms and on boxes in files named like NIH's."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bomd import runs
from bomd.data.datasets.classes import NIH
from bomd.models import model
from bomd.models.heatmap import heat_maps
from bomd.networks.backbone import build
from evidence.studies import pointing


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model")
    model.save(place, [build("small", len(NIH), seed=0).eval()], NIH, 32)
    return place


def ask(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["pointing", *words])
    pointing.main()


def test_phantoms(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "found.csv"
    ask(monkeypatch, str(folder), "--count", "12", "--hospital", "varied", "--results", str(table))
    with table.open() as stream:
        rows = list(csv.DictReader(stream))
    assert rows[-1]["finding"] == "all"
    assert int(rows[-1]["images"]) == sum(int(row["images"]) for row in rows[:-1]) > 5
    assert all(0 <= float(row["low"]) <= float(row["hits"]) <= float(row["high"]) <= 1 for row in rows)


def test_boxes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A box over the whole image is always hit; one of an image that is not there is counted."""
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)).save(tmp_path / "a.png")
    boxes = tmp_path / "boxes.csv"
    boxes.write_text("Image Index,Finding Label,Bbox [x,y,w,h],,,\na.png,Mass,0,0,1024,1024\nb.png,Mass,0,0,9,9\n")
    ask(monkeypatch, str(folder), "--boxes", str(boxes), "--images", str(tmp_path))
    said = capsys.readouterr().out
    assert "1 boxes are in images that are not in" in said
    assert "Mass                      1  1.00 (0.21 to 1.00)   1.00" in said


def test_many_models_have_a_line_each_and_lines_of_others_stay(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "all.csv"
    table.write_text('start,labels,seed,test,images,hits,chance\nimagenet,no noise,3,"phantoms, varied",9,0.5,0.1\n')
    other = tmp_path / "imagenet+phantom-place"
    model.save(other, [build("small", len(NIH), seed=1).eval()], NIH, 32)
    for _ in range(2):  # again changes nothing
        ask(monkeypatch, str(folder), str(other), "--count", "8", "--hospital", "varied", "--summary", str(table))
    with table.open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["start"] for row in rows] == ["imagenet", "imagenet+phantom-place", folder.name]
    assert rows[0]["hits"] == "0.5"
    assert {row["labels"] for row in rows[1:]} == {pointing.UNTOUCHED}
    assert rows[1]["images"] == rows[2]["images"]


def test_runs_are_chosen_by_their_start(tmp_path: Path) -> None:
    for number, start in enumerate(("imagenet", "/somewhere/imagenet+phantom", "/somewhere/imagenet+phantom")):
        place = tmp_path / "runs" / f"seed{number}-00000{number}"
        place.mkdir(parents=True)
        config = {"name": "a", "method": "bce", "seed": number, "fit": {"weights": start}}
        config |= {"noise": {"kind": "none"}, "images": {"size": 64 * max(1, number)}}
        (place / "config.json").write_text(json.dumps({"format": runs.FORMAT, "config": config}))
        for file in ("result.json", "environment.json"):
            (place / file).write_text("{}")
    assert len(pointing.models_in(tmp_path / "runs")) == 3
    (found,) = pointing.models_in(tmp_path / "runs", "imagenet+phantom,imagenet+phantom-place", size=64)
    assert pointing.named(found) == {"start": "imagenet+phantom", "labels": "no noise", "seed": 1}


def test_heat_of_many_images_is_that_of_each(folder: Path) -> None:
    opened = model.load(folder, accelerator="cpu")
    pixels = torch.as_tensor(np.random.default_rng(1).integers(0, 256, (3, 32, 32), dtype=np.uint8))
    found = pointing.heat_of(opened, pixels, [4, 0])
    for row in range(3):
        single = heat_maps(opened, pixels[row].numpy(), [NIH[4], NIH[0]])
        highest = found[:, row].max(axis=(1, 2), keepdims=True)
        np.testing.assert_allclose(found[:, row] / np.where(highest > 0, highest, 1), single, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "message"), [(["--boxes", "x"], "belong together"), (["--count", "0"], "count must be at least 1")]
)
def test_mistakes_are_one_line(
    folder: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        ask(monkeypatch, str(folder), *words)
    assert message in capsys.readouterr().err
