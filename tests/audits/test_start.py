"""Which images look like chest X-rays, and what an audit then offers, takes and refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage

from bomd.audits.audit import plan
from bomd.audits.start import Look, choose_weights, look_at
from bomd.cli import main
from bomd.errors import InputError
from bomd.tables import LabelTable

CHEST = ("Effusion", "Pleural thickening", "No Finding")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOMD_CACHE", str(tmp_path / "cache"))


def table(folder: Path, pictures: list[Image.Image], classes: tuple[str, ...], ending: str = "png") -> LabelTable:
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}.{ending}" for number in range(len(pictures))]
    for path, picture in zip(paths, pictures, strict=True):
        picture.save(path)
    values = np.eye(len(classes), dtype=np.float32)[np.arange(len(paths)) % len(classes)]
    return LabelTable(np.array([path.stem for path in paths]), classes, values, paths=np.array([str(p) for p in paths]))


def grey(count: int = 8) -> list[Image.Image]:
    values = np.random.default_rng(0).integers(0, 256, (count, 40, 40), dtype=np.uint8)
    return [Image.fromarray(value) for value in values]


def dicom(path: Path, modality: str, part: str) -> str:
    meta = FileMetaDataset()
    meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = "1.2.3"
    found = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    found.Modality, found.BodyPartExamined = modality, part
    found.save_as(path, enforce_file_format=True)
    return str(path)


def test_grey_images_with_findings_of_the_chest_do(tmp_path: Path) -> None:
    look = look_at(table(tmp_path, grey(), CHEST))
    assert look.chests
    assert "Effusion, Pleural thickening" in look.reason


@pytest.mark.parametrize("mode", ["L", "RGB", "I;16"])
def test_grey_is_grey_however_it_is_stored(tmp_path: Path, mode: str) -> None:
    deep = [Image.fromarray(np.asarray(picture).astype(np.uint16) * 257) for picture in grey()]
    pictures = deep if mode == "I;16" else [picture.convert(mode) for picture in grey()]
    assert look_at(table(tmp_path, pictures, CHEST)).chests


def test_digits_do_not(tmp_path: Path) -> None:
    look = look_at(table(tmp_path, grey(), ("zero", "one", "Effusion")))
    assert not look.chests
    assert not look.coloured


def test_coloured_letters_on_a_radiograph_are_no_colour(tmp_path: Path) -> None:
    """Nor are they where images are packed: both ask the same question."""
    marked = [picture.convert("RGB") for picture in grey()]
    for picture in marked:
        picture.paste((255, 0, 0), (0, 0, 5, 4))  # 20 of 1,600 pixels
    look = look_at(table(tmp_path, marked, CHEST))
    assert look.chests
    assert not look.coloured


def test_one_coloured_image_is_enough_against(tmp_path: Path) -> None:
    pictures = [picture.convert("RGB") for picture in grey()]
    pictures[3].putpixel((20, 20), (255, 0, 0))
    pictures[3].paste((200, 30, 30), (0, 0, 20, 20))
    look = look_at(table(tmp_path, pictures, CHEST))
    assert look == Look(False, True, "some images have colour")


@pytest.mark.parametrize(
    ("modality", "part", "chests"),
    [("DX", "CHEST", True), ("CR", "", True), ("CT", "CHEST", False), ("DX", "HAND", False)],
)
def test_dicom_files_say_what_they_are(tmp_path: Path, modality: str, part: str, chests: bool) -> None:
    paths = np.array([dicom(tmp_path / f"{number}.dcm", modality, part) for number in range(3)])
    labels = LabelTable(np.array(["0", "1", "2"]), ("a", "b"), np.zeros((3, 2), dtype=np.float32), paths=paths)
    assert look_at(labels).chests is chests


def test_damaged_files_are_not_looked_at(tmp_path: Path) -> None:
    labels = table(tmp_path, grey(), CHEST)
    for path in labels.paths:  # type: ignore[union-attr]
        Path(path).write_bytes(b"no picture")
    assert look_at(labels) == Look(False, False, "no image could be looked at")


CHESTS, DIGITS, PHOTOS = Look(True, False, "x"), Look(False, False, "x"), Look(False, True, "some images have colour")


@pytest.mark.parametrize(
    ("asked", "backbone", "look", "expected"),
    [
        (None, "small", CHESTS, "none"),
        (None, "efficientnet_lite0", PHOTOS, "imagenet"),
        ("phantom", "small", CHESTS, "phantom"),
        ("phantom", "small", DIGITS, "phantom"),
        ("self", "small", PHOTOS, "self"),
        ("imagenet+self", "efficientnet_lite0", PHOTOS, "imagenet+self"),
    ],
)
def test_weights_that_suit(asked: str | None, backbone: str, look: Look, expected: str) -> None:
    assert choose_weights(asked, backbone, look) == expected


@pytest.mark.parametrize(
    ("asked", "backbone", "look", "message"),
    [
        ("imagenet+phantom", "efficientnet_lite0", PHOTOS, "is for X-rays, but some images have colour"),
        ("imagenet+phantom", "small", CHESTS, "small has no ImageNet weights: use phantom"),
        ("imagenet", "small", CHESTS, "small has no ImageNet weights: use none"),
    ],
)
def test_weights_that_do_not(asked: str, backbone: str, look: Look, message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose_weights(asked, backbone, look)


def written(tmp_path: Path, classes: tuple[str, ...]) -> Path:
    labels = table(tmp_path / "images", grey(), classes)
    lines = [",".join(["id", *classes])]
    for name, row in zip(labels.ids, labels.values, strict=True):
        lines.append(",".join([name, *(str(int(value)) for value in row)]))
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "labels.csv"


def bomd(*words: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    return int(stop.value.code or 0)


@pytest.mark.parametrize(("classes", "offered"), [(CHEST, True), (("cat", "dog"), False)])
def test_an_audit_offers_it_where_it_suits(
    tmp_path: Path, classes: tuple[str, ...], offered: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, classes)
    places = ("--images", str(tmp_path / "images"), "-o", str(tmp_path / "out"))
    assert bomd("audit", str(file), *places, "--size", "32", "--plan") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert ("These look like chest X-rays" in said) is offered
    assert ("phantom starts from weights learnt on generated ones, made once, in about" in said) is offered


def test_weights_of_a_plan_reach_the_run(tmp_path: Path) -> None:
    file = written(tmp_path, CHEST)
    plans = [
        plan(file, tmp_path / "images", size=32, output=tmp_path / "out", weights=weights) for weights in (None, "self")
    ]
    assert plans[0].request != plans[1].request
    choice = plans[1].choice
    assert choice is not None
    assert choice.config("audit", {"dataset": "folder"}, 8, 0).fit.weights == "self"
