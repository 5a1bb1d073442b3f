"""`bomd predict` and `bomd export` from the command line: what is printed, written, drawn and refused."""

from __future__ import annotations

import csv
import json
import os
import re
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bomd import cli
from bomd.data.label_files import read_table
from bomd.models import model as models
from bomd.networks.backbone import build

CLASSES = ("Mass", "Edema", "a|b [red]", "No Finding")
THRESHOLDS = {"Mass": 0.0, "Edema": 1.0, "No Finding": 0.0}  # always reached, never reached, none, always reached


def bomd(*words: object) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main([str(word) for word in words])
    return int(caught.value.code or 0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "run" / "model"
    models.save(folder, [build("small", len(CLASSES), seed=1)], CLASSES, 32, thresholds=THRESHOLDS)
    return folder.parent


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A grey PNG, a colour JPEG in a folder below, and a text file that is nobody's business."""
    folder = tmp_path / "images"
    (folder / "below").mkdir(parents=True)
    random = np.random.default_rng(0)
    Image.fromarray(random.integers(0, 255, (50, 40), dtype=np.uint8)).save(folder / 'x, "1".png')
    Image.fromarray(random.integers(0, 255, (30, 40, 3), dtype=np.uint8)).save(folder / "below" / "x.jpg")
    (folder / "notes.txt").write_text("not an image")
    return folder


def expected(model: Path, images: Path) -> dict[str, list[float]]:
    found = models.load(model, "cpu").predict([images / "below" / "x.jpg", images / 'x, "1".png'])
    return {str(name): values.tolist() for name, values in zip(found.ids, found.values, strict=True)}


def test_json_has_probability_threshold_and_verdict(model: Path, images: Path, tmp_path: Path) -> None:
    assert bomd("predict", model, images, "-o", tmp_path / "out.json") == 0
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["unreadable"] == []
    assert {image["file"] for image in written["images"]} == set(expected(model, images))
    for image in written["images"]:
        values = expected(model, images)[image["file"]]
        assert list(image["findings"]) == list(CLASSES)
        for name, value in zip(CLASSES, values, strict=True):
            finding = image["findings"][name]
            assert finding["probability"] == pytest.approx(value, abs=1e-5)
            assert finding["threshold"] == THRESHOLDS.get(name)
            assert finding["positive"] is {"Mass": True, "Edema": False, "No Finding": True}.get(name)
        assert "heat_map" not in image


def test_what_a_folder_holds_beside_images_is_counted_and_named(
    model: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DICOM needs no suffix, and TIFF, BMP and WebP are images like others."""
    grey = np.random.default_rng(0).integers(0, 255, (20, 20), dtype=np.uint8)
    for name in ("a.tif", "b.bmp", "c.webp"):
        Image.fromarray(grey).save(images / name)
    (images / "IM0001").write_bytes(bytes(128) + b"DICM" + bytes(10))  # not a sound one
    assert bomd("predict", model, images, "-o", tmp_path / "out.json") == 1
    written = json.loads((tmp_path / "out.json").read_text())
    assert {Path(image["file"]).name for image in written["images"]} == {
        *("a.tif", "b.bmp", "c.webp", "x.jpg", 'x, "1".png'),
    }
    assert written["skipped"] == [str(images / "notes.txt")]
    assert [Path(failed["file"]).name for failed in written["unreadable"]] == ["IM0001"]
    shown = capsys.readouterr().err
    assert "1 other file is no image and was skipped (1 .txt): '" in shown
    assert "notes.txt" in shown
    assert "IM0001" in shown


def test_csv_on_the_screen(model: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bomd("predict", model / "model", images, "--format", "csv") == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["file"] for row in rows] == list(expected(model, images))
    for row in rows:
        assert [float(row[name]) for name in CLASSES] == pytest.approx(expected(model, images)[row["file"]], abs=1e-4)
        assert row["above_threshold"] == "Mass|No Finding"


def test_a_csv_is_written_while_images_are_read(tmp_path: Path) -> None:
    """Hundreds of images with a thousand findings each: as Python's numbers they would take twenty megabytes."""
    classes = [f"finding {number}" for number in range(1000)]
    models.save(tmp_path / "model", [build("small", 1000, seed=1)], classes, 16)
    (tmp_path / "images").mkdir()
    Image.fromarray(np.zeros((16, 16), np.uint8)).save(tmp_path / "one.png")
    for number in range(320):
        (tmp_path / "images" / f"{number}.png").hardlink_to(tmp_path / "one.png")
    assert bomd("predict", tmp_path / "model", tmp_path / "one.png", "-o", tmp_path / "one.csv") == 0  # imports
    tracemalloc.start()
    try:
        assert bomd("predict", tmp_path / "model", tmp_path / "images", "-o", tmp_path / "out.csv") == 0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12e6
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines[1:]] == sorted(
        str(file) for file in (tmp_path / "images").iterdir()
    )


def test_no_cell_is_a_formula_and_our_reader_gives_the_names_back(tmp_path: Path) -> None:
    """Names of files and findings that a spreadsheet would run."""
    finding, name = '=HYPERLINK("http://x","y")', "\r=cmd|' .png"
    folder = tmp_path / "run" / "model"
    models.save(folder, [build("small", 2, seed=1)], (finding, "Mass"), 32, thresholds={finding: 0.0})
    (tmp_path / "here").mkdir()
    Image.fromarray(np.zeros((20, 20), np.uint8)).save(tmp_path / "here" / name)
    previous = Path.cwd()
    os.chdir(tmp_path / "here")
    try:
        assert bomd("predict", folder.parent, name, "-o", "out.csv") == 0
    finally:
        os.chdir(previous)
    with (tmp_path / "here" / "out.csv").open(newline="") as stream:
        cells = [cell for line in csv.reader(stream) for cell in line]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    frame = read_table(tmp_path / "here" / "out.csv")
    assert list(frame.columns) == ["file", finding, "Mass", "above_threshold"]
    assert frame["file"].tolist() == [name]
    assert frame["above_threshold"].tolist() == [finding]


def test_table_marks_what_reaches_its_threshold(
    model: Path, images: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert bomd("predict", model, images) == 0
    shown = capsys.readouterr().out
    for name in ("Mass", "No Finding"):
        assert len(re.findall(rf"│ {name} .* 0\.000 .*●", shown)) == 2
    assert not re.search("Edema .*●", shown)
    assert 'x, "1".png' in shown
    assert "a|b [red]" in shown
    assert bomd("predict", model, images, "--finding", "Edema") == 0
    shown = capsys.readouterr().out
    assert shown.count("Edema") == 2
    assert "Mass" not in shown


def test_a_table_does_not_speak_of_thresholds_that_there_are_not(
    model: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bomd("predict", model, images) == 0
    assert "Of findings that do not reach a threshold the 3 most probable are shown" in capsys.readouterr().out
    models.save(model / "model", [build("small", len(CLASSES), seed=1)], CLASSES, 32)
    assert bomd("predict", model, images) == 0
    shown = capsys.readouterr().out
    assert "Of all findings the 3 most probable are shown" in shown
    assert "The model has no thresholds" in shown


def test_the_folder_of_an_audit_stands_for_its_run(model: Path, images: Path, tmp_path: Path) -> None:
    for name in ("labels.npz", "result.json"):
        (model / name).write_bytes(b"")
    assert bomd("predict", tmp_path, images, "-o", tmp_path / "out.csv") == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 3


def test_a_table_in_a_file(model: Path, images: Path, tmp_path: Path) -> None:
    assert bomd("predict", model, images, "--format", "table", "-o", tmp_path / "out.md") == 0
    assert "● " in (tmp_path / "out.md").read_text()
    assert "\x1b" not in (tmp_path / "out.md").read_text()


def test_what_cannot_be_read_is_named_and_the_rest_is_predicted(
    model: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (images / "cut.png").write_bytes((images / 'x, "1".png').read_bytes()[:60])
    (images / "empty.dcm").write_bytes(b"")
    out = tmp_path / "out.json"
    assert bomd("predict", model, images, tmp_path / "gone.png", images / "notes.txt", "-o", out) == 1
    said = capsys.readouterr().err
    for name in ("cut.png", "empty.dcm", "gone.png", "notes.txt"):
        assert len([line for line in said.splitlines() if name in line]) == 1
    assert "Traceback" not in said
    written = json.loads(out.read_text())
    assert len(written["images"]) == 2
    assert {Path(entry["file"]).name for entry in written["unreadable"]} == {
        "cut.png", "empty.dcm", "gone.png", "notes.txt"
    }  # fmt: skip
    assert bomd("predict", model, tmp_path / "gone.png") == 1
    assert "gone.png" in capsys.readouterr().err


def test_heat_maps_of_the_most_probable_findings(model: Path, images: Path, tmp_path: Path) -> None:
    """Three findings, but never of "No Finding"; two images of one name get two files."""
    Image.new("L", (64, 64), 90).save(images / "x.png")
    heat, out = tmp_path / "heat", tmp_path / "out.json"
    assert bomd("predict", model, images, "--heatmaps", heat, "-o", out) == 0
    drawn = [Path(image["heat_map"]) for image in json.loads(out.read_text())["images"]]
    assert sorted(drawn) == sorted(heat.iterdir())
    assert sorted(path.name for path in drawn) == sorted(["x.png", "x-2.png", 'x, "1".png'])
    widths = {}
    for path in drawn:
        with Image.open(path) as picture:
            widths[path.name] = picture.width
    assert bomd("predict", model, images / "x.png", "--heatmaps", heat, "--finding", "No Finding", "-o", out) == 0
    with Image.open(json.loads(out.read_text())["images"][0]["heat_map"]) as picture:
        assert picture.width < widths["x-2.png"] - 700  # two panels in place of four


def test_heat_maps_take_the_place_of_heat_maps_alone(
    model: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither of the pictures that are predicted, nor of others with their names, such as masks."""
    before = {file: file.read_bytes() for file in images.rglob("*.*")}
    for folder in (images, images / "below", images / "heat"):  # they would be images of the next call, too
        assert bomd("predict", model, images, "--heatmaps", folder) == 2
        assert f"among the images of {images}" in capsys.readouterr().err
    picture = images / 'x, "1".png'
    assert bomd("predict", model, picture, "--heatmaps", images) == 2
    assert "is no heat map" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in images.rglob("*.*")} == before

    heat = tmp_path / "heat"
    heat.mkdir()
    (heat / "x.png").write_bytes(before[picture])
    assert bomd("predict", model, images, "--heatmaps", heat) == 2
    assert "x.png is there and is no heat map" in capsys.readouterr().err
    assert (heat / "x.png").read_bytes() == before[picture]
    assert bomd("predict", model, picture, "--heatmaps", heat) == 0  # which needs no such name
    assert bomd("predict", model, picture, "--heatmaps", heat) == 0


def test_predictions_take_the_place_of_predictions_alone(
    model: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coco = '{\n  "images": [\n    {\n      "id": 1'
    for name, text in (("labels.csv", "file,Mass\na.png,1\n"), ("coco.json", coco), ("notes.txt", "call back")):
        place = tmp_path / name
        place.write_text(text)
        assert bomd("predict", model, images, "-o", place) == 2
        assert f"{name} is there and holds something else" in capsys.readouterr().err
        assert place.read_text() == text
        place.unlink()
        for form in ("csv", "json", "table"):
            assert bomd("predict", model, images, "-o", place, "--format", form) == 0
    assert bomd("predict", model, tmp_path / "gone.png", "-o", tmp_path / "none.json") == 1  # nothing to tell of
    assert bomd("predict", model, images, "-o", tmp_path / "none.json") == 0


def test_mistakes_get_one_line(model: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["predict", model, images, "--finding", "Mas"], "Did you mean 'Mass'"),
        (["predict", images, images], "No model in"),
        (["predict", model, images, "--format", "xml"], "xml"),
        (["predict", model], "files"),
        (["export", images, images / "x.onnx"], "No model in"),
        (["predict", model, images, "-o", images / "notes.txt" / "out.csv"], "notes.txt is not a folder"),
        (["predict", model, images, "-o", images], "it is a folder"),
        (["predict", model, images, "-o", images / "out.docx"], "'out.docx' does not end in .csv, .json, .txt"),
        (["predict", model, images, "--heatmaps", images / "notes.txt"], "notes.txt is not a folder"),
    ):
        assert bomd(*words) == 2
        said = capsys.readouterr().err
        assert message.lower() in said.lower()  # older Typers shout the names of arguments
        assert said.count("Error: ") == 1
        assert "Traceback" not in said


@pytest.mark.skipif(sys.platform != "linux", reason="other systems want names that are text")
def test_names_of_files_may_be_any_bytes(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    odd = Path(os.fsdecode(os.fsencode(folder) + b"/\xff\x1b[31m\n$x^{.png"))
    Image.new("L", (20, 20), 90).save(tmp_path / "plain.png")
    odd.write_bytes((tmp_path / "plain.png").read_bytes())
    for form in ("table", "csv", "json"):
        monkeypatch.setenv("COLUMNS", "400")  # else a long folder folds the name
        assert bomd("predict", model, folder, "--format", form, "--heatmaps", tmp_path / "heat") == 0
        shown = capsys.readouterr().out
        assert "\\udcff" in shown.replace("\\\\", "\\")
        assert form == "csv" or "\x1b" not in shown
    assert len(list((tmp_path / "heat").iterdir())) == 1


def test_dicom(model: Path, tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    pixels = np.random.default_rng(0).integers(0, 256, (32, 32), dtype=np.uint8)
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID = SecondaryCaptureImageStorage
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID = generate_uid(entropy_srcs=["bomd"])
    dataset.Rows, dataset.Columns, dataset.SamplesPerPixel = 32, 32, 1
    dataset.PhotometricInterpretation, dataset.PixelRepresentation = "MONOCHROME2", 0
    dataset.BitsAllocated = dataset.BitsStored = 8
    dataset.HighBit = 7
    dataset.WindowCenter, dataset.WindowWidth = 128, 256
    dataset.PixelData = pixels.tobytes()
    dataset.save_as(tmp_path / "scan.dcm", enforce_file_format=True)
    Image.fromarray(pixels).save(tmp_path / "same.png")
    out = tmp_path / "out.json"
    assert bomd("predict", model, tmp_path / "scan.dcm", tmp_path / "same.png", "-o", out) == 0
    first, second = (
        [finding["probability"] for finding in image["findings"].values()]
        for image in json.loads(out.read_text())["images"]
    )
    assert first == pytest.approx(second, abs=0.02)  # a window of 256 values moves some by one


@pytest.mark.slow
def test_export(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    from bomd.models.export import run_onnx

    assert bomd("export", model, tmp_path / "model.onnx") == 0
    assert "4 findings at 32 px" in capsys.readouterr().out
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32), dtype=np.uint8)
    known = models.load(model, "cpu").probabilities(pixels).numpy()
    np.testing.assert_allclose(run_onnx(tmp_path / "model.onnx", pixels), known, atol=1e-4)
    assert bomd("export", model, tmp_path / "model.onnx") == 0  # over its like


def test_an_export_takes_the_place_of_exports_alone(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx = pytest.importorskip("onnx")
    theirs = onnx.helper.make_model(onnx.helper.make_graph([], "theirs", [], [])).SerializeToString()
    for name, content in (("labels.csv", b"id,Mass\na,1\n"), ("theirs.onnx", theirs)):
        (tmp_path / name).write_bytes(content)
        assert bomd("export", model, tmp_path / name) == 2
        assert f"{name} is there and holds something else" in capsys.readouterr().err
        assert (tmp_path / name).read_bytes() == content
