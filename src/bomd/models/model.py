"""A trained classifier as a folder that opens anywhere: weights, a description that is checked, and a model card.

network0.safetensors   weights; another file for each further network
model.json             architecture, classes, preprocessing, thresholds, metrics, checksums
README.md              the same for people, see `bomd.models.card`
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors import torch as tensors
from torch import Tensor

from bomd.config import LARGEST_SIZE, DeviceSettings
from bomd.data.batches import SCALES
from bomd.data.images import shape_of
from bomd.errors import InputError
from bomd.files import make_private, read_json, reading, write_bytes, write_json, write_text
from bomd.learn.learner import average, prepare
from bomd.models import card
from bomd.models.blocks import predict_blocks
from bomd.networks.architectures import describe, make
from bomd.networks.backbone import Network
from bomd.networks.device import make_fabric
from bomd.networks.weights import load_strictly, portable
from bomd.runs import run_of_audit
from bomd.tables import LabelTable

FORMAT = 2
DESCRIPTION, FILE = "model.json", "network{}.safetensors"
SIZES = (8, LARGEST_SIZE)  # of the square, in pixels
MOST_NETWORKS = 64
# Names of the rules of `bomd.data.images`, to be changed with them: a model that learnt by other rules is not opened.
READING = {False: "grey-8-bit", True: "colour-8-bit"}  # whether in colour
RESIZING = "stretch-bilinear-antialiased"


@dataclass(frozen=True)
class Model:
    """Networks with what is needed to use them on a new image."""

    networks: tuple[Network, ...]  # whose probabilities are averaged
    classes: tuple[str, ...]  # in the order of the outputs
    size: int  # side of the square that images are resized to
    thresholds: Mapping[str, float | None] = field(default_factory=dict)  # from which a class is called, where known
    metrics: Mapping[str, Any] = field(default_factory=dict)  # `Classification.brief` for each set of images
    facts: Mapping[str, Any] = field(default_factory=dict)  # what it was trained on, and how
    colour: bool = False  # whether it sees images in colour
    converts: bool = False  # whether it learnt from images in colour that were converted to grey
    exclusive: bool = False  # whether an image has one class and no other, so that probabilities add up to 1
    _single: list[Recorded] = field(default_factory=list, repr=False, compare=False)

    def __repr__(self) -> str:
        count, shown = len(self.networks), ", ".join([*self.classes[:3], *(["…"] if len(self.classes) > 3 else [])])
        colour = " in colour" if self.colour else ""
        networks = f"{count} network{'s' * (count > 1)} {self.networks[0].name!r} on {self.device}"
        return f"Model: {len(self.classes)} classes ({shown}), {self.size} x {self.size} pixels{colour}, {networks}"

    @torch.no_grad()
    def probabilities(self, pixels: np.ndarray[Any, np.dtype[np.uint8]] | Tensor) -> Tensor:
        """(B, C) of square uint8 images, averaged over networks: (B, size, size), or (B, size, size, 3) in colour."""
        given = torch.as_tensor(pixels).to(self.device)
        if (given.ndim == 4) != self.colour:
            wanted = ", ".join(map(str, shape_of(self.size, self.colour)))
            raise InputError(f"The model needs pixels (B, {wanted}), not {tuple(given.shape)}.")
        if len(given) > 1 or self.device.type == "cpu":
            return self.forward(given).cpu()
        if not self._single:  # images that come one by one are worth a recording
            self._single.append(Recorded(self.forward, given))
        return self._single[0](given).cpu()

    def predict(self, files: Sequence[Path | str] | Path | str, batch: int = 64) -> LabelTable:
        """Probabilities of image files, or of one; the id of a row is the path as given.

        Files are read in grey or colour as the model has learnt; see `bomd.data.colour.check_fits` for whether that
        makes sense.

        Raises:
            InputError: A file cannot be read; it is named.
        """
        files = [files] if isinstance(files, str | Path) else files  # text is a sequence, too: of letters
        blocks = list(predict_blocks(self, files, batch))
        broken = [reason for block in blocks for reason in block.broken.values()]
        if broken:
            others = f" ({len(broken)} of {len(files)} images cannot be read.)" if len(broken) > 1 else ""
            raise InputError(f"{broken[0]}{others}")
        names = np.asarray([name for block in blocks for name in block.files], dtype=np.str_)
        return LabelTable(names, self.classes, np.concatenate([block.values for block in blocks]), paths=names)

    @property
    def device(self) -> torch.device:
        return next(self.networks[0].parameters()).device

    def forward(self, pixels: Tensor) -> Tensor:
        """`probabilities` where the pixels are: checked, and on the networks' device."""
        return average(self.networks, prepare(pixels.float(), self.networks[0].channels), self.exclusive)


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


