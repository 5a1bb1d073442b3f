"""DICOM: every step from stored numbers to the screen, every kind of compression, and every fault by name.

The pictures are generated here, so that each expected pixel can be worked out by hand.
"""

from __future__ import annotations

import io
import resource
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pydicom = pytest.importorskip("pydicom", reason="DICOM needs the extra bomd[dicom]")

from pydicom.dataset import Dataset, FileMetaDataset  # noqa: E402
from pydicom.encaps import encapsulate  # noqa: E402
from pydicom.pixels.decoders.base import get_decoder  # noqa: E402
from pydicom.uid import (  # noqa: E402
    UID,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGExtended12Bit,
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
    generate_uid,
)

from bomd.data import images  # noqa: E402
from bomd.data.dicom import read_dicom, read_dicom_size  # noqa: E402
from bomd.errors import InputError  # noqa: E402

NATIVE = [
    ImplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
]
LOSSLESS = [RLELossless, JPEG2000Lossless, JPEGLSLossless, JPEGLossless, JPEGLosslessSV1]

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes a DICOM file with these stored numbers and header elements; None removes an element."""

    def write(stored: Any, bits: int = 12, syntax: UID = ExplicitVRLittleEndian, **elements: Any) -> Path:
        dataset = picture(np.asarray(stored), bits, elements)
        dataset.file_meta.TransferSyntaxUID = syntax
        path = tmp_path / f"picture{len(list(tmp_path.iterdir()))}.dcm"
        if syntax in (RLELossless, JPEG2000Lossless):
            dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
            plugin = "pydicom" if syntax == RLELossless else ""  # GDCM's encoder aborts on odd sizes
            dataset.compress(syntax, encoding_plugin=plugin, generate_instance_uid=False)
        elif syntax in LOSSLESS:
            return compress_with_gdcm(dataset, syntax, path)
        elif syntax == ExplicitVRBigEndian and "PixelData" in dataset and dataset.BitsAllocated == 16:
            dataset.PixelData = np.frombuffer(dataset.PixelData, "<u2").astype(">u2").tobytes()
        dataset.save_as(path, enforce_file_format=True)
        return path

    return write


def picture(stored: np.ndarray, bits: int, elements: dict[str, Any]) -> Dataset:
    signed = bool((stored < 0).any())
    allocated = 8 if bits <= 8 else 16
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.SOPClassUID, dataset.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.1", generate_uid()
    dataset.Rows, dataset.Columns = stored.shape[:2]
    dataset.SamplesPerPixel = 1 if stored.ndim == 2 else 3
    dataset.PhotometricInterpretation = "MONOCHROME2" if stored.ndim == 2 else "RGB"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = allocated, bits, bits - 1
    dataset.PixelRepresentation = int(signed)
    if stored.ndim == 3:
        dataset.PlanarConfiguration = 0
    content = stored.astype(f"<{'i' if signed else 'u'}{allocated // 8}").tobytes()
    dataset.PixelData = content + bytes(len(content) % 2)
    dataset["PixelData"].VR = "OB" if allocated == 8 else "OW"
    for name, value in elements.items():
        if value is None:
            delattr(dataset, name)
        else:
            setattr(dataset, name, value)
    return dataset


def compress_with_gdcm(dataset: Dataset, syntax: UID, path: Path) -> Path:
    """JPEG and JPEG-LS, for which pydicom has no encoder of its own here."""
    gdcm = pytest.importorskip("gdcm")
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.save_as(path, enforce_file_format=True)
    reader, change, writer = gdcm.ImageReader(), gdcm.ImageChangeTransferSyntax(), gdcm.ImageWriter()
    reader.SetFileName(str(path))
    assert reader.Read()
    kinds = gdcm.TransferSyntax
    names = {
        JPEGLSLossless: kinds.JPEGLSLossless,
        JPEGLossless: kinds.JPEGLosslessProcess14,
        JPEGLosslessSV1: kinds.JPEGLosslessProcess14_1,
    }
    change.SetTransferSyntax(kinds(names[syntax]))
    change.SetInput(reader.GetImage())
    assert change.Change()
    writer.SetFileName(str(path))
    writer.SetFile(reader.GetFile())
    writer.SetImage(change.GetOutput())
    assert writer.Write()
    assert pydicom.dcmread(path).file_meta.TransferSyntaxUID == syntax
    return path


def look_up_table(descriptor: list[int], entries: list[int] | bytes, kind: str = "US") -> list[Dataset]:
    item = Dataset()
    item.add_new("LUTDescriptor", kind, descriptor)
    item.add_new("LUTData", "OW" if isinstance(entries, bytes) else "US", entries)
    return [item]


def radiograph(bits: int, signed: bool = False) -> np.ndarray:
    """A gradient with noise over the whole range of the type."""
    noise = np.random.default_rng(0).integers(0, 2**bits // 8, (34, 47))
    ramp = np.linspace(0, 2**bits - 1 - 2**bits // 8, 34 * 47).astype(int).reshape(34, 47)
    return ramp + noise - (2 ** (bits - 1) if signed else 0)


# Windows


@pytest.mark.parametrize(
    ("function", "stored", "expected"),
    [
        # v / 199 x 255: the standard's linear window of width 200 around 100 runs from 0 to 199.
        ("LINEAR", [0, 1, 50, 100, 199, 200, 4095], [0, 1, 64, 128, 255, 255, 255]),
        ("", [0, 1, 50, 100, 199, 200, 4095], [0, 1, 64, 128, 255, 255, 255]),
        # v / 200 x 255
        ("LINEAR_EXACT", [0, 1, 50, 100, 199, 200, 4095], [0, 1, 64, 128, 254, 255, 255]),
        # 255 / (1 + exp(-(v - 100) / 50))
        ("SIGMOID", [0, 50, 100, 150, 300, 4095], [30, 69, 128, 186, 250, 255]),
    ],
)
def test_window_100_200(make: Make, function: str, stored: list[int], expected: list[int]) -> None:
    path = make([stored], WindowCenter=100, WindowWidth=200, VOILUTFunction=function)
    pixels = read_dicom(path)
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels, [expected])


def test_first_of_several_windows_counts(make: Make) -> None:
    several = make([[0, 100, 199, 700]], WindowCenter=[100, 1000], WindowWidth=[200, 500])
    np.testing.assert_array_equal(read_dicom(several), [[0, 128, 255, 255]])


def test_rescaling_comes_before_the_window(make: Make) -> None:
    """Stored 50, 100, 150 become 0, 100, 200."""
    path = make([[50, 100, 150]], RescaleSlope=2, RescaleIntercept=-100, WindowCenter=100, WindowWidth=200)
    np.testing.assert_array_equal(read_dicom(path), [[0, 128, 255]])


def test_negative_slope_turns_the_picture_round(make: Make) -> None:
    """Stored 0, 99, 199 become 199, 100, 0."""
    path = make([[0, 99, 199]], RescaleSlope=-1, RescaleIntercept=199, WindowCenter=100, WindowWidth=200)
    np.testing.assert_array_equal(read_dicom(path), [[255, 128, 0]])


def test_signed_pixels(make: Make) -> None:
    """(v + 100) / 200 x 255"""
    stored = [[-2048, -100, -50, 0, 50, 100, 2047]]
    path = make(stored, WindowCenter=0, WindowWidth=200, VOILUTFunction="LINEAR_EXACT")
    np.testing.assert_array_equal(read_dicom(path), [[0, 0, 64, 128, 191, 255, 255]])


def as_the_standard_says(stored: int, centre: float, width: float, slope: float, intercept: float) -> float:
    """The linear window written down from the standard's text, for one pixel and the range 0 to 255."""
    value = stored * slope + intercept
    if value <= centre - 0.5 - (width - 1) / 2:
        return 0.0
    if value > centre - 0.5 + (width - 1) / 2:
        return 255.0
    return ((value - (centre - 0.5)) / (width - 1) + 0.5) * 255


