"""A trained classifier as one ONNX file that needs no PyTorch: pixels in, probabilities out."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bomd import outside
from bomd.data.images import shape_of
from bomd.errors import InputError
from bomd.files import replacing, spare
from bomd.models.model import Model

LARGEST_DIFFERENCE = 1e-4  # of a probability between PyTorch and the file
MADE_BY = "bomd"
REMEDY = "ONNX export needs an extra: pip install 'bomd[onnx]'."


class Whole(nn.Module):
    """Normalisation, networks and the mean of their probabilities."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.networks, self.model = nn.ModuleList(model.networks), model

    def forward(self, pixels: Tensor) -> Tensor:
        return self.model.forward(pixels)


def export_onnx(model: Model, path: Path) -> float:
    """Write the file, run it once, and return the largest difference from PyTorch's probabilities.

    The file takes `pixels`, (B, size, size) uint8 of square images as `bomd.data.images.fit_square` makes them, or
    (B, size, size, 3) where the model learnt from colour, and gives `probabilities`, (B, C); class names (as JSON),
    size and mode ("grey" or "colour") are in its metadata. Whoever decodes images differently gets different
    probabilities. A file that does not give what PyTorch gives is an error, and not kept.
    """
    # All are asked for now, not after minutes.
    onnx, *_ = (outside.package(name, REMEDY) for name in ("onnx", "onnxruntime", "onnxscript"))
    spare(path, lambda there: _is_ours(there, onnx))
    whole = Whole(model).cpu().float().eval()
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (3, *shape_of(model.size, model.colour)), dtype=torch.uint8, generator=generator)
    logged = logging.root.manager.disable
    logging.disable(logging.WARNING)  # about things that the comparison below would show
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
            program = torch.onnx.export(
                whole,
                (pixels,),
                dynamo=True,
                input_names=["pixels"],
                output_names=["probabilities"],
                dynamic_shapes={"pixels": {0: "batch"}},
                optimize=True,
            )
    except Exception as error:  # what the exporter cannot translate arrives as many kinds
        name, kind = model.networks[0].name, type(error).__name__
        raise InputError(f"PyTorch's exporter cannot write {name!r} as ONNX ({kind}): use the model folder.") from error
    finally:
        logging.disable(logged)
    assert program is not None
    proto = program.model_proto
    mode = "colour" if model.colour else "grey"
    facts = {"classes": json.dumps(model.classes), "size": str(model.size), "made_by": MADE_BY, "mode": mode}
    onnx.helper.set_model_props(proto, facts)
    with replacing(path) as temporary:
        onnx.save(proto, temporary)
        with torch.no_grad():
            expected = whole(pixels).numpy()
        difference = float(np.abs(run_onnx(temporary, pixels.numpy()) - expected).max())
        if not difference <= LARGEST_DIFFERENCE:
            raise InputError(
                f"The ONNX file differs from PyTorch by {difference:.2g} in a probability; it is not kept."
            )
    return difference


def _is_ours(path: Path, onnx: Any) -> bool:
    """Whether a file was exported here: labels, or a network of somebody else, cannot be brought back."""
    try:
        told = {one.key: one.value for one in onnx.load(path, load_external_data=False).metadata_props}
    except Exception:  # protobuf has errors of its own
        return False
    return told.get("made_by") == MADE_BY


def open_onnx(path: Path, threads: int = 0) -> Any:
    """A session of onnxruntime on the CPU; 0 threads leaves the choice to it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run_onnx(path: Path, pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """(B, C) probabilities of (B, size, size) or (B, size, size, 3) images by an exported file."""
    (probabilities,) = open_onnx(path).run(["probabilities"], {"pixels": pixels})
    return np.asarray(probabilities)
