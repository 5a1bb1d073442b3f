"""How far images that have a class lie from its vector, and images that do not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bomd.config import Config
from bomd.measure.result import ClassDistances, Distance, Result, Space
from bomd.measure.significance import Sample
from bomd.reports.sheet import Cell
from evidence.reproduce.artefact import Artefact, Drawing, Material, Setting, Sheet
from evidence.reproduce.figures import gather
from evidence.reproduce.figures.gather import NO_NOISE, Done
from evidence.reproduce.figures.style import BLUE, INK, SMALLEST, VERMILION, readable, small_multiples, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "descriptor-distances"
DRAWN = "nearest"
KINDS = ("nearest", "mean", "cosine")
HEADS = ("class", "from", "to", "positive", "negative", "run")
SUMMARY_HEADS = ("class", "distance", "positives", "negatives", "auroc", "gap", "runs")


def plan(setting: Setting) -> list[Config]:
    return gather.plan(setting, ["bomd"], [NO_NOISE])


def make(material: Material) -> list[Sheet | Drawing]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    found = sorted(gather.done(material, lambda result: result.space), key=lambda one: one.config.seed)
    gather.need(found, material, NAME)
    first = found[0]
    space = _space(first.result)
    classes, edges = space.classes, np.asarray(space.edges[DRAWN])
    with small_multiples(len(classes), 0.98) as (figure, panels, spare):
        for axes, item in zip(panels, classes, strict=True):
            _histograms(axes, item.nearest, edges)
            auroc, gap = (_sample(found, item.name, DRAWN, measure) for measure in ("auroc", "gap"))
            numbers = "" if auroc is None or gap is None else f"{auroc.mean:.2f} (gap {gap.mean:.2f})".replace("-", "−")
            axes.set_title(f"{readable(item.name)}\n{numbers}", fontsize=SMALLEST)
        handles = [
            Patch(facecolor=BLUE + "4D", edgecolor=BLUE, label="have the class"),
            Line2D([], [], color=VERMILION, linestyle="--", label="do not"),
            Line2D([], [], linestyle="", label="number: AUROC"),
        ]
        spare.legend(handles=handles, loc="center", handlelength=1.2, borderpad=0)
        figure.supxlabel("L2 distance of the nearest descriptor to the class vector", fontsize=7.5)
        figure.supylabel("share of images", fontsize=7.5, color=INK)
    title = f"Images by distance to the class vector: counts of the drawn histograms, seed {first.config.seed}."
    bins = Sheet(NAME, title, HEADS, _bins(first, classes, edges))
    return [Drawing(NAME, figure, _caption(material, found), bins), _summary(material, found)]


def _histograms(axes: Axes, distances: Distance, edges: NDArray[np.float64]) -> None:
    """Both kinds of images, each scaled to one."""
    for kind, colour, line in (("negative", VERMILION, "--"), ("positive", BLUE, "-")):
        counts = np.asarray(getattr(distances, kind))
        if counts.sum():
            shares = counts / counts.sum()
            axes.stairs(shares, edges, color=colour, linewidth=0.9, linestyle=line)
            if kind == "positive":
                axes.stairs(shares, edges, color=colour, fill=True, alpha=0.3)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    tidy(axes, "x")


def _bins(one: Done, classes: Sequence[ClassDistances], edges: NDArray[np.float64]) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for item in classes:
        bins = zip(edges[:-1], edges[1:], item.nearest.positive, item.nearest.negative, strict=True)
        rows += [[item.name, float(low), float(high), *counts, one.record.run] for low, high, *counts in bins]
    return rows


def _summary(material: Material, found: Sequence[Done]) -> Sheet:
    """How well distances tell the two kinds of images apart, by all three measures."""
    rows: list[list[Cell]] = []
    for item in _space(found[0].result).classes:
        for kind in KINDS:
            samples = [_sample(found, item.name, kind, measure) for measure in ("auroc", "gap")]
            numbers = gather.means(material, found, samples)
            rows.append([item.name, kind, item.positives, item.negatives, *numbers, gather.names_of(found)])
    notes = [
        "nearest: the shortest L2 distance of an image's descriptors; mean: their mean; cosine: the highest cosine.",
        "gap: mean of the images without the class minus mean of those with it; for the cosine the other way round.",
        "Positives and negatives are those of the first seed.",
    ]
    title = "How well the distance to a class vector tells images with the class from those without."
    return Sheet(f"{NAME}-summary", title, SUMMARY_HEADS, rows, notes)


def _sample(found: Sequence[Done], name: str, kind: str, measure: str) -> Sample | None:
    def value(result: Result) -> float | None:
        items = [item for item in _space(result).classes if item.name == name]
        return getattr(getattr(items[0], kind), measure) if items else None

    return gather.over_seeds(found, value)


def _space(result: Result) -> Space:
    return result.space or Space(())


def _closer(classes: Sequence[ClassDistances], kind: str) -> str:
    gaps = [gap for item in classes if not math.isnan(gap := getattr(item, kind).gap)]
    return f"{sum(gap > 0 for gap in gaps)} of {len(gaps)}"


def _caption(material: Material, found: Sequence[Done]) -> str:
    first, space = found[0], _space(found[0].result)
    closer, by_cosine = (_closer(space.classes, kind) for kind in (DRAWN, "cosine"))
    return (
        "Distance of an image's nearest descriptor to the vector of a class, for images that have the class (filled) "
        f"and that do not (dashed); each histogram is scaled to one. Drawn is seed {first.config.seed}, "
        f"{space.images:,} images without added noise; those that have the class lie closer on average in "
        f"{closer} classes, and by cosine, which ignores the length of a descriptor, in {by_cosine}. AUROC is that "
        "of closeness and the gap lies between the two means, both averaged over seeds; mean distances and "
        "cosines are in the summary beside it. " + gather.provenance(material, found, bars=False)
    )


ARTEFACT = Artefact(
    NAME,
    "figure",
    "fig:descriptor_score",
    "Distances between descriptors and class vectors, for images that have the class and that do not.",
    plan,
    make,
    usable=lambda record: record.result.space is not None,
)