@pytest.mark.parametrize("bits", [8, 10, 12, 16])
@pytest.mark.parametrize("signed", [False, True])
def test_windows_agree_with_a_loop_over_pixels(make: Make, bits: int, signed: bool) -> None:
    random = np.random.default_rng(bits + signed)
    stored = radiograph(bits, signed)
    for _ in range(3):
        centre, width = int(random.integers(stored.min(), stored.max())), int(random.integers(2, 2**bits))
        slope, intercept = float(random.choice([0.5, 1, 2, -1])), float(random.integers(-100, 100))
        header = {"RescaleSlope": slope, "RescaleIntercept": intercept}
        path = make(stored, bits, WindowCenter=centre, WindowWidth=width, **header)
        expected = [[as_the_standard_says(v, centre, width, slope, intercept) for v in row] for row in stored]
        np.testing.assert_allclose(read_dicom(path), expected, atol=0.5 + 1e-6)


# Tables


@pytest.mark.parametrize("kind", ["US", "OW"])
def test_table_of_interest_is_looked_up_and_held_at_its_ends(make: Make, kind: str) -> None:
    """The table starts at 10 and has four entries; a quarter of 65,535 is 64 of 255."""
    entries = [0, 16384, 32768, 65535]
    content = entries if kind == "US" else np.array(entries, "<u2").tobytes()
    path = make([[0, 10, 11, 12, 13, 14, 4095]], VOILUTSequence=look_up_table([4, 10, 16], content))
    np.testing.assert_array_equal(read_dicom(path), [[0, 0, 64, 128, 255, 255, 255]])


