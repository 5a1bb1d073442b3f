"""Image files that are broken, hostile or something else, through the reader and through the front door."""

from __future__ import annotations

import gzip
import io
import os
import struct
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bomd.data.images import LARGEST, fit_square, read_image

TEXTS = {  # elements that are numbers written as text
    "NumberOfFrames": "1111111111",
    "WindowCenter": "2222222222",
    "WindowWidth": "3333333333",
    "RescaleSlope": "4444444444",
    "RescaleIntercept": "5555555555",
}


def png(draw: np.random.Generator) -> bytes:
    """A small PNG in one of the modes that exist, animated ones among them."""
    mode = str(draw.choice(["L", "1", "P", "LA", "RGB", "RGBA", "I;16"]))
    pixels = draw.integers(0, 256, (12, 10), dtype=np.uint8)
    image = Image.fromarray(pixels.astype(np.uint16) * 257) if mode == "I;16" else Image.fromarray(pixels).convert(mode)
    stream = io.BytesIO()
    more = {"save_all": True, "append_images": [image] * 3} if draw.integers(4) == 0 and mode != "I;16" else {}
    image.save(stream, "PNG", **more)
    return stream.getvalue()


def jpeg(draw: np.random.Generator) -> bytes:
    mode = str(draw.choice(["L", "RGB", "CMYK"]))
    image = Image.fromarray(draw.integers(0, 256, (12, 10), dtype=np.uint8)).convert(mode)
    exif = Image.Exif()
    exif[0x0112] = int(draw.integers(0, 10))
    stream = io.BytesIO()
    image.save(stream, "JPEG", progressive=bool(draw.integers(2)), exif=exif)
    return stream.getvalue()


def other(kind: str, draw: np.random.Generator) -> bytes:
    """A small picture of one of the rarer kinds, a TIFF in any of its compressions."""
    modes = {"tif": ["L", "1", "P", "RGB", "CMYK", "I;16", "F"], "bmp": ["L", "1", "RGB"], "webp": ["L", "RGBA"]}
    mode = str(draw.choice(modes[kind]))
    pixels = draw.integers(0, 256, (12, 10), dtype=np.uint8)
    image = Image.fromarray(pixels.astype(np.uint16) * 257) if mode == "I;16" else Image.fromarray(pixels).convert(mode)
    options = {"compression": str(draw.choice(["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"]))}
    stream = io.BytesIO()
    image.save(stream, {"tif": "TIFF"}.get(kind, kind), **(options if kind == "tif" else {}))
    return stream.getvalue()


def dicom(draw: np.random.Generator, **changes: Any) -> bytes:
    """A small radiograph; the changes replace elements of its header, None removes one."""
    pydicom = pytest.importorskip("pydicom")
    dataset = pydicom.Dataset()
    dataset.SOPClassUID, dataset.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.1.1", "1.2.3"
    dataset.Rows, dataset.Columns, dataset.SamplesPerPixel = 6, 5, 1
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, 12, 11, 0
    dataset.PhotometricInterpretation = "MONOCHROME2"
    dataset.PixelData = draw.integers(0, 4096, 30, dtype=np.uint16).tobytes()
    for name, value in changes.items():
        if value is None:
            delattr(dataset, name)
        elif name in TEXTS:
            setattr(dataset, name, TEXTS[name])  # a stand-in: the package writes no text that is not a number
        else:
            setattr(dataset, name, value)
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    stream = io.BytesIO()
    pydicom.dcmwrite(stream, dataset, enforce_file_format=True)
    content = stream.getvalue()
    for name in TEXTS.keys() & changes.keys():
        content = content.replace(TEXTS[name].encode(), changes[name].encode().ljust(10))
    return content


def chunk(name: bytes, content: bytes, length: int | None = None) -> bytes:
    """One piece of a PNG with the right checksum, and with any length."""
    size = len(content) if length is None else length
    return struct.pack(">I", size & 0xFFFFFFFF) + name + content + struct.pack(">I", zlib.crc32(name + content))


