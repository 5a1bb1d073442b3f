"""Things that do not fit together, through the command line on image files: one clear line each, and nothing is begun.

Photographs are real ones where there are some.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bomd import cli
from bomd.models import model
from bomd.networks.backbone import build

PHOTOS = Path(__file__).parents[3] / "shared" / "data" / "photos" / "images"
COUNT = 24
RECIPE = """
name = "misfit"
method = "bce"
[images]
size = 32
[train]
dataset = "folder"
root = "{root}"
labels = "labels.csv"
{train}
[fit]
backbone = "small"
weights = "{weights}"
epochs = 1
batch = 8
{rest}
"""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table of colour photographs, and another table of other photographs with another class."""
    root = tmp_path_factory.mktemp("misfits")
    (root / "images").mkdir()
    files = sorted(PHOTOS.glob("*.jpg"))[::40][: 2 * COUNT] if PHOTOS.is_dir() else []
    names = []
    for number in range(2 * COUNT):
        names.append(f"{number:02}.jpg")
        if files:
            shutil.copy(files[number % len(files)], root / "images" / names[-1])
        else:
            pixels = np.random.default_rng(number).integers(0, 256, (36, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / "images" / names[-1])
    rows = [f"{name},{number % 2},{number // 2 % 2}" for number, name in enumerate(names)]
    (root / "labels.csv").write_text("\n".join(["file,fish,weed", *rows[:COUNT]]) + "\n")
    (root / "other.csv").write_text("\n".join(["file,dog", *(f"{name},1" for name in names[COUNT:])]) + "\n")
    model.save(root / "grey", [build("small", 2, seed=0).eval()], ["fish", "weed"], 32)
    return root


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The only line with an error, of a command that fails as a mistake of its user."""
    with pytest.raises(SystemExit) as left:
        cli.main([str(word) for word in words])
    assert left.value.code == 2
    whole = capsys.readouterr().err
    assert "Traceback" not in whole
    start = whole.index("Error: ")
    return " ".join(whole[start:].split())  # a terminal may break a line


def recipe(place: Path, pictures: Path, train: str = "", weights: str = "none", rest: str = "") -> Path:
    path = place / "recipe.toml"
    path.write_text(RECIPE.format(root=pictures, train=train, weights=weights, rest=rest))
    return path


def test_colour_photographs_into_a_grey_model(pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = said(capsys, "predict", pictures / "grey", pictures / "images")
    assert "The images are in colour" in line
    assert "pass --grey to convert them" in line


def test_colour_photographs_on_top_of_a_grey_model(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recipe(tmp_path, pictures, weights=str(pictures / "grey"))
    line = said(capsys, "run", path, "--runs", tmp_path / "runs")
    assert "are of the backbone 'small', but are to start 'small_colour'" in line
    assert 'images.mode = "grey" converts them' in line


def test_weights_of_another_backbone(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recipe(tmp_path, pictures, weights=str(pictures / "grey"))
    line = said(capsys, "run", path, "--runs", tmp_path / "runs", "--set", "fit.backbone=densenet121")
    assert "are of the backbone 'small', but are to start 'densenet121'" in line


@pytest.mark.parametrize("pickled", [False, True])
def test_a_backbone_without_weights_or_with_pickles_only(
    pictures: Path,
    others_models: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    pickled: bool,
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(others_models["vit"], folder)
    (folder / "model.safetensors").unlink()
    if pickled:
        torch.save({}, folder / "pytorch_model.bin")
    line = said(
        capsys, "audit", pictures / "labels.csv", "--images", pictures / "images", "-o", tmp_path / "out",
        "--backbone", f"hf:{folder}",
    )  # fmt: skip
    assert ("pickled weights only (pytorch_model.bin)" if pickled else "has no weights") in line
    assert not (tmp_path / "out").exists()


def test_a_class_that_no_image_has(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recipe(tmp_path, pictures, train='classes = ["fish", "cat"]')
    line = said(capsys, "run", path, "--runs", tmp_path / "runs")
    assert "'cat'" in line
    assert "fish" in line.split("'cat'")[1], "it names those that there are"


def test_a_test_set_of_other_classes(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rest = f'[test.other]\ndataset = "folder"\nroot = "{pictures}"\nlabels = "other.csv"'
    line = said(capsys, "run", recipe(tmp_path, pictures, rest=rest), "--runs", tmp_path / "runs")
    assert "Test set 'other' has no class in common with the training set: fish, weed" in line


def test_probabilities_of_other_classes(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ("audit", pictures / "labels.csv", "--images", pictures / "images", "-o", tmp_path / "out")
    np.save(tmp_path / "three.npy", np.full((COUNT, 3), 0.5))
    assert "3 columns" in said(capsys, *call, "--probabilities", tmp_path / "three.npy")
    ids = np.asarray([f"{number:02}.jpg" for number in range(COUNT)])
    columns = {"probabilities": np.full((COUNT, 2), 0.5), "classes": np.asarray(["cat", "dog"])}
    np.savez(tmp_path / "other.npz", ids=ids, **columns)
    assert "fish" in said(capsys, *call, "--probabilities", tmp_path / "other.npz")
    (tmp_path / "table.csv").write_text("file,fish,weed\n00.jpg,0.5,0.5\n")
    line = said(capsys, *call, "--probabilities", tmp_path / "table.csv")
    assert "not an array that NumPy saved" in line
    assert "unsafe" not in line