def test_table_of_12_bit_entries_that_claims_16_is_not_dark(make: Make) -> None:
    """Computed radiography writes such tables; white is 4,095, not 65,535."""
    path = make([[0, 1, 2, 3]], VOILUTSequence=look_up_table([4, 0, 16], [0, 1024, 2048, 4095]))
    np.testing.assert_array_equal(read_dicom(path), [[0, 64, 128, 255]])


@pytest.mark.parametrize("packed", [True, False])
def test_8_bit_table_of_more_than_256_entries(make: Make, packed: bool) -> None:
    entries = [number // 2 for number in range(512)]
    content = bytes(entries) if packed else entries
    path = make([[0, 100, 300, 511, 600]], VOILUTSequence=look_up_table([512, 0, 8], content))
    np.testing.assert_array_equal(read_dicom(path), [[0, 50, 150, 255, 255]])


@pytest.mark.parametrize("kind", ["SS", "US"])
def test_table_for_signed_pixels_starts_below_zero(make: Make, kind: str) -> None:
    """Makers write the first number, -1, either as it is or as 65,535."""
    table = look_up_table([3, -1 if kind == "SS" else 65535, 8], [0, 100, 255], kind)
    np.testing.assert_array_equal(read_dicom(make([[-5, -1, 0, 1, 9]], VOILUTSequence=table)), [[0, 0, 100, 255, 255]])


def test_table_of_65536_entries_is_declared_as_zero(make: Make) -> None:
    content = np.arange(65536, dtype="<u2").tobytes()
    path = make([[0, 257, 65535]], 16, VOILUTSequence=look_up_table([0, 0, 16], content))
    np.testing.assert_array_equal(read_dicom(path), [[0, 1, 255]])


def test_table_is_preferred_to_the_window_and_follows_rescaling(make: Make) -> None:
    table = look_up_table([3, 0, 8], [0, 200, 255])
    header = {"RescaleSlope": 1, "RescaleIntercept": -7, "WindowCenter": 1000, "WindowWidth": 2}
    np.testing.assert_array_equal(read_dicom(make([[7, 8, 9]], VOILUTSequence=table, **header)), [[0, 200, 255]])


def test_modality_table_comes_before_the_window(make: Make) -> None:
    """Stored 0 to 3 become 10, 20, 30, 40, of which the window shows 10 to 40."""
    path = make(
        [[0, 1, 2, 3]],
        ModalityLUTSequence=look_up_table([4, 0, 16], [10, 20, 30, 40]),
        WindowCenter=25,
        WindowWidth=30,
        VOILUTFunction="LINEAR_EXACT",
    )
    np.testing.assert_array_equal(read_dicom(path), [[0, 85, 170, 255]])


# Neither table nor window


def test_without_a_window_percentiles_fill_the_range(make: Make) -> None:
    """Of the numbers 0 to 999, 4 is the fifth and 994 the 995th, and 500 lies at 127.8 of 255."""
    stored = np.random.default_rng(0).permutation(1000).reshape(20, 50)
    pixels = read_dicom(make(stored))
    np.testing.assert_allclose(pixels, ((stored - 4) / 990 * 255).clip(0, 255), atol=0.5 + 1e-6)
    assert pixels[stored == 500] == 128


@pytest.mark.parametrize("limit", [None, 4000])
def test_padding_does_not_move_the_percentiles(make: Make, limit: int | None) -> None:
    stored = np.random.default_rng(0).permutation(1000).reshape(20, 50)
    bare = read_dicom(make(stored))
    filled = np.concatenate([stored, np.full((20, 30), 4095)], axis=1)
    header = {"PixelPaddingValue": 4095}
    if limit:
        filled[::2, 50:], header["PixelPaddingRangeLimit"] = limit, limit
    np.testing.assert_array_equal(read_dicom(make(filled, **header))[:, :50], bare)
    assert (read_dicom(make(filled))[:, :50] != bare).any()


def test_only_padding_is_still_read(make: Make) -> None:
    assert len(np.unique(read_dicom(make(np.full((4, 4), 7), PixelPaddingValue=7)))) == 1


def test_8_bit_without_a_window_is_shown_as_it_is(make: Make) -> None:
    stored = np.array([[10, 11, 12, 200]])
    np.testing.assert_array_equal(read_dicom(make(stored, 8)), stored)
    np.testing.assert_array_equal(read_dicom(make([[-128, 0, 127]], 8)), [[0, 128, 255]])
    turned = make(stored, 8, RescaleSlope=-1, RescaleIntercept=255)
    np.testing.assert_array_equal(read_dicom(turned), 255 - stored)


def test_blank_picture_is_blank(make: Make) -> None:
    assert len(np.unique(read_dicom(make(np.full((5, 5), 3000))))) == 1


@pytest.mark.parametrize("absent", [{"WindowCenter": ""}, {"RescaleSlope": "", "RescaleIntercept": ""}])
def test_empty_elements_count_as_absent(make: Make, absent: dict[str, str]) -> None:
    stored = radiograph(12)
    np.testing.assert_array_equal(read_dicom(make(stored, **absent)), read_dicom(make(stored)))


NUMBERS = {"RescaleSlope": "1.25", "RescaleIntercept": "3.75", "WindowCenter": "2048.25", "WindowWidth": "4000.75"}


@pytest.mark.parametrize("name", [*NUMBERS])
@pytest.mark.parametrize("said", ["1,25", "nan", "inf", "DOE", "\\"])
def test_a_number_that_is_none_is_named_and_makes_no_blank_picture(make: Make, name: str, said: str) -> None:
    """Nor is it repeated: a damaged header may hold anything there, also a patient's name."""
    path = make(radiograph(12), **NUMBERS)
    read_dicom(path)
    number = NUMBERS[name].encode()
    path.write_bytes(path.read_bytes().replace(number, said.encode().ljust(len(number))))
    with pytest.raises(InputError, match=rf"its {name} is no number\.$"):
        read_dicom(path)


@pytest.mark.parametrize("name", [*NUMBERS])
def test_spaces_count_as_absent(make: Make, name: str) -> None:
    path, pair = make(radiograph(12), **NUMBERS), ("Rescale", "Window")[name.startswith("Window")]
    number = NUMBERS[name].encode()
    path.write_bytes(path.read_bytes().replace(number, b" " * len(number)))
    others = {other: value for other, value in NUMBERS.items() if not other.startswith(pair)}
    np.testing.assert_array_equal(read_dicom(path), read_dicom(make(radiograph(12), **others)))


# Photometry


@pytest.mark.parametrize(
    "header",
    [
        {"WindowCenter": 1800, "WindowWidth": 2500},
        {"WindowCenter": 1800, "WindowWidth": 900, "VOILUTFunction": "SIGMOID"},
        {"VOILUTSequence": look_up_table([4, 1000, 16], [0, 5000, 9000, 65535])},
        {},
        {"PresentationLUTShape": "INVERSE"},
    ],
)
def test_monochrome1_is_monochrome2_inverted(make: Make, header: dict[str, Any]) -> None:
    stored = radiograph(12)
    plain = read_dicom(make(stored, **{**header, "PhotometricInterpretation": "MONOCHROME2"}))
    turned = read_dicom(make(stored, **{**header, "PhotometricInterpretation": "MONOCHROME1"}))
    assert plain.min() < 10
    assert plain.max() > 245
    np.testing.assert_array_equal(turned, 255 - plain)


def test_bits_beyond_those_stored_are_ignored(make: Make) -> None:
    """Old files hide overlays there."""
    stored = radiograph(12)
    dirty = stored | (np.random.default_rng(1).integers(0, 16, stored.shape) << 12)
    header = {"WindowCenter": 2048, "WindowWidth": 4096}
    np.testing.assert_array_equal(read_dicom(make(dirty, **header)), read_dicom(make(stored, **header)))


def test_colour_becomes_luma(make: Make) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (40, 64, 3), dtype=np.uint8)
    grey = np.asarray(Image.fromarray(colours).convert("L"))
    np.testing.assert_array_equal(read_dicom(make(colours, 8)), grey)
    np.testing.assert_array_equal(read_dicom(make(colours, 8, RLELossless)), grey)
    np.testing.assert_array_equal(read_dicom(make(colours, 8, JPEG2000Lossless)), grey)
    luma = np.asarray(Image.fromarray(colours).convert("YCbCr"))
    converted = read_dicom(make(luma, 8, PhotometricInterpretation="YBR_FULL"))
    assert np.abs(converted.astype(int) - grey).max() <= 3  # rounded twice, extreme colours clipped


