"""How far the descriptors of images lie from the vectors of the classes that they have, and of those they have not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bomd.files import write_arrays
from bomd.measure.metrics import auc_of
from bomd.measure.result import ClassDistances, Distance, Space
from bomd.tables import Floats, LabelTable

BINS = 40
SAMPLE = 1_000  # images kept for a map of the space
CHUNK = 4_096  # images at a time: descriptors may be larger than memory


def measure_space(descriptors: Floats, vectors: Floats, labels: LabelTable) -> Space:
    """Distances between images and classes, apart for images that have the class and that do not.

    "nearest" is the shortest of an image's distances to a class vector, "mean" their mean, and "cosine" the highest
    cosine, which does not depend on the length of a descriptor. Each has an AUROC, a gap between the means that is
    positive if positives lie closer, and histograms over common edges.

    Args:
        descriptors: (N, M, D)
        vectors: (C, D) of length one.
        labels: (N, C), the truth where it is known; NaN does not count.
    """
    kinds = distances(descriptors, vectors)
    edges = {kind: _edges(values) for kind, values in kinds.items()}
    classes = []
    for column, name in enumerate(labels.classes):
        truth = labels.values[:, column]
        positive, negative = truth >= 0.5, truth < 0.5
        known = positive | negative
        found = {}
        for kind, values in kinds.items():
            own = values[:, column]
            sign = 1 if kind == "cosine" else -1
            gap = sign * (own[positive].mean() - own[negative].mean()) if positive.any() and negative.any() else np.nan
            counts = [_counts(own[part], edges[kind]) for part in (positive, negative)]
            found[kind] = Distance(auc_of(positive[known], sign * own[known]), float(gap), *counts)
        classes.append(ClassDistances(name, **found, positives=int(positive.sum()), negatives=int(negative.sum())))
    return Space(tuple(classes), len(labels), {kind: tuple(values.tolist()) for kind, values in edges.items()})


def distances(descriptors: Floats, vectors: Floats) -> dict[str, Floats]:
    """(N, C) by kind; see `measure_space`."""
    found: dict[str, list[Floats]] = {"nearest": [], "mean": [], "cosine": []}
    for start in range(0, len(descriptors), CHUNK):
        part = np.asarray(descriptors[start : start + CHUNK], dtype=np.float32)
        products = part @ vectors.T
        lengths = (part**2).sum(axis=2, keepdims=True)
        squared = lengths - 2 * products + (vectors**2).sum(axis=1)
        each = np.sqrt(np.maximum(squared, 0))
        cosines = products / np.sqrt(np.maximum(lengths, 1e-12)) / np.linalg.norm(vectors, axis=1)
        found["nearest"].append(each.min(axis=1))
        found["mean"].append(each.mean(axis=1))
        found["cosine"].append(cosines.max(axis=1))
    return {kind: np.concatenate(parts) for kind, parts in found.items()}


def save_sample(path: Path, descriptors: Floats, vectors: Floats, labels: LabelTable, seed: int) -> None:
    """Keep some images with their descriptors, in half precision, for a map that needs no model."""
    rows = np.arange(len(labels))
    if len(rows) > SAMPLE:
        rows = np.sort(np.random.default_rng(seed).choice(rows, SAMPLE, replace=False))
    classes, values = np.asarray(labels.classes, dtype=np.str_), np.asarray(descriptors[rows], dtype=np.float16)
    told = {"ids": labels.ids[rows], "classes": classes, "labels": labels.values[rows]}
    write_arrays(path, {**told, "values": values, "vectors": vectors})


def _edges(values: Floats) -> NDArray[np.float64]:
    """Bins over nearly all values; what lies beyond counts in the outermost."""
    low, high = (float(end) for end in np.percentile(values, [0.5, 99.5]))
    return np.asarray(np.round(np.linspace(low, high if high > low else low + 1, BINS + 1), 4), dtype=np.float64)


def _counts(values: Floats, edges: NDArray[np.float64]) -> tuple[int, ...]:
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    return tuple(int(count) for count in counts)
