"""`bomd predict` goes on after an interruption: what is done is used if it still holds, and the result is the same."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bomd import cli
from bomd.models import model as models
from bomd.models import resumed
from bomd.models.blocks import BATCH, predict_blocks
from bomd.networks.backbone import build

COUNT = 5 * BATCH + 3
UNREADABLE = 2 * BATCH + 1  # the row of a file that is no image, and all of its block's but one are not


def bomd(*words: object) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main([str(word) for word in words])
    return int(caught.value.code or 0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    models.save(tmp_path / "model", [build("small", 3, seed=1)], ("Mass", "Edema", "Hernia"), 16)
    return tmp_path / "model"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Each is another, and one cannot be read."""
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(COUNT):
        pixels = np.random.default_rng(number).integers(0, 255, (16, 16), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:04d}.png", compress_level=0)
    (folder / f"{UNREADABLE:04d}.png").write_bytes(b"\x89PNG\r\n\x1a\n nothing")
    return folder


@pytest.fixture
def predicted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files every call has gone through networks."""
    calls: list[int] = []

    def counted(model: Any, files: Sequence[str], batch: int) -> Any:
        calls.append(len(files))
        return predict_blocks(model, files, batch)

    monkeypatch.setattr(resumed, "predict_blocks", counted)
    return calls


def interrupt(monkeypatch: pytest.MonkeyPatch, model: Path, images: Path, output: Path, after: int) -> None:
    """Stop `bomd predict` when it has done so many blocks."""
    plain, calls = models.Model.probabilities, 0

    def stopping(self: models.Model, pixels: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > after:
            raise KeyboardInterrupt
        return plain(self, pixels)

    with monkeypatch.context() as patched:
        patched.setattr(models.Model, "probabilities", stopping)
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            cli.main(["predict", str(model), str(images), "-o", str(output)])
    assert not output.exists()
    assert resumed.part_of(output).read_bytes().count(b"\n") == after


@pytest.mark.parametrize("form", ["csv", "json"])
def test_it_goes_on_where_it_stopped(
    model: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, predicted: list[int],
    capsys: pytest.CaptureFixture[str], form: str,
) -> None:  # fmt: skip
    whole, output = tmp_path / f"whole.{form}", tmp_path / f"out.{form}"
    assert bomd("predict", model, images, "-o", whole) == 1  # one cannot be read
    interrupt(monkeypatch, model, images, output, 3)
    assert resumed.part_of(output).stat().st_mode & 0o077 == 0
    predicted.clear()
    capsys.readouterr()
    assert bomd("predict", model, images, "-o", output) == 1
    assert predicted == [COUNT - 3 * BATCH]
    assert output.read_bytes() == whole.read_bytes()
    assert not resumed.part_of(output).exists()
    shown = capsys.readouterr()
    assert f"{3 * BATCH} of {COUNT} images were predicted before." in shown.err + shown.out
    assert f"{UNREADABLE:04d}.png" in shown.err, "what could not be read before is named as well"


def test_what_does_not_hold_any_longer_is_predicted_again(
    model: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, predicted: list[int]
) -> None:
    """An image of the second block was replaced; a line was damaged; the weights are others."""
    output = tmp_path / "out.csv"
    interrupt(monkeypatch, model, images, output, 4)
    name = images / f"{BATCH + 5:04d}.png"
    Image.fromarray(np.full((16, 16), 7, np.uint8)).save(name)
    predicted.clear()
    bomd("predict", model, images, "-o", output)
    assert predicted == [COUNT - BATCH]
    assert output.read_bytes() == _anew(model, images, tmp_path)

    output.unlink()
    interrupt(monkeypatch, model, images, output, 4)
    part = resumed.part_of(output)
    lines = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(b"".join([*lines[:2], lines[2].replace(b'"values": "', b'"values": "A'), lines[3]]))
    predicted.clear()
    bomd("predict", model, images, "-o", output)
    assert predicted == [COUNT - 2 * BATCH]
    assert output.read_bytes() == _anew(model, images, tmp_path)

    output.unlink()
    interrupt(monkeypatch, model, images, output, 4)
    models.save(model, [build("small", 3, seed=2)], ("Mass", "Edema", "Hernia"), 16)
    predicted.clear()
    bomd("predict", model, images, "-o", output)
    assert predicted == [COUNT]
    assert output.read_bytes() == _anew(model, images, tmp_path)


def _anew(model: Path, images: Path, folder: Path) -> bytes:
    bomd("predict", model, images, "-o", folder / "anew.csv")
    return (folder / "anew.csv").read_bytes()


def test_a_file_of_somebody_else_is_left_alone(
    model: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out.csv.part").write_text("half of a download")
    assert bomd("predict", model, images, "-o", tmp_path / "out.csv") == 2
    assert "move it elsewhere" in capsys.readouterr().err
    assert (tmp_path / "out.csv.part").read_text() == "half of a download"


def test_a_file_of_somebody_else_stays_where_none_is_needed(model: Path, images: Path, tmp_path: Path) -> None:
    """Of a single block nothing is kept, and what lies there is not looked at before."""
    part, link = tmp_path / "out.csv.part", tmp_path / "linked.csv.part"
    part.write_text("half of a download")
    link.symlink_to(part)
    for name in ("out.csv", "linked.csv"):
        assert bomd("predict", model, images / "0000.png", "-o", tmp_path / name) == 0
    assert part.read_text() == "half of a download"
    assert link.is_symlink()


def test_a_link_is_not_written_through(
    model: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch()
    (tmp_path / "out.csv.part").symlink_to(elsewhere)
    assert bomd("predict", model, images, "-o", tmp_path / "out.csv") == 2
    assert "Cannot write" in capsys.readouterr().err
    assert elsewhere.read_bytes() == b""
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.slow
def test_killed_it_goes_on_to_the_same_bytes(model: Path, images: Path, tmp_path: Path, predicted: list[int]) -> None:
    output = tmp_path / "out.csv"
    part = resumed.part_of(output)
    slow = "import sys, time; from bomd.models import model as m; plain = m.Model.probabilities\n"
    slow += "def late(self, pixels):\n    time.sleep(0.3)\n    return plain(self, pixels)\n"
    slow += "m.Model.probabilities = late\nfrom bomd.cli import main\nmain(sys.argv[1:])"
    words = [sys.executable, "-c", slow, "predict", str(model), str(images), "-o", str(output)]
    process = subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1"})
    while process.poll() is None and not (part.exists() and part.read_bytes().count(b"\n") >= 2):
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert part.exists(), "it ended before it could be killed"
    assert not output.exists()
    bomd("predict", model, images, "-o", output)
    assert 0 < predicted[-1] <= COUNT - 2 * BATCH
    assert output.read_bytes() == _anew(model, images, tmp_path)