def test_grey_stored_as_colour_is_unchanged(make: Make) -> None:
    grey = radiograph(8)
    np.testing.assert_array_equal(read_dicom(make(np.stack([grey] * 3, axis=-1), 8)), grey)


# Transfer syntaxes


@pytest.mark.parametrize("syntax", NATIVE + LOSSLESS, ids=lambda syntax: syntax.name)
@pytest.mark.parametrize("bits", [8, 12, 16])
@pytest.mark.parametrize("photometry", ["MONOCHROME1", "MONOCHROME2"])
def test_lossless_syntaxes_give_the_same_pixels(make: Make, syntax: UID, bits: int, photometry: str) -> None:
    stored = radiograph(bits)
    header = {
        "WindowCenter": 2 ** (bits - 1),
        "WindowWidth": 2**bits,
    }
    shown = np.rint(stored / (2**bits - 1) * 255)
    expected = 255 - shown if photometry == "MONOCHROME1" else shown
    path = make(stored, bits, syntax, PhotometricInterpretation=photometry, **header)
    np.testing.assert_array_equal(read_dicom(path), expected)


@pytest.mark.parametrize("syntax", [RLELossless, JPEG2000Lossless, JPEGLosslessSV1], ids=lambda syntax: syntax.name)
def test_signed_pixels_survive_compression(make: Make, syntax: UID) -> None:
    stored = radiograph(12, signed=True)
    header = {"WindowCenter": -200, "WindowWidth": 1500}
    np.testing.assert_array_equal(read_dicom(make(stored, 12, syntax, **header)), read_dicom(make(stored, **header)))


