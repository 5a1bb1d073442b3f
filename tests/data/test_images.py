"""Decoding: every oddity of real PNG and JPEG files, and a named error for what cannot be read."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bomd.data.image_files import find_images, told
from bomd.data.images import LARGEST, fit_square, read_image
from bomd.errors import InputError

REAL = Path(__file__).parents[2] / "../shared/data/nih/images"


@pytest.fixture
def grey() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (20, 30), dtype=np.uint8)


def test_8_bit_png_is_read_exactly(tmp_path: Path, grey: np.ndarray) -> None:
    Image.fromarray(grey).save(tmp_path / "a.png")
    pixels = read_image(tmp_path / "a.png")
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels, grey)


def test_16_bit_png_is_divided_by_256(tmp_path: Path) -> None:
    deep = np.array([[0, 255, 256, 4095], [32768, 65279, 65280, 65535]], dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    np.testing.assert_array_equal(read_image(tmp_path / "deep.png"), [[0, 0, 1, 15], [128, 254, 255, 255]])


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA"])
def test_grey_stored_with_colour_or_transparency_stays_the_same(tmp_path: Path, grey: np.ndarray, mode: str) -> None:
    picture = Image.fromarray(grey).convert(mode)
    if mode in ("RGBA", "LA"):
        picture.putalpha(Image.fromarray(255 - grey))  # transparency must not darken anything
    picture.save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), grey)


@pytest.mark.filterwarnings("error")
def test_palette_is_looked_up_also_when_transparent(tmp_path: Path) -> None:
    picture = Image.fromarray(np.array([[0, 1], [2, 0]], dtype=np.uint8), "P")
    picture.putpalette([200, 200, 200, 10, 10, 10, 77, 77, 77])
    picture.save(tmp_path / "plain.png")
    picture.save(tmp_path / "clear.png", transparency=bytes([0, 128, 255]))
    for name in ("plain.png", "clear.png"):
        np.testing.assert_array_equal(read_image(tmp_path / name), [[200, 10], [77, 200]])


def test_one_bit_png_becomes_black_and_white(tmp_path: Path) -> None:
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), [[255, 0]])


def test_jpeg_is_close_and_its_rotation_applied(tmp_path: Path) -> None:
    ramp = np.tile(np.arange(0, 240, 10, dtype=np.uint8), (16, 1))
    exif = Image.Exif()
    exif[0x0112] = 6  # "turn by 90 degrees clockwise to view"
    Image.fromarray(ramp).save(tmp_path / "plain.jpg", quality=95)
    Image.fromarray(ramp).save(tmp_path / "turned.jpg", quality=95, exif=exif)
    plain = read_image(tmp_path / "plain.jpg")
    assert np.abs(plain.astype(int) - ramp).max() <= 6
    np.testing.assert_array_equal(read_image(tmp_path / "turned.jpg"), np.rot90(plain, -1))


def test_the_content_decides_not_the_suffix(tmp_path: Path, grey: np.ndarray) -> None:
    Image.fromarray(grey).save(tmp_path / "a.png")
    (tmp_path / "a.png").rename(tmp_path / "a.jpg")
    np.testing.assert_array_equal(read_image(tmp_path / "a.jpg"), grey)


@pytest.mark.parametrize("suffix", ["png", "jpg"])
@pytest.mark.parametrize("part", [0.0, 0.02, 0.3, 0.9])
def test_truncated_file_is_named(tmp_path: Path, grey: np.ndarray, suffix: str, part: float) -> None:
    path = tmp_path / f"cut.{suffix}"
    Image.fromarray(grey).save(path)
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    with pytest.raises(InputError, match=rf"cut\.{suffix}") as error:
        read_image(path)
    assert "\n" not in str(error.value)


def test_a_flipped_bit_in_png_data_is_noticed(tmp_path: Path, grey: np.ndarray) -> None:
    path = tmp_path / "rotten.png"
    Image.fromarray(grey).save(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"rotten\.png is damaged"):
        read_image(path)


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"No image .*absent\.png"):
        read_image(tmp_path / "absent.png")
    with pytest.raises(InputError, match="Cannot read image"):
        read_image(tmp_path)
    (tmp_path / "text.png").write_text("not an image")
    with pytest.raises(InputError, match=r"text\.png is none of PNG, JPEG, BMP, TIFF, WebP and DICOM"):
        read_image(tmp_path / "text.png")
    with zipfile.ZipFile(tmp_path / "zip.png", "w") as archive:
        archive.writestr("a", "b")
    with pytest.raises(InputError, match=r"zip\.png is a zip archive"):
        read_image(tmp_path / "zip.png")
    Image.fromarray(np.zeros((2, 2), np.uint8)).save(tmp_path / "a.gif")
    with pytest.raises(InputError, match=r"a\.gif"):
        read_image(tmp_path / "a.gif")


@pytest.mark.filterwarnings("error")  # Pillow's remark would stand before ours
@pytest.mark.parametrize("side", [int(LARGEST**0.5) + 1, 11_000, 100_000])
def test_a_png_that_claims_too_many_pixels_is_refused(tmp_path: Path, side: int) -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    bomb = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    (tmp_path / "bomb.png").write_bytes(bomb)
    with pytest.raises(InputError, match=r"bomb\.png.*pixels"):
        read_image(tmp_path / "bomb.png")


@pytest.mark.parametrize("name", ["a.dcm", "A.DICOM", "no-suffix"])
def test_dicom_goes_to_its_own_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / name).write_bytes(bytes(128) + b"DICM" + bytes(10))
    monkeypatch.setitem(__import__("sys").modules, "bomd.data.dicom", None)  # what a failing import leaves
    with pytest.raises(InputError, match=f"{name} is DICOM, which needs an extra"):
        read_image(tmp_path / name)


def test_images_are_found_in_folders_and_by_name(tmp_path: Path) -> None:
    for name in ("b.PNG", "deep/er/a.jpg", "deep/c.dcm", "notes.txt", "odd"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    found = find_images([tmp_path / "odd", tmp_path, tmp_path / "b.PNG"])
    assert [str(Path(path).relative_to(tmp_path)) for path in found.images] == [
        "odd",
        "b.PNG",
        "deep/c.dcm",
        "deep/er/a.jpg",
    ]
    assert found.others == (f"{tmp_path}/notes.txt",)
    (tmp_path / "empty").mkdir()
    places = [tmp_path / "empty", tmp_path / "b.PNG", tmp_path / "absent"]
    found = find_images(places)
    assert found.images == (str(tmp_path / "b.PNG"),)
    empty, absent = found.missing.values()
    assert list(found.missing) == [str(place) for place in (places[0], places[2])]
    assert re.match(r"No images in .*empty: looked for \.png", empty)
    assert absent == f"No image or folder {places[2]}."


def test_dicom_without_a_suffix_is_found_by_its_content(tmp_path: Path) -> None:
    """Archives write names such as IM0001 or the UID; a disc's list of contents has the marker, too."""
    for name in ("IM0001", "1.2.840.113619", "DICOMDIR", "dicomdir"):
        (tmp_path / name).write_bytes(bytes(128) + b"DICM" + bytes(10))
    for name in ("a.tif", "b.TIFF", "c.bmp", "d.webp", "notes", "movie.gif", ".hidden"):
        (tmp_path / name).write_text("")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    found = find_images([tmp_path])
    assert {Path(path).name for path in found.images} == {
        *("1.2.840.113619", "IM0001", "a.tif", "b.TIFF", "c.bmp", "d.webp"),
    }
    assert {Path(path).name for path in found.others} == {
        *("DICOMDIR", "dicomdir", "notes", "movie.gif", "pipe", "broken"),
    }
    text = told(found.others)
    assert text.startswith("6 other files are no images and were skipped (5 without a suffix, 1 .gif): '")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "only.gif").write_text("")
    (why,) = find_images([tmp_path / "sub"]).missing.values()
    assert re.match(r"No images in .*; 1 other file is no image and was skipped .*'.*only\.gif'", why)


