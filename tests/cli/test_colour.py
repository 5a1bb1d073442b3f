"""Photographs through the command line: an audit in colour, its model, and images of the other kind."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bomd import cli, config
from bomd.data.images import fit_square, read_image
from bomd.data.store import open_store
from bomd.experiments.identity import identity
from bomd.experiments.records import Examples
from bomd.methods import METHODS
from bomd.models import model as models
from bomd.models.heatmap import heat_map
from bomd.networks.backbone import build, for_colour
from bomd.review.evidence import open_evidence
from bomd.review.pictures import Pictures

REAL = Path(__file__).parents[2] / "../shared/data"
needs_photos = pytest.mark.skipif(not (REAL / "photos").is_dir(), reason="needs the photographs in ../shared/data")
CLASSES = ("fish", "weed")


def bomd(*words: object) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main([str(word) for word in words])
    return int(caught.value.code or 0)


def saved_model(folder: Path, backbone: str, **kind: bool) -> Path:
    models.save(folder, [build(backbone, len(CLASSES), seed=1)], CLASSES, 32, **kind)
    return folder


def image(path: Path, *shape: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)).save(path)
    return path


def some_photos(place: Path) -> Path:
    """A table of 48 real photographs."""
    with (REAL / "photos" / "labels.csv").open() as stream:
        rows = list(csv.DictReader(stream))[::30]
    lines = [f"{row['file']},{int(row['file'][1:7]) // 50},{row['animals']}" for row in rows]
    (place / "labels.csv").write_text("\n".join(["file,film,animals", *lines]))
    return place / "labels.csv"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run on real photographs."""
    place = tmp_path_factory.mktemp("photos")
    recipe = f"""
        name = "photos"
        method = "bomd"
        images = {{ size = 32 }}
        fit = {{ backbone = "small", weights = "none", epochs = 1, batch = 16, rate = 0.001, eps = 1e-8 }}
        [train]
        dataset = "folder"
        root = "{some_photos(place).parent}"
        images = "{(REAL / "photos" / "images").resolve()}"
        label_column = "animals"
        patient_column = "film"
    """
    (place / "photos.toml").write_text(recipe)
    assert bomd("run", place / "photos.toml", "--runs", place / "runs") == 0
    (result,) = (place / "runs").glob("photos/*/*/result.json")
    return result.parent


@needs_photos
class TestRun:
    def test_store_model_and_notes_are_in_colour(self, ran: Path) -> None:
        store = open_store(ran / json.loads((ran / "images.json").read_text())["store"])
        assert store.images.shape[1:] == (32, 32, 3)
        name = str(store.ids[3])
        expected = fit_square(read_image(REAL / "photos" / "images" / name, colour=True), 32)
        np.testing.assert_array_equal(store.images[3], expected)
        assert any("kept in colour" in note for note in json.loads((ran / "result.json").read_text())["notes"])
        opened = models.load(ran, "cpu")
        assert opened.colour
        assert opened.networks[0].channels == 3
        assert "in colour" in (ran / "model" / "README.md").read_text()

    def test_report_and_review_show_colour(self, ran: Path) -> None:
        pixels = Examples.load(ran / "examples.npz").pixels
        assert pixels.shape[1:] == (32, 32, 3)
        shown = Pictures(open_evidence(ran)).shown(0)
        assert shown.original
        assert shown.pixels.shape == (144, 192, 3)
        heat = heat_map(models.load(ran, "cpu"), shown.pixels, "starfish")
        assert heat.shape == (144, 192)

    def test_predict_draws_in_colour(self, ran: Path, tmp_path: Path) -> None:
        file = REAL / "photos" / "images" / "c000700.jpg"
        assert bomd("predict", ran, file, "-o", tmp_path / "out.csv", "--heatmaps", tmp_path / "heat") == 0
        drawn = np.asarray(Image.open(tmp_path / "heat" / "c000700.png")).astype(int)
        photo = drawn[40:290, 20:380]  # the first panel, the image itself
        assert (photo.max(axis=2) - photo.min(axis=2)).mean() > 24


