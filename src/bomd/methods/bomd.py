"""Bag of Multi-label Descriptors: describe, detect, re-label, then train as usual."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from bomd import progress
from bomd.clean.detect import detect, scores_of
from bomd.clean.graph import nearest_images
from bomd.clean.relabel import relabel
from bomd.describe import descriptors as bags
from bomd.describe.labelspace import LabelSpace, embed
from bomd.describe.ranking import Weighting
from bomd.errors import InputError
from bomd.files import read_json, write_json
from bomd.learn.engine import History, derive, fit
from bomd.methods.base import Context, Method, Prepared
from bomd.tables import Descriptors, LabelTable


class Bomd(Method):
    """Re-label noisy images from their neighbours in a space spanned by the label names.

    Paper: Chen et al., BoMD, ICCV 2023, Algorithm 1.
    Differs: the ranking loss is weighted as in the release, since the paper's weight (positives / negatives)
    lets rows with many wrong positives dominate (`weighting="paper"` restores it); neighbours are the K nearest
    unique images, where the paper takes the unique images among the K nearest descriptors
    (`reading="nodes"`); word vectors come from a small sentence model unless another is named.
    """

    usual_weighting: Weighting = "release"

    def __init__(
        self,
        descriptors: int = 3,
        weighting: Weighting | None = None,
        beta: float = 0.3,
        language: str = "auto",
        vectors: Path | None = None,
        epochs: int = 20,
        batch: int = 16,
        rate: float = 1e-4,
        schedule: Literal["constant", "cosine", "onecycle"] = "cosine",
        neighbours: int = 10,
        reading: Literal["images", "nodes", "ranksum"] = "images",
        same_patient: bool = True,
        graph_weight: float = 0.6,
        uniform: float = 0.25,
        use_graph: bool = True,
        use_mask: bool = True,
    ) -> None:
        """Take the settings.

        Args:
            descriptors: Vectors per image (the paper's M).
            weighting: Form of the ranking loss; "release" for `bomd`, "paper" for `bomd-paper`.
            beta: Weight of the term that keeps an image's descriptors together.
            language: Where class vectors come from; see `bomd embed --help`.
            vectors: A file of vectors, for `language` "glove" or "file".
            epochs: Passes over the data to learn descriptors; batch, rate and schedule belong to them too.
            neighbours: Images that vote on a new label (the paper's K).
            reading: How the nearest images are found among all descriptors.
            same_patient: Whether images of the same patient may vote.
            graph_weight: Weight of the vote against the given label (the paper's lambda).
            uniform: Share of the vote that is spread evenly, against overconfidence (the paper's gamma).
            use_graph: Off, the vote is left out (ablation).
            use_mask: Off, classes that nobody voted for are smoothed too (ablation).
        """
        self.descriptors, self.beta = descriptors, beta
        self.weighting: Weighting = weighting or self.usual_weighting
        self.language, self.vectors = language, vectors
        self.epochs, self.batch, self.rate, self.schedule = epochs, batch, rate, schedule
        self.neighbours, self.reading, self.same_patient = neighbours, reading, same_patient
        self.graph_weight, self.uniform = graph_weight, uniform
        self.use_graph, self.use_mask = use_graph, use_mask

    def check(self, train: LabelTable) -> None:
        if len(train.classes) < 2:
            raise InputError("BoMD ranks classes against each other: at least 2 are needed.")
        if not (train.values >= 0.5).any():
            raise InputError("No image has a positive label, so there is nothing to learn a ranking from.")
        if self.neighbours >= len(train):
            raise InputError(f"bomd.neighbours is {self.neighbours}, but there are only {len(train)} images.")
        self._space(train, seed=0)

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.check(train)
        space = self._space(train, derive(context.seed, "language"))
        found, history = self._describe(train, space, context)
        scores = scores_of(found.values, space.vectors)
        flags = detect(scores, train)
        progress.say(f"{int(flags.noisy.sum())} of {len(train)} images break the rank rule")
        neighbours = nearest_images(
            found.values,
            self.neighbours,
            groups=None if self.same_patient else train.groups,
            reading=self.reading,
            device=context.fabric.device,
        )
        relabelled = relabel(
            train,
            neighbours,
            flags.noisy,
            graph_weight=self.graph_weight,
            uniform=self.uniform,
            use_graph=self.use_graph,
            use_mask=self.use_mask,
        )
        return Prepared(relabelled.values, flags, neighbours, scores, history, space.notes)

    def _space(self, train: LabelTable, seed: int) -> LabelSpace:
        return embed(train.classes, self.language, vectors=self.vectors, seed=seed)

    def _describe(self, train: LabelTable, space: LabelSpace, context: Context) -> tuple[Descriptors, History]:
        """Train the descriptor network once for these labels and settings, and describe every image."""
        settings = replace(
            context.fit,
            epochs=self.epochs,
            batch=self.batch,
            rate=self.rate,
            betas=(0.9, 0.999),
            eps=1e-8,
            schedule=self.schedule,
            select="last",
        )
        learner = bags.DescriptorLearner(space, self.descriptors, self.weighting, self.beta)
        inputs = (
            context.images.fingerprint,
            train.values,
            space.vectors,
            settings,
            [self.descriptors, self.weighting, self.beta, context.seed],
            str(context.fabric.device),
        )
        with context.stages.enter("descriptors", *inputs) as stage:
            path = stage.directory / "descriptors.npy"
            if not stage.finished:
                networks, history = fit(
                    learner,
                    context.images,
                    train.values,
                    settings,
                    outputs=learner.outputs,
                    fabric=context.fabric,
                    seed=derive(context.seed, "descriptors"),
                    directory=stage.directory,
                    what="learn descriptors",
                )
                bags.extract(learner, networks, context.images, path)
                write_json(stage.directory / "history.json", history)
                stage.finish(images=len(train))
            return bags.load(path, context.images), read_json(stage.directory / "history.json")


class BomdPaper(Bomd):
    """BoMD with the ranking loss exactly as the paper writes it.

    Paper: Chen et al., BoMD, ICCV 2023, Eq. 1 to 3.
    Differs: from `bomd` in the weight positives / negatives and the scale of the regulariser alone. With noise that
    adds labels it detects far worse, below chance where that noise is heavy, since rows with most wrong positives
    weigh most.
    """

    variant_of = "bomd"
    usual_weighting = "paper"
