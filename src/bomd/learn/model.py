"""A trained classifier as a folder that opens anywhere: safetensors weights and a small JSON beside them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from bomd.data.batches import Images
from bomd.data.images import fit_square, read_image
from bomd.data.store import pack
from bomd.errors import InputError
from bomd.files import read_json, replacing, write_json
from bomd.learn.architectures import PLAIN, describe, make
from bomd.learn.backbone import Network
from bomd.learn.device import make_fabric
from bomd.learn.engine import Learner, predict, prepare
from bomd.tables import LabelTable

FORMAT = 1
FEW = 32  # files that are decoded here and now; more are packed by all cores


@dataclass(frozen=True)
class Model:
    """Networks with what is needed to use them on a new image."""

    networks: tuple[Network, ...]
    classes: tuple[str, ...]
    size: int
    _single: list[Recorded] = field(default_factory=list, repr=False, compare=False)

    @torch.no_grad()
    def probabilities(self, pixels: np.ndarray[Any, np.dtype[np.uint8]] | Tensor) -> Tensor:
        """(B, C) for square uint8 images (B, size, size), averaged over the networks."""
        given = torch.as_tensor(pixels).to(self.device)
        if len(given) > 1 or self.device.type == "cpu":
            return self._forward(given).cpu()
        if not self._single:  # images that come one by one are worth a recording
            self._single.append(Recorded(self._forward, given))
        return self._single[0](given).cpu()

    def predict(self, files: Sequence[Path], batch: int = 256) -> LabelTable:
        """Probabilities of PNG, JPEG or DICOM files; the id of a row is the path as given.

        Many files are decoded by all cores into a packed store first; it is gone afterwards.
        """
        if not files:
            raise InputError("No image to predict.")
        names = np.asarray([str(file) for file in files], dtype=np.str_)
        unknown = np.full((len(files), len(self.classes)), np.nan, dtype=np.float32)
        table = LabelTable(names, self.classes, unknown, paths=names)
        if len(files) < FEW:
            found = self.probabilities(np.stack([fit_square(read_image(file), self.size) for file in files]))
        else:
            with tempfile.TemporaryDirectory(prefix="bomd-") as folder:
                store = pack(table, Path(folder), self.size)
                found = predict(Learner(), self.networks, Images(store, names, self.device), batch)
        return table.replace(found.numpy())

    @property
    def device(self) -> torch.device:
        return next(self.networks[0].parameters()).device

    def _forward(self, pixels: Tensor) -> Tensor:
        return Learner().predict(self.networks, prepare(pixels.float(), self.networks[0].channels))


class Recorded:
    """A function of one tensor on a GPU, recorded for tensors of one shape and replayed with one call."""

    def __init__(self, function: Callable[[Tensor], Tensor], example: Tensor) -> None:
        self._given = example.clone()
        beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(3):  # libraries choose their algorithms in the first calls
                function(self._given)
        torch.cuda.current_stream().wait_stream(beside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._found = function(self._given)

    def __call__(self, given: Tensor) -> Tensor:
        self._given.copy_(given)
        self._graph.replay()
        return self._found.clone()


def save(directory: Path, networks: Sequence[Network], classes: Sequence[str], size: int, **facts: Any) -> None:
    """Write the folder; `model.json` comes last, so a folder that has it is complete."""
    architecture = describe(networks[0])
    if any(describe(network) != architecture for network in networks):
        raise ValueError("The networks of a model must all be of one architecture.")
    for number, network in enumerate(networks):
        weights = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
        with replacing(directory / f"network{number}.safetensors") as temporary:
            save_file(weights, temporary)
    description = {
        "format": FORMAT,
        "backbone": networks[0].name,
        "architecture": architecture,
        "networks": len(networks),
        "classes": list(classes),
        "size": size,
        "facts": facts,
    }
    write_json(directory / "model.json", description)


def load(directory: Path, accelerator: Any = "auto") -> Model:
    """Open a model folder, or the run directory that contains it."""
    from bomd.config import DeviceSettings

    inside = directory / "model"
    directory = inside if (inside / "model.json").exists() else directory
    if not (directory / "model.json").exists():
        raise InputError(f"No model in {directory}: expected a finished run or a folder with model.json.")
    description = read_json(directory / "model.json")
    if description.get("format") != FORMAT:
        raise InputError(f"{directory} holds a model of another version (format {description.get('format')}).")
    classes = tuple(description["classes"])
    architecture = description.get("architecture", {"name": PLAIN, "arguments": {}})  # the first models had one kind
    fabric = make_fabric(DeviceSettings(accelerator=accelerator))
    networks = []
    for number in range(description["networks"]):
        path = directory / f"network{number}.safetensors"
        try:
            network = make(architecture["name"], description["backbone"], len(classes), **architecture["arguments"])
            network.load_state_dict(load_file(path), strict=True)
        except TypeError as error:
            raise InputError(f"Cannot open {directory}: no such {architecture['name']!r} network: {error}.") from error
        except (OSError, SafetensorError, RuntimeError) as error:
            raise InputError(f"Cannot read {path}: {str(error).splitlines()[0]}") from error
        networks.append(network.place(fabric).eval())
    return Model(tuple(networks), classes, int(description["size"]))
