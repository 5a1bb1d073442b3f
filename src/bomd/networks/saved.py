"""A trunk that was trained here before, as the start of another network."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from bomd.errors import InputError
from bomd.networks.weights import load_strictly, read_state

WEIGHTS = "network0.safetensors"  # as in a model folder
BASES = ("none", "imagenet")
MADE = ("phantom", "self")  # starts that are made, see `bomd.pretrain`, as in "phantom" and "imagenet+phantom"


def is_made(weights: str | Path | None) -> bool:
    """Whether a name stands for a start that has to be made first."""
    parts = set(weights.split("+")) if isinstance(weights, str) else set()
    return bool(parts & set(MADE)) and parts <= {*BASES, *MADE}


def is_saved(weights: str | Path | None) -> bool:
    """Whether weights are a folder: a model, or a start that was made."""
    return weights is not None and Path(weights).is_dir()


def portable(network: nn.Module) -> dict[str, Tensor]:
    """All weights and running statistics as a file takes them."""
    return {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}


def load_saved(trunk: nn.Module, folder: Path, backbone: str) -> None:
    """Fill a trunk from a folder with a plain network of the same backbone; its head is left.

    Raises:
        InputError: There is none, or it is of another network; one line says so.
    """
    place = next((place for place in (folder, folder / "model") if (place / WEIGHTS).is_file()), None)
    if place is None:
        raise InputError(f"No weights in {folder}: expected a model folder with {WEIGHTS}.")
    state = read_state(place / WEIGHTS)
    if not all(name.startswith(("trunk.", "head.")) for name in state):
        raise InputError(f"{place / WEIGHTS} holds no trunk to start from.")
    own = {name.removeprefix("trunk."): tensor for name, tensor in state.items() if name.startswith("trunk.")}
    try:
        load_strictly(trunk, own, str(place), head=None, rename=str)
    except InputError as error:
        raise InputError(f"{error} It is to start a {backbone}.") from error
