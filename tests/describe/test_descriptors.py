"""Descriptors of a whole set: what a step learns from, and what is written for whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from bomd import progress
from bomd.config import DeviceSettings, FitSettings
from bomd.data.batches import Images
from bomd.data.datasets import phantom
from bomd.data.store import pack
from bomd.describe.descriptors import DescriptorLearner, extract, load
from bomd.describe.labelspace import embed
from bomd.describe.ranking import ranking_loss
from bomd.describe.written import Stored
from bomd.learn.engine import Batch, make_fabric
from bomd.learn.learner import prepare
from bomd.networks.backbone import Network

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(backbone="small", weights="none", augment="none")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    table = phantom.read(count=10)
    store = pack(table, tmp_path_factory.mktemp("descriptors") / "store", 32, render=phantom.render)
    return Images(store, table.ids, FABRIC.device)


def test_every_image_gets_its_own_descriptors_whatever_the_batch(images: Images, tmp_path: Path) -> None:
    """Ten images in batches of four, against one by one through the network and cut into three by hand."""
    space = embed(phantom.read(count=1).classes, "random")
    learner = DescriptorLearner(space, 3, "release", 0.3)
    networks = learner.build(learner.outputs, FIT, seed=0)
    extract(learner, networks, images, tmp_path / "descriptors.npy", batch=4)
    found = load(tmp_path / "descriptors.npy", images)
    size = space.vectors.shape[1]
    assert learner.outputs == 3 * size
    assert found.ids.tolist() == images.ids.tolist()
    assert found.values.shape == (10, 3, size)
    assert isinstance(found.values, np.memmap)  # a million images do not fit into memory
    assert sorted(path.name for path in tmp_path.iterdir()) == ["descriptors.npy", "descriptors.npy.rows"]
    with torch.no_grad():
        for row in range(10):
            flat = networks[0].eval()(prepare(images.batch(torch.tensor([row])).float(), 1))[0]
            for number in range(3):
                part = flat[number * size : (number + 1) * size].numpy()
                np.testing.assert_allclose(found.values[row, number], part, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_an_interruption_costs_nothing_that_was_described(
    stored: Stored, images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = embed(phantom.read(count=1).classes, "random")
    learner = DescriptorLearner(space, 2, "release", 0.3, stored)
    networks = learner.build(learner.outputs, FIT, seed=0)
    exact = DescriptorLearner(space, 2, "release", 0.3)
    extract(exact, networks, images, tmp_path / "exact.npy", batch=3)
    path, whole, shown = tmp_path / "descriptors.npy", DescriptorLearner.predict, []

    def stops(self: DescriptorLearner, networks: Sequence[Network], pixels: torch.Tensor) -> torch.Tensor:
        if len(shown) == 2:
            raise KeyboardInterrupt
        shown.append(len(pixels))
        return whole(self, networks, pixels)

    monkeypatch.setattr(DescriptorLearner, "predict", stops)
    with pytest.raises(KeyboardInterrupt):
        extract(learner, networks, images, path, batch=3)
    shown[:] = [-100]  # one call more is allowed before it stops again
    with pytest.raises(KeyboardInterrupt):
        extract(learner, networks, images, path, batch=3)
    shown[:] = []
    extract(learner, networks, images, path, batch=3)
    assert shown == [1]  # of 10 images, 6 and 3 were done
    np.testing.assert_array_equal(load(path, images).values, np.load(tmp_path / "exact.npy").astype(stored))

    others = learner.build(learner.outputs, FIT, seed=1)
    monkeypatch.setattr(DescriptorLearner, "predict", whole)
    extract(learner, others, images, path, batch=3)  # other weights: nothing of the old file counts
    assert not np.array_equal(load(path, images).values, np.load(tmp_path / "exact.npy").astype(stored))


def test_the_bar_is_of_ones_own_share_and_begins_where_it_was(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two processes, who has five of ten images, is stopped after two of them."""
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    shown: list[list[int]] = []

    @contextmanager
    def watched(what: str, total: int) -> Iterator[Callable[[int], None]]:
        shown.append([total])
        yield shown[-1].append

    learner = DescriptorLearner(embed(phantom.read(count=1).classes, "random"), 2, "release", 0.3)
    networks, whole = learner.build(learner.outputs, FIT, seed=0), DescriptorLearner.predict

    def stops(self: DescriptorLearner, networks: Sequence[Network], pixels: torch.Tensor) -> torch.Tensor:
        if len(shown) == 1 and len(shown[0]) == 3:
            raise KeyboardInterrupt
        return whole(self, networks, pixels)

    monkeypatch.setattr(progress, "bar", watched)
    monkeypatch.setattr(DescriptorLearner, "predict", stops)
    with pytest.raises(KeyboardInterrupt):
        extract(learner, networks, images, tmp_path / "descriptors.npy", batch=2)
    extract(learner, networks, images, tmp_path / "descriptors.npy", batch=2)
    assert shown == [[5, 0, 2], [5, 2, 2, 1]]


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_step_is_the_ranking_loss_of_the_networks_bags(images: Images, beta: float) -> None:
    table = phantom.read(count=10)
    space = embed(table.classes, "random")
    learner = DescriptorLearner(space, 2, "release", beta)
    networks = learner.build(learner.outputs, FIT, seed=0)
    for network in networks:
        network.eval()
    index = torch.arange(6)
    batch = Batch(index, torch.as_tensor(table.values)[index], images.batch(index), 1)
    flat = networks[0](batch.view())
    bags = torch.stack([flat[:, : flat.shape[1] // 2], flat[:, flat.shape[1] // 2 :]], dim=1)
    wanted = ranking_loss(bags, torch.as_tensor(space.vectors), batch.targets, weighting="release", beta=beta).loss
    torch.testing.assert_close(learner.step(networks, batch), wanted)


def test_class_vectors_follow_the_network_and_are_moved_once(images: Images) -> None:
    """A recorded step cannot reach the host's memory, and numbers of two types are not multiplied."""
    table = phantom.read(count=10)
    learner = DescriptorLearner(embed(table.classes, "random"), 2, "release", 0.0)
    networks = learner.build(learner.outputs, FIT, seed=0)
    index = torch.arange(4)
    targets = torch.as_tensor(table.values)[index]
    learner.vectors = learner.vectors.double()
    learner.step(networks, Batch(index, targets, images.batch(index), 1))
    moved = learner.vectors
    assert moved.dtype == torch.float32
    learner.step(networks, Batch(index, targets, images.batch(index), 1))
    assert learner.vectors is moved