GREY = (np.arange(12, dtype=np.uint8).reshape(3, 4) * 20).astype(np.uint8)
DEEP = np.arange(12, dtype=np.uint16).reshape(3, 4) * 5000


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.bmp", {}),
        ("a.tif", {}),
        ("a.tiff", {"compression": "tiff_lzw"}),
        ("a.tif", {"compression": "tiff_adobe_deflate"}),
        ("a.webp", {"lossless": True}),
    ],
)
@pytest.mark.parametrize("colour", [False, True])
def test_other_formats(tmp_path: Path, name: str, options: dict[str, Any], colour: bool) -> None:
    pixels = np.stack([GREY] * 3, axis=-1) if colour else GREY
    Image.fromarray(pixels).save(tmp_path / name, **options)
    np.testing.assert_array_equal(read_image(tmp_path / name), GREY)


def test_deep_tiff(tmp_path: Path) -> None:
    """16 bits by the full range, 0 as white inverted, and an orientation applied once."""
    Image.fromarray(DEEP).save(tmp_path / "a.tif")
    np.testing.assert_array_equal(read_image(tmp_path / "a.tif"), DEEP // 256)
    Image.fromarray(DEEP).save(tmp_path / "inverse.tif", tiffinfo={262: 0})
    np.testing.assert_array_equal(read_image(tmp_path / "inverse.tif"), 255 - DEEP // 256)
    Image.fromarray(GREY).save(tmp_path / "turned.tif", tiffinfo={274: 6})
    np.testing.assert_array_equal(read_image(tmp_path / "turned.tif"), np.rot90(GREY, -1))


def test_a_picture_is_one_picture_of_usual_numbers(tmp_path: Path) -> None:
    first = Image.fromarray(GREY)
    first.save(tmp_path / "pages.tif", save_all=True, append_images=[first])
    first.save(tmp_path / "film.webp", save_all=True, append_images=[Image.fromarray(255 - GREY)])
    Image.fromarray(DEEP.astype(np.float32)).save(tmp_path / "float.tif")
    Image.fromarray(DEEP.astype(np.int32)).save(tmp_path / "long.tif")
    for name, reason in {
        "pages.tif": "several pages",
        "film.webp": "animated",
        "float.tif": "signed or 32-bit numbers",
        "long.tif": "signed or 32-bit numbers",
    }.items():
        with pytest.raises(InputError, match=f"{name} cannot be used: it.* {reason}.*; save"):
            read_image(tmp_path / name)
    first.save(tmp_path / "thumbnail.tif", save_all=True, append_images=[Image.fromarray(GREY[:2, :2])])
    np.testing.assert_array_equal(read_image(tmp_path / "thumbnail.tif"), GREY)


OUT_OF_MEMORY = """
import resource, sys
import numpy as np
from bomd.data.images import read_chunks
import bomd.data.dicom

used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (40 << 20), used + (40 << 20)))
for chunk in read_chunks(np.asarray(sys.argv[1:]), 8, [0], 9, workers=1):
    for row in range(len(chunk.pixels)):
        print(chunk.broken.get(row, "fine"))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited as Linux does it")
def test_an_image_larger_than_the_memory_is_one_broken_image(tmp_path: Path) -> None:
    Image.new("L", (9000, 8000)).save(tmp_path / "large.png")
    Image.new("L", (40, 40)).save(tmp_path / "small.png")
    files = [str(tmp_path / "large.png"), str(tmp_path / "small.png")]
    done = subprocess.run([sys.executable, "-c", OUT_OF_MEMORY, *files], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"Image {files[0]} takes more memory than there is.", "fine"]


def test_fit_square_averages_when_it_shrinks_and_keeps_what_fits() -> None:
    board = (np.indices((64, 64)).sum(axis=0) % 2 * 255).astype(np.uint8)
    small = fit_square(board, 8)
    assert small.shape == (8, 8)
    assert np.abs(small[1:-1, 1:-1].astype(float) - 127.5).max() < 3  # plain bilinear would alias to 0 or 255
    assert fit_square(board, 64) is board
    wide = np.repeat(np.array([[0, 200]], dtype=np.uint8), 30, axis=1)
    stretched = fit_square(wide, 10)
    assert stretched.shape == (10, 10)
    assert stretched[0, 0] == 0
    assert stretched[9, 9] == 200
    with pytest.raises(InputError, match="size of 0"):
        fit_square(board, 0)


def test_fit_square_against_a_loop_over_triangular_weights() -> None:
    """Halving 6 pixels to 3: triangles of half-width 2 around centres 1, 3, 5, cut at the borders."""
    row = np.array([0, 60, 120, 30, 90, 240], dtype=np.float64)
    expected = []
    for centre in (1.0, 3.0, 5.0):
        weights = np.array([max(0.0, 1 - abs(i + 0.5 - centre) / 2) for i in range(6)])
        expected.append((weights * row).sum() / weights.sum())
    pixels = np.tile(row.astype(np.uint8), (6, 1))
    assert np.abs(fit_square(pixels, 3)[1].astype(float) - expected).max() <= 1


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the real images in ../shared/data/nih")
def test_real_radiographs_are_read() -> None:
    for path in sorted(REAL.iterdir())[:5]:
        pixels = read_image(path)
        assert pixels.shape == (128, 128)
        assert pixels.std() > 20