def save(
    directory: Path,
    networks: Sequence[Network],
    classes: Sequence[str],
    size: int,
    *,
    thresholds: Mapping[str, float | None] | None = None,
    metrics: Mapping[str, Any] | None = None,
    colour: bool = False,
    converts: bool = False,
    exclusive: bool = False,
    **facts: Any,
) -> None:
    """Write the folder of a `Model`; `model.json` comes last, so a folder that has it and opens is complete.

    Args:
        networks: All of one architecture.
        facts: As `bomd.models.card.facts_of` has them; must fit into JSON.
    """
    architecture = describe(networks[0])
    if any(describe(network) != architecture for network in networks):
        raise ValueError("The networks of a model must all be of one architecture.")
    make_private(directory)
    checksums = {}
    for number, network in enumerate(networks):
        content = tensors.save(portable(network))
        write_bytes(directory / FILE.format(number), content)
        checksums[FILE.format(number)] = hashlib.sha256(content).hexdigest()
    description = {
        "format": card.ONE_CLASS if exclusive else FORMAT,  # older versions would get the probabilities wrong
        "backbone": networks[0].name,
        "architecture": architecture,
        "networks": len(networks),
        "classes": list(classes),
        "preprocessing": {
            "size": size,
            **_preprocessing(networks[0].channels, colour),
            **({"converts": True} if converts else {}),
        },
        "thresholds": {name: (thresholds or {}).get(name) for name in classes},
        "metrics": dict(metrics or {}),
        "facts": facts,
        "checksums": checksums,
    }
    write_text(directory / "README.md", card.write(description))
    write_json(directory / DESCRIPTION, description)


def load(directory: Path | str, accelerator: Any = "auto") -> Model:
    """Open a model folder, or the run directory or the folder of an audit that contains it.

    Raises:
        InputError: There is none, or it is damaged or of another version; one line says what is wrong.
    """
    directory = _find(Path(directory))
    description = _checked(read_json(directory / DESCRIPTION), directory)
    fabric = make_fabric(DeviceSettings(accelerator=accelerator))
    numbers, preprocessing = range(description["networks"]), description["preprocessing"]
    networks = tuple(_open_network(directory, number, description).place(fabric).eval() for number in numbers)
    colour = preprocessing.get("reading") == READING[True]
    if colour and networks[0].channels != 3:
        raise InputError(f"{directory}: the model sees colour, but its network has one channel.")
    for name, value in _preprocessing(networks[0].channels, colour).items():
        if preprocessing.get(name, value) != value:
            raise InputError(f"{directory}: the model's {name} is not what this version of bomd does ({value}).")
    return Model(
        networks,
        tuple(description["classes"]),
        preprocessing["size"],
        **{name: description[name] for name in ("thresholds", "metrics", "facts")},
        colour=colour,
        converts=preprocessing.get("converts") is True,
        exclusive=description["format"] == card.ONE_CLASS,
    )


