"""Vision models of Hugging Face transformers, from a folder or the hub: safetensors alone, and never code of theirs."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from bomd import outside
from bomd.errors import InputError
from bomd.files import read_json
from bomd.networks.sight import Resampling, Sight, announce

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PROCESSOR, JOINT = "preprocessor_config.json", "processor_config.json"  # the second where a model reads text, too
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
# Entries of a configuration that would fetch code, or make another kind of weights, are not looked at.
IGNORED = ("auto_map", "attn_implementation", "_attn_implementation", "quantization_config", "dtype", "torch_dtype")
RESAMPLING: dict[int, Resampling] = {0: "nearest-exact", 1: "bicubic", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers
USUAL = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # ImageNet's mean and deviation


class Features(nn.Module):
    """A vision model of transformers, whose outputs become one vector for each image.

    The vector is what the model itself pools: the class token behind the last norm (DINOv2, CLIP) or the mean over
    places (Swin, ConvNeXt). A ViT's pooling layer was learnt for another task and many files lack it: its class token
    counts.
    """

    def __init__(self, model: Any, config: Any, sight: Sight) -> None:
        super().__init__()
        if hasattr(getattr(model, "pooler", None), "dense"):
            model.pooler = None
        self.model = model
        names = [name.rpartition(".")[2] for name, _ in model.named_parameters()]
        self.class_first = any(name in ("cls_token", "class_embedding") for name in names)
        takes = inspect.signature(model.forward).parameters
        own = getattr(config, "image_size", None)
        sides = tuple(own) if isinstance(own, list | tuple) else (own, own)
        other = own is not None and sides != (sight.height, sight.width)
        # Position embeddings are interpolated where the model's images are not of the size that it was made for.
        self.options = {"interpolate_pos_encoding": True} if other and "interpolate_pos_encoding" in takes else {}

    def forward(self, images: Tensor) -> Tensor:
        found = self.model(pixel_values=images, **self.options)
        pooled = getattr(found, "pooler_output", None)
        if pooled is not None:
            return cast(Tensor, pooled).flatten(1)
        states = cast(Tensor, found.last_hidden_state)
        if states.ndim == 4:
            return states.mean(dim=(2, 3))
        return states[:, 0] if self.class_first else states.mean(dim=1)


def open_model(where: str, trained: bool) -> tuple[nn.Module, Sight, dict[str, Any]]:
    """A model with the weights in a folder or at the hub, what it takes for an image, and what makes it again.

    Args:
        where: A folder, or a name at the hub such as "microsoft/rad-dino".
        trained: Off, its weights are drawn at random.
    """
    transformers = _library()
    folder = find_folder(where)
    config = _config(_checked_folder(folder, where), where)
    sight = read_sight(folder, config)
    kind = _kind(config, where)
    model = _read_weights(transformers, kind, folder, config, where) if trained else _build(kind, config)
    definition = {"library": "transformers", "config": _plain(config), "made_with": transformers.__version__}
    return Features(model, config, sight), sight, definition


def make_model(config: Mapping[str, Any], sight: Sight) -> nn.Module:
    """A model with random weights from its configuration, as a saved folder has it."""
    _library()
    checked = _config(dict(config), "the saved model")
    return Features(_build(_kind(checked, "the saved model"), checked), checked, sight)


def find_folder(where: str) -> Path:
    """The folder that is meant, or the one where the hub's files of that name are kept; fetched once if need be."""
    path = Path(where).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        raise InputError(f"hf:{where} is a file: name the folder that holds config.json and {WEIGHTS}.")
    if where.startswith((".", "/", "~", "\\")) or where.count("/") > 1:
        raise InputError(f"hf:{where}: there is no such folder.")
    from huggingface_hub import snapshot_download

    options: dict[str, Any] = {"allow_patterns": ["config.json", PROCESSOR, JOINT, "model*.safetensors", INDEX]}
    try:
        kept = Path(snapshot_download(where, local_files_only=True, **options))
        if (kept / "config.json").is_file() and any(kept.glob("model*.safetensors")):
            return kept
    except Exception:  # noqa: S110 - not kept here yet, or a name that the hub does not allow: the next lines say so
        pass
    announce(f"{where} is fetched from the Hugging Face hub, once.")
    try:
        with quiet(_library()):
            return Path(snapshot_download(where, **options))
    except Exception as error:  # no network, no such name, no permission: many kinds
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:160]
        raise InputError(
            f"hf:{where} is no folder here, not kept from earlier, and the hub does not give it ({reason}): copy the "
            "model into a folder and name that."
        ) from error


def read_sight(folder: Path, config: Any) -> Sight:
    """What a model takes for an image, from the file of its image processor."""
    channels = int(getattr(config, "num_channels", 3))
    if channels not in (1, 3):
        raise InputError(f"hf:{folder} takes images of {channels} channels; 1 or 3 can be given.")
    own = getattr(config, "image_size", None)
    given = _processor(folder)
    if given is None:
        announce(
            f"{folder} has no {PROCESSOR}: images are normalised by ImageNet's mean and deviation. Save the model's "
            "image processor beside it if it wants others."
        )
        given = {"image_mean": USUAL[0], "image_std": USUAL[1]}
    cropped = given.get("crop_size") if given.get("do_center_crop") else None
    height, width = _sides(cropped) or _sides(given.get("size")) or _sides(own) or (224, 224)
    mean, deviation = given.get("image_mean", USUAL[0]), given.get("image_std", USUAL[1])
    if not given.get("do_normalize", True):
        mean, deviation = 0.0, 1.0
    scale = 255 * float(given.get("rescale_factor", 1 / 255)) if given.get("do_rescale", True) else 255.0
    resample = given.get("resample", 2)
    try:
        return Sight(
            channels,
            height,
            width,
            _each(mean, channels),
            _each(deviation, channels),
            RESAMPLING.get(resample if isinstance(resample, int) else 2, "bilinear"),
            1.0 if abs(scale - 1) < 1e-6 else scale,
        )
    except (TypeError, ValueError) as error:
        raise InputError(f"{folder / PROCESSOR} does not say how images are prepared: {error}.") from error


