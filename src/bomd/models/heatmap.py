"""Where in an image a model sees a finding: a layer's maps, weighed by how much each place raises the score.

At every place of a late layer, activations are multiplied by the gradient of the finding's logit where it is positive,
and added up (LayerCAM). At the last layer of a network that averages its maps this is class activation mapping with
the weights that speak for the finding. The layer is the deepest that still has `CELLS` cells along a side, since the
last one of a small image has a few only. Of a transformer it is the tokens that its last block looks at, one for each
patch, or those of a stage where it merges them, times their gradient: activations there have either sign.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo
from torch import Tensor, nn

from bomd.data.images import Pixels, fit_square, with_colour
from bomd.errors import InputError
from bomd.files import replacing
from bomd.learn.learner import prepare
from bomd.models.model import Model
from bomd.models.stages import channels_last, sides_of, stages_of
from bomd.networks.architectures import describe
from bomd.networks.backbone import Network
from bomd.typed import nearest

CELLS = 12  # along a side; on phantoms, coarser maps miss small findings
COLOURS = "plasma"  # even steps of lightness, so that it reads without telling red from green
OPACITY = 0.65  # of the hottest place in a drawing
PANEL = 400  # pixels along the longer side of one picture in a drawing
MARGIN, LINE, LEGEND = 8, 26, 150  # pixels between pictures, of a caption, and of the legend's width

MADE_BY = ("Software", "bomd heat map")  # in the file, so that a drawing is told from a picture of the user's own

Heat = NDArray[np.float32]


def heat_map(model: Model, pixels: Pixels, finding: str) -> Heat:
    """(H, W) in [0, 1] for an image (H, W) or (H, W, 3): how much each place speaks for the finding.

    The hottest place has 1, whatever the probability; where nothing speaks for the finding all are 0.

    Raises:
        InputError: The model does not know the finding, its network has no maps, or the image is not one.
    """
    heat: Heat = heat_maps(model, pixels, [finding])[0]
    return heat


def heat_maps(model: Model, pixels: Pixels, findings: Sequence[str], shape: tuple[int, int] | None = None) -> Heat:
    """(n, H, W) heat of n findings in one image, (H, W) or (H, W, 3), from one pass through each network.

    The model sees it in grey or colour as it has learnt.

    Args:
        shape: of each map, where it is not to be that of the image.
    """
    columns = [_column(model, finding) for finding in findings]
    given = np.asarray(pixels)
    if given.shape[2:] not in ((), (3,)) or given.ndim < 2 or given.dtype != np.uint8 or not given.size:
        raise InputError(f"A heat map needs an image (H, W) or (H, W, 3) of uint8, not {given.shape} of {given.dtype}.")
    height_and_width = given.shape[:2] if shape is None else shape
    square = torch.as_tensor(fit_square(with_colour(given, model.colour), model.size).copy()).to(model.device)
    total = torch.zeros((len(columns), *height_and_width))
    for network in model.networks:
        raised = evidence(network, prepare(square[None].float(), network.channels), columns)[:, 0]
        total += F.interpolate(raised.float().cpu()[None], height_and_width, mode="bilinear", align_corners=False)[0]
    total = total.clamp(min=0)
    highest = total.amax(dim=(1, 2), keepdim=True)
    heat: Heat = torch.where(highest > 0, total / highest, 0).numpy()
    return heat


def evidence(network: Network, images: Tensor, columns: Sequence[int]) -> Tensor:
    """(n, B, h, w) what speaks for n outputs in normalised images (B, channels, H, W), on the chosen layer's grid."""
    # A copy of the modules around the same weights: others may use the network at this moment, without hooks.
    shared = [*network.parameters(), *network.buffers(), network._precision]
    private = copy.deepcopy(network, {id(part): part for part in shared}).eval()
    trunks = stages_of(private.trunk)
    if not trunks:
        raise _no_maps(network)
    outputs: dict[nn.Module, Tensor] = {}
    for stage in (stage for stages in trunks for stage in stages):
        stage.register_forward_hook(lambda module, _, output: outputs.update({module: _first(output)}))
    with torch.enable_grad():
        logits = private(images.detach().requires_grad_())
        chosen = [stage for stages in trunks for stage in _deepest(stages, outputs, private.trunk)]
        if len(chosen) < len(trunks):
            raise _no_maps(network)
        layers = [outputs[stage] for stage in chosen]
        found = [
            torch.autograd.grad(logits[:, column].sum(), layers, retain_graph=place + 1 < len(columns))
            for place, column in enumerate(columns)
        ]
    with torch.no_grad():
        raised = [
            [
                _heat(slope, layer, stage, private.trunk)
                for slope, layer, stage in zip(slopes, layers, chosen, strict=True)
            ]
            for slopes in found
        ]
        return torch.stack([torch.stack(parts).sum(dim=0) for parts in raised])


