"""Grey or colour: what a sample says, how stores keep it, and that grey is what it was before there was colour."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from bomd.data import colour, store
from bomd.data.augment import Motion, draw, move
from bomd.data.batches import SCALES, Images, normalise
from bomd.data.images import fit_square, read_image, with_colour
from bomd.data.store import Store, open_store, pack
from bomd.errors import InputError
from bomd.tables import LabelTable

REAL = Path(__file__).parents[2] / "../shared/data"
OLDER = Path(__file__).parent / "grey_store"  # written by the version before stores knew colour
RED = np.array([200, 30, 60], dtype=np.uint8)


def table_of(paths: list[Path]) -> LabelTable:
    names = np.array([path.name for path in paths])
    return LabelTable(names, ("A",), np.zeros((len(paths), 1)), np.array([str(path) for path in paths]))


def saved(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def grey(side: int = 24, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side), dtype=np.uint8)


def photo(side: int = 24, seed: int = 0) -> np.ndarray:
    """Bright in red, dark in blue."""
    return (grey(side, seed)[..., None] * np.array([1.0, 0.6, 0.2])).astype(np.uint8)


def drawn_before(ids: np.ndarray, size: int) -> np.ndarray:
    """The pictures of `OLDER`."""
    return np.stack([(np.arange(size**2).reshape(size, size) * (ord(str(i)) - 90) % 256).astype(np.uint8) for i in ids])


class TestReading:
    def test_colour_is_kept_and_grey_has_equal_channels(self, tmp_path: Path) -> None:
        pixels = photo()
        np.testing.assert_array_equal(read_image(saved(tmp_path / "a.png", pixels), colour=True), pixels)
        found = read_image(saved(tmp_path / "b.png", grey()), colour=True)
        assert found.shape == (24, 24, 3)
        np.testing.assert_array_equal(found, np.stack([grey()] * 3, axis=-1))

    def test_deep_grey_stays_grey(self, tmp_path: Path) -> None:
        deep = grey().astype(np.uint16) * 257
        path = saved(tmp_path / "deep.png", deep)
        np.testing.assert_array_equal(read_image(path, colour=True), np.stack([grey()] * 3, axis=-1))
        assert not colour.file_is_coloured(path)

    def test_a_palette_is_looked_up(self, tmp_path: Path) -> None:
        Image.fromarray(np.full((8, 8, 3), RED)).convert("P", palette=Image.Palette.ADAPTIVE).save(tmp_path / "p.png")
        assert read_image(tmp_path / "p.png", colour=True)[0, 0].tolist() == RED.tolist()

    def test_resizing_treats_each_channel_as_a_grey_picture(self) -> None:
        small = fit_square(photo(40), 16)
        for channel in range(3):
            np.testing.assert_array_equal(small[..., channel], fit_square(photo(40)[..., channel].copy(), 16))

    def test_converting_there_and_back(self) -> None:
        np.testing.assert_array_equal(with_colour(with_colour(grey(), True), False), grey())
        weights = photo().astype(float) @ [0.299, 0.587, 0.114]
        assert np.abs(with_colour(photo(), False) - weights).max() <= 1


class TestSample:
    def test_grey_in_three_channels_and_coloured_letters_are_no_colour(self, tmp_path: Path) -> None:
        marked = with_colour(grey(100), True)
        marked[2:12, 2:12] = RED  # 1 % of the picture
        paths = [saved(tmp_path / "a.jpg", with_colour(grey(), True)), saved(tmp_path / "b.png", marked)]
        assert colour.first_coloured([str(path) for path in paths]) is None
        marked[2:22, 2:22] = RED
        assert colour.is_coloured(marked)

    def test_auto_looks_and_says_so(self, tmp_path: Path) -> None:
        paths = [saved(tmp_path / f"{number}.png", grey(seed=number)) for number in range(3)]
        assert colour.keeping("auto", table_of(paths)) == colour.Keeping(False)
        paths.append(saved(tmp_path / "photo.png", photo()))
        found = colour.keeping("auto", table_of(paths))
        assert found.colour
        assert "photo.png" in found.notes[0]
        forced = colour.keeping("grey", table_of(paths))
        assert (forced.colour, forced.converted) == (False, True)
        assert colour.keeping("colour", table_of(paths[:1])).colour

    def test_a_colour_test_set_beside_grey_training_is_refused(self, tmp_path: Path) -> None:
        train, test = (
            table_of([saved(tmp_path / "a.png", grey())]),
            table_of([saved(tmp_path / "b.png", photo())]),
        )
        with pytest.raises(InputError, match=r"Test set 'x' is in colour, such as .*b\.png.*images\.mode"):
            colour.keeping("auto", train, {"x": test})
        assert not colour.keeping("grey", train, {"x": test}).colour
        assert "in grey" in colour.keeping("auto", test, {"x": train}).notes[1]

    def test_unreadable_and_missing_files_are_left_to_whoever_uses_them(self, tmp_path: Path) -> None:
        (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 no more")
        assert colour.first_coloured([str(tmp_path / "broken.jpg"), str(tmp_path / "none.png")]) is None
        assert colour.first_coloured([]) is None

    @pytest.mark.skipif(not REAL.is_dir(), reason="needs the real images in ../shared/data")
    @pytest.mark.parametrize(("folder", "expected"), [("photos", True), ("nih", False), ("openi", False)])
    def test_real_sets(self, folder: str, expected: bool) -> None:
        paths = sorted(str(path) for path in (REAL / folder / "images").iterdir())[::40]
        assert (colour.first_coloured(paths) is not None) == expected


class TestStore:
    def test_rows_hold_the_pictures_in_colour(self, tmp_path: Path) -> None:
        paths = [saved(tmp_path / "images" / f"{number}.png", photo(20 + number, number)) for number in range(5)]
        table = table_of([*paths, saved(tmp_path / "images" / "grey.png", grey())])
        kept = pack(table, tmp_path / "store", 16, colour=True)
        assert kept.colour
        assert kept.images.shape == (6, 16, 16, 3)
        for row, path in enumerate(paths):
            np.testing.assert_array_equal(kept.images[row], fit_square(read_image(path, colour=True), 16))
        assert kept.shows(0, read_image(paths[0], colour=True))
        assert not kept.shows(0, read_image(paths[1], colour=True))
        assert open_store(tmp_path / "store", deep=True).fingerprint == kept.fingerprint

    def test_colour_and_grey_are_different_stores(self, tmp_path: Path) -> None:
        table = table_of([saved(tmp_path / "images" / "a.png", photo())])
        plain = pack(table, tmp_path / "store", 16)
        kept = pack(table, tmp_path / "store", 16, colour=True)
        assert not plain.colour
        assert kept.colour
        assert kept.directory != plain.directory
        assert kept.fingerprint != plain.fingerprint

    def test_interrupted_packing_goes_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        paths = [saved(tmp_path / "images" / f"{number:03}.png", photo(10, number)) for number in range(80)]
        whole = pack(table_of(paths), tmp_path / "whole", 8, colour=True, workers=1)
        read: list[int] = []
        original = store.read_chunks

        def stops(paths, size, starts, step, workers, **rest):
            for chunk in original(paths, size, starts[:1] if not read else starts, step, workers, **rest):
                yield chunk
                if not read:
                    read.extend(starts)
                    raise KeyboardInterrupt
            read.extend(starts)

        monkeypatch.setattr(store, "read_chunks", stops)
        with pytest.raises(KeyboardInterrupt):
            pack(table_of(paths), tmp_path / "part", 8, colour=True, workers=1)
        again = pack(table_of(paths), tmp_path / "part", 8, colour=True, workers=1)
        assert read == [0, 64, 64]  # the first chunk was not read again
        np.testing.assert_array_equal(again.images, whole.images)

    def test_a_store_of_before_is_opened_and_used_as_it_is(self, tmp_path: Path) -> None:
        shutil.copytree(OLDER, tmp_path / "store")
        before = {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()}
        kept = open_store(tmp_path / "store", deep=True, expected="833e62964383")
        assert not kept.colour
        np.testing.assert_array_equal(kept.images, drawn_before(kept.ids, 8))
        table = LabelTable(np.array(["a", "b", "c"]), ("A",), np.zeros((3, 1)))
        anew = pack(table, tmp_path / "anew", 8, render=drawn_before)
        assert anew.fingerprint == kept.fingerprint
        assert (anew.directory / "images.u8").read_bytes() == before["images.u8"]
        for name, content in before.items():
            assert (tmp_path / "store" / name).read_bytes() == content


class TestGreyIsAsBefore:
    """The formulas that grey images have always gone through, to the bit."""

    def test_motion(self) -> None:
        images = torch.from_numpy(np.stack([grey(32, seed) for seed in range(6)]))
        motion = draw(6, "release", torch.Generator().manual_seed(3))
        matrix = motion.matrix[..., None, None]
        centres = (2 * torch.arange(32) + 1) / 32 - 1
        grid = matrix[:, :, 0] * centres + matrix[:, :, 1] * centres[:, None] + matrix[:, :, 2]
        grid = grid.permute(0, 2, 3, 1)
        moved = F.grid_sample(images.float()[:, None], grid, "bilinear", motion.padding, align_corners=False)[:, 0]
        bright = moved * motion.brightness[:, None, None]
        mean = bright.mean(dim=(1, 2), keepdim=True)
        expected = torch.lerp(mean, bright, motion.contrast[:, None, None]).clamp(0, 255)
        assert torch.equal(move(images, motion), expected)

    @pytest.mark.parametrize("channels", [1, 3])
    def test_scale(self, channels: int) -> None:
        images = torch.from_numpy(np.stack([grey(8, seed) for seed in range(3)]))
        planes = [images.float() * (1 / (255 * deviation)) - mean / deviation for mean, deviation in SCALES[channels]]
        assert torch.equal(normalise(images, channels), torch.stack(planes, dim=1))


class TestBatches:
    @pytest.fixture
    def kept(self, tmp_path: Path) -> Store:
        paths = [saved(tmp_path / "images" / f"{number}.png", photo(12, number)) for number in range(7)]
        return pack(table_of(paths), tmp_path / "store", 12, colour=True)

    @pytest.mark.parametrize("resident", [False, True])
    def test_images_arrive_in_colour(self, kept: Store, resident: bool) -> None:
        images = Images(kept, kept.ids[::-1], torch.device("cpu"), resident=resident)
        order = torch.tensor([3, 0, 6, 2, 1])
        found = torch.cat([pixels for _, pixels in images.iterate(order, 2)])
        np.testing.assert_array_equal(found.numpy(), kept.images[6 - order.numpy()])
        np.testing.assert_array_equal(images.take(slice(2, 4)).batch(torch.tensor([1])).numpy()[0], kept.images[3])

    def test_each_channel_has_its_scale(self) -> None:
        images = torch.from_numpy(np.stack([photo(), photo(seed=1)]))
        found = normalise(images, 3)
        assert found.is_contiguous(memory_format=torch.channels_last)
        for channel, (mean, deviation) in enumerate(SCALES[3]):
            expected = (images[..., channel].double() / 255 - mean) / deviation
            torch.testing.assert_close(found[:, channel].double(), expected, rtol=1e-5, atol=1e-5)

    def test_grey_in_three_channels_is_what_grey_is(self) -> None:
        images = torch.from_numpy(np.stack([grey(), grey(seed=1)]))
        assert torch.equal(normalise(images[..., None].expand(-1, -1, -1, 3), 3), normalise(images, 3))

    def test_a_network_of_one_channel_cannot_see_colour(self) -> None:
        with pytest.raises(InputError, match="1 channel cannot see colour"):
            normalise(torch.zeros(1, 4, 4, 3), 1)

    def test_channels_move_alike(self) -> None:
        images = torch.from_numpy(np.stack([photo(32, seed) for seed in range(4)]))
        motion = draw(4, "light", torch.Generator().manual_seed(0))  # without jitter
        found = move(images, motion)
        for channel in range(3):
            torch.testing.assert_close(found[..., channel], move(images[..., channel], motion))

    def test_contrast_is_around_the_mean_of_all_channels(self) -> None:
        images = torch.from_numpy(photo(8)[None])
        still = torch.tensor([[[1.0, 0, 0], [0, 1, 0]]])
        found = move(images, Motion(still, torch.tensor([1.1]), torch.tensor([0.5]), "border"))
        bright = images.double() * 1.1
        expected = (bright.mean() + 0.5 * (bright - bright.mean())).clamp(0, 255)
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-3)