def _find(place: Path) -> Path:
    """The model folder that is meant: this one, that of a run, that of the latest run of an audit, or the only one."""
    for folder in (place, place / "model", (run_of_audit(place) or place) / "model"):
        if (folder / DESCRIPTION).exists():
            return folder
    found = sorted(file.parent for file in place.glob(f"**/model/{DESCRIPTION}"))
    if len(found) > 1:
        raise InputError(f"{len(found)} models are in {place}, such as {found[0]} and {found[1]}: name one of them.")
    if not found:
        raise InputError(f"No model in {place}: expected a finished run or a folder with {DESCRIPTION}.")
    return found[0]


def _preprocessing(channels: int, colour: bool) -> dict[str, Any]:
    """How images become numbers, besides the size; a model that was trained otherwise is not opened."""
    mean, deviation = ([pair[place] for pair in SCALES[channels]] for place in (0, 1))
    rules = {"reading": READING[colour], "resizing": RESIZING}
    return {"channels": channels, "mean": mean, "deviation": deviation, **rules}


def _open_network(directory: Path, number: int, description: Mapping[str, Any]) -> Network:
    """One network with its weights; every tensor must be there, of the right shape and finite."""
    path, architecture = directory / FILE.format(number), description["architecture"]
    with reading(path, SafetensorError):
        content = path.read_bytes()
        weights = dict(sorted(tensors.load(content).items()))  # the same of several misfits is named every time
    if description["checksums"].get(path.name) != hashlib.sha256(content).hexdigest():
        raise InputError(f"Cannot read {path}: it is not the file that was saved with {DESCRIPTION}.")
    try:
        outputs = len(description["classes"])
        network = make(architecture["name"], description["backbone"], outputs, **architecture["arguments"])
    except InputError:
        raise
    except Exception as error:  # an architecture's arguments may be anything
        reason = str(error).partition("\n")[0]
        raise InputError(f"Cannot open {directory}: no such {architecture['name']!r} network: {reason}.") from error
    load_strictly(network, weights, str(path), head=None, rename=str)
    for name, tensor in weights.items():
        if not tensor.isfinite().all():
            raise InputError(f"Cannot read {path}: tensor {name!r} is not finite.")
    return network


def _checked(description: Any, directory: Path) -> dict[str, Any]:
    """The content of `model.json` with all fields of today's format, each of the right kind."""
    place = directory / DESCRIPTION

    def require(good: bool, otherwise: str) -> None:
        if not good:
            raise InputError(f"{place}: {otherwise}.")

    require(isinstance(description, dict), "this is not the description of a model")
    found = description.get("format")
    if found not in (FORMAT, card.ONE_CLASS):
        raise InputError(f"{directory} holds a model of another version (format {found}).")
    whole = dict(description)
    kinds = {"backbone": str, "networks": int, "classes": list, "architecture": dict, "preprocessing": dict}
    kinds |= {"thresholds": dict, "metrics": dict, "facts": dict, "checksums": dict}
    for name, kind in kinds.items():
        value = whole.get(name)
        require(isinstance(value, kind) and not isinstance(value, bool), f"{name!r} is missing or of the wrong kind")

    classes, thresholds, architecture = whole["classes"], whole["thresholds"], whole["architecture"]
    good_names = all(isinstance(name, str) and name.strip() for name in classes) and len(set(classes)) == len(classes)
    require(bool(classes) and good_names, "'classes' must be different names, none of them empty")
    require(1 <= whole["networks"] <= MOST_NETWORKS, f"'networks' is {whole['networks']}, not 1 to {MOST_NETWORKS}")
    size = whole["preprocessing"].get("size")
    require(isinstance(size, int) and SIZES[0] <= size <= SIZES[1], f"a size of {size!r} is not within {SIZES}")
    described = isinstance(architecture.get("name"), str) and isinstance(architecture.get("arguments"), dict)
    require(described, "'architecture' needs a name and arguments")
    for name, value in thresholds.items():
        require(name in classes, f"there is a threshold for {name!r}, which is none of the classes")
        number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
        require(value is None or number, f"the threshold of {name!r} is {value!r}, not within 0 and 1")
    whole["thresholds"] = {name: thresholds.get(name) for name in classes}
    return whole
