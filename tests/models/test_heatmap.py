"""Heat is what a slow computation by hand gives, lies where a finding was planted, and disturbs nobody."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import roc_auc_score
from torch import nn

from bomd.data.datasets import phantom
from bomd.data.datasets.phantom import drawing
from bomd.errors import InputError
from bomd.learn.learner import prepare
from bomd.models import heatmap
from bomd.models.heatmap import draw, evidence, heat_map, heat_maps, overlay
from bomd.models.model import Model
from bomd.networks.architectures import ARCHITECTURES, make, maps_of
from bomd.networks.backbone import BACKBONES, Network, build

CLASSES = ("Mass", "Edema", "No Finding")


def pixels(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def normalised(network: Network, count: int, size: int) -> torch.Tensor:
    return prepare(torch.as_tensor(pixels(count, size, size)).float(), network.channels)


def experienced(name: str, backbone: str, size: int = 64) -> Network:
    """With running statistics of some images, so that evaluation mode is not a special case."""
    network = make(name, backbone, 3, seed=1)
    with torch.no_grad():
        network.train().features(normalised(network, 4, size))
    return network.eval()


def test_equal_to_finite_differences() -> None:
    """All 24 maps are moved up and down at some of their 16 x 16 cells; then the rest of the network runs."""
    network = experienced("plain", "small").double()
    image = normalised(network, 1, 64).double()
    stem, rest = network.trunk[:4], network.trunk[4:]
    cells = [(row, column) for row in (0, 5, 15) for column in (0, 3, 10, 15)]
    found = evidence(network, image, [0, 1, 2])[:, 0]
    assert found.shape == (3, 16, 16)
    with torch.no_grad():
        maps = stem(image)[0]
        for row, column in cells:
            moves = torch.zeros(24, *maps.shape, dtype=torch.float64)
            moves[torch.arange(24), torch.arange(24), row, column] = 1e-5
            slopes = (network.head(rest(maps + moves)) - network.head(rest(maps - moves))) / 2e-5  # (24, 3)
            expected = (slopes.clamp(min=0) * maps[:, row, column, None]).sum(dim=0)
            torch.testing.assert_close(found[:, row, column], expected, rtol=1e-5, atol=1e-9)
    assert len(torch.unique(found)) > 500


@pytest.mark.parametrize(
    "backbone", [pytest.param(name, marks=pytest.mark.slow if name == "densenet121" else []) for name in BACKBONES]
)
def test_at_the_last_layer_it_is_class_activation_mapping(backbone: str) -> None:
    """With the head's positive weights, where the last maps have 12 cells along a side."""
    network = experienced("plain", backbone)
    image = normalised(network, 1, 32 * heatmap.CELLS)
    with torch.no_grad():
        maps = maps_of(network.trunk, image)[-1]
        expected = torch.einsum("cf,bfhw->cbhw", network.head.weight.clamp(min=0), maps) / maps[0, 0].numel()
    torch.testing.assert_close(evidence(network, image, [0, 1, 2]), expected, rtol=1e-3, atol=1e-5 * expected.max())


@pytest.mark.parametrize("name", ["plain", *ARCHITECTURES])
def test_every_architecture_has_heat_and_is_left_as_it_was(name: str) -> None:
    network = experienced(name, "small")
    model, picture = Model((network,), CLASSES, 64), pixels(90, 50)
    before, shown = model.probabilities(pixels(2, 64, 64)), network.shown
    heat = heat_map(model, picture, "Edema")
    assert heat.shape == (90, 50)
    assert heat.dtype == np.float32
    assert np.isfinite(heat).all()
    assert heat.min() >= 0
    assert heat.max() in (0, 1)
    assert network.shown == shown
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not any(module._forward_hooks for module in network.modules())
    assert torch.equal(model.probabilities(pixels(2, 64, 64)), before)
    several = heat_maps(model, picture, ["Mass", "Edema"])
    np.testing.assert_allclose(several[1], heat, atol=1e-5)


@pytest.mark.parametrize("name", ["plain", *ARCHITECTURES])
def test_other_images_of_a_batch_do_not_matter(name: str) -> None:
    network = experienced(name, "small")
    images = normalised(network, 3, 64)
    together = evidence(network, images, [0, 2])
    for place in range(3):
        alone = evidence(network, images[place : place + 1], [0, 2])
        torch.testing.assert_close(together[:, place : place + 1], alone, rtol=1e-4, atol=1e-6)


