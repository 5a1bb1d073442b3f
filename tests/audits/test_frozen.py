"""`bomd audit --backbone`: features once, heads on them, the files of any audit; models of others in recipes."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bomd import runs
from bomd.audits import frozen
from bomd.audits.audit import audit
from bomd.audits.found import Audit
from bomd.audits.frozen import open_frozen
from bomd.cli import main
from bomd.experiments.packing import Source
from bomd.files import read_json
from bomd.models.model import load
from bomd.networks.backbone import Network

XRAYS = Path(__file__).parents[3] / "shared" / "data" / "nih" / "images"
COUNT = 48


def bomd(*words: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    return int(stop.value.code or 0)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """X-rays (real ones where there are some) and negatives of others, three of them labelled wrong."""
    root = tmp_path_factory.mktemp("pictures")
    (root / "images").mkdir()
    files = sorted(XRAYS.glob("*.png"))[:COUNT] if XRAYS.is_dir() else []
    rng = np.random.default_rng(0)
    rows = []
    for number in range(COUNT):
        negative = number % 2 == 1
        if files:
            pixels = np.asarray(Image.open(files[number]).convert("L"))
        else:
            pixels = (rng.random((128, 128)) * np.linspace(40, 250, 128)[:, None]).astype(np.uint8)
        Image.fromarray(255 - pixels if negative else pixels).save(root / "images" / f"{number:02}.png")
        label = negative != (number in (7, 20, 33))
        rows.append([f"{number:02}", f"p{number}", int(label), int(not label)])
    with (root / "labels.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["id", "patient", "Negative", "Positive"], *rows])
    return root


@pytest.fixture(scope="module")
def found(pictures: Path, others_models: dict[str, Path]) -> Audit:
    name = f"hf:{others_models['dinov2']}"
    out = pictures / "out"
    assert (
        bomd(
            "audit",
            f"{pictures / 'labels.csv'}",
            "--images",
            f"{pictures / 'images'}",
            "--backbone",
            name,
            "-o",
            f"{out}",
        )
        == 0
    )
    return audit(pictures / "labels.csv", pictures / "images", output=out, backbone=name)  # done: it is only read


def test_only_an_audit_that_is_not_done_says_how_long_it_takes(
    found: Audit, pictures: Path, others_models: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["audit", f"{pictures / 'labels.csv'}", "--images", f"{pictures / 'images'}", "--plan"]
    given += ["--backbone", f"hf:{others_models['dinov2']}"]
    assert bomd(*given, "-o", f"{found.directory}") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "This audit is done already" in said
    assert "stays as it is" not in said
    assert bomd(*given, "-o", f"{pictures / 'new'}") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert f"{COUNT} images at 128 x 128 pixels" in said
    assert "licence" in said
    assert "done already" not in said


def features_in(directory: Path) -> np.ndarray:
    (file,) = (directory / "runs" / "stages").glob("features-*/features.npy")
    return np.load(file)


def test_the_features_are_those_of_the_library_for_the_same_files(
    found: Audit, pictures: Path, others_models: dict[str, Path]
) -> None:
    import transformers as hf

    folder = others_models["dinov2"]
    shown = [Image.open(pictures / "images" / f"{name}.png").convert("RGB") for name in found.record.given.ids]
    inputs = hf.AutoImageProcessor.from_pretrained(folder, use_fast=False)(images=shown, return_tensors="pt")
    with torch.no_grad():
        expected = hf.AutoModel.from_pretrained(folder).eval()(**inputs).pooler_output
    np.testing.assert_allclose(features_in(found.directory), expected.numpy(), atol=1e-4, rtol=1e-3)


def test_the_files_are_those_of_any_audit(found: Audit, pictures: Path, others_models: dict[str, Path]) -> None:
    assert {file.name for file in found.directory.iterdir()} == {
        "audit.json",
        "doubtful_labels.csv",
        "labels_clean.csv",
        "report.html",
        "runs",
    }
    page = (found.directory / "report.html").read_text(encoding="utf-8")
    assert f"Frozen features of hf:{others_models['dinov2']}" in page
    assert read_json(found.run.directory / "result.json")["method"] == "frozen"
    assert found.record.neighbours is not None
    with (found.directory / "labels_clean.csv").open(newline="") as stream:
        assert len(list(csv.DictReader(stream))) == COUNT
    worst = set(found.record.given.ids[np.argsort(found.opinion.rank)[:6]])
    assert {"07", "20", "33"} <= worst  # random weights tell an image from its negative


def test_features_equal_those_given_as_a_file(found: Audit, pictures: Path) -> None:
    """The two ways to an audit meet: the same features, the same opinion."""
    np.savez(pictures / "own.npz", ids=found.record.given.ids, features=features_in(found.directory))
    other = audit(
        pictures / "labels.csv", pictures / "images", output=pictures / "other", features=pictures / "own.npz"
    )
    np.testing.assert_array_equal(other.opinion.wrong, found.opinion.wrong)
    np.testing.assert_array_equal(other.opinion.rank, found.opinion.rank)


def test_other_weights_are_another_request_and_the_same_ones_are_not_asked_again(
    found: Audit, pictures: Path, others_models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(others_models["dinov2"], copy)
    moved = open_frozen(f"hf:{copy}")
    assert moved.fingerprint == open_frozen(f"hf:{others_models['dinov2']}").fingerprint
    described = json.loads((copy / "preprocessor_config.json").read_text())
    (copy / "preprocessor_config.json").write_text(json.dumps({**described, "image_mean": [0.9, 1.0, 1.0]}))
    assert open_frozen(f"hf:{copy}").fingerprint != moved.fingerprint

    stages, source = runs.Stages(found.directory / "runs" / "stages"), Source(found.record.given, found.store())
    monkeypatch.setattr(Network, "features", None)  # nothing may be computed
    np.testing.assert_array_equal(moved.features(source, stages), features_in(found.directory))


def test_an_interrupted_computation_continues(
    found: Audit, others_models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen, "BATCH", 5)
    judge = open_frozen(f"hf:{others_models['dinov2']}")
    stages, source = runs.Stages(tmp_path), Source(found.record.given, found.store())
    before, whole = judge.network.shown, Network.features

    def stops(self: Network, images: torch.Tensor) -> torch.Tensor:
        if self.shown - before >= 25:
            raise KeyboardInterrupt
        return whole(self, images)

    monkeypatch.setattr(Network, "features", stops)
    with pytest.raises(KeyboardInterrupt):
        judge.features(source, stages)
    monkeypatch.setattr(Network, "features", whole)
    shown = judge.network.shown
    again = judge.features(source, stages)
    assert judge.network.shown - shown == COUNT - 25
    np.testing.assert_allclose(again, features_in(found.directory), atol=1e-5)


def test_bad_requests_get_one_line(
    pictures: Path, others_models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ("audit", f"{pictures / 'labels.csv'}", "--images", f"{pictures / 'images'}", "-o", f"{tmp_path / 'o'}")
    (tmp_path / "empty").mkdir()
    for words, said in {
        ("--backbone", f"hf:{tmp_path / 'empty'}"): "has no config.json",
        ("--backbone", "small"): "nobody has trained it",
        ("--backbone", "small", "--size", "4"): "at least 32 and at most 8192",
        ("--backbone", "resnet"): "No backbone 'resnet'",
        ("--backbone", "small", "--features", "x.npy"): "--features and --backbone: one of them judges",
    }.items():
        assert bomd(*call, *words) == 2
        assert said in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "o").exists()


def test_the_plan_says_how_long_it_takes(
    pictures: Path, others_models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ("audit", f"{pictures / 'labels.csv'}", "--images", f"{pictures / 'images'}", "-o", f"{tmp_path / 'o'}")
    assert bomd(*call, "--backbone", f"hf:{others_models['vit']}", "--plan") == 0
    said = capsys.readouterr()
    assert "48 images at 128 x 128 pixels through hf:" in said.err + said.out
    assert bomd(*call, "--backbone", "efficientnet_lite0", "--size", "64", "--plan") == 0
    said = capsys.readouterr()
    assert "48 images at 64 x 64 pixels through efficientnet_lite0" in said.err + said.out  # as they will be packed
    assert not (tmp_path / "o" / "runs").exists()


RECIPE = """
name = "borrowed"
method = "{method}"
validation = 0.25
[images]
size = 64
[train]
dataset = "folder"
root = "{root}"
labels = "labels.csv"
[fit]
backbone = "hf:{model}"
epochs = 1
batch = 8
rate = 0.001
eps = 1e-8
[bomd]
epochs = 1
neighbours = 3
"""


@pytest.mark.parametrize(("method", "kind"), [("bomd", "clip"), ("bomd-plus", "dinov2")])
def test_descriptors_evidence_and_classifier_by_a_recipe(
    pictures: Path, others_models: dict[str, Path], tmp_path: Path, method: str, kind: str
) -> None:
    """The saved model needs neither the folder nor the hub, and predicts the same."""
    model = tmp_path / "model"
    shutil.copytree(others_models[kind], model)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(method=method, root=pictures, model=model))
    assert bomd("run", f"{recipe}", "--runs", f"{tmp_path / 'runs'}") == 0
    (result,) = (tmp_path / "runs").glob("**/result.json")
    saved = load(result.parent, accelerator="cpu")
    trained = saved.networks[0].trunk.state_dict()
    from bomd.networks.backbone import build

    for name, tensor in build(f"hf:{model}", 2, weights="imagenet").trunk.state_dict().items():
        assert torch.equal(trained[name], tensor), name  # frozen unless told otherwise
    files = sorted((pictures / "images").glob("*.png"))[:5]
    expected = saved.predict(files).values
    shutil.copytree(result.parent / "model", tmp_path / "elsewhere")
    shutil.rmtree(model)
    np.testing.assert_allclose(
        load(tmp_path / "elsewhere", accelerator="cpu").predict(files).values, expected, atol=1e-6
    )
