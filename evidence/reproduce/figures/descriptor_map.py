"""A flat map of the descriptors with the vectors of the classes among them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bomd.config import Config
from bomd.errors import InputError
from bomd.files import read_arrays, read_text
from bomd.reports.sheet import Cell
from evidence.reproduce.artefact import Artefact, Drawing, Material, Setting, Sheet
from evidence.reproduce.figures import gather
from evidence.reproduce.figures.gather import NO_NOISE
from evidence.reproduce.figures.style import BLUE, SMALLEST, VERMILION, readable, small_multiples

NAME = "descriptor-map"
KEPT = f"{NAME}.csv.xz"
HEADS = ("kind", "name", "descriptor", "x", "y", "classes", "run")
PALE = "#BDBDBD"
COMPONENTS = 30  # directions of most variance that t-SNE looks at: the rest is noise and time


@dataclass(frozen=True)
class Map:
    """Places in the plane.

    Attributes:
        rows: of descriptors and of classes, as in the sheet.
        run: that they come from.
    """

    rows: Sequence[Sequence[Cell]]
    run: str


def plan(setting: Setting) -> list[Config]:
    return gather.plan(Setting(setting.recipe, setting.seeds[:1], setting.overrides), ["bomd"], [NO_NOISE])


def make(material: Material) -> list[Sheet | Drawing]:
    from matplotlib.lines import Line2D

    made = _find(material)
    classes = [(str(row[1]), row[3], row[4]) for row in made.rows if row[0] == "class"]
    descriptors = [row for row in made.rows if row[0] == "descriptor"]
    places = np.array([row[3:5] for row in descriptors], dtype=np.float64)
    members = [str(row[5]).split("|") for row in descriptors]
    with small_multiples(len(classes), 1.02) as (figure, panels, spare):
        for axes, (name, *own) in zip(panels, classes, strict=True):
            has = np.array([name in names for names in members])
            # Thousands of dots in every panel are kept as pixels: as shapes they would fill megabytes.
            axes.plot(*places[~has].T, ".", color=PALE, ms=1.0, mew=0, rasterized=True)
            axes.plot(*places[has].T, "+", color=BLUE, ms=2.2, mew=0.4, rasterized=True)
            axes.plot(*np.array(own, dtype=np.float64), "X", color=VERMILION, mec="white", ms=7, mew=0.8)
            axes.set_title(readable(name), fontsize=SMALLEST)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[["top", "right"]].set_visible(True)
        handles = [
            Line2D([], [], ls="", marker="+", color=BLUE, ms=5, label="has the class"),
            Line2D([], [], ls="", marker=".", color=PALE, ms=5, label="has not"),
            Line2D([], [], ls="", marker="X", color=VERMILION, mec="white", ms=7, label="class vector"),
        ]
        spare.legend(handles=handles, loc="center", handlelength=1.0, borderpad=0)
    images = len({row[1] for row in descriptors})
    caption = (
        f"The descriptors of {images:,} training images in the plane: t-SNE of their {COMPONENTS} main directions, all "
        "scaled to length one as class vectors are. Every panel shows the same map, with the descriptors of the images "
        "that have one class (+) and the vector of that class. Only who lies near whom has a meaning. Data: recipe "
        f"{material.planned[0].name}, without added noise. Seed {material.planned[0].seed}. Run: bomd {made.run}."
    )
    title = f"Places of descriptors and class vectors in the plane; run {made.run}."
    return [Drawing(NAME, figure, caption, Sheet(NAME, title, HEADS, made.rows), packed=True)]


def _find(material: Material) -> Map:
    """The map of the run, or where its directory is not here that of an earlier figure."""
    config = material.planned[0]
    run = material.run(config)
    if run is not None and (run.directory / "space.npz").exists():
        return measured(run.directory / "space.npz", config.seed, run.directory.name)
    if material.kept is not None and (material.kept / KEPT).exists():
        return read_map(material.kept / KEPT)
    raise InputError(
        f"The run of recipe {material.setting.recipe} whose space.npz {NAME} is drawn from is not here; "
        f"do it with: {gather.command(NAME, material.setting)}"
    )


def measured(path: Path, seed: int, run: str) -> Map:
    """Lay the sample of a run out in the plane."""
    columns = read_arrays(path)
    values, vectors = columns["values"].astype(np.float64), columns["vectors"].astype(np.float64)
    names = [str(name) for name in columns["classes"]]
    count, bag, _ = values.shape
    places = flatten(np.concatenate([values.reshape(count * bag, -1), vectors]), seed)
    rows: list[list[Cell]] = []
    for row, own in enumerate(columns["labels"] >= 0.5):
        classes = "|".join(name for name, has in zip(names, own, strict=True) if has)
        for m in range(bag):
            rows.append(["descriptor", str(columns["ids"][row]), m, *_pair(places[row * bag + m]), classes, run])
    rows += [["class", name, None, *_pair(places[count * bag + c]), name, run] for c, name in enumerate(names)]
    return Map(rows, run)


def flatten(points: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """(N, 2) for (N, D): t-SNE on the directions of most variance; the same points and seed give the same map."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    unit = points / np.maximum(lengths, 1e-12)
    kept = PCA(min(COMPONENTS, *unit.shape), random_state=seed, svd_solver="full").fit_transform(unit)
    perplexity = min(30.0, (len(points) - 1) / 3)
    return np.asarray(TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(kept), dtype=np.float64)


def read_map(path: Path) -> Map:
    """The map of an earlier figure, from its numbers."""
    lines = list(csv.DictReader(read_text(path).splitlines()))
    if not lines or not set(HEADS) <= set(lines[0]):
        raise InputError(
            f"{path} does not hold a map: its columns must be {', '.join(HEADS)}. Delete it and run again."
        )
    rows: list[list[Cell]] = []
    for line in lines:
        m = int(line["descriptor"]) if line["descriptor"] else None
        rows.append([line["kind"], line["name"], m, float(line["x"]), float(line["y"]), line["classes"], line["run"]])
    return Map(rows, lines[0]["run"])


def _pair(place: NDArray[np.float64]) -> tuple[float, float]:
    return round(float(place[0]), 2), round(float(place[1]), 2)


ARTEFACT = Artefact(
    NAME,
    "figure",
    "fig:descriptor_tsne",
    "The descriptors of one run in the plane, with the class vectors among them.",
    plan,
    make,
    directories=True,
)
