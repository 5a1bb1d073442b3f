"""Networks of another form than one trunk and a linear layer, on any backbone, that a saved model can rebuild.

Each is named after the method that brings it. All work on images happens in the trunk, behind `Network.features`; the
head gets features alone, in full precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bomd.config import FitSettings
from bomd.errors import InputError
from bomd.networks.backbone import BACKBONES, Network, PooledEfficientNet, Residual, build
from bomd.seeds import derive

SLOPE = 0.1  # of the leaky ReLUs
PLAIN = "plain"
Weights = str | Path | None


def maps_of(trunk: nn.Module, images: Tensor) -> list[Tensor]:
    """Maps (B, F, H, W) of a backbone's trunk from fine to coarse; the mean of the last ones is what it returns."""
    if isinstance(trunk, PooledEfficientNet):
        return _efficientnet_maps(trunk.model, images)
    if not isinstance(trunk, nn.Sequential):
        return cast(list[Tensor], trunk.stages(images))  # type: ignore[operator]
    maps, found = images, []
    for layer in trunk:
        if isinstance(layer, nn.AdaptiveAvgPool2d):
            break
        maps = layer(maps)
        if isinstance(layer, Residual):
            found.append(maps)
    return found


def _efficientnet_maps(model: Any, images: Tensor) -> list[Tensor]:
    """The last maps at 1/4, 1/8 and 1/16 of the side, and those that the trunk averages."""
    maps = model._swish(model._bn0(model._conv_stem(images)))
    found = []
    for block in model._blocks:
        if max(block._depthwise_conv.stride) > 1:
            found.append(maps)
        maps = block(maps)
    return [*found[1:], model._swish(model._bn1(model._conv_head(maps)))]


def _exact(maps: Tensor) -> Tensor:
    """In float32 at least."""
    return maps if maps.dtype == torch.float64 else maps.float()


class Architecture(Network):
    """A network that says by its `arguments` how `make` makes it again, besides the backbone and the outputs."""

    def __init__(
        self, backbone: str, trunk: nn.Module, head: nn.Module, feature_size: int, **arguments: int | float
    ) -> None:
        super().__init__(backbone, trunk, BACKBONES[backbone].channels, feature_size, 1)
        self.head, self.arguments = head, arguments


class FusedTrunk(nn.Module):
    """(B, channels, H, W) images to (B, 3 W): means of the product of two trunks' maps, of the first and the second."""

    def __init__(self, trunks: Sequence[nn.Module], inputs: int, width: int) -> None:
        super().__init__()
        self.trunks = nn.ModuleList(trunks)
        # Normalised, so that products stay in range whatever the precision.
        self.transitions = nn.ModuleList(
            nn.Sequential(nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()) for _ in trunks
        )

    def forward(self, images: Tensor) -> Tensor:
        pairs = zip(self.trunks, self.transitions, strict=True)
        first, second = (_exact(transition(maps_of(trunk, images)[-1])) for trunk, transition in pairs)
        return torch.cat([fuse(first, second), first.mean(dim=(2, 3)), second.mean(dim=(2, 3))], dim=1)


def fuse(first: Tensor, second: Tensor) -> Tensor:
    """(B, W) mean over all places of the product of two maps (B, W, H, W)."""
    return (first * second).mean(dim=(2, 3))


