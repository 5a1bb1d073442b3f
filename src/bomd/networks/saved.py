"""A trunk that was trained here before, as the start of another network."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from bomd.errors import InputError
from bomd.files import read_json
from bomd.networks.weights import load_strictly, read_state

WEIGHTS, DESCRIPTION = "network0.safetensors", "model.json"  # as in a model folder
BASES = ("none", "imagenet")
MADE = ("phantom", "self")  # starts that are made, see `bomd.pretrain`, as in "phantom" and "imagenet+phantom"


def is_made(weights: str | Path | None) -> bool:
    """Whether a name stands for a start that has to be made first."""
    parts = set(weights.split("+")) if isinstance(weights, str) else set()
    return bool(parts & set(MADE)) and parts <= {*BASES, *MADE}


def is_saved(weights: str | Path | None) -> bool:
    """Whether weights are a folder: a model, or a start that was made."""
    return weights is not None and Path(weights).is_dir()


def load_saved(trunk: nn.Module, folder: Path, backbone: str) -> None:
    """Fill a trunk from a folder with a plain network of the same backbone; its head is left.

    Raises:
        InputError: There is none, or it is of another network; one line says so.
    """
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