def _processor(folder: Path) -> dict[str, Any] | None:
    if (folder / PROCESSOR).is_file():
        found = read_json(folder / PROCESSOR)
        return found if isinstance(found, dict) else None
    if (folder / JOINT).is_file():
        found = read_json(folder / JOINT)
        part = found.get("image_processor") if isinstance(found, dict) else None
        return part if isinstance(part, dict) else None
    return None


def _sides(size: Any) -> tuple[int, int] | None:
    """Height and width, from any form in which transformers writes them."""
    if isinstance(size, Mapping):
        if size.get("height") and size.get("width"):
            return int(size["height"]), int(size["width"])
        edge = size.get("shortest_edge") or size.get("longest_edge")
        return (int(edge), int(edge)) if edge else None
    if isinstance(size, list | tuple) and len(size) == 2:
        return int(size[0]), int(size[1])
    return (size, size) if isinstance(size, int) and size > 0 else None


def _each(values: Any, channels: int) -> tuple[float, ...]:
    """A number for each channel; one for all is repeated, and three are averaged for one."""
    numbers = [float(value) for value in values] if isinstance(values, list | tuple) else [float(values)]
    if len(numbers) == channels:
        return tuple(numbers)
    return (sum(numbers) / len(numbers),) * channels


def _checked_folder(folder: Path, where: str) -> dict[str, Any]:
    """The configuration of a folder that has one, and weights that can be opened without running anything."""
    if not (folder / "config.json").is_file():
        raise InputError(f"hf:{where} has no config.json: save a model there with model.save_pretrained(folder).")
    if (folder / "adapter_config.json").is_file():
        raise InputError(f"hf:{where} holds an adapter, not a whole model: merge it into its model and save that.")
    if not (folder / WEIGHTS).is_file() and not (folder / INDEX).is_file():
        pickles = sorted(file.name for file in folder.iterdir() if file.suffix in PICKLED)
        if pickles:
            raise InputError(
                f"hf:{where} has pickled weights only ({pickles[0]}), which can run code when opened: have somebody "
                "you trust save them as safetensors, with model.save_pretrained(folder)."
            )
        raise InputError(f"hf:{where} has no weights: there is no {WEIGHTS} in it.")
    config = read_json(folder / "config.json")
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise InputError(f"hf:{where}: its config.json does not name a model_type of transformers.")
    return config


def _config(values: dict[str, Any], where: str) -> Any:
    """The configuration of the part that sees, as transformers has it."""
    transformers = _library()
    kinds = transformers.CONFIG_MAPPING
    name = values.get("model_type")
    if name not in kinds:
        code = " It would need code of its own, which is never run." if "auto_map" in values else ""
        raise InputError(f"hf:{where}: transformers {transformers.__version__} knows no model {name!r}.{code}")
    try:
        with quiet(transformers):
            config = kinds[name].from_dict(_without(values))
    except Exception as error:  # a configuration may hold anything
        reason = str(error).partition("\n")[0]
        raise InputError(f"hf:{where}: its config.json is not one of a {name!r} model: {reason}.") from error
    config = getattr(config, "vision_config", None) or config  # the tower of a model that reads text, too
    if hasattr(config, "mask_ratio"):
        config.mask_ratio = 0.0  # a masked autoencoder would hide most of each image, at random
    return config


def _without(values: Any) -> Any:
    """The same configuration without what is ignored, at any depth."""
    if not isinstance(values, dict):
        return values
    return {name: _without(value) for name, value in values.items() if name not in IGNORED}


def _plain(config: Any) -> dict[str, Any]:
    """A configuration as JSON has it."""
    return cast(dict[str, Any], _without(json.loads(config.to_json_string(use_diff=False))))


def _kind(config: Any, where: str) -> Any:
    """The class of the model."""
    known = _library().MODEL_MAPPING
    kind = known.get(type(config), None)
    kind = kind[0] if isinstance(kind, tuple) else kind
    if kind is None or getattr(kind, "main_input_name", None) != "pixel_values":
        raise InputError(f"hf:{where} is a {config.model_type!r} model, which does not take images alone.")
    return kind


def _build(kind: Any, config: Any) -> Any:
    with quiet(_library()):
        return kind(config).float()


def _read_weights(transformers: Any, kind: Any, folder: Path, config: Any, where: str) -> Any:
    # What a file lacks is drawn at random before that is noticed: the global generator must not move.
    with torch.random.fork_rng(devices=[]), quiet(transformers):
        try:
            model, loaded = kind.from_pretrained(
                str(folder), config=config, use_safetensors=True, local_files_only=True, output_loading_info=True
            )
        except Exception as error:  # damaged files arrive as many kinds
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:160]
            raise InputError(f"hf:{where}: cannot open its weights ({reason}).") from error
    wrong = [str(name) for name in loaded["missing_keys"] if ".pooler.dense." not in f".{name}"]  # which is not used
    wrong += [str(name) for name in loaded["mismatched_keys"]]
    if wrong:
        raise InputError(f"hf:{where}: its weights do not fit its config.json, for example {sorted(wrong)[0]}.")
    for name, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise InputError(f"hf:{where}: its weight {name!r} is not finite.")
    return model.float()


def _library() -> Any:
    remedy = "A backbone of Hugging Face needs an extra: pip install 'bomd[hf]'."
    return outside.package("transformers", remedy)


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Silence the library's own bars and load reports, then put its settings back."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
