"""BoMD's successor: judge every label by networks that never saw it, and learn from what is believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bomd import progress
from bomd.clean.detect import scores_of
from bomd.clean.neighbours import Neighbours, nothing
from bomd.clean.opinion import form_opinion
from bomd.clean.posterior import Posterior
from bomd.clean.rates import Rates
from bomd.clean.vote import vote
from bomd.config import FitSettings
from bomd.describe.descriptors import DescriptorLearner
from bomd.describe.labelspace import embed
from bomd.errors import InputError
from bomd.learn.engine import History
from bomd.methods.base import Context, Method, Prepared, logits, logits_and_features
from bomd.methods.crossfit import all_images, check_folds, cross_fit
from bomd.methods.nearest import LOOKED_AT, find_nearest
from bomd.methods.settings import within
from bomd.seeds import derive
from bomd.tables import Flags, Floats, LabelTable, Opinion

# Nats a label by which affected images must explain the labels better before the classifier is to learn anything but
# the given labels. Noise on whole images gave .01 to .12, report mining in a fifth of the patients .001 to .004.
WORTH_SOFTENING = 0.007
WORTH_MOVING = 0.02  # the same for images with one label each: no noise gave .01 at most, one wrong in twenty .1
CERTAIN = 10.0  # nats by which they must explain all labels better: few images may seem affected by chance


class BomdPlus(Method):
    """Let the data say how far each label may be trusted, and learn from what is believed to be true.

    Paper: none; it keeps BoMD's plan (describe, detect, re-label, train) and changes each step.
    Differs: from `bomd`. Networks that never saw a patient judge its labels; a label's probability of being wrong
    follows from that evidence, from how often labels are wrong at all, and from whether errors sit in whole images,
    all estimated from the labels themselves; the classifier learns the probability that a class is there, and suspect
    images count for less. See docs/how-it-works.md.
    Cost: 1.8, or 2.2 where errors sit in whole images.

    Args:
        evidence: What judges: a classifier of the labels, or BoMD's descriptors among the class names.
        folds: Parts that the patients are split into; each is judged by a network trained on all others.
        effort: Epochs of these networks, as a share of the classifier's.
        second: Epochs of a second pair that learns from what the first one believed, where errors sit in whole images,
            as a share of the classifier's; 0 asks once.
        votes: Share of the training target that the nearest images give, each vote weighted by its image's worth.
        neighbours: Images that vote.
        soften: Where errors sit in whole images, learn the probability that a class is there; off, the given label.
        weigh: Count suspect images for less; off, all alike.
        shown: Nearest images that are recorded for people to look at, where none vote.
    """

    one_label = True

    def __init__(
        self,
        evidence: Literal["classifier", "descriptors"] = "classifier",
        folds: int = 2,
        effort: float = 0.8,
        second: float = 0.4,
        votes: float = 0.0,
        neighbours: int = 30,
        soften: bool = True,
        weigh: bool = True,
        shown: int = 0,
    ) -> None:
        within("[2, inf)", "bomd-plus", folds=folds)
        within("(0, inf)", "bomd-plus", effort=effort)
        within("[0, inf)", "bomd-plus", second=second)
        within("[0, 1]", "bomd-plus", votes=votes)
        self.evidence, self.folds, self.effort, self.second = evidence, folds, effort, second
        self.votes, self.neighbours, self.soften, self.weigh = votes, neighbours, soften, weigh
        self.shown = shown
        self.weights: Tensor | None = None  # (N, 1) or (N, C), of mean 1
        self.full = 1.0  # the weight of an image that nothing is held against

    def check(self, train: LabelTable) -> None:
        check_folds("bomd-plus", train, self.folds)
        if self.votes and self.neighbours >= len(train) // self.folds:
            raise InputError(f"bomd-plus.neighbours is {self.neighbours}: {len(train)} images are too few.")

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.check(train)
        scores, features, fold_of, history = self._judge(train, context, self.effort)
        opinion, posterior, rates = form_opinion(scores, train, known=context.known)
        certain = worth_softening(rates, train)
        if self.second and certain:
            scores, features, fold_of, again = self._judge(train, context, self.second, posterior)
            history += again
            opinion, posterior, rates = form_opinion(scores, train, known=context.known)
        # Errors that are few or fall on any image leave the order of images right on average, and softening by evidence
        # from half of the images would only teach the classifier what that evidence believed.
        softened = self.soften and certain and rates.affected < 1
        told = "Suspect labels are softened." if softened else "Labels are learnt as they are given."
        if self.weigh and certain:
            told += " Suspect images count for less."
        progress.say(f"{opinion.reasons[0]} {told}")
        targets = posterior.truth if softened else train.values
        neighbours = self._nearest(features, fold_of, opinion, context) if self.votes or self.shown else None
        if neighbours is not None and self.votes:
            said = vote(targets, neighbours.indices, posterior.weight)
            said = np.where(np.isnan(train.values) | np.isnan(said), targets, said)
            targets = ((1 - self.votes) * targets + self.votes * said).astype(np.float32)
        weighs = self.weigh and certain and posterior.weight.any()
        weight = posterior.weight if weighs else np.ones(len(train), dtype=np.float32)
        self.full = 1 / float(weight.mean())
        scaled = weight[:, None] * self.full
        if train.confirmed is not None:  # what people decided on counts in full, however suspect its image is
            scaled = np.where(train.confirmed, self.full, scaled)
        self.weights = context.tensor(scaled)
        notes, weights = (*opinion.reasons, told), scaled.astype(np.float32)
        flags = as_flags(opinion)
        return Prepared(targets, flags, neighbours, scores, history, notes, opinion=opinion, weights=weights)

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        assert self.weights is not None
        return self.cross_entropy(logits, targets, self.weights[index])

    def loss_of_confirmed(self, logits: Tensor, targets: Tensor) -> Tensor:
        return self.full * super().loss_of_confirmed(logits, targets)

    def _judge(
        self, train: LabelTable, context: Context, share: float, believed: Posterior | None = None
    ) -> tuple[Floats, list[Floats], NDArray[np.intp], History]:
        """(N, C) scores by networks that did not see the image, features by fold, (N) folds, and their training.

        Features are there where neighbours are wanted, and stay on disk.

        Args:
            share: Of the classifier's epochs.
            believed: What is learnt in place of the labels, suspect images counting for less.
        """
        settings = replace(context.fit, epochs=max(1, round(share * context.fit.epochs)))
        score = logits_and_features if self.votes or self.shown else logits
        targets, weights, depends = None, None, [score.__name__]
        if believed is not None:
            targets = believed.truth if self.soften else train.values
            weights = believed.weight[:, None] / max(float(believed.weight.mean()), 1e-6)
            depends += ["again"]
        elif self.evidence == "descriptors":
            return self._judge_by_descriptors(train, context, settings)
        both, fold_of, history = cross_fit(
            train,
            context,
            self.folds,
            settings=settings,
            targets=targets,
            weights=weights,
            score=score,
            depends=depends,
        )
        count = len(train.classes)
        scores = all_images([part[:, :count] for part in both], fold_of)
        return scores, [part[:, count:] for part in both], fold_of, history

    def _judge_by_descriptors(
        self, train: LabelTable, context: Context, settings: FitSettings
    ) -> tuple[Floats, list[Floats], NDArray[np.intp], History]:
        space = embed(train.classes, "auto", seed=derive(context.seed, "language"))
        learner = DescriptorLearner(space, 3, "release", 0.3)
        slower, depends = replace(settings, rate=settings.rate / 3), ("descriptors", space.vectors)
        flat, fold_of, history = cross_fit(
            train, context, self.folds, settings=slower, learner=learner, outputs=learner.outputs, depends=depends
        )
        scores = [scores_of(part.reshape(len(part), learner.descriptors, -1), space.vectors) for part in flat]
        return all_images(scores, fold_of), flat, fold_of, history

    def _nearest(
        self, features: Sequence[Floats], fold_of: NDArray[np.intp], opinion: Opinion, context: Context
    ) -> Neighbours:
        """The nearest images of each image, among those that the same network did not see either.

        Where none vote, of those that people look at first.
        """
        count = min(self.neighbours if self.votes else self.shown, int(np.bincount(fold_of).min()) - 1)
        nearest, wanted = nothing(len(fold_of), count), (opinion.rank <= LOOKED_AT) | (self.votes > 0)
        for number, part in enumerate(features):
            rows = np.flatnonzero(fold_of == number)
            own = np.flatnonzero(wanted[rows])
            device = context.fabric.device
            found = find_nearest(part, count, own, context.stages, [part], by_angle=True, device=device)
            nearest.put(rows[own], Neighbours(rows[found.indices], found.distances))
        return nearest


def worth_softening(rates: Rates, labels: LabelTable) -> bool:
    """Whether errors sit in whole images so clearly that a classifier gains by learning something but the labels."""
    if labels.exclusive:
        return rates.gain >= max(WORTH_MOVING, CERTAIN / len(labels))
    labels_per_image = float((~np.isnan(labels.values)).sum(axis=1).mean())
    return rates.gain >= max(WORTH_SOFTENING * labels_per_image, CERTAIN / len(labels))


def as_flags(opinion: Opinion) -> Flags:
    """An image is flagged where half a label or more is expected to be wrong; lower scores are more suspect."""
    return Flags(opinion.ids, opinion.expected >= 0.5, 0.5 - opinion.expected, 0.5 - opinion.wrong)
