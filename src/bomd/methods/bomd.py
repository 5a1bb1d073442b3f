"""Bag of Multi-label Descriptors: describe, detect, re-label, then train as usual."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bomd import progress
from bomd.clean.detect import detect, scores_of
from bomd.clean.graph import nearest_images
from bomd.clean.neighbours import nothing
from bomd.clean.relabel import neighbour_mean, relabel
from bomd.config import FitSettings
from bomd.describe import contrast
from bomd.describe import descriptors as bags
from bomd.describe.labelspace import LabelSpace, embed
from bomd.describe.ranking import Weighting
from bomd.errors import InputError
from bomd.files import read_array
from bomd.learn.engine import History
from bomd.methods.base import Context, Method, Prepared, Space
from bomd.methods.fitted import fit_once, own_settings
from bomd.methods.nearest import find_nearest
from bomd.methods.nvum import SCORES, Nvum, keep_features
from bomd.seeds import derive
from bomd.tables import Flags, Floats, LabelTable

FILE = "descriptors.npy"


@dataclass(frozen=True)
class Described:
    """What stage one says about every image."""

    descriptors: Floats  # (N, M, D), a memory map
    scores: Floats | None  # (N, C) how well each class fits; None where stage one never saw a label
    history: History
    notes: tuple[str, ...] = ()
    vectors: Floats | None = None  # (C, D) of the classes, where descriptors lie among them


class Bomd(Method):
    """Re-label noisy images from their neighbours in a space spanned by the label names.

    Paper: Chen et al., BoMD, ICCV 2023, Algorithm 1.
    Differs: the ranking loss is weighted as in the release, since the paper's weight (positives / negatives)
    lets rows with many wrong positives dominate (`weighting="paper"` restores it); neighbours are the K nearest
    unique images, where the paper takes the unique images among the K nearest descriptors
    (`reading="nodes"`); word vectors come from a small sentence model unless another is named.
    Cost: 1.67.

    Args:
        stage: How images are described (ablation). "nvum" takes the features of a classifier trained by NVUM as the
            recipe says, and detects by its logits. "self-supervised" compares two views of an image without labels;
            with nothing to rank, all images are re-labelled, and those that their neighbours outvote are flagged. Both
            give one vector per image.
        descriptors: Vectors per image (the paper's M), where `stage` is "descriptors".
        weighting: Form of the ranking loss; "release" for `bomd`, "paper" for `bomd-paper`.
        beta: Weight of the term that keeps an image's descriptors together.
        language: Where class vectors come from; see `bomd embed --help`.
        vectors: A file of vectors, for `language` "glove" or "file".
        epochs: Passes over the data to learn descriptors; batch, rate and schedule belong to them too. With `stage`
            "nvum" the classifier's own apply.
        stored: How descriptors are kept on disk, where `stage` is "descriptors"; "float16" takes half the space of a
            large set, and rounds them to three digits.
        neighbours: Images that vote on a new label (the paper's K).
        reading: How the nearest images are found among all descriptors.
        same_patient: Whether images of the same patient may vote.
        graph_weight: Weight of the vote against the given label (the paper's lambda).
        uniform: Share of the vote that is spread evenly, against overconfidence (the paper's gamma).
        use_graph: Off, the vote is left out (ablation).
        use_mask: Off, classes that nobody voted for are smoothed too (ablation).
    """

    one_label = True
    usual_weighting: Weighting = "release"

    def __init__(
        self,
        stage: Literal["descriptors", "nvum", "self-supervised"] = "descriptors",
        descriptors: int = 3,
        weighting: Literal["release", "paper"] | None = None,
        beta: float = 0.3,
        language: str = "auto",
        vectors: Path | None = None,
        epochs: int = 20,
        batch: int = 16,
        rate: float = 1e-4,
        schedule: Literal["constant", "cosine", "onecycle"] = "cosine",
        stored: Literal["float32", "float16"] = "float32",
        neighbours: int = 10,
        reading: Literal["images", "nodes", "ranksum"] = "images",
        same_patient: bool = True,
        graph_weight: float = 0.6,
        uniform: float = 0.25,
        use_graph: bool = True,
        use_mask: bool = True,
    ) -> None:
        self.stage, self.descriptors, self.beta = stage, descriptors, beta
        self.weighting: Weighting = weighting or self.usual_weighting
        self.language, self.vectors = language, vectors
        self.epochs, self.batch, self.rate, self.schedule = epochs, batch, rate, schedule
        self.stored = stored
        self.neighbours, self.reading, self.same_patient = neighbours, reading, same_patient
        self.graph_weight, self.uniform = graph_weight, uniform
        self.use_graph, self.use_mask = use_graph, use_mask

    def check(self, train: LabelTable) -> None:
        if self.neighbours >= len(train):
            raise InputError(f"bomd.neighbours is {self.neighbours}, but there are only {len(train)} images.")
        if self.stage == "self-supervised":
            return
        if len(train.classes) < 2:
            raise InputError("BoMD ranks classes against each other: at least 2 are needed.")
        if not (train.values >= 0.5).any():
            raise InputError("No image has a positive label, so there is nothing to learn a ranking from.")
        if self.stage == "descriptors":
            self._space(train, seed=0)

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.check(train)
        describe = {
            "descriptors": self._describe_by_ranking,
            "nvum": self._describe_by_nvum,
            "self-supervised": self._describe_by_contrast,
        }[self.stage]
        found = describe(train, context)
        groups = None if self.same_patient else train.groups
        how: dict[str, Any] = {"groups": groups, "reading": self.reading, "device": context.fabric.device}
        scores, rule = found.scores, "break the rank rule"
        flags = None if scores is None else detect(scores, train)
        suspect = np.ones(len(train), dtype=np.bool_) if flags is None else flags.noisy
        neighbours = nothing(len(train), self.neighbours)  # nobody votes on an image that is not suspect
        rows, key = np.flatnonzero(suspect), [found.descriptors]
        neighbours.put(rows, find_nearest(found.descriptors, self.neighbours, rows, context.stages, key, **how))
        if scores is None or flags is None:
            scores = neighbour_mean(train.values, neighbours).astype(np.float32)
            flags, rule = outvoted(scores, train), "are outvoted by their neighbours"
        progress.say(f"{int(flags.noisy.sum())} of {len(train)} images {rule}")
        relabelled = relabel(
            train,
            neighbours,
            suspect,
            graph_weight=self.graph_weight,
            uniform=self.uniform,
            use_graph=self.use_graph,
            use_mask=self.use_mask,
        )
        space = None
        if found.vectors is not None:  # voters are asked for by one of several processes, which cannot share its search
            voters = partial(nearest_images, found.descriptors, self.neighbours, **how)
            space = Space(found.descriptors, found.vectors, lambda rows: voters(rows=rows))
        return Prepared(relabelled.values, flags, neighbours, scores, found.history, found.notes, space)

    def _describe_by_ranking(self, train: LabelTable, context: Context) -> Described:
        """Train descriptors to rank an image's labels above all others (the paper's MID)."""
        space = self._space(train, derive(context.seed, "language"))
        learner = bags.DescriptorLearner(space, self.descriptors, self.weighting, self.beta, self.stored)
        inputs = [train.values, space.vectors, [self.descriptors, self.weighting, self.beta, self.stored]]
        settings, outputs = self._own_settings(context), learner.outputs
        path, history = fit_once(
            "descriptors", learner, train.values, settings, outputs, context, bags.extract, FILE, inputs
        )
        found = bags.load(path, context.images)
        return Described(found.values, scores_of(found.values, space.vectors), history, space.notes, space.vectors)

    def _describe_by_nvum(self, train: LabelTable, context: Context) -> Described:
        """Train a classifier by NVUM as the recipe says; its features describe, its logits score."""
        method = Nvum()
        targets, settings = method.prepare(train, context).targets, replace(context.fit, select="last")
        inputs = [train.values, list(train.classes)]
        path, history = fit_once(
            "nvum", method, targets, settings, len(train.classes), context, keep_features, FILE, inputs
        )
        found = bags.load(path, context.images)
        return Described(found.values, read_array(path.with_name(SCORES)), history)

    def _describe_by_contrast(self, train: LabelTable, context: Context) -> Described:
        """Learn features without labels, which are therefore the same for all labels of these images."""
        learner, settings = contrast.ContrastLearner(), self._own_settings(context)
        inputs = [learner.temperature]
        path, history = fit_once(
            "contrast", learner, train.values, settings, learner.outputs, context, contrast.keep_features, FILE, inputs
        )
        return Described(bags.load(path, context.images).values, None, history)

    def _space(self, train: LabelTable, seed: int) -> LabelSpace:
        return embed(train.classes, self.language, vectors=self.vectors, seed=seed)

    def _own_settings(self, context: Context) -> FitSettings:
        return own_settings(context.fit, self.epochs, self.batch, self.rate, self.schedule)


class BomdPaper(Bomd):
    """BoMD with the ranking loss exactly as the paper writes it.

    Paper: Chen et al., BoMD, ICCV 2023, Eq. 1 to 3.
    Differs: from `bomd` in the weight positives / negatives and the scale of the regulariser alone. With noise that
    adds labels it detects far worse, below chance where that noise is heavy, since rows with most wrong positives
    weigh most.
    Cost: 1.67.
    """

    variant_of = "bomd"
    usual_weighting = "paper"


def outvoted(votes: Floats, train: LabelTable) -> Flags:
    """Flag each image with a label that its neighbours outvote: half of them or more make a class positive.

    A single label's score is the share of (N, C) votes for it minus one half, and an image's margin is its lowest.
    """
    positive = train.values >= 0.5
    known = ~(np.isnan(train.values) | np.isnan(votes))
    entry = np.where(known, np.where(positive, votes - 0.5, 0.5 - votes), np.nan).astype(np.float32)
    lowest = np.where(known, entry, np.inf).min(axis=1, initial=np.inf)
    wrong = known & (positive != (votes >= 0.5))
    return Flags(train.ids, wrong.any(axis=1), np.where(known.any(axis=1), lowest, np.nan).astype(np.float32), entry)