def test_big_endian_table(make: Make) -> None:
    content = np.array([0, 16384, 32768, 65535], ">u2").tobytes()
    table = look_up_table([4, 0, 16], content)
    path = make([[0, 1, 2, 3]], 12, ExplicitVRBigEndian, VOILUTSequence=table)
    np.testing.assert_array_equal(read_dicom(path), [[0, 64, 128, 255]])


@pytest.mark.parametrize("syntax", [JPEGBaseline8Bit, JPEGExtended12Bit])
def test_lossy_jpeg_is_what_pillow_decodes(make: Make, syntax: UID) -> None:
    stream = io.BytesIO()
    Image.fromarray(radiograph(8).astype(np.uint8)).save(stream, "JPEG", quality=85)
    path = make(radiograph(8), 8, syntax, PixelData=encapsulate([stream.getvalue()]))
    expected = np.asarray(Image.open(stream)).astype(int)
    assert np.abs(read_dicom(path) - expected).max() <= 1  # the two decoders round differently


def test_read_image_hands_dicom_over_by_suffix_and_by_content(make: Make, tmp_path: Path) -> None:
    path = make(radiograph(12))
    disguised = tmp_path / "disguised.png"
    disguised.write_bytes(path.read_bytes())
    for name in (path, disguised):
        np.testing.assert_array_equal(images.read_image(name), read_dicom(path))


