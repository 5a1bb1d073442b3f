"""The pointing game from a saved model to a table, on phantoms and on boxes in files named like NIH's."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bomd.data.datasets.classes import NIH
from bomd.models import model
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


@pytest.mark.parametrize(
    ("words", "message"), [(["--boxes", "x"], "belong together"), (["--count", "0"], "count must be at least 1")]
)
def test_mistakes_are_one_line(
    folder: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        ask(monkeypatch, str(folder), *words)
    assert message in capsys.readouterr().err
