"""An exported file gives what PyTorch gives, for any number of images, and says what it is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bomd.errors import InputError
from bomd.models import export
from bomd.models.model import Model
from bomd.networks.backbone import build

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def model(backbone: str, networks: int = 1) -> Model:
    made = tuple(build(backbone, 3, weights="none", seed=seed).eval() for seed in range(networks))
    return Model(made, ("a", "b,\nc", "d"), 64)


@pytest.mark.slow
@pytest.mark.parametrize(("backbone", "networks"), [("small", 2), ("densenet121", 1)])
def test_outputs_match_for_any_batch(tmp_path: Path, backbone: str, networks: int) -> None:
    made, path = model(backbone, networks), tmp_path / "model.onnx"
    assert export.export_onnx(made, path) <= 1e-4
    random = np.random.default_rng(0)
    for count in (1, 5):
        pixels = random.integers(0, 256, (count, 64, 64), dtype=np.uint8)
        np.testing.assert_allclose(export.run_onnx(path, pixels), made.probabilities(pixels).numpy(), atol=1e-4)
    facts = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert json.loads(facts["classes"]) == ["a", "b,\nc", "d"]
    assert facts["size"] == "64"


@pytest.mark.slow
def test_a_file_that_differs_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "LARGEST_DIFFERENCE", -1.0)
    with pytest.raises(InputError, match="differs from PyTorch"):
        export.export_onnx(model("small"), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_models_of_other_people_are_written_or_refused_in_one_line(
    others_models: dict[str, Path], tmp_path: Path
) -> None:
    """A ViT at another size than its own, so that the resizing is part of the file; what fails leaves none."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, 96, 96), dtype=np.uint8)
    found = Model((build(f"hf:{others_models['vit']}", 2, weights="imagenet", seed=0).eval(),), ("a", "b"), 96)
    export.export_onnx(found, tmp_path / "vit.onnx")
    expected = found.probabilities(pixels).numpy()
    np.testing.assert_allclose(export.run_onnx(tmp_path / "vit.onnx", pixels), expected, atol=1e-4)
    refused = Model((build(f"hf:{others_models['swin']}", 2, weights="imagenet", seed=0).eval(),), ("a", "b"), 96)
    with pytest.raises(InputError, match="exporter cannot write 'hf:") as caught:
        export.export_onnx(refused, tmp_path / "swin.onnx")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "swin.onnx").exists()