def test_several_networks_are_added_and_threads_do_not_meet() -> None:
    networks = tuple(experienced("plain", "small") for _ in range(2))
    with torch.no_grad():
        networks[1].head.weight.neg_()
    model = Model(networks, CLASSES, 64)
    picture = pixels(64, 64)
    parts = [evidence(network, prepare(torch.as_tensor(picture)[None].float(), 1), [0])[0, 0] for network in networks]
    whole = torch.nn.functional.interpolate(sum(parts)[None, None], (64, 64), mode="bilinear")[0, 0]
    expected = heat_map(model, picture, "Mass")
    np.testing.assert_allclose(expected, (whole / whole.max()).numpy(), atol=1e-5)
    probabilities = model.probabilities(picture[None])
    with ThreadPoolExecutor(4) as pool:
        heats = [pool.submit(heat_map, model, picture, "Mass") for _ in range(6)]
        plain = [pool.submit(model.probabilities, picture[None]) for _ in range(6)]
        for future in heats:
            np.testing.assert_array_equal(future.result(), expected)
        assert all(torch.equal(future.result(), probabilities) for future in plain)


def test_nothing_speaks_for_it() -> None:
    network = experienced("plain", "small")
    with torch.no_grad():
        network.head.weight.zero_()
    assert not heat_map(Model((network,), CLASSES, 64), pixels(64, 64), "Mass").any()


def test_mistakes_get_one_line() -> None:
    model = Model((experienced("plain", "small"),), CLASSES, 64)
    with pytest.raises(InputError, match="Did you mean 'Edema'"):
        heat_map(model, pixels(64, 64), "Edma")
    for wrong in (pixels(64, 64, 4), pixels(64, 64) / 255, pixels(0, 4)):
        with pytest.raises(InputError, match="needs an image"):
            heat_map(model, wrong, "Mass")
    unknown = Network("small", nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten()), 1, 16, 3).eval()
    with pytest.raises(InputError, match="has no maps"):
        heat_map(Model((unknown,), CLASSES, 64), pixels(64, 64), "Mass")


@pytest.mark.slow
def test_hot_where_a_finding_was_planted() -> None:
    """A small network learns to tell pneumonias from the same chests without them; the difference of the two pictures
    of a new patient is where the pneumonia is. Its heat must point there, and better than that of another patient."""
    column = phantom.read(count=1).classes.index("Pneumonia")

    def pairs(split: str, count: int) -> torch.Tensor:
        ids = phantom.read(split=split, count=count, seed=5).ids
        labels = np.zeros((2, count, 14), dtype=np.float32)
        labels[1, :, column] = 1
        return torch.stack([drawing.render_with(ids, values, 64) for values in labels])

    network = build("small", 1, seed=0).train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    shown = pairs("train", 128)
    for _ in range(5):
        for rows in torch.randperm(128, generator=generator).split(32):
            logits = network(prepare(shown[:, rows].flatten(0, 1).float(), 1))[:, 0]
            truth = torch.arange(2).repeat_interleave(len(rows)).float()
            optimiser.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(logits, truth).backward()
            optimiser.step()
    model = Model((network.eval(),), ("Pneumonia",), 64)
    without, with_it = pairs("test", 50).numpy()
    change = np.abs(with_it.astype(np.float32) - without)
    clear = [row for row in range(50) if change[row].max() > 25]
    assert len(clear) > 20
    heats = [heat_map(model, with_it[row], "Pneumonia").ravel() for row in clear]
    places = [(change[row] > change[row].max() / 2).ravel() for row in clear]
    own = [roc_auc_score(place, heat) for place, heat in zip(places, heats, strict=True)]
    others = [roc_auc_score(place, heat) for place, heat in zip(places, [*heats[1:], heats[0]], strict=True)]
    assert np.mean(own) > 0.8
    assert np.mean(own) > np.mean(others) + 0.04


class TestDrawing:
    def test_no_heat_leaves_the_image_and_the_colours_are_in_order_of_lightness(self) -> None:
        picture = pixels(5, 7)
        same = overlay(picture, np.zeros((5, 7), dtype=np.float32))
        np.testing.assert_array_equal(same, np.repeat(picture[..., None], 3, axis=2))
        ramp = overlay(np.zeros((1, 64), dtype=np.uint8), np.linspace(0, 1, 64, dtype=np.float32)[None])[0]
        lightness = ramp @ np.array([0.2126, 0.7152, 0.0722])
        assert (np.diff(lightness) > 0).mean() > 0.95

    def test_a_picture_with_any_names(self, tmp_path: Path) -> None:
        model = Model((experienced("plain", "small"),), CLASSES, 64)
        picture = pixels(90, 45)
        draw(tmp_path / "a.png", model, picture, {"Mass": "0.5 $\\frac{$ <b>\n\x1b[31m 肺", "Edema": "long " * 99})
        with Image.open(tmp_path / "a.png") as drawn:
            assert drawn.format == "PNG"
            assert drawn.width > 3 * heatmap.PANEL * 45 / 90
            assert drawn.height >= heatmap.PANEL
        assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
