"""Models of other people as backbones: the same numbers as their own library gives, and one clear line otherwise."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

from bomd import progress
from bomd.data.batches import normalise
from bomd.errors import InputError
from bomd.models.heatmap import evidence
from bomd.models.stages import stages_of
from bomd.networks.architectures import describe, make
from bomd.networks.backbone import build, find
from bomd.networks.sight import Sight

KINDS = ("vit", "dinov2", "clip", "swin", "convnext")
XRAYS = Path(__file__).parents[3] / "shared" / "data" / "nih" / "images"


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    """(3, 128, 128) grey pictures: real X-rays where there are some."""
    files = sorted(XRAYS.glob("*.png"))[:3] if XRAYS.is_dir() else []
    if len(files) == 3:
        return np.stack([np.asarray(Image.open(file).convert("L")) for file in files])
    return np.random.default_rng(0).integers(0, 256, (3, 128, 128), dtype=np.uint8)


def by_transformers(folder: Path, pictures: list[Image.Image], **processing: Any) -> torch.Tensor:
    """(B, F) features as the library itself computes them, by its own image processor."""
    import transformers as hf

    processor = hf.AutoImageProcessor.from_pretrained(folder, use_fast=False)
    inputs = processor(images=pictures, return_tensors="pt", **processing)
    model = hf.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        if folder.name == "clip":
            return hf.CLIPModel.from_pretrained(folder).eval().vision_model(**inputs).pooler_output
        if folder.name == "vit":
            return model(**inputs).last_hidden_state[:, 0]
        return model(**inputs).pooler_output


@pytest.mark.parametrize("kind", KINDS)
def test_features_are_those_of_the_library(others_models: dict[str, Path], pixels: np.ndarray, kind: str) -> None:
    network = build(f"hf:{others_models[kind]}", 2, weights="imagenet", seed=0).eval()
    with torch.no_grad():
        own = network.features(normalise(torch.as_tensor(pixels), network.channels))
    pictures = [Image.fromarray(image).convert("RGB") for image in pixels]
    expected = by_transformers(others_models[kind], pictures)
    assert expected.std(dim=0).mean() > 1e-3  # the pictures differ
    torch.testing.assert_close(own, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("kind", "filter"), [("vit", Image.Resampling.BILINEAR), ("clip", Image.Resampling.BICUBIC)])
def test_images_of_another_size_are_resized_whole(
    others_models: dict[str, Path], pixels: np.ndarray, kind: str, filter: Image.Resampling
) -> None:
    """Pillow resizes floats without rounding, which the library's processor does to whole grey values."""
    network = build(f"hf:{others_models[kind]}", 2, weights="imagenet", seed=0).eval()
    small = np.stack([np.asarray(Image.fromarray(image).resize((80, 80))) for image in pixels])
    with torch.no_grad():
        own = network.trunk.fit(normalise(torch.as_tensor(small), 3))
    wanted = np.stack(
        [np.asarray(Image.fromarray(image.astype(np.float32)).resize((128, 128), filter)) for image in small]
    )
    described = json.loads((others_models[kind] / "preprocessor_config.json").read_text())
    for channel in range(3):
        mean, deviation = described["image_mean"][channel], described["image_std"][channel]
        expected = (np.clip(wanted, 0, 255) / 255 - mean) / deviation
        np.testing.assert_allclose(own[:, channel].numpy(), expected, atol=1e-4)


def test_nothing_is_cropped_away(others_models: dict[str, Path], tmp_path: Path) -> None:
    """DINOv2 comes with "resize to 256, cut 224 out": the edge of an image must still count."""
    folder = tmp_path / "model"
    shutil.copytree(others_models["dinov2"], folder)
    described = json.loads((folder / "preprocessor_config.json").read_text())
    described["size"] = {"shortest_edge": 160}
    (folder / "preprocessor_config.json").write_text(json.dumps(described))
    network = build(f"hf:{folder}", 1, weights="imagenet").eval()
    assert network.trunk.sight.height == 128
    edge = torch.zeros(2, 3, 128, 128)
    edge[1, :, 0] = 3.0
    first, second = network.features(edge)
    assert not torch.allclose(first, second)


def test_the_trunk_is_frozen_unless_told_otherwise(others_models: dict[str, Path], pixels: np.ndarray) -> None:
    images = normalise(torch.as_tensor(pixels), 3)
    for freeze, moves in ((None, False), (True, False), (False, True)):
        network = build(f"hf:{others_models['swin']}", 2, weights="imagenet", seed=0, freeze=freeze).train()
        optimiser = torch.optim.SGD([weight for weight in network.parameters() if weight.requires_grad], lr=0.1)
        before = {name: value.clone() for name, value in network.state_dict().items()}
        network(images).square().sum().backward()
        optimiser.step()
        moved = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
        assert {"head.weight", "head.bias"} <= moved
        assert any(name.startswith("trunk.") for name in moved) == moves
        torch.manual_seed(0)
        again = [network.features(images) for _ in range(2)]
        assert torch.equal(*again) != moves  # Swin drops whole paths while it learns


