"""Models of timm as backbones: the numbers that timm gives, heat maps, saved models and an audit.

They run wherever timm can be imported. Beside the CPU build of PyTorch it can not be in the process of the other tests,
where a torchvision that is merely there breaks other libraries: `make` puts both into a folder of their own, and
`test_borrowed.py` starts these tests with it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from bomd.cli import main
from bomd.data.batches import normalise
from bomd.errors import InputError
from bomd.models import model
from bomd.models.heatmap import evidence, heat_map
from bomd.models.stages import sides_of, stages_of
from bomd.networks.architectures import describe, make
from bomd.networks.backbone import build

timm = pytest.importorskip("timm", exc_type=Exception)
pytestmark = pytest.mark.slow  # importing timm takes seconds

XRAYS = Path(__file__).parents[3] / "shared" / "data" / "nih" / "images"


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    """(2, 3, 128, 128): real X-rays where there are some."""
    files = sorted(XRAYS.glob("*.png"))[:2] if XRAYS.is_dir() else []
    random = np.random.default_rng(0).integers(0, 256, (2, 128, 128), dtype=np.uint8)
    pixels = np.stack([np.asarray(Image.open(file).convert("L")) for file in files]) if len(files) == 2 else random
    return normalise(torch.as_tensor(pixels), 3)


@pytest.mark.parametrize("name", ["test_resnet", "test_convnext", "test_vit", "test_efficientnet"])
def test_features_are_those_of_timm_and_a_definition_makes_the_network_again(name: str, images: torch.Tensor) -> None:
    network = build(f"timm:{name}", 2, weights="none", seed=0).eval()
    plain = timm.create_model(name, pretrained=False, num_classes=0).eval()
    plain.load_state_dict(network.trunk.model.state_dict())
    wanted = timm.data.resolve_model_data_config(plain)
    assert network.trunk.fit(images).shape[1:] == wanted["input_size"]
    torch.testing.assert_close(network.features(images), plain(network.trunk.fit(images)))
    described = describe(network)
    again = make(described["name"], network.name, 2, **described["arguments"]).eval()
    again.load_state_dict(network.state_dict())
    torch.testing.assert_close(again(images), network(images))


def given_by_stages(network: nn.Module, images: torch.Tensor) -> dict[nn.Module, torch.Tensor]:
    """What each stage gives, by a pass without heat maps."""
    given: dict[nn.Module, torch.Tensor] = {}
    hooks = [
        stage.register_forward_hook(lambda module, _, output: given.update({module: output.detach()}))
        for stage in stages_of(network.trunk)[0]
    ]
    network(images)
    for hook in hooks:
        hook.remove()
    return given


def lost(network: nn.Module, images: torch.Tensor, stage: nn.Module, change: torch.Tensor) -> float:
    """By how much the second logit falls when this is taken from what a stage gives."""
    with torch.no_grad():
        before = network(images)[0, 1]
        hook = stage.register_forward_hook(lambda module, _, output: output - change)
        after = network(images)[0, 1]
        hook.remove()
    return float(before - after)


@pytest.mark.parametrize(
    ("name", "side"),
    [("test_vit", 10), ("swin_tiny_patch4_window7_224", 14), ("swinv2_tiny_window8_256", 16)],
)
def test_heat_of_a_transformer_is_what_the_logit_loses_as_a_token_fades(
    name: str, side: int, images: torch.Tensor
) -> None:
    network, one = build(f"timm:{name}", 2, weights="none", seed=0).eval().double(), images[:1].double()
    found = evidence(network, one, [1])[0, 0]
    assert found.shape == (side, side)
    assert float(found.abs().max()) > 0
    given = given_by_stages(network, one)
    stage = [part for part, output in given.items() if sides_of(part, output, network.trunk) == (side, side)][-1]
    for row, column in ((0, 0), (3, 7), (9, 2)):
        change = torch.zeros_like(given[stage])
        flat, at = change.flatten(1, -2), side * row + column - side * side  # patches are the last tokens
        flat[:, at] = 1e-5 * given[stage].flatten(1, -2)[:, at]
        expected = lost(network, one, stage, flat.reshape(given[stage].shape)) / 1e-5
        assert float(found[row, column]) == pytest.approx(expected, rel=1e-2, abs=1e-7)


@pytest.mark.parametrize("name", ["test_resnet", "test_convnext", "test_efficientnet"])
def test_heat_of_convolutions_is_what_channels_that_speak_for_a_class_are_worth(
    name: str, images: torch.Tensor
) -> None:
    """Each channel's slope at one place by a small change of it alone; those below 0 do not count."""
    network, one = build(f"timm:{name}", 2, weights="none", seed=0).eval().double(), images[:1].double()
    found = evidence(network, one, [1])[0, 0]
    side = found.shape[0]
    assert side >= 12
    given = given_by_stages(network, one)
    stage = [part for part, output in given.items() if output.shape[-1] == side][-1]
    total = 0.0
    for channel, value in enumerate(given[stage][0, :, 3, 7]):
        change = torch.zeros_like(given[stage])
        change[0, channel, 3, 7] = 1e-6
        total += max(lost(network, one, stage, change) / 1e-6, 0.0) * float(value)
    assert float(found[3, 7]) == pytest.approx(total, rel=1e-3, abs=1e-8)


