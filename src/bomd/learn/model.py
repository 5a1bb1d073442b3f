"""A trained classifier as a folder that opens anywhere: safetensors weights and a small JSON beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from bomd.data.images import fit_square, read_image
from bomd.errors import InputError
from bomd.files import read_json, replacing, write_json
from bomd.learn.backbone import Network, build
from bomd.learn.engine import Learner, make_fabric, prepare
from bomd.tables import LabelTable

FORMAT = 1


@dataclass(frozen=True)
class Model:
    """Networks with what is needed to use them on a new image."""

    networks: tuple[Network, ...]
    classes: tuple[str, ...]
    size: int

    @torch.no_grad()
    def probabilities(self, pixels: np.ndarray[Any, np.dtype[np.uint8]] | Tensor) -> Tensor:
        """(B, C) for square uint8 images (B, size, size), averaged over the networks."""
        device = next(self.networks[0].parameters()).device
        images = prepare(torch.as_tensor(pixels).to(device).float(), self.networks[0].channels)
        return Learner().predict(self.networks, images).cpu()

    def predict(self, files: Sequence[Path], batch: int = 64) -> LabelTable:
        """Probabilities of PNG, JPEG or DICOM files; the id of a row is the path as given."""
        parts = [self.probabilities(np.stack(list(chunk))) for chunk in _chunks(self._decode(files), batch)]
        names = np.asarray([str(file) for file in files], dtype=np.str_)
        return LabelTable(names, self.classes, torch.cat(parts).numpy(), paths=names)

    def _decode(self, files: Sequence[Path]) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
        for file in files:
            yield fit_square(read_image(file), self.size)


def save(directory: Path, networks: Sequence[Network], classes: Sequence[str], size: int, **facts: Any) -> None:
    """Write the folder; `model.json` comes last, so a folder that has it is complete."""
    for number, network in enumerate(networks):
        weights = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
        with replacing(directory / f"network{number}.safetensors") as temporary:
            save_file(weights, temporary)
    description = {
        "format": FORMAT,
        "backbone": networks[0].name,
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
    device = make_fabric(DeviceSettings(accelerator=accelerator)).device
    networks = []
    for number in range(description["networks"]):
        path = directory / f"network{number}.safetensors"
        network = build(description["backbone"], len(classes), weights="none")
        try:
            network.load_state_dict(load_file(path), strict=True)
        except (OSError, SafetensorError, RuntimeError) as error:
            raise InputError(f"Cannot read {path}: {str(error).splitlines()[0]}") from error
        networks.append(network.to(device).eval())
    return Model(tuple(networks), classes, int(description["size"]))


def _chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