def test_our_own_backbones_can_be_frozen_too(pixels: np.ndarray) -> None:
    network = build("small", 2, seed=0, freeze=True).train()
    assert {name for name, weight in network.named_parameters() if weight.requires_grad} == {"head.weight", "head.bias"}
    before = network.trunk[1].running_mean.clone()
    network(normalise(torch.as_tensor(pixels), 1))
    torch.testing.assert_close(network.trunk[1].running_mean, before)
    assert not build("small", 2, seed=0, freeze=None).frozen


@pytest.mark.parametrize("kind", KINDS)
def test_a_definition_alone_makes_the_network_again(
    others_models: dict[str, Path], pixels: np.ndarray, kind: str
) -> None:
    network = build(f"hf:{others_models[kind]}", 2, weights="imagenet", seed=0).eval()
    described = json.loads(json.dumps(describe(network)))
    again = make(described["name"], "hf:no/longer/there", 2, **described["arguments"]).eval()
    again.load_state_dict(network.state_dict())
    images = normalise(torch.as_tensor(pixels), 3)
    torch.testing.assert_close(again(images), network(images))
    assert find(f"hf:{others_models[kind]}").feature_size == network.feature_size


def test_convolutions_have_heat_maps(others_models: dict[str, Path], pixels: np.ndarray) -> None:
    """Against the same arithmetic on the library's own hidden states."""
    import transformers as hf

    network = build(f"hf:{others_models['convnext']}", 2, weights="imagenet", seed=0).eval()
    images = normalise(torch.as_tensor(pixels[:1]), 3)
    found = evidence(network, images, [1])[0]
    model = hf.AutoModel.from_pretrained(others_models["convnext"]).eval()
    outputs = model(pixel_values=network.trunk.fit(images).requires_grad_(), output_hidden_states=True)
    maps = outputs.hidden_states[2]  # 16 x 16: the deepest with 12 cells along a side
    (slope,) = torch.autograd.grad(network.head(outputs.pooler_output)[0, 1], maps)
    torch.testing.assert_close(found, (slope.clamp(min=0) * maps).sum(dim=1).detach(), rtol=1e-3, atol=1e-5)


def save_merging(kind: str, folder: Path) -> Path:
    """A transformer of 128 pixels with 32 x 32 patches of which 4 are made one, and once more."""
    import transformers as hf

    model, config = {"swin": (hf.SwinModel, hf.SwinConfig), "swinv2": (hf.Swinv2Model, hf.Swinv2Config)}[kind]
    sizes = {"image_size": 128, "patch_size": 4, "embed_dim": 8, "window_size": 4}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model(config(depths=[1, 1, 1], num_heads=[1, 1, 2], **sizes)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("kind", "side", "before", "least"),
    [("vit", 4, 1, 1e-3), ("dinov2", 4, 1, 1e-3), ("clip", 4, 1, 1e-3), ("swin", 16, 0, 3e-4), ("swinv2", 16, 0, 3e-4)],
    ids=lambda value: str(value),
)
def test_heat_of_a_transformer_is_what_its_normed_tokens_are_worth(
    others_models: dict[str, Path], tmp_path: Path, pixels: np.ndarray, kind: str, side: int, before: int, least: float
) -> None:
    """Against what the logit loses as the normed token of a patch fades: a derivative without derivatives.

    Where tokens are merged, the last norm would have 8 x 8 places; 16 x 16 is the coarsest with 12 along a side.
    """
    folder = save_merging(kind, tmp_path) if kind.startswith("swin") else others_models[kind]
    network = build(f"hf:{folder}", 2, weights="imagenet", seed=0).eval().double()
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(5 if weight.ndim > 1 else 1)  # drawn at random they are so small that nothing depends on them
    images = normalise(torch.as_tensor(pixels[:1]), 3).double()
    found = evidence(network, images, [1])[0]
    assert found.shape == (1, side, side)
    assert float(found.abs().mean()) > least  # something to compare; smaller where a place is a sixteenth
    norm = stages_of(network.trunk)[0][0]
    whole, shrink = network(images)[0, 1].detach(), 1e-5
    for row, column in ((0, 0), (1, 3), (3, 2)):

        def fade(module: nn.Module, given: object, output: Any, place: int = before + side * row + column) -> object:
            assert output.shape[1] == before + side * side, "a class token where there is one, and patches"
            states = output.clone()
            states[:, place] *= 1 - shrink
            return states

        hook = norm.register_forward_hook(fade)
        lost = float(whole - network(images)[0, 1].detach()) / shrink
        hook.remove()
        assert lost == pytest.approx(float(found[0, row, column]), rel=1e-2, abs=1e-6)


def without(folder: Path, name: str) -> None:
    (folder / name).unlink()


def pickled(folder: Path, name: str = "pytorch_model.bin") -> None:
    without(folder, "model.safetensors")
    torch.save({}, folder / name)


