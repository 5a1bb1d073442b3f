"""Vision models of timm by their names, with the weights that timm keeps at the Hugging Face hub as safetensors."""

from __future__ import annotations

from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from bomd.errors import InputError
from bomd.networks.sight import Resampling, Sight, announce

WEIGHTS = "model.safetensors"
RESAMPLING: dict[str, Resampling] = {"bilinear": "bilinear", "bicubic": "bicubic", "nearest": "nearest-exact"}


def open_model(name: str, trained: bool) -> tuple[nn.Module, Sight, dict[str, Any]]:
    """A model with its weights, what it takes for an image, and what makes it again.

    Args:
        name: As `timm.list_models` has it, such as "convnext_tiny.fb_in22k".
        trained: Off, its weights are drawn at random.
    """
    timm = _library()
    model = make_model(name)
    wanted = timm.data.resolve_model_data_config(model)
    channels, height, width = (int(side) for side in wanted["input_size"])
    mean, deviation = (tuple(float(value) for value in wanted[part])[:channels] for part in ("mean", "std"))
    sight = Sight(channels, height, width, mean, deviation, RESAMPLING.get(wanted["interpolation"], "bicubic"))
    definition = {"library": "timm", "name": name, "made_with": timm.__version__}
    if not trained:
        return model, sight, definition
    file = _weights_file(name, model)
    try:
        state = load_file(file)
    except (SafetensorError, OSError) as error:
        raise InputError(f"timm:{name}: cannot open {file} ({str(error).partition(chr(10))[0]}).") from error
    wanted_names = model.state_dict()
    lacking = sorted(key for key in wanted_names if key not in state or state[key].shape != wanted_names[key].shape)
    if lacking:
        raise InputError(f"timm:{name}: the file of its weights does not fit this timm, for example {lacking[0]}.")
    model.load_state_dict({key: state[key] for key in wanted_names})  # the classifier stays behind
    return model, sight, definition


def make_model(name: str, sight: Sight | None = None) -> nn.Module:
    """A model with random weights that ends with its pooled features; it knows itself what it sees."""
    timm = _library()
    try:
        model: nn.Module = timm.create_model(name, pretrained=False, num_classes=0)
    except Exception as error:  # an unknown name, or arguments that its maker does not take
        reason = str(error).partition("\n")[0]
        raise InputError(f"timm:{name}: timm {timm.__version__} cannot make it ({reason}).") from error
    return model


def _weights_file(name: str, model: nn.Module) -> str:
    """Where the weights lie, fetched once if need be."""
    from huggingface_hub import hf_hub_download

    place = getattr(model, "pretrained_cfg", {}).get("hf_hub_id")
    if not place:
        raise InputError(
            f"timm:{name} has no weights at the Hugging Face hub: choose another, or set weights = 'none'."
        )
    try:
        return str(hf_hub_download(place, WEIGHTS, local_files_only=True))
    except Exception:
        announce(f"{place} is fetched from the Hugging Face hub, once.")
    try:
        return str(hf_hub_download(place, WEIGHTS))
    except Exception as error:  # no network, no such file, no permission: many kinds
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:160]
        raise InputError(
            f"timm:{name}: {WEIGHTS} of {place} is not kept here, and the hub does not give it ({reason})."
        ) from error


def _library() -> Any:
    try:
        import timm
        import timm.data
    except Exception as error:  # with a torchvision that does not fit PyTorch it is a RuntimeError
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"A backbone of timm needs timm and a torchvision that fits PyTorch: pip install 'bomd[timm]' ({reason})."
        ) from error
    return timm
