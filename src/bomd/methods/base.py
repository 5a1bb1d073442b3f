"""What a way of learning from noisy labels may override; the defaults are plain cross-entropy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bomd.config import FitSettings
from bomd.data.batches import Images
from bomd.errors import InputError
from bomd.learn.engine import Batch, History, Learner, fit
from bomd.networks.backbone import Network
from bomd.networks.device import Device
from bomd.runs import Stage, Stages
from bomd.seeds import derive
from bomd.tables import Flags, Floats, LabelTable, Opinion

if TYPE_CHECKING:  # so that methods which clean nothing do not depend on how labels are cleaned
    from bomd.clean.neighbours import Neighbours
    from bomd.clean.rates import Known


@dataclass(frozen=True)
class NoiseLevel:
    """How much of the training labels was made wrong on purpose; the papers of some methods take it as known."""

    images: float = 0.0  # share of the images with a wrong label
    labels: float = 0.0  # share of wrong labels among the known ones

    @classmethod
    def between(cls, clean: NDArray[np.float32], noisy: NDArray[np.float32]) -> NoiseLevel:
        """The level of (N, C) labels, told by what they were before."""
        wrong = (clean != noisy) & ~np.isnan(clean) & ~np.isnan(noisy)
        known = ~np.isnan(noisy)
        return cls(float(wrong.any(axis=1).mean()), float(wrong.sum() / max(known.sum(), 1)))


@dataclass(frozen=True)
class Context:
    """What a method may use while it prepares.

    Attributes:
        images: The training images; position i is row i of the training table.
        fit: How the classifier will be trained, which also names the backbone.
        stages: Where long work is kept, so that it is done once and survives a crash.
        noise: What the recipe's noise did to the training labels; nothing where it adds none.
        known: Rates of false alarms and misses that somebody measured.
    """

    images: Images
    fit: FitSettings
    fabric: Device
    seed: int
    stages: Stages
    noise: NoiseLevel = NoiseLevel()
    known: Known | None = None

    def buffer(self, shape: Sequence[int]) -> Tensor:
        """A tensor of zeros on the device, for per-sample memory; return it from `buffers` to have it saved."""
        return torch.zeros(tuple(shape), device=self.fabric.device)

    def tensor(self, values: NDArray[Any]) -> Tensor:
        """A copy of an array on the device, in single precision."""
        return torch.tensor(values, dtype=torch.float32, device=self.fabric.device)

    def train(
        self,
        learner: Learner,
        targets: NDArray[np.float32],
        settings: FitSettings,
        outputs: int,
        stage: Stage,
        what: str,
        seed: Sequence[str | int],
        images: Images | None = None,
    ) -> tuple[list[Network], History]:
        """Train before the classifier is, in a stage; the seed is derived, and `images` may be a part of them."""
        return fit(
            learner,
            self.images if images is None else images,
            targets,
            settings,
            outputs=outputs,
            fabric=self.fabric,
            seed=derive(self.seed, *seed),
            directory=stage.directory,
            what=what,
        )


@dataclass(frozen=True)
class Space:
    """Where a method puts the training images among the class names."""

    descriptors: Floats  # (N, M, D), maybe a memory map
    vectors: Floats  # (C, D) of the classes
    voters: Callable[[NDArray[np.int64]], Neighbours]  # finds the neighbours of these rows, flagged or not


@dataclass(frozen=True)
class Prepared:
    """What a method learns from, and what it found out on the way.

    Attributes:
        targets: (N, C) labels to train the classifier on; NaN is masked.
        flags: Which given labels look wrong, where the method says so.
        neighbours: The images that the new labels come from.
        scores: (N, C) how well each label fits each image, on the method's own scale.
        space: What the neighbours and scores come from, where there is one.
        opinion: What the method thinks of every given label, where it says so itself.
        weights: (N, 1) or (N, C) how much an image or label counts in training, of mean 1; None counts all alike. They
            are named here so that others make another classifier: the method's own `loss` is what applies them.
    """

    targets: NDArray[np.float32]
    flags: Flags | None = None
    neighbours: Neighbours | None = None
    scores: NDArray[np.float32] | None = None
    history: History = field(default_factory=list)
    notes: tuple[str, ...] = ()
    space: Space | None = None
    opinion: Opinion | None = None
    weights: NDArray[np.float32] | None = None


class Method(Learner):
    """Cross-entropy on the given labels, one hook at a time replaceable.

    Constructor arguments are the settings: recipes and the command line read them from the signature.

    Attributes:
        variant_of: The method whose table in a recipe this one starts from.
        trusts_labels: Whether `loss` and `step` take every label for right, whatever is predicted for its image: those
            that people confirmed then need no care of their own; see `methods/confirmed.py`.
        one_label: Whether it can learn from images that have one class each: then it is told by `exclusive`, and its
            loss is `cross_entropy`.
    """

    variant_of: str | None = None
    trusts_labels = False
    one_label = False

    def check(self, train: LabelTable) -> None:
        """Refuse labels that the method cannot learn from, before any time is spent on images."""

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        """Everything before the classifier: the place to clean labels."""
        return Prepared(train.values)

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        """Scalar loss of one network on one batch; `index` are rows of the training table."""
        return self.cross_entropy(logits, targets)

    def cross_entropy(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """The plain loss: over all classes of an image together where it has one of them, else of each on its own.

        Args:
            weights: (B, 1) or (B, C) how much an image or label counts; by default all alike.
        """
        if self.exclusive:
            return softmax_cross_entropy(logits, targets, weights)
        return masked_cross_entropy(logits, targets, weights)

    def loss_of_confirmed(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Scalar loss of labels that people confirmed, all others being NaN; on the scale of `loss`."""
        return self.cross_entropy(logits, targets)

    def step(self, networks: Sequence[Network], batch: Batch) -> Tensor:
        """Loss of one batch, summed over the networks; for methods that mix images or need several passes."""
        images = batch.view()
        losses = [self.loss(network(images), batch.targets, batch.index) for network in networks]
        return torch.stack([one_number(loss) for loss in losses]).sum()


