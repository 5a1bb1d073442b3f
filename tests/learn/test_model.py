"""A model folder gives back the network that was saved, of whatever form, and refuses what it cannot open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from bomd.errors import InputError
from bomd.learn import model
from bomd.learn.architectures import ARCHITECTURES, make
from bomd.learn.backbone import Network, build
from bomd.learn.engine import prepare

CLASSES = ("Mass", "Edema", "No Finding")


def pixels(count: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 32, 32), dtype=np.uint8)


def probabilities(network: Network) -> torch.Tensor:
    images = prepare(torch.as_tensor(pixels()).float(), network.channels)
    with torch.no_grad():
        return network.eval()(images).sigmoid()


def rewrite(folder: Path, **changes: Any) -> None:
    path = folder / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("name", ["plain", *ARCHITECTURES])
def test_every_architecture_opens_as_it_was_saved(name: str, tmp_path: Path) -> None:
    network = make(name, "small", 3, seed=1)
    network.train().features(torch.randn(4, 1, 32, 32))  # running statistics are part of it
    model.save(tmp_path, [network], CLASSES, 32, method="test")
    opened = model.load(tmp_path, "cpu")
    assert opened.classes == CLASSES
    assert opened.size == 32
    assert torch.equal(opened.probabilities(pixels()), probabilities(network))


def test_arguments_of_an_architecture_are_kept(tmp_path: Path) -> None:
    network = make("hermoza", "small", 3, seed=1, width=8, hidden=4)
    model.save(tmp_path, [network], CLASSES, 32)
    assert torch.equal(model.load(tmp_path, "cpu").probabilities(pixels()), probabilities(network))


def test_several_networks_are_averaged(tmp_path: Path) -> None:
    networks = [build("small", 3, seed=seed) for seed in (1, 2)]
    model.save(tmp_path / "model", networks, CLASSES, 32)
    found = model.load(tmp_path, "cpu").probabilities(pixels())
    torch.testing.assert_close(found, (probabilities(networks[0]) + probabilities(networks[1])) / 2)


@pytest.mark.parametrize("count", [3, model.FEW + 3])
def test_files_are_predicted_by_name(tmp_path: Path, count: int) -> None:
    """A few are decoded one by one, many into a packed store: the same numbers in the same order."""
    model.save(tmp_path, [build("small", 3, seed=1)], CLASSES, 32)
    files = [tmp_path / f"{number}.png" for number in range(count)]
    for file, image in zip(files, pixels(count), strict=True):
        Image.fromarray(image).save(file)
    opened = model.load(tmp_path, "cpu")
    table = opened.predict(files[::-1], batch=4)
    assert table.ids.tolist() == [str(file) for file in files[::-1]]
    np.testing.assert_allclose(table.values, opened.probabilities(pixels(count)[::-1].copy()), atol=1e-6)


def test_no_file_and_a_damaged_file_are_named(tmp_path: Path) -> None:
    model.save(tmp_path, [build("small", 3, seed=1)], CLASSES, 32)
    opened = model.load(tmp_path, "cpu")
    with pytest.raises(InputError, match="No image to predict"):
        opened.predict([])
    files = [tmp_path / f"{number}.png" for number in range(model.FEW + 1)]
    for file in files:
        Image.fromarray(pixels(1)[0]).save(file)
    files[7].write_bytes(files[7].read_bytes()[:60])
    for some in (files, files[6:9]):  # packed, and one by one
        with pytest.raises(InputError, match=r"7\.png"):
            opened.predict(some)


def test_a_model_from_before_there_were_architectures_opens(tmp_path: Path) -> None:
    network = build("small", 3, seed=1)
    model.save(tmp_path, [network], CLASSES, 32)
    path = tmp_path / "model.json"
    old = json.loads(path.read_text())
    del old["architecture"]
    path.write_text(json.dumps(old))
    assert torch.equal(model.load(tmp_path, "cpu").probabilities(pixels()), probabilities(network))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 99}, "another version (format 99)"),
        ({"architecture": {"name": "unet", "arguments": {}}}, "No architecture 'unet'"),
        ({"architecture": {"name": "can", "arguments": {"depth": 3}}}, "depth"),
        ({"architecture": {"name": "can", "arguments": {"width": 512}}}, "Cannot read"),
        ({"classes": ["Mass"]}, "Cannot read"),
        ({"networks": 2}, "network1.safetensors"),
    ],
)
def test_a_folder_that_does_not_fit_gets_one_line(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    model.save(tmp_path, [build("small", 3, seed=1)], CLASSES, 32)
    rewrite(tmp_path, **changes)
    with pytest.raises(InputError) as caught:
        model.load(tmp_path, "cpu")
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value) or "architecture" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_weights_get_one_line(tmp_path: Path) -> None:
    model.save(tmp_path, [build("small", 3, seed=1)], CLASSES, 32)
    path = tmp_path / "network0.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match="Cannot read") as caught:
        model.load(tmp_path, "cpu")
    assert "\n" not in str(caught.value)


def test_no_model_in_the_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No model in"):
        model.load(tmp_path, "cpu")


def test_networks_of_two_architectures_are_not_one_model(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one architecture"):
        model.save(tmp_path, [build("small", 3, seed=1), make("hlc", "small", 3, seed=1)], CLASSES, 32)
    assert not list(tmp_path.iterdir())
