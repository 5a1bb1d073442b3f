"""The numbers of one run as `result.json` keeps them, by name and type; what was not measured is None."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from bomd.measure.metrics import Classification
from bomd.measure.quality import Detection, Kept, LabelQuality
from bomd.saved import Saved

VALIDATION = "validation"  # patients held out of the training set: their labels may be wrong
BEFORE_NOISE = "validation before noise"  # the same patients with their labels before noise was added
HELD_OUT = "held-out patients"  # the same by the best labels that are known of them


@dataclass(frozen=True)
class Flagged(Saved):
    """How many of the training images the method flags."""

    images: int
    of: int


@dataclass(frozen=True)
class LabelSums(Saved):
    """The labels of one class added up: true, given, and as learnt, soft and cut at 0.5."""

    name: str
    clean: float = math.nan
    given: float = math.nan
    proposed: float = math.nan
    proposed_hard: float = math.nan


@dataclass(frozen=True)
class Labels(LabelQuality):
    """How close given labels and training targets are to the truth."""

    distance_before: float = math.nan
    distance_after: float = math.nan
    histograms: tuple[LabelSums, ...] | None = None


@dataclass(frozen=True)
class Rates(Saved):
    """Precision and recall."""

    precision: float = math.nan
    recall: float = math.nan


@dataclass(frozen=True)
class Averages(Saved):
    """Over all labels together, and the mean over classes."""

    micro: Rates = Rates()
    macro: Rates = Rates()


@dataclass(frozen=True)
class Threshold(Saved):
    """What votes are worth if this many make a label; see `bomd.measure.votes`."""

    threshold: int
    positive: Averages = Averages()
    entry: Averages = Averages()


@dataclass(frozen=True)
class Votes(Saved):
    """What the neighbours of images know about their labels."""

    thresholds: tuple[Threshold, ...]
    images: int = 0
    neighbours: int = 0


@dataclass(frozen=True)
class Distance(Saved):
    """How far images with a class lie from its vector, and how far those without; counts are over common edges."""

    auroc: float = math.nan
    gap: float = math.nan
    positive: tuple[int, ...] = ()
    negative: tuple[int, ...] = ()


@dataclass(frozen=True)
class ClassDistances(Saved):
    """The distances of one class; see `bomd.measure.space`."""

    name: str
    nearest: Distance = Distance()
    mean: Distance = Distance()
    cosine: Distance = Distance()
    positives: int = 0
    negatives: int = 0


@dataclass(frozen=True)
class Space(Saved):
    """How well descriptors lie around the vectors of their classes."""

    classes: tuple[ClassDistances, ...]
    images: int = 0
    edges: dict[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Result(Saved):
    """What came of a run."""

    tests: dict[str, Classification]  # scores by test set; held-out patients are `VALIDATION` and `BEFORE_NOISE`
    name: str = ""
    method: str = ""
    seed: int = 0
    format: int = 1
    settings: dict[str, Any] | None = None  # of the method, with its defaults; None in records of the first versions
    notes: tuple[str, ...] = ()
    images: dict[str, int] = field(default_factory=dict)  # counts by set, the training images as "train"
    seconds: float = math.nan
    images_presented: int = 0  # to networks, in training and between its epochs
    flagged: Flagged | None = None
    composition: tuple[Kept, ...] | None = None  # positive labels that are left on images without a flag
    detection: Detection | None = None
    labels: Labels | None = None
    votes: Votes | None = None
    space: Space | None = None

    def scores(self, test: str) -> Classification | None:
        """Those on a test set; held-out patients are judged by their labels before noise was added, if it was."""
        best = self.tests.get(BEFORE_NOISE) or self.tests.get(VALIDATION)
        return best if test == HELD_OUT else self.tests.get(test)

    def auc(self, test: str) -> float | None:
        """Mean AUC on a test set, where it is known."""
        scores = self.scores(test)
        return None if scores is None or math.isnan(scores.mean_auc) else scores.mean_auc


def held_out(test: str) -> bool:
    """Whether a test set is made of patients held out of the training set."""
    return test in (VALIDATION, BEFORE_NOISE, HELD_OUT)