def made_png(width: int, height: int, depth: int, colour: int, body: bytes, *extra: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    pieces = [chunk(b"IHDR", header), *extra, chunk(b"IDAT", zlib.compress(body)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(pieces)


def cut(draw: np.random.Generator) -> tuple[str, bytes]:
    kind, content = sound(draw)
    return kind, content[: draw.integers(len(content))]


def flipped(draw: np.random.Generator) -> tuple[str, bytes]:
    kind, content = sound(draw)
    array = np.frombuffer(content, np.uint8).copy()
    amount = int(draw.integers(1, 12))
    array[draw.integers(0, len(array), amount)] = draw.integers(0, 256, amount)
    return kind, array.tobytes()


def spliced(draw: np.random.Generator) -> tuple[str, bytes]:
    (kind, content), (_, other) = sound(draw), sound(draw)
    start = int(draw.integers(len(content)))
    return kind, content[:start] + other[draw.integers(len(other)) :] + content[start:]


def sound(draw: np.random.Generator) -> tuple[str, bytes]:
    kind = str(draw.choice(["png", "jpg", "dcm", "tif", "bmp", "webp"]))
    return kind, {"png": png, "jpg": jpeg, "dcm": dicom}.get(kind, partial(other, kind))(draw)


def damaged_header(draw: np.random.Generator) -> tuple[str, bytes]:
    """A DICOM header with one or two values that no radiograph has."""
    numbers = [0, 1, 3, 8, 16, 17, 32, 64, 65535]
    words = ["", "0", "-1", "1e308", "-1e308", "1e-300", "nan", "x", "1\\2", "9999999999"]
    changes: dict[str, Any] = {}
    for _ in range(draw.integers(1, 3)):
        kind = draw.integers(5)
        if kind == 0:
            names = [
                "Rows",
                "Columns",
                "BitsAllocated",
                "BitsStored",
                "HighBit",
                "PixelRepresentation",
                "SamplesPerPixel",
            ]
            changes[str(draw.choice(names))] = int(draw.choice(numbers))
        elif kind == 1:
            name = str(draw.choice(list(TEXTS)))
            changes[name] = str(draw.choice(words))
            if name.startswith("Rescale"):
                changes.setdefault("RescaleIntercept" if name == "RescaleSlope" else "RescaleSlope", "1")
            elif name.startswith("Window"):
                changes.setdefault("WindowWidth" if name == "WindowCenter" else "WindowCenter", "40")
        elif kind == 2:
            colours = ["MONOCHROME1", "RGB", "PALETTE COLOR", "YBR_FULL", "", "x" * 16]
            changes["PhotometricInterpretation"] = str(draw.choice(colours))
        elif kind == 3:
            changes["PixelData"] = draw.bytes(int(draw.choice([0, 2, 58, 62, 600])))
        else:
            changes[str(draw.choice(["Rows", "BitsStored", "PixelData", "PhotometricInterpretation"]))] = None
    return "dcm", dicom(draw, **changes)


def compressed(draw: np.random.Generator) -> tuple[str, bytes]:
    """A DICOM that says its pixels are compressed, and holds anything."""
    pydicom = pytest.importorskip("pydicom")
    content = [draw.bytes(200), jpeg(draw), png(draw), b"", b"\xff\xd8\xff", b"\xff\x4f\xff\x51" + draw.bytes(60)]
    size: dict[str, Any] = {}
    if draw.integers(2):  # what a header says of a JPEG that fits it and is damaged inside
        array = np.frombuffer(jpeg(draw), np.uint8).copy()
        array[draw.integers(2, len(array), 3)] = draw.integers(0, 256, 3)
        content = [array.tobytes()]
        size = {"Rows": 12, "Columns": 10, "BitsAllocated": 8, "BitsStored": 8, "HighBit": 7}
    dataset = pydicom.dcmread(io.BytesIO(dicom(draw, **size)))
    syntaxes = ["1.2.840.10008.1.2.5", "1.2.840.10008.1.2.4.50", "1.2.840.10008.1.2.4.51", "1.2.840.10008.1.2.4.57"]
    syntaxes += [
        "1.2.840.10008.1.2.4.70",
        "1.2.840.10008.1.2.4.80",
        "1.2.840.10008.1.2.4.90",
        "1.2.840.10008.1.2.4.100",
    ]
    dataset.file_meta.TransferSyntaxUID = str(draw.choice(syntaxes))
    dataset.PixelData = pydicom.encaps.encapsulate([content[draw.integers(len(content))] or b"\x00\x00"])
    dataset["PixelData"].is_undefined_length = True
    stream = io.BytesIO()
    pydicom.dcmwrite(stream, dataset)
    return "dcm", stream.getvalue()


def invented(draw: np.random.Generator) -> tuple[str, bytes]:
    """A PNG whose checksums are right and whose content is not."""
    side = [0, 1, 7, 8_000, 100_000, 2**31 - 1, 2**32 - 1]
    width, height = int(draw.choice(side)), int(draw.choice(side))
    body = draw.bytes(int(draw.choice([0, 1, 100, 5000])))
    extras = [
        chunk(b"tRNS", draw.bytes(3)),
        chunk(b"PLTE", draw.bytes(int(draw.integers(0, 900)))),
        chunk(b"zTXt", b"a\x00\x00" + zlib.compress(b"\x00" * 3_000_000)),
        chunk(b"eXIf", draw.bytes(40)),
        chunk(b"iCCP", b"a\x00\x00" + draw.bytes(30)),
        chunk(b"acTL", struct.pack(">II", 2**31, 0)),
        chunk(b"tEXt", b"a", int(draw.choice([2**31, 2**32 - 1, 100]))),
    ]
    chosen = [extras[place] for place in draw.integers(0, len(extras), draw.integers(0, 3))]
    depth, colour = int(draw.choice([0, 1, 8, 16, 255])), int(draw.choice([0, 2, 3, 4, 6, 9]))
    return "png", made_png(width, height, depth, colour, body, *chosen)


def something_else(draw: np.random.Generator) -> tuple[str, bytes]:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("a.png", png(draw))
    others = [
        *(b"", b"\x00", b"\n", b"<html>not found</html>", b"<svg/>", b"GIF89a\x01\x00", b"BM\x00\x00", b"RIFF\x00WEBP"),
        *(b"II*\x00\x08\x00\x00\x00", b"version https://git-lfs.github.com/spec/v1\n", b"%PDF-1.7", b"\x7fELF"),
        *(archive.getvalue(), gzip.compress(png(draw)), draw.bytes(500), b"\x00" * 128 + b"DICM", b"\x00" * 400),
        *(
            b"\x89PNG\r\n\x1a\n",
            b"\xff\xd8\xff\xe0",
            "Größe".encode("utf-16"),
            png(draw)[8:],
            b"\xef\xbb\xbf" + png(draw),
        ),
    ]
    return str(draw.choice(["png", "jpeg", "dcm", "PNG", "dicom"])), others[draw.integers(len(others))]


KINDS = (cut, flipped, spliced, damaged_header, compressed, invented, something_else)


def cases(amount: int, seed: int, place: Path) -> list[tuple[str, Path]]:
    made = []
    for number in range(amount):
        kind = KINDS[number % len(KINDS)]
        suffix, content = kind(np.random.default_rng([seed, number]))
        file = place / f"case{number}.{suffix}"
        file.write_bytes(content)
        made.append((f"{kind.__name__} seed [{seed}, {number}]", file))
    return made


@pytest.mark.slow
def test_reader(tmp_path: Path, outcomes: Any) -> None:
    """700 files; what can be read is a picture that can be resized."""
    for case, file in cases(700, 3, tmp_path):
        outcomes.call(case, lambda file=file: fit_square(read_image(file), 8))
    outcomes.check(700)


@pytest.mark.slow
def test_front_door(tmp_path: Path, outcomes: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """40 folders of six sound images and one bad one, typed into verify and prepare."""
    for number, (case, bad) in enumerate(cases(40, 4, tmp_path)):
        root = tmp_path / f"set{number}"
        (root / "images").mkdir(parents=True)
        for name in "abcdef":
            Image.new("L", (9, 9), ord(name)).save(root / "images" / f"{name}.png")
        bad.rename(root / "images" / f"bad{bad.suffix}")
        rows = [f"{name},{number % 2}" for number, name in enumerate([*"abcdef", "bad"])]
        (root / "labels.csv").write_text("\n".join(["id,Mass", *rows]) + "\n")
        packed = ["prepare", "folder", "--root", str(root), "--size", "8", "--output", str(tmp_path / "packed")]
        words = [["verify", "folder", "--root", str(root), "--deep"], packed, [*packed, "--skip-broken"]][number % 3]
        outcomes.command(f"{words[0]} {case}", words, capsys)
    assert not outcomes.failed, "\n".join(outcomes.failed)
    assert outcomes.worked + outcomes.refused == 40


def test_places_that_are_no_files(tmp_path: Path, outcomes: Any) -> None:
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    (tmp_path / "endless.png").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.png")
    with (tmp_path / "huge.png").open("wb") as stream:
        stream.truncate(1 << 40)  # a hole: it takes no room on the disk
    names = [
        "folder.png",
        "loop.png",
        "endless.png",
        "pipe.png",
        "huge.png",
        "missing.png",
        "x" * 300 + ".png",
        "\x00.png",
    ]
    for name in names:
        outcomes.call(name[:20], lambda name=name: read_image(tmp_path / name))
    outcomes.check(len(names))
    assert outcomes.worked == 0


def test_the_largest_picture_that_is_read_is_read_soon(tmp_path: Path, outcomes: Any) -> None:
    """A few kilobytes that unpack to nearly the limit are fine, a row more is refused before it is unpacked."""
    side = 8_900
    row = b"\x00" * (1 + side // 8 + 1)
    fits, over = made_png(side, side, 1, 0, row * side), made_png(side, LARGEST // side + 1, 1, 0, row)
    (tmp_path / "fits.png").write_bytes(fits)
    (tmp_path / "over.png").write_bytes(over)
    assert len(fits) < 100_000
    outcomes.call("fits", lambda: read_image(tmp_path / "fits.png"))
    outcomes.call("over", lambda: read_image(tmp_path / "over.png"))
    outcomes.check(2)
    assert (outcomes.worked, outcomes.refused) == (1, 1)