class FusedHead(nn.Module):
    """One linear layer for the product of the maps, and one for each of its factors."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, outputs) for _ in range(3))

    def forward(self, features: Tensor) -> Tensor:
        """(B, 3 W) to the (B, C) logits of the product, which are the prediction."""
        return self.all(features)[0]

    def all(self, features: Tensor) -> list[Tensor]:
        """(B, 3 W) to (B, C) logits of the product, of the first factor and of the second."""
        return [layer(part) for layer, part in zip(self.layers, features.chunk(3, dim=1), strict=True)]


class FusedNetwork(Architecture):
    """Two trunks of one kind from different seeds, whose last maps are multiplied."""

    head: FusedHead

    def __init__(self, backbone: str, outputs: int, weights: Weights, seed: int | None, *, width: int = 512) -> None:
        # The second is drawn from the generator that draws the layers on top.
        trunks = [build(backbone, 1, weights=weights, seed=part).trunk for part in (seed, None)]
        trunk = FusedTrunk(trunks, BACKBONES[backbone].feature_size, width)
        super().__init__(backbone, trunk, FusedHead(width, outputs), 3 * width, width=width)

    def features(self, images: Tensor) -> Tensor:
        self.shown += len(images)  # the second trunk sees them too
        return super().features(images)


class SaliencyTrunk(nn.Module):
    """(B, channels, H, W) images to (B, C): a pyramid of maps, a saliency map for each class, and its soft maximum."""

    def __init__(self, trunk: nn.Module, channels: int, outputs: int, width: int, hidden: int) -> None:
        super().__init__()
        self.trunk = trunk
        with torch.no_grad():
            levels = maps_of(trunk.eval(), torch.zeros(1, channels, 64, 64))
        trunk.train()
        self.laterals = nn.ModuleList(nn.Conv2d(maps.shape[1], width, 1) for maps in levels)
        # All classes share what comes before the first convolution, and are groups of channels after it.
        self.saliency = nn.Sequential(
            nn.BatchNorm2d(width),
            nn.LeakyReLU(SLOPE),
            nn.Conv2d(width, outputs * hidden, 1, bias=False),
            nn.BatchNorm2d(outputs * hidden),
            nn.LeakyReLU(SLOPE),
            nn.Conv2d(outputs * hidden, outputs, 1, groups=outputs, bias=False),
        )
        self.sharpness = nn.Parameter(torch.zeros(outputs))  # logarithm of how close pooling is to a maximum

    def maps(self, images: Tensor) -> Tensor:
        """(B, C, H, W) saliency at the finest level of the pyramid."""
        levels = [lateral(maps) for lateral, maps in zip(self.laterals, maps_of(self.trunk, images), strict=True)]
        merged = levels.pop()
        while levels:
            finer = levels.pop()
            merged = finer + F.interpolate(merged, size=finer.shape[-2:], mode="nearest")
        return cast(Tensor, self.saliency(merged))

    def forward(self, images: Tensor) -> Tensor:
        return soft_maximum(_exact(self.maps(images)), self.sharpness.exp())


def soft_maximum(maps: Tensor, sharpness: Tensor) -> Tensor:
    """(B, C) of (B, C, H, W) maps: their mean for a (C) sharpness near 0, their maximum for one near infinity."""
    flat = maps.flatten(2)
    return (torch.logsumexp(sharpness[:, None] * flat, dim=2) - math.log(flat.shape[2])) / sharpness


class Bias(nn.Module):
    """Adds a number per class; behind the pooling it does what it would in the last convolution."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, features: Tensor) -> Tensor:
        return features + self.bias


class SaliencyNetwork(Architecture):
    """A feature pyramid with a saliency map per class; features are the maps' soft maxima."""

    def __init__(
        self, backbone: str, outputs: int, weights: Weights, seed: int | None, *, width: int = 256, hidden: int = 128
    ) -> None:
        plain = build(backbone, 1, weights=weights, seed=seed)
        trunk = SaliencyTrunk(plain.trunk, plain.channels, outputs, width, hidden)
        super().__init__(backbone, trunk, Bias(outputs), outputs, width=width, hidden=hidden)