def configured(folder: Path, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


def damaged(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def lacking(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights.pop("vit.embeddings.cls_token")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def endless(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["vit.embeddings.cls_token"][:] = float("inf")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: without(folder, "config.json"), "has no config.json"),
        (lambda folder: without(folder, "model.safetensors"), "has no weights"),
        (pickled, r"pickled weights only \(pytorch_model.bin\)"),
        (lambda folder: configured(folder, model_type="mine", auto_map={"AutoModel": "mine.Mine"}), "is never run"),
        (lambda folder: configured(folder, model_type="bert"), "'bert' model, which does not take images"),
        (lambda folder: configured(folder, hidden_size=20), "hf:"),
        (lambda folder: configured(folder, num_channels=5), "5 channels"),
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), "an adapter"),
        (lambda folder: (folder / "preprocessor_config.json").write_text('{"image_std": [0, 0, 0]}'), "No network"),
        (lambda folder: (folder / "config.json").write_text("[]"), "model_type"),
        (damaged, "cannot open its weights"),
        (lacking, r"do not fit its config.json, for example (vit\.)?embeddings.cls_token"),
        (endless, "not finite"),
    ],
)
def test_a_folder_that_cannot_be_used_gets_one_line(
    others_models: dict[str, Path], tmp_path: Path, spoil: Any, words: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(others_models["vit"], folder)
    spoil(folder)
    with pytest.raises(InputError, match=words) as caught:
        build(f"hf:{folder}", 2, weights="imagenet")
    assert "\n" not in str(caught.value)


def test_code_in_a_folder_is_never_run(others_models: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(others_models["vit"], folder)
    told = tmp_path / "ran"
    (folder / "modeling_mine.py").write_text(f"open({str(told)!r}, 'w').close()\nclass Mine: pass\n")
    configured(folder, auto_map={"AutoModel": "modeling_mine.Mine", "AutoConfig": "modeling_mine.Mine"})
    build(f"hf:{folder}", 2, weights="imagenet")  # a ViT all the same
    assert not told.exists()


def test_without_a_processor_it_is_said_what_is_assumed(
    others_models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(others_models["vit"], folder)
    without(folder, "preprocessor_config.json")
    with progress.shown():
        sight = build(f"hf:{folder}", 2, weights="imagenet").trunk.sight
    assert sight == Sight(3, 128, 128, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert "ImageNet's mean and deviation" in capsys.readouterr().err


def test_a_name_is_found_in_the_local_cache_and_else_refused(
    others_models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layout that the hub's own library keeps; nothing is fetched."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    kept = tmp_path / "models--somebody--vit"
    shutil.copytree(others_models["vit"], kept / "snapshots" / "abc")
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("abc")
    assert build("hf:somebody/vit", 2, weights="imagenet").feature_size == 16
    for name, words in {
        "somebody/else": "hub does not give it",
        "./nothing": "no such folder",
        "a/b/c": "no such folder",
        str(others_models["vit"] / "config.json"): "is a file",
    }.items():
        with pytest.raises(InputError, match=words) as caught:
            build(f"hf:{name}", 2, weights="imagenet")
        assert "\n" not in str(caught.value)


def test_what_cannot_be_built_on_a_model_of_other_people(others_models: dict[str, Path]) -> None:
    name = f"hf:{others_models['vit']}"
    for architecture in ("can", "hermoza", "hlc", "npc"):
        with pytest.raises(InputError, match="is made of the maps of densenet121"):
            make(architecture, name, 2, weights="imagenet", freeze=None)
        with pytest.raises(InputError, match="could not learn anything"):
            make(architecture, "small", 2, freeze=True)
    with pytest.raises(InputError, match="brings its own"):
        build(name, 2, weights="other.safetensors")
    with pytest.raises(InputError, match="hf:NAME_OR_FOLDER or timm:NAME"):
        build("hf:", 2)
    random = build(name, 2, weights="none", seed=1).trunk.state_dict()
    trained = build(name, 2, weights="imagenet", seed=1).trunk.state_dict()
    assert not all(torch.equal(random[key], trained[key]) for key in trained)


def test_timm_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match=r"pip install 'bomd\[timm\]'"):
        build("timm:resnet18", 2, weights="imagenet")


@pytest.mark.slow  # importing timm takes seconds
def test_timm_in_a_process_of_its_own() -> None:
    """The tests of timm, with the folder that `make` puts it into; see `test_timm.py` for why not here."""
    folder = Path(sys.prefix) / "timm"
    if not (folder / "timm").is_dir():
        pytest.skip("timm is not installed beside the other packages: make .venv/.timm")
    here = Path(__file__).parent
    places = os.pathsep.join([str(folder), str(here), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "undefined_operators", str(here / "test_timm.py")],
        cwd=here.parents[1],
        env={**os.environ, "PYTHONPATH": places.strip(os.pathsep)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "skipped" not in done.stdout, done.stdout[-3000:]