def one_number(loss: Tensor) -> Tensor:
    """A loss as it is; one with a number for each image or label would be summed in silence."""
    if not isinstance(loss, Tensor) or loss.dim():
        found = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
        raise InputError(f"`loss` of a method must return a tensor with one number, such as a mean, not {found}.")
    return loss


def train_plainly(train: LabelTable, context: Context, epochs: int | None = None) -> tuple[Network, History]:
    """A classifier of the given labels by plain cross-entropy, trained once for all methods that start from one."""
    settings = replace(context.fit, select="last", epochs=context.fit.epochs if epochs is None else epochs)
    inputs = (context.images.fingerprint, train.values, settings, context.seed, context.fabric.key)
    with context.stages.enter("cross-entropy", *inputs, *train.marks(), by=(__name__,)) as stage:
        learner, count, what = Method(), len(train.classes), "train on the given labels"
        learner.exclusive = train.exclusive
        (network,), history = context.train(learner, train.values, settings, count, stage, what, seed=["cross-entropy"])
    return network, history


def refuse_soft(train: LabelTable, what: str) -> None:
    """Refuse labels between 0 and 1; `what` opens the message that names the first image with one."""
    soft = ((train.values > 0) & (train.values < 1)).any(axis=1)
    if soft.any():
        raise InputError(f"{what} 0, 1 or unknown: image {str(train.ids[np.argmax(soft)])!r} has others.")


def frequencies(labels: NDArray[Any]) -> NDArray[np.float64]:
    """(C) share of positives among the known labels of each class; 0 where none is known."""
    return np.asarray(np.nansum(labels, axis=0) / (~np.isnan(labels)).sum(axis=0).clip(min=1), dtype=np.float64)


def logits(networks: Sequence[Network], images: Tensor) -> Tensor:
    """(B, C) what the first network says."""
    said: Tensor = networks[0].head(networks[0].features(images))
    return said


def logits_and_features(networks: Sequence[Network], images: Tensor) -> Tensor:
    """(B, C + F) what the first network says and what it says it from."""
    features = networks[0].features(images)
    return torch.cat([networks[0].head(features), features], dim=1)


def masked_mean(entries: Tensor, counted: Tensor) -> Tensor:
    """Mean of the entries that count, by (B, C) or broadcast weights; 0 where none does."""
    return (entries * counted).sum() / counted.sum().clamp(min=1)


def masked_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean over the labelled entries of y softplus(-z) + (1 - y) softplus(z), times weights; NaN does not count."""
    entries = entry_losses(logits, targets.nan_to_num())
    return masked_mean(entries if weights is None else entries * weights, ~targets.isnan())


def entry_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """(B, C) of each entry, y softplus(-z) + (1 - y) softplus(z)."""
    return labels * F.softplus(-logits) + (1 - labels) * F.softplus(logits)


def softmax_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean over the labelled images of -sum y log softmax(z), times weights; y is scaled to sum to 1.

    An image without anything positive is not labelled, as is NaN. Of weights of single labels the largest counts.
    """
    mass = targets.nan_to_num()
    total = mass.sum(dim=1)
    known = total > 0
    images = -(mass * F.log_softmax(logits, dim=1)).sum(dim=1) / torch.where(known, total, 1)
    if weights is not None:
        images = images * weights.amax(dim=1)
    return (images * known).sum() / known.sum().clamp(min=1)