def _no_maps(network: Network) -> InputError:
    return InputError(f"No heat map: {network.name!r} in {describe(network)['name']!r} has no maps to draw it from.")


def _first(output: Any) -> Tensor:
    """What a module passes on; blocks of transformers may return more beside it."""
    return cast(Tensor, output[0] if isinstance(output, tuple) else output)


def _heat(slope: Tensor, layer: Tensor, stage: nn.Module, trunk: nn.Module) -> Tensor:
    """(B, h, w) of maps, or of places or tokens with channels last, whose last ones are patches."""
    if layer.ndim == 4 and not channels_last(stage, layer):
        return (slope.clamp(min=0) * layer).sum(dim=1)
    height, width = cast(tuple[int, int], sides_of(stage, layer, trunk))
    return (slope * layer).sum(dim=-1).flatten(1)[:, -height * width :].reshape(-1, height, width)


def _deepest(stages: Sequence[nn.Module], outputs: Mapping[nn.Module, Tensor], trunk: nn.Module) -> Sequence[nn.Module]:
    """The last stage with enough cells, or the finest where none has; nothing where their number is not known."""
    sides = {stage: sides_of(stage, outputs[stage], trunk) for stage in stages if stage in outputs}
    known = {stage: min(cells) for stage, cells in sides.items() if cells is not None}
    return [stage for stage, cells in known.items() if cells >= CELLS][-1:] or list(known)[:1]


def _column(model: Model, finding: str) -> int:
    if finding not in model.classes:
        raise InputError(f"The model has no finding {finding!r}.{nearest(finding, model.classes)}")
    return model.classes.index(finding)


def overlay(pixels: Pixels, heat: Heat) -> Pixels:
    """(H, W, 3) an image under the colours of its (H, W) heat; where there is none it stays as it is."""
    from matplotlib import colormaps

    below = with_colour(np.asarray(pixels), colour=True).astype(np.float32)
    share = OPACITY * np.clip(heat, 0, 1)[..., None]
    mixed: Pixels = np.rint(below * (1 - share) + 255 * colormaps[COLOURS](heat)[..., :3] * share).astype(np.uint8)
    return mixed


def draw(path: Path, model: Model, pixels: Pixels, captions: Mapping[str, str]) -> None:
    """Write a PNG of an image and, beside it, of the heat of some findings over it, with a legend.

    Args:
        model: Whose findings they are.
        captions: What to write over each finding, by its name.
    """
    scale = PANEL / max(pixels.shape[:2])
    height, width = (max(1, round(side * scale)) for side in pixels.shape[:2])
    small = np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR))
    heats = heat_maps(model, pixels, list(captions), (height, width)) if captions else ()
    pictures = [("image", small), *zip(captions.values(), (overlay(small, heat) for heat in heats), strict=True)]
    step = max(width, 120) + MARGIN
    sheet = Image.new("RGB", (step * len(pictures) + MARGIN + LEGEND, max(height, 120) + LINE + MARGIN), "white")
    pen, font = ImageDraw.Draw(sheet), _font()
    for place, (caption, picture) in enumerate(pictures):
        sheet.paste(Image.fromarray(picture), (MARGIN + place * step, LINE))
        pen.text((MARGIN + place * step, 5), _fitting(caption, font, step - MARGIN), "black", font)
    # The legend has the colours as they look over a middle grey, from the bare image to the hottest place.
    length, left = max(height, 120), MARGIN + len(pictures) * step
    ramp = np.repeat(np.linspace(1, 0, length, dtype=np.float32)[:, None], 14, axis=1)
    sheet.paste(Image.fromarray(overlay(np.full(ramp.shape, 110, dtype=np.uint8), ramp)), (left, LINE))
    words = {
        "speaks most": 0,
        "for the finding": 16,
        "each picture has": 48,
        "its own scale": 64,
        "not at all": length - 16,
    }
    for text, place in words.items():
        pen.text((left + 20, LINE + place), text, "black", font)
    told = PngInfo()
    told.add_text(*MADE_BY)
    with replacing(path) as temporary:
        sheet.save(temporary, format="PNG", compress_level=3, pnginfo=told)


def is_drawing(path: Path) -> bool:
    """Whether `draw` wrote this file."""
    key, value = MADE_BY
    try:
        with Image.open(path, formats=["PNG"]) as image:
            return bool(image.info.get(key) == value)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return False


def _font() -> ImageFont.FreeTypeFont:
    """Comes with matplotlib and has the letters of many languages."""
    import matplotlib

    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf", 13)


def _fitting(text: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    """The text on one line, cut where it would not fit; class names may be anything."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[:200])
    if font.getlength(shown) <= width:
        return shown
    while shown and font.getlength(f"{shown}…") > width:
        shown = shown[:-1]
    return f"{shown}…"