@needs_photos
@pytest.mark.parametrize(("options", "depth"), [((), 4), (("--mode", "grey"), 3)])
def test_an_audit_keeps_what_is_asked_for(tmp_path: Path, options: tuple[str, ...], depth: int) -> None:
    table = some_photos(tmp_path)
    np.save(tmp_path / "features.npy", np.random.default_rng(0).normal(size=(48, 4)).astype(np.float32))
    layout = ("--set", "label_column=animals", "--set", "patient_column=film", "--size", "32", *options)
    where = ("--images", REAL / "photos" / "images", "-o", tmp_path / "out", "--features", tmp_path / "features.npy")
    assert bomd("audit", table, *where, *layout) == 0
    run = tmp_path / "out" / json.loads((tmp_path / "out" / "audit.json").read_text())["run"]
    store = open_store(run / json.loads((run / "images.json").read_text())["store"])
    assert store.images.ndim == depth
    assert Examples.load(run / "examples.npz").pixels.ndim == depth


def test_colour_into_a_grey_model_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, photo = saved_model(tmp_path / "model", "small"), image(tmp_path / "in" / "photo.png", 40, 40, 3)
    assert bomd("predict", model, photo) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(r"The images are in colour, such as .*photo\.png, and the model learnt from grey .*--grey", said)
    assert bomd("predict", model, photo, "--grey", "-o", tmp_path / "a.csv") == 0
    grey = tmp_path / "grey.png"
    Image.open(photo).convert("L").save(grey)
    assert bomd("predict", model, grey, "-o", tmp_path / "b.csv") == 0
    first, second = ((tmp_path / name).read_text().splitlines()[1].split(",")[1:] for name in ("a.csv", "b.csv"))
    assert first == second


def test_a_model_that_learnt_from_converted_photographs_converts(tmp_path: Path) -> None:
    model = saved_model(tmp_path / "model", "small", converts=True)
    photo = image(tmp_path / "photo.png", 40, 40, 3)
    assert models.load(model, "cpu").converts
    assert bomd("predict", model, photo, "-o", tmp_path / "out.csv") == 0


def test_grey_into_a_colour_model_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = saved_model(tmp_path / "model", "small_colour", colour=True)
    assert bomd("predict", model, image(tmp_path / "grey.png", 40, 40), "-o", tmp_path / "out.csv") == 0
    assert "The images are in grey" in capsys.readouterr().err
    assert bomd("predict", model, tmp_path / "grey.png", "--grey") == 2


@pytest.mark.slow
def test_an_exported_colour_model_takes_colour(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from bomd.models.export import run_onnx

    model = saved_model(tmp_path / "model", "small_colour", colour=True)
    assert bomd("export", model, tmp_path / "model.onnx") == 0
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    expected = models.load(model, "cpu").probabilities(pixels).numpy()
    np.testing.assert_allclose(run_onnx(tmp_path / "model.onnx", pixels), expected, atol=1e-4)
    facts = {entry.key: entry.value for entry in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert facts["mode"] == "colour"


def test_settings_of_before_stay_comparable() -> None:
    plain = config.parse({"images": {"size": 64}}, METHODS)
    assert "mode" not in plain.to_dict()["images"]  # so that finished runs keep their name
    saved = plain.to_dict()
    assert identity({**saved, "images": {**saved["images"], "mode": "auto"}}) == identity(saved)
    grey = config.parse({"images": {"size": 64, "mode": "grey"}}, METHODS)
    assert grey.key != plain.key
    assert identity(grey.to_dict()) != identity(saved)
    assert [for_colour(name) for name in ("small", "small_colour", "densenet121")] == [
        "small_colour",
        "small_colour",
        "densenet121",
    ]


@needs_photos
def test_an_audit_of_photographs_by_a_model_in_a_folder(
    others_models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a folder of transformers to proposals for each photograph, which the model sees in colour."""
    table, photos, out = some_photos(tmp_path), REAL / "photos" / "images", tmp_path / "out"
    backbone = f"hf:{others_models['vit']}"
    layout = ("--set", "label_column=animals", "--set", "patient_column=film")
    assert bomd("audit", table, "--images", photos, "-o", out, "--backbone", backbone, *layout) == 0
    assert "through hf:" in capsys.readouterr().err
    with (out / "labels_clean.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 48
    assert {"starfish proposed", "starfish wrong"} <= set(rows[0])
    assert (out / "report.html").is_file()
    (store,) = out.glob("**/store.json")
    assert open_store(store.parent).images.ndim == 4
