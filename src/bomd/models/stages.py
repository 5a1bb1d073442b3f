"""Where in a network its maps are made, from which heat maps can be drawn, and how many places each has.

A stage gives maps (B, C, h, w), places with channels last (B, h, w, C) behind a norm of these, or tokens (B, T, C),
whose last ones are patches.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from torch import Tensor, nn

from bomd.networks.architectures import SaliencyTrunk
from bomd.networks.backbone import PooledEfficientNet, Residual
from bomd.networks.borrowed import BorrowedTrunk
from bomd.networks.dense import LAYERS, DenseNet121

CONVOLUTIONAL = ("convnext", "convnextv2", "resnet")  # models of transformers with maps
MERGING = ("swin", "swinv2", "donut-swin")  # those whose stages have fewer and fewer tokens


def stages_of(trunk: nn.Module) -> list[list[nn.Module]]:
    """For each backbone in a trunk, the modules that make its maps, from fine to coarse; none if it is unknown."""
    if isinstance(trunk, SaliencyTrunk):
        return [[trunk.saliency]]  # it has a map for every class
    if isinstance(trunk, DenseNet121):
        # What follows each norm is a ReLU, before which gradient times activation is the same as behind it.
        names = [*(f"transition{number}.norm" for number in range(1, len(LAYERS))), "norm5"]
        return [[trunk.features.get_submodule(name) for name in names]]
    if isinstance(trunk, BorrowedTrunk):
        found = _of_timm(trunk.model) if _is_timm(trunk) else _of_transformers(trunk)
        return [found] if found else []
    if isinstance(trunk, PooledEfficientNet):
        return [_efficientnet_stages(trunk.model)]
    if isinstance(trunk, nn.Sequential) and any(isinstance(layer, Residual) for layer in trunk):
        return [[layer for layer in trunk if isinstance(layer, Residual)]]
    return [stages for part in trunk.children() for stages in stages_of(part)]


def sides_of(stage: nn.Module, given: Tensor, trunk: nn.Module) -> tuple[int, int] | None:
    """Rows and columns of the places in what a stage gave; None where that is not known."""
    if given.ndim == 4 and channels_last(stage, given):
        return given.shape[1], given.shape[2]
    if given.ndim == 4:
        first_channels = not (isinstance(trunk, BorrowedTrunk) and _is_timm(trunk)) or given.shape[1] in _widths(trunk)
        return (given.shape[2], given.shape[3]) if first_channels else None
    first = _patches(trunk) if given.ndim == 3 and isinstance(trunk, BorrowedTrunk) else None
    if first is None:
        return None
    rows, columns = first
    while rows * columns > given.shape[1]:  # models that merge patches halve both, again and again
        rows, columns = -(-rows // 2), -(-columns // 2)
    return rows, columns


def channels_last(stage: nn.Module, given: Tensor) -> bool:
    """Whether these are places (B, h, w, C): maps never come from a plain norm over the last axis."""
    return given.ndim == 4 and type(stage) is nn.LayerNorm


def _efficientnet_stages(model: Any) -> list[nn.Module]:
    """The last block at each resolution, and the activation that ends the network, whose last call counts."""
    blocks = list(model._blocks)
    halving = [place for place, block in enumerate(blocks) if max(block._depthwise_conv.stride) > 1]
    return [*(blocks[place - 1] for place in halving if place), cast(nn.Module, model._swish)]


def _of_transformers(trunk: BorrowedTrunk) -> list[nn.Module]:
    """Stages of convolutions, or the norm before the last block of a transformer, which looks at what passes it.

    Before a norm a token's length does not matter, so that its gradient says nothing. Where tokens are merged, all that
    the model knows passes a norm each time, and another at the end.
    """
    model: Any = trunk.model.model
    if model.config.model_type in CONVOLUTIONAL:
        return list(model.encoder.stages)
    if model.config.model_type in MERGING:
        merged = [stage.downsample.norm for stage in model.encoder.layers if stage.downsample is not None]
        return [*merged, model.layernorm]
    if _patches(trunk) is None:
        return []
    lists = [part for part in model.modules() if isinstance(part, nn.ModuleList)]
    last = max(lists, key=len, default=nn.ModuleList())[-1:]
    return [part for block in last for part in block.modules() if type(part).__name__.endswith("Norm")][:1]


def _of_timm(model: Any) -> list[nn.Module]:
    """The same for models of timm; of other families than these three the shapes tell whether they have maps."""
    known: Any = import_module("timm.models")
    if isinstance(model, known.VisionTransformer):
        averaged = model.global_pool == "avg" and not isinstance(model.norm, nn.Identity)
        return [model.norm if averaged else model.blocks[-1].norm1]
    if isinstance(model, known.SwinTransformer | known.SwinTransformerV2):
        merging = [stage.downsample for stage in model.layers if not isinstance(stage.downsample, nn.Identity)]
        return [*(part.norm for part in merging), model.norm]
    return [model.get_submodule(str(part["module"])) for part in getattr(model, "feature_info", ())]


def _patches(trunk: BorrowedTrunk) -> tuple[int, int] | None:
    """Rows and columns of a transformer's patches before any are merged."""
    model: Any = trunk.model
    if _is_timm(trunk):
        rows, columns = getattr(getattr(model, "patch_embed", None), "grid_size", None) or (0, 0)
        return (int(rows), int(columns)) if isinstance(model, import_module("timm.models").VisionTransformer) else None
    config = model.model.config
    patch, merges = getattr(config, "patch_size", None), config.model_type in MERGING
    if not isinstance(patch, int) or (hasattr(config, "depths") and not merges):
        return None
    rows, columns = trunk.sight.height, trunk.sight.width
    # Those that merge fill up the last patch; others leave it out.
    return (-(-rows // patch), -(-columns // patch)) if merges else (rows // patch, columns // patch)


def _widths(trunk: BorrowedTrunk) -> list[int]:
    """Channels of the maps of a model of timm: some families give these last."""
    return [int(part["num_chs"]) for part in cast(Any, trunk.model).feature_info]


def _is_timm(trunk: BorrowedTrunk) -> bool:
    return bool(trunk.definition["library"] == "timm")