# Faults: one line, with the file and the transfer syntax


@pytest.mark.parametrize("syntax", NATIVE + LOSSLESS, ids=lambda syntax: syntax.name)
def test_truncated_file_is_named_wherever_it_ends(make: Make, syntax: UID) -> None:
    path = make(radiograph(12), 12, syntax)
    content = path.read_bytes()
    for end in [*np.linspace(100, len(content) - 5, 12).astype(int)]:
        path.write_bytes(content[:end])
        with pytest.raises(InputError, match=path.name) as caught:
            read_dicom(path)
        assert "\n" not in str(caught.value)


def test_compressed_frame_that_stops_short_is_refused(make: Make) -> None:
    stream = io.BytesIO()
    Image.fromarray(radiograph(8).astype(np.uint8)).save(stream, "JPEG", quality=85)
    half = stream.getvalue()[: len(stream.getvalue()) // 2]
    path = make(radiograph(8), 8, JPEGBaseline8Bit, PixelData=encapsulate([half]))
    with pytest.raises(InputError, match=r"JPEG Baseline .* no decoder can read its pixels"):
        read_dicom(path)


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ({"NumberOfFrames": 2}, "2 frames"),
        ({"PixelData": None}, "PixelData is missing"),
        ({"Rows": None}, "Rows is missing"),
        ({"SamplesPerPixel": None}, "SamplesPerPixel is missing"),
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "PALETTE COLOR"),
        ({"Rows": 65535, "Columns": 65535}, "65535 x 65535"),
        ({"BitsAllocated": 32, "BitsStored": 32}, "32 bits"),
        ({"WindowCenter": 5, "WindowWidth": 0}, "Window Width"),
        ({"WindowCenter": 5, "WindowWidth": 9, "VOILUTFunction": "CUBIC"}, "CUBIC"),
        ({"VOILUTSequence": look_up_table([400, 0, 16], [1, 2, 3])}, "6 bytes for 400 entries"),
    ],
)
def test_what_is_not_one_radiograph_is_refused(make: Make, header: dict[str, Any], complaint: str) -> None:
    path = make(radiograph(12), **header)
    with pytest.raises(InputError, match=complaint) as caught:
        read_dicom(path)
    assert str(path) in str(caught.value)
    assert "Explicit VR Little Endian" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_decoder_is_named_with_what_to_install(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(radiograph(12), 12, JPEG2000Lossless)
    monkeypatch.setattr(get_decoder(JPEG2000Lossless), "_available", {})
    with pytest.raises(InputError, match=r"JPEG 2000 .*pip install 'bomd\[dicom\]'"):
        read_dicom(path)


def test_compression_that_nobody_decodes_is_named(make: Make) -> None:
    film = UID("1.2.840.10008.1.2.4.100")
    path = make(radiograph(8), 8, film, PixelData=encapsulate([b"film"]))
    with pytest.raises(InputError, match=r"MPEG2 .*no decoder"):
        read_dicom(path)


@pytest.mark.parametrize("content", [b"", b"not DICOM", bytes(200), b"\x89PNG" + bytes(300)])
def test_other_files_are_not_dicom(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.dcm"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"odd\.dcm"):
        read_dicom(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"No image .*gone\.dcm"):
        read_dicom(tmp_path / "gone.dcm")


# Headers alone


def test_size_comes_from_the_header(make: Make) -> None:
    path = make(radiograph(12))
    assert read_dicom_size(path) == (34, 47)
    path.write_bytes(path.read_bytes()[:-2000])  # pixels are not looked at
    assert read_dicom_size(path) == (34, 47)


def test_header_without_a_size_is_refused(make: Make) -> None:
    with pytest.raises(InputError, match="no size"):
        read_dicom_size(make(radiograph(12), Rows=None))


# Bombs: small files that claim, or inflate to, far more than a picture


def deflate(header: bytes, megabytes: int) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    zeros = bytes(1 << 20)
    return packer.compress(header) + b"".join(packer.compress(zeros) for _ in range(megabytes)) + packer.flush()


@pytest.mark.parametrize("read", [read_dicom, read_dicom_size])
def test_a_deflated_bomb_is_not_inflated(make: Make, read: Callable[[Path], Any]) -> None:
    """100 MB of zeros where 16 x 16 pixels are declared."""
    whole = make(np.zeros((16, 16)), 12, DeflatedExplicitVRLittleEndian).read_bytes()
    plain = make(np.zeros((16, 16)))
    start = 128 + 4 + 12 + int.from_bytes(whole[140:144], "little")  # of what is deflated
    body = zlib.decompress(whole[start:], -zlib.MAX_WBITS)
    plain.write_bytes(whole[:start] + deflate(body[:-512], 100))
    tracemalloc.start()
    with pytest.raises(InputError, match="inflates to far more than the picture that its header declares"):
        read(plain)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 90 << 20  # twice the margin, and the copy of it that is put together


def test_a_large_deflated_picture_is_read(make: Make) -> None:
    """The margin is for headers: pixels may take what the header declares."""
    stored = np.tile(radiograph(12), (100, 60))
    assert stored.size * 2 > 1 << 24
    assert read_dicom(make(stored, 12, DeflatedExplicitVRLittleEndian)).shape == stored.shape


def swapped(path: Path, old: bytes, new: bytes) -> Path:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    "syntax", [JPEG2000Lossless, JPEGBaseline8Bit, JPEGLosslessSV1], ids=lambda syntax: syntax.name
)
def test_pixels_that_claim_another_size_are_never_decoded(make: Make, syntax: UID) -> None:
    """60,000 x 60,000 pixels in a file of a few kB."""
    stored = radiograph(8)
    height, width = stored.shape
    if syntax == JPEGBaseline8Bit:
        stream = io.BytesIO()
        Image.fromarray(stored.astype(np.uint8)).save(stream, "JPEG")
        path = make(stored, 8, syntax, PixelData=encapsulate([stream.getvalue()]))
    else:
        path = make(stored, 8, syntax)
    assert read_dicom(path).shape == stored.shape
    size = 4 if syntax == JPEG2000Lossless else 2
    sides = [(width, height), (60000, 60000)] if size == 4 else [(height, width), (60000, 60000)]
    old, new = (b"".join(side.to_bytes(size, "big") for side in pair) for pair in sides)
    if size == 4:
        old, new = old + bytes(8), new + bytes(8)  # the offset of the picture follows
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match="claim 60000 x 60000 x 1, its header") as caught:
        read_dicom(swapped(path, old, new))
    assert "\n" not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def test_numbers_beyond_the_declared_bits_need_no_table_of_their_own(make: Make) -> None:
    """A table from 0 to the largest number would have four billion entries."""
    path = make(np.zeros((4, 4)), BitsAllocated=32, PixelData=np.full(16, 2**32 - 1, "<u4").tobytes())
    assert read_dicom(path).shape == (4, 4)


@pytest.mark.parametrize("samples", [3, 60000])
def test_grey_has_one_number_in_a_pixel(make: Make, samples: int) -> None:
    with pytest.raises(InputError, match=f"it has {samples} numbers in a pixel, not 1"):
        read_dicom(make(radiograph(8), 8, SamplesPerPixel=samples))
