"""What has to be decided before PyTorch and Triton are imported, and models that several tests borrow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

# Tests run on all cores at once; threads inside each of them would only wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import hypothesis
import pytest
import torch

ROOT = Path(__file__).parents[1]
hypothesis.settings.register_profile("patient", deadline=None)  # how busy the machine is says nothing about the code
hypothesis.settings.load_profile("patient")

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # the kernels then run on a CPU, slowly


@pytest.fixture(scope="session")
def others_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of tiny models of transformers with random weights and image processors of different kinds.

    All look at 128 x 128 pixels: a ViT with a classifier instead of a pooling layer, a DINOv2 whose position embeddings
    are for larger images, CLIP with both towers, a Swin and a ConvNeXt.
    """
    import transformers as hf

    root = tmp_path_factory.mktemp("others")
    transformer = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    tower = {**transformer, "image_size": 128, "patch_size": 32}
    words = {**transformer, "vocab_size": 30, "max_position_embeddings": 8}
    words |= {"eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    square, shortest = {"height": 128, "width": 128}, {"shortest_edge": 128}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = {
            "vit": (
                hf.ViTForImageClassification(hf.ViTConfig(**tower)),
                {"size": square, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2},
            ),
            "dinov2": (
                hf.Dinov2Model(
                    hf.Dinov2Config(
                        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=160, patch_size=32
                    )
                ),
                {"size": shortest, "crop_size": square, "do_center_crop": True, "resample": 3}
                | {"image_mean": [0.5307, 0.5307, 0.5307], "image_std": [0.2583, 0.2583, 0.2583]},
            ),
            "clip": (
                hf.CLIPModel(hf.CLIPConfig(text_config=words, vision_config=tower)),
                {"size": shortest, "crop_size": square, "do_center_crop": True, "resample": 3}
                | {"image_mean": [0.481, 0.458, 0.408], "image_std": [0.269, 0.261, 0.276]},
            ),
            "swin": (
                hf.SwinModel(
                    hf.SwinConfig(
                        image_size=128, patch_size=8, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4
                    )
                ),
                {
                    "size": square,
                    "resample": 3,
                    "image_mean": [0.485, 0.456, 0.406],
                    "image_std": [0.229, 0.224, 0.225],
                },
            ),
            "convnext": (
                hf.ConvNextModel(hf.ConvNextConfig(hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 1, 1])),
                {"size": square, "resample": 3, "rescale_factor": 1 / 127.5}
                | {"image_mean": [1.0, 1.0, 1.0], "image_std": [1.0, 1.0, 1.0]},
            ),
        }
        for name, (model, processor) in made.items():
            for weight in model.parameters():  # the usual start is so small that a mix-up would not show
                torch.nn.init.normal_(weight, std=0.3)
            model.save_pretrained(root / name)
            common = {"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
            described = {"image_processor_type": "ViTImageProcessor", **common, **processor}
            if "crop_size" in processor:
                described["image_processor_type"] = "CLIPImageProcessor"
            (root / name / "preprocessor_config.json").write_text(json.dumps(described), encoding="utf-8")
    return {name: root / name for name in made}


# Every rule of axe that a page breaks, with the places where; contrast, names of fields, order of headings and more.
LOOK_FOR_FAULTS = """
const done = arguments[arguments.length - 1];
axe.run(document, { preload: false }).then(
  (found) => done(found.violations.map(
    (rule) => `${rule.impact} ${rule.id}: ${rule.nodes.map((node) => node.target).join(", ")}`)),
  (error) => done([String(error)]));
"""


@pytest.fixture(scope="session")
def documentation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site; warnings are errors."""
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    own = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # news of the theme
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=own)
    assert built.returncode == 0, built.stdout + built.stderr
    return place


@pytest.fixture(scope="session")
def faults() -> Callable[[Any], list[str]]:
    """Looks for what people who see or move otherwise could not read or reach on the page that a browser shows."""
    pytest.importorskip("axe_core_python", reason="axe is not installed: pip install -e .[dev]")
    axe = resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")

    def look(browser: Any) -> list[str]:
        browser.execute_script(axe)
        return list(browser.execute_async_script(LOOK_FOR_FAULTS))

    return look
