"""Batches: the right pixels at the right positions, whichever way they travel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bomd.data.batches import Images, normalise
from bomd.data.store import Store, pack
from bomd.errors import InputError
from bomd.tables import LabelTable

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    pixels = np.random.default_rng(0).integers(0, 256, (50, 12, 12), dtype=np.uint8)
    table = LabelTable(np.array([f"i{row}" for row in range(50)]), ("A",), np.zeros((50, 1)))
    directory: Path = tmp_path_factory.mktemp("batches")
    return pack(table, directory, 12, render=lambda ids, size: pixels[[int(name[1:]) for name in ids]])


@pytest.mark.parametrize("resident", [False, True])
def test_batches_hold_the_images_of_their_ids(store: Store, resident: bool) -> None:
    chosen = np.random.default_rng(1).permutation(50)[:31]
    images = Images(store, store.ids[chosen], CPU, resident=resident)
    assert len(images) == 31
    assert images.resident is resident
    assert images.ids.tolist() == store.ids[chosen].tolist()
    positions = torch.tensor([30, 0, 7, 7])
    batch = images.batch(positions)
    assert batch.dtype == torch.uint8
    np.testing.assert_array_equal(batch.numpy(), store.images[chosen[positions.numpy()]])


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("size", [1, 7, 31, 100])
def test_iterating_gives_every_position_once_in_order(store: Store, resident: bool, size: int) -> None:
    images = Images(store, store.ids[5:36], CPU, resident=resident)
    order = torch.randperm(31, generator=torch.Generator().manual_seed(0))
    parts = list(images.iterate(order, size))
    assert [len(pixels) for _, pixels in parts] == [len(part) for part in order.split(size)]
    assert torch.equal(torch.cat([positions for positions, _ in parts]), order)
    np.testing.assert_array_equal(torch.cat([pixels for _, pixels in parts]).numpy(), store.images[5 + order])


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("rows", [slice(7), np.arange(31) % 3 == 0])
def test_some_of_the_images(store: Store, resident: bool, rows: slice | np.ndarray) -> None:
    part = Images(store, store.ids[5:36], CPU, resident=resident).take(rows)
    fresh = Images(store, store.ids[5:36][rows], CPU, resident=resident)
    assert part.ids.tolist() == fresh.ids.tolist()
    assert (part.resident, part.fingerprint) == (resident, fresh.fingerprint)
    everything = torch.arange(len(part))
    assert torch.equal(part.batch(everything), fresh.batch(everything))


@pytest.mark.parametrize("resident", [False, True])
def test_no_positions_give_no_batches(store: Store, resident: bool) -> None:
    assert list(Images(store, store.ids, CPU, resident=resident).iterate(torch.zeros(0, dtype=torch.long), 4)) == []


def test_stopping_early_and_starting_again_is_fine(store: Store) -> None:
    images = Images(store, store.ids, CPU)
    order = torch.arange(50)
    for positions, _ in images.iterate(order, 10):
        assert positions.tolist() == list(range(10))
        break
    assert sum(len(pixels) for _, pixels in images.iterate(order, 10)) == 50


def test_a_returned_batch_is_not_overwritten_by_the_next(store: Store) -> None:
    images = Images(store, store.ids, CPU)
    batches = images.iterate(torch.arange(50), 10)
    _, first = next(batches)
    copy = first.clone()
    next(batches)
    assert torch.equal(first, copy)


def test_the_fingerprint_follows_ids_and_their_order(store: Store) -> None:
    images = Images(store, store.ids, CPU)
    assert images.fingerprint == Images(store, store.ids, CPU, resident=True).fingerprint
    assert images.fingerprint != Images(store, store.ids[::-1], CPU).fingerprint
    assert images.fingerprint != Images(store, store.ids[:-1], CPU).fingerprint


def test_unknown_ids_and_empty_batches_are_refused(store: Store) -> None:
    with pytest.raises(InputError, match="absent"):
        Images(store, ["absent"], CPU)
    with pytest.raises(ValueError, match="batch of 0"):
        next(Images(store, store.ids, CPU).iterate(torch.arange(5), 0))


def test_normalise_matches_the_formula() -> None:
    images = torch.tensor([[[0, 255], [51, 102]]], dtype=torch.uint8)
    share = torch.tensor([[0.0, 1.0], [0.2, 0.4]])
    one = normalise(images, 1)
    assert one.shape == (1, 1, 2, 2)
    assert torch.allclose(one[0, 0], (share - 0.5) / 0.25, atol=1e-6)
    three = normalise(images, 3)
    assert three.shape == (1, 3, 2, 2)
    assert three.dtype == torch.float32
    for channel, (mean, deviation) in enumerate(zip((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), strict=True)):
        assert torch.allclose(three[0, channel], (share - mean) / deviation, atol=1e-5)
    assert torch.equal(normalise(images.float(), 3), three)
    with pytest.raises(ValueError, match="1 or 3"):
        normalise(images, 2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("resident", [None, False, True])
def test_batches_arrive_on_a_gpu(store: Store, resident: bool | None) -> None:
    images = Images(store, store.ids, torch.device("cuda"), resident=resident)
    assert images.resident is (resident is not False)
    order = torch.randperm(50)
    for positions, pixels in images.iterate(order, 16):
        assert positions.device.type == pixels.device.type == "cuda"
        np.testing.assert_array_equal(pixels.cpu().numpy(), store.images[positions.cpu().numpy()])
    np.testing.assert_array_equal(images.batch(order[:3]).cpu().numpy(), store.images[order[:3].numpy()])