class AttentiveTrunk(nn.Module):
    """(B, channels, H, W) images to (B, F + C D): mean features, and D numbers where each class is attended to."""

    def __init__(self, trunk: nn.Module, inputs: int, outputs: int, width: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.attention = nn.Conv2d(inputs, outputs, 1)
        self.content = nn.Conv2d(inputs, width, 1)

    def forward(self, images: Tensor) -> Tensor:
        maps = maps_of(self.trunk, images)[-1]
        attention, content = self.attention(maps).sigmoid().flatten(2), self.content(maps).flatten(2)
        nodes = attention @ content.transpose(1, 2) / attention.shape[2]
        return torch.cat([maps.mean(dim=(2, 3)), nodes.flatten(1)], dim=1)


class GraphHead(nn.Module):
    """Classes as nodes of a graph whose edges are learnt once for all images, and once more from each image."""

    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        self.inputs, self.width = inputs, width
        self.plain = nn.Linear(inputs, outputs)
        self.fixed_edges = nn.Parameter(torch.eye(outputs))
        self.fixed = nn.Linear(width, width)
        self.context = nn.Linear(width, width)
        self.edges = nn.Linear(2 * width, outputs)
        self.moving = nn.Linear(width, width)
        self.output = nn.Parameter(torch.randn(outputs, width) / math.sqrt(width))

    def forward(self, features: Tensor) -> Tensor:
        """(B, F + C D) to (B, C) logits."""
        return self.read(features)[0]

    def read(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(B, F + C D) to (B, C) logits, and the image's (B, C, C) edges in (0, 1)."""
        mean, nodes = features[:, : self.inputs], features[:, self.inputs :]
        nodes = nodes.reshape(len(features), -1, self.width)
        nodes = nodes + F.leaky_relu(self.fixed(self.fixed_edges @ nodes), SLOPE)
        context = F.leaky_relu(self.context(nodes.mean(dim=1, keepdim=True)), SLOPE)
        edges = self.edges(torch.cat([nodes, context.expand_as(nodes)], dim=2)).sigmoid()
        moved = F.leaky_relu(self.moving(edges @ nodes), SLOPE)
        return (self.plain(mean) + (moved * self.output).sum(dim=2)) / 2, edges


class GraphNetwork(Architecture):
    """A classifier with a graph of its classes."""

    head: GraphHead

    def __init__(self, backbone: str, outputs: int, weights: Weights, seed: int | None, *, width: int = 64) -> None:
        plain = build(backbone, 1, weights=weights, seed=seed)
        trunk = AttentiveTrunk(plain.trunk, plain.feature_size, outputs, width)
        head = GraphHead(plain.feature_size, width, outputs)
        super().__init__(backbone, trunk, head, plain.feature_size + outputs * width, width=width)


class PairedTrunk(nn.Module):
    """(B, channels, H, W) images to the (B, F) features of a trunk that learns, behind those of one that does not.

    In training there are only those that learn: nothing there depends on the others.
    """

    def __init__(self, frozen: nn.Module, learning: nn.Module) -> None:
        super().__init__()
        self.frozen, self.learning = frozen.eval().requires_grad_(False), learning

    def train(self, mode: bool = True) -> PairedTrunk:
        super().train(mode)
        self.frozen.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        learnt: Tensor = self.learning(images)
        return learnt if self.training else torch.cat([self.frozen(images), learnt], dim=1)


class CorrectingHead(nn.Module):
    """A frozen classifier's last layer, and how likely its verdict on each class is right for this image."""

    limits: Tensor  # (C) logits above which a verdict is 1

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.classifier = nn.Linear(inputs, outputs).requires_grad_(False)  # of the frozen trunk's features
        self.register_buffer("limits", torch.zeros(outputs))
        self.encoder = nn.Linear(inputs, 2 * outputs)  # the learning trunk's features to two numbers per class
        self.verdicts = nn.Parameter(4 * torch.eye(2).expand(outputs, 2, 2) - 2)  # added to these; at first, trust
        self.decoder = nn.Linear(inputs, outputs)  # the same features to a guess of the verdicts, in training
        self.samples = nn.Parameter(torch.zeros(outputs, 2))  # what a drawn latent adds to that guess

    def concentrations(self, features: Tensor) -> Tensor:
        """(B, C, 2, 2) of (B, F) features of the learning trunk: for each verdict, of the label's two states."""
        encoded = self.encoder(features).unflatten(1, (-1, 1, 2))
        return F.softplus(encoded + self.verdicts) + 1.5

    def decode(self, features: Tensor, latents: Tensor) -> Tensor:
        """(B, C) logits of the verdicts from (B, F) features and (B, C, 2) latents."""
        return cast(Tensor, self.decoder(features) + (latents * self.samples).sum(dim=2))

    def forward(self, features: Tensor) -> Tensor:
        """(B, 2 F) features of both trunks to (B, C) corrected logits."""
        frozen, learnt = features.chunk(2, dim=1)
        masses = self.concentrations(learnt) - 1
        present = masses[..., 1] / masses.sum(dim=-1)  # (B, C, 2) that the label is 1, for a verdict of 0 and of 1
        # A verdict is 1 above the limit, so that its odds count from there: at the limit both are as likely. The limit
        # comes back at the end, and a correction that trusts every verdict changes nothing.
        above = self.classifier(frozen) - self.limits
        return corrected_logit(above, present[..., 1], present[..., 0]) + self.limits


def corrected_logit(logits: Tensor, if_positive: Tensor, if_negative: Tensor) -> Tensor:
    """Logit of p q1 + (1 - p) q0 with p the sigmoid of the logits, without leaving the logarithms.

    All are (B, C): `logits` of a verdict of 1, and q1 and q0, how likely the label is where the verdict is 1 and 0.
    """
    positive, negative = F.logsigmoid(logits), F.logsigmoid(-logits)
    yes = torch.logaddexp(positive + if_positive.log(), negative + if_negative.log())
    no = torch.logaddexp(positive + (-if_positive).log1p(), negative + (-if_negative).log1p())
    return yes - no


class CorrectedNetwork(Architecture):
    """A frozen classifier with a second trunk that corrects it; in training only the second can be asked."""

    head: CorrectingHead

    def __init__(self, backbone: str, outputs: int, weights: Weights, seed: int | None) -> None:
        plain = build(backbone, 1, weights=weights, seed=seed)
        head = CorrectingHead(plain.feature_size, outputs)
        super().__init__(backbone, PairedTrunk(deepcopy(plain.trunk), plain.trunk), head, plain.feature_size)

    def start_from(self, classifier: Network, limits: Tensor) -> None:
        """Correct this classifier, whose verdicts are 1 above the (C) limits, with a trunk that starts as its own."""
        trunk = cast(PairedTrunk, self.trunk)
        trunk.frozen.load_state_dict(classifier.trunk.state_dict())
        trunk.learning.load_state_dict(classifier.trunk.state_dict())
        self.head.classifier.load_state_dict(classifier.head.state_dict())
        self.head.limits.copy_(limits)


ARCHITECTURES: dict[str, type[Architecture]] = {
    "can": FusedNetwork,
    "hermoza": SaliencyNetwork,
    "hlc": GraphNetwork,
    "npc": CorrectedNetwork,
}


def build_as(name: str, outputs: int, settings: FitSettings, seed: int, **arguments: Any) -> Network:
    """Make a network of this form as `fit` of a recipe says."""
    arguments |= {"weights": settings.weights, "freeze": settings.freeze, "seed": derive(seed, "network", 0)}
    return make(name, settings.backbone, outputs, **arguments)


def make(
    name: str, backbone: str, outputs: int, *, weights: Weights = None, seed: int | None = None, **arguments: Any
) -> Network:
    """Make a network of any form: "plain", or a key of `ARCHITECTURES`; other arguments as for it, and for `build`."""
    if name == PLAIN:
        return build(backbone, outputs, weights=weights, seed=seed, **arguments)
    if name not in ARCHITECTURES:
        raise InputError(f"No architecture {name!r}: use one of {', '.join([PLAIN, *ARCHITECTURES])}.")
    if backbone not in BACKBONES:
        raise InputError(f"{name!r} is made of the maps of {', '.join(BACKBONES)}: it cannot be built on {backbone}.")
    if arguments.pop("freeze", None):
        raise InputError(f"fit.freeze: {name!r} adds layers inside its trunk, which could not learn anything then.")
    with torch.device("cpu"), nullcontext() if seed is None else torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.default_generator.manual_seed(derive(seed, "architecture"))
        kind: Callable[..., Architecture] = ARCHITECTURES[name]
        network = kind(backbone, outputs, weights, seed, **arguments)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def describe(network: Network) -> dict[str, Any]:
    """The name and the arguments with which `make` makes such a network again."""
    if type(network) is Network:
        lent = getattr(network.trunk, "definition", None)
        return {"name": PLAIN, "arguments": {"definition": lent} if lent else {}}
    names = {kind: name for name, kind in ARCHITECTURES.items()}
    if not isinstance(network, Architecture) or type(network) not in names:
        raise TypeError(f"{type(network).__name__} is not one of ARCHITECTURES: a saved one could not be opened.")
    return {"name": names[type(network)], "arguments": network.arguments}