def test_a_family_whose_maps_have_channels_last_says_that_it_has_none(images: torch.Tensor) -> None:
    with pytest.raises(InputError, match="No heat map"):
        evidence(build("timm:test_mambaout", 2, weights="none", seed=0).eval(), images, [1])


def test_a_saved_model_has_heat_maps(tmp_path: Path) -> None:
    model.save(tmp_path, [build("timm:test_vit", 2, weights="none", seed=0).eval()], ["a", "b"], 96)
    heat = heat_map(model.load(tmp_path), np.random.default_rng(0).integers(0, 256, (50, 60), dtype=np.uint8), "b")
    assert heat.shape == (50, 60)
    assert heat.max() == 1


def kept(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, spoil: str = "") -> None:
    """The layout in which the hub's own library keeps the weights of a model; nothing is fetched."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    whole = timm.create_model(name, pretrained=False)
    state = {key: value for key, value in whole.state_dict().items() if not spoil or not key.startswith(spoil)}
    place = folder / f"models--{whole.pretrained_cfg['hf_hub_id'].replace('/', '--')}"
    (place / "snapshots" / "abc").mkdir(parents=True)
    save_file(state, place / "snapshots" / "abc" / "model.safetensors")
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("abc")


def test_kept_weights_are_read_and_others_get_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(monkeypatch, tmp_path / "whole", "test_convnext.r160_in1k")
    trained, random = (
        build("timm:test_convnext.r160_in1k", 2, weights=weights, seed=1) for weights in ("imagenet", "none")
    )
    changed = trained.trunk.state_dict()
    assert not all(torch.equal(value, changed[name]) for name, value in random.trunk.state_dict().items())
    kept(monkeypatch, tmp_path / "part", "test_convnext.r160_in1k", spoil="stages.1")
    for name, words in {
        "test_convnext.r160_in1k": "does not fit this timm",
        "test_resnet.r160_in1k": "the hub does not give it",
        "no_such_model": "cannot make it",
    }.items():
        with pytest.raises(InputError, match=words) as caught:
            build(f"timm:{name}", 2, weights="imagenet")
        assert "\n" not in str(caught.value)


def test_an_audit_by_frozen_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(monkeypatch, tmp_path / "hub", "test_convnext.r160_in1k")
    random = np.random.default_rng(0)
    lines = ["image,bright,striped"]
    (tmp_path / "photos").mkdir()
    for number in range(60):
        bright, striped = number % 2, number // 2 % 2
        pixels = random.integers(0, 60, (40, 40)) + 120 * bright + 60 * striped * (np.arange(40) % 8 < 4)
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / f"{number}.png")
        lines.append(f"{number}.png,{bright},{striped}")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    words = ["audit", str(tmp_path / "labels.csv"), "--images", str(tmp_path / "photos"), "-o", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as left:
        main([*words, "--backbone", "timm:test_convnext.r160_in1k"])
    assert not left.value.code
    assert (tmp_path / "out" / "labels_clean.csv").read_text().count("\n") == 61
