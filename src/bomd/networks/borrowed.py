"""Trunks that other people trained, from Hugging Face transformers or timm: "hf:NAME_OR_FOLDER" and "timm:NAME".

Each has its own idea of an image: a size, a mean and a deviation. The rest of this package prepares images in one way
for all networks, so that the trunk itself turns them into what its model was trained on. Nothing is cropped, since
findings may lie at the edge: the whole image is resized to the size that the model has seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from importlib import import_module
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bomd.data.batches import SCALES
from bomd.errors import InputError
from bomd.networks.sight import Sight

LIBRARIES = {"hf": "bomd.networks.hugging_face", "timm": "bomd.networks.timm_models"}  # imported when used
OWN_WEIGHTS = "imagenet"  # what `fit.weights` says unless told otherwise: whatever the model comes with


class BorrowedTrunk(nn.Module):
    """A model behind the step that makes its images out of ours.

    Attributes:
        definition: What makes the model again, without its weights; fits into JSON.
    """

    given_mean: Tensor
    given_deviation: Tensor
    wanted_mean: Tensor
    wanted_deviation: Tensor

    def __init__(self, model: nn.Module, sight: Sight, definition: Mapping[str, Any]) -> None:
        super().__init__()
        self.model, self.sight = model, sight
        self.definition = {**definition, "sight": asdict(sight)}
        came = torch.tensor(SCALES[sight.channels], dtype=torch.float64)
        for name, values in {
            "given_mean": came[:, 0],
            "given_deviation": came[:, 1],
            "wanted_mean": torch.tensor(sight.mean, dtype=torch.float64) / sight.scale,
            "wanted_deviation": torch.tensor(sight.deviation, dtype=torch.float64) / sight.scale,
        }.items():
            self.register_buffer(name, values.float()[:, None, None], persistent=False)  # no weight of the model

    def forward(self, images: Tensor) -> Tensor:
        """(B, channels, H, W) images, normalised as for any network, to (B, F) features."""
        return cast(Tensor, self.model(self.fit(images)))

    def fit(self, images: Tensor) -> Tensor:
        """(B, channels, height, width) the same images as the model wants them."""
        plain = images * self.given_deviation + self.given_mean  # from 0 to 1
        size = (self.sight.height, self.sight.width)
        if tuple(plain.shape[-2:]) != size:
            smooth = self.sight.resampling != "nearest-exact"
            plain = F.interpolate(plain, size, mode=self.sight.resampling, antialias=smooth)
            plain = plain.clamp(0, 1)  # bicubic curves swing past the brightest and the darkest pixel
        return (plain - self.wanted_mean) / self.wanted_deviation


def is_borrowed(name: str) -> bool:
    """Whether this names a model of other people."""
    library, colon, where = name.partition(":")
    return library in LIBRARIES and bool(colon and where)


def borrow(name: str, weights: Any = OWN_WEIGHTS) -> BorrowedTrunk:
    """Open a model of other people.

    Args:
        name: "hf:" and a folder or a name at the hub, or "timm:" and a name.
        weights: "imagenet" for the model's own, whatever images they were learnt from, or "none" for random ones.
    """
    if weights not in (OWN_WEIGHTS, "none", None):
        raise InputError(f"fit.weights is {str(weights)!r}, but {name} brings its own: leave it out, or set 'none'.")
    trained = weights == OWN_WEIGHTS
    library, _, where = name.partition(":")
    return BorrowedTrunk(*import_module(LIBRARIES[library]).open_model(where, trained))


def rebuild(definition: Mapping[str, Any]) -> BorrowedTrunk:
    """A trunk with random weights, as a saved model describes it; nothing is read from anywhere."""
    try:
        place = dict(definition["sight"])
        sight = Sight(**{**place, "mean": tuple(place["mean"]), "deviation": tuple(place["deviation"])})
        library = import_module(LIBRARIES["timm" if definition["library"] == "timm" else "hf"])
        model = library.make_model(definition["name" if definition["library"] == "timm" else "config"], sight)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"The model's backbone is described in a way that this bomd does not know: {error}."
        ) from error
    return BorrowedTrunk(model, sight, definition)


@torch.no_grad()
def feature_size_of(trunk: BorrowedTrunk) -> int:
    """F, the length of the feature vector, as one empty image shows it."""
    sight, was_training = trunk.sight, trunk.training
    found = trunk.eval()(torch.zeros(1, sight.channels, sight.height, sight.width))
    trunk.train(was_training)
    if found.ndim != 2:
        raise InputError(f"The model gives features of shape {tuple(found.shape)}, not one vector for an image.")
    return int(found.shape[1])
