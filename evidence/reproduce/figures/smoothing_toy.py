"""Three ways to smooth labels on two Gaussians of points, a fifth of which have the wrong label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bomd.clean.detect import detect, scores_of
from bomd.clean.relabel import relabel
from bomd.config import Config
from evidence.reproduce.artefact import Artefact, Drawing, Material, Setting, Sheet
from evidence.reproduce.figures.style import INK, SMALLEST, draw

NAME = "smoothing-toy"
POINTS = 80  # of each class
CENTRE = 1.5  # standard deviations from the border between the classes
WRONG = 0.2  # share of wrong labels in each class
LS, GLS = 0.6, -0.4  # the paper's shares of one half
NEIGHBOURS, GRAPH_WEIGHT, UNIFORM = 10, 0.6, 0.25
HEADS = ("x", "y", "true", "given", "ls", "gls", "bomd", "flagged")
TITLES = {"true": "true labels", "given": "given labels", "ls": "LS", "gls": "GLS", "bomd": "BoMD"}
COLOURS = "cividis"  # its lightness runs one way, so that it reads in grey


@dataclass(frozen=True)
class Toy:
    """Points with the label of the first class in five versions.

    Attributes:
        points: (N, 2)
        labels: by version, (N); what is 1 for the first class and 0 for the second.
        flagged: (N) points that BoMD takes for wrongly labelled.
    """

    points: NDArray[np.float64]
    labels: dict[str, NDArray[np.float64]]
    flagged: NDArray[np.bool_]


def toy(seed: int) -> Toy:
    """Draw two Gaussians, give a fifth of each the other label, and smooth.

    A point is its own only descriptor, and the class vectors are the directions of the two centres: what BoMD would
    learn if it learnt this space perfectly.
    """
    from bomd.clean.graph import nearest_images  # PyTorch with it, which a list of figures can do without

    draws = np.random.default_rng(seed)
    first = np.repeat([True, False], POINTS)
    points = draws.normal(size=(2 * POINTS, 2)) + np.where(first[:, None], [[-CENTRE, 0.0]], [[CENTRE, 0.0]])
    wrong = np.zeros(2 * POINTS, dtype=np.bool_)
    for members in (np.flatnonzero(first), np.flatnonzero(~first)):
        wrong[draws.choice(members, round(WRONG * POINTS), replace=False)] = True
    given = (first ^ wrong).astype(np.float64)
    both = np.stack([given, 1 - given], axis=1)  # a column for each class
    bags = points[:, None]
    flagged = detect(scores_of(bags, np.array([[-1.0, 0.0], [1.0, 0.0]])), both).noisy
    neighbours = nearest_images(bags, NEIGHBOURS, device="cpu")
    proposed = relabel(both, neighbours, flagged, graph_weight=GRAPH_WEIGHT, uniform=UNIFORM)
    labels = {"true": first.astype(np.float64), "given": given, "ls": smooth(given, LS), "gls": smooth(given, GLS)}
    return Toy(points, labels | {"bomd": proposed[:, 0]}, flagged)


def smooth(labels: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Label smoothing towards one half, or away from it if the share is negative."""
    return (1 - share) * labels + share / 2


def plan(setting: Setting) -> list[Config]:
    return []


def make(material: Material) -> list[Sheet | Drawing]:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.lines import Line2D

    seed = material.setting.seeds[0]
    made = toy(seed)
    first = made.labels["true"] == 1
    scale = Normalize(GLS / 2, 1 - GLS / 2)
    with draw(2.9) as figure:
        panels = figure.subplots(2, 3, sharex=True, sharey=True)
        order = [panels[0][0], panels[0][1], *panels[1]]
        for axes, (version, title) in zip(order, TITLES.items(), strict=True):
            values = made.labels[version]
            for members, marker, size in ((first, "o", 9), (~first, "^", 10)):
                axes.scatter(
                    *made.points[members].T,
                    c=values[members],
                    marker=marker,
                    s=size,
                    cmap=COLOURS,
                    norm=scale,
                    edgecolors=INK,
                    linewidths=0.25,
                )
            error = np.abs(values - made.labels["true"]).mean()
            axes.set_title(title)
            axes.set_xlabel(f"mean error {error:.2f}", fontsize=SMALLEST)
            axes.spines[["top", "right"]].set_visible(True)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_aspect("equal")
        panels[0][2].set_axis_off()
        kinds = [
            Line2D([], [], marker=marker, linestyle="", markerfacecolor="white", markeredgecolor=INK, label=label)
            for marker, label in (("o", "truly class 1"), ("^", "truly class 2"))
        ]
        panels[0][2].legend(handles=kinds, loc="center", handlelength=1.0)
        bar = figure.colorbar(ScalarMappable(scale, COLOURS), ax=panels, location="bottom", aspect=40, shrink=0.8)
        bar.set_label("label of class 1")
        bar.set_ticks([-0.2, 0, 0.2, 0.4, 0.6, 0.8, 1, 1.2])
        bar.ax.tick_params(labelsize=SMALLEST, length=2, pad=1)
        bar.outline.set_linewidth(0.4)
    columns = [*made.points.T, *(made.labels[version] for version in TITLES), made.flagged.astype(int)]
    rows = [[round(float(value), 4) for value in row] for row in zip(*columns, strict=True)]
    title = "Points of two Gaussians with the label of class 1: true, given, and smoothed in three ways."
    return [Drawing(NAME, figure, _caption(made, seed), Sheet(NAME, title, HEADS, rows))]


def _caption(made: Toy, seed: int) -> str:
    wrong = made.labels["given"] != made.labels["true"]
    return (
        f"Two Gaussians of {POINTS} points each, generated with seed {seed}; {wrong.mean():.0%} of the labels are "
        f"wrong. No run is behind this figure. Label smoothing (LS, r = {LS:g}) pulls every label towards one half, "
        f"generalised label smoothing (GLS, r = {GLS:g}) pushes it beyond 0 and 1, whether it is right or wrong. BoMD "
        f"changes the {made.flagged.sum()} points whose label contradicts their place, among them "
        f"{(made.flagged & wrong).sum()} of the {wrong.sum()} wrong ones, by the votes of their {NEIGHBOURS} nearest "
        f"points (lambda = {GRAPH_WEIGHT:g}, gamma = {UNIFORM:g}). A point is its own descriptor, and class vectors "
        "point to the two centres, so that the space itself is taken as learnt. The mean error is the mean distance of "
        "the label of class 1 from the true one."
    )


ARTEFACT = Artefact(
    NAME,
    "figure",
    "fig:tsne",
    "Label smoothing, generalised label smoothing and BoMD on two Gaussians of points; needs no run.",
    plan,
    make,
)
