"""How many labels of each class there are: truly, as given with noise, and as proposed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from bomd.config import Config
from bomd.measure.quality import histogram_distance
from bomd.measure.result import LabelSums, Result
from bomd.measure.significance import Sample
from bomd.reports.sheet import Cell, Mean
from evidence.reproduce.artefact import Artefact, Drawing, Material, Setting, Sheet
from evidence.reproduce.figures import gather
from evidence.reproduce.figures.gather import Done, Noise
from evidence.reproduce.figures.style import BLUE, INK, VERMILION, Look, class_axis, class_dots, draw, legend_above

NAME = "label-histogram"
NOISE: Noise = (0.4, 0.2)
COLUMNS = ("clean", "given", "proposed", "proposed_hard")
HEADS = ("class", *COLUMNS, "runs")
LOOKS = {
    "given": Look("given, with noise", VERMILION, "s"),
    "proposed": Look("proposed by BoMD", BLUE, "^"),
    "clean": Look("clean", INK, "|", size=8),
}


def plan(setting: Setting) -> list[Config]:
    return gather.plan(setting, ["bomd"], [NOISE])


def make(material: Material) -> list[Sheet | Drawing]:
    found = gather.done(material, _histograms)
    gather.need(found, material, NAME)
    names = [item.name for item in _histograms(found[0].result)]
    samples = {column: [_sample(found, name, column) for name in names] for column in COLUMNS}
    with draw(0.75 + 0.19 * len(names)) as figure:
        axes = figure.subplots()
        class_dots(axes, [(look, samples[column]) for column, look in LOOKS.items()])
        # A class that nobody has still gets its place.
        empty = any(sample is not None and sample.mean <= 0 for column in LOOKS for sample in samples[column])
        axes.set_xscale("symlog" if empty else "log", **({"linthresh": 1} if empty else {}))
        class_axis(axes, names)
        axes.set_xlabel("labels, summed over images (logarithmic)")
        legend_above(figure, axes, 3)
    rows: list[list[Cell]] = [
        [
            name,
            *gather.means(material, found, [samples[column][row] for column in COLUMNS], digits=1),
            gather.names_of(found),
        ]
        for row, name in enumerate(names)
    ]
    title = f"Labels of each class at (rows, labels) = {gather.show_noise(NOISE)}: sums over images, mean over seeds."
    distances = _distances(found)
    caption = (
        f"Labels of each class at (rows, labels) = {gather.show_noise(NOISE)}: the clean ones, the given ones with "
        f"noise, and those that BoMD proposes, which are soft and are summed. {distances} "
        + gather.provenance(material, found)
    )
    return [Drawing(NAME, figure, caption, Sheet(NAME, title, HEADS, rows, [distances]))]


def distance(result: Result, column: str) -> float:
    """How far the labels of a column are distributed from the clean ones: 0 if equal, 1 if disjoint."""
    clean, others = (np.array([getattr(item, which) for item in _histograms(result)]) for which in ("clean", column))
    return histogram_distance(clean, others)


def _histograms(result: Result) -> Sequence[LabelSums]:
    return (result.labels and result.labels.histograms) or ()


def _sample(found: Sequence[Done], name: str, column: str) -> Sample | None:
    """Over the seeds in which the class occurs."""

    def total(result: Result) -> float | None:
        return next((getattr(item, column) for item in _histograms(result) if item.name == name), None)

    return gather.over_seeds(found, total)


def _distances(found: Sequence[Done]) -> str:
    """Before and after, in words."""
    given, proposed, hard = (
        str(Mean(gather.over_seeds(found, partial(distance, column=column)), len(found), len(found)))
        for column in ("given", "proposed", "proposed_hard")
    )
    return (
        f"Half the total difference from the clean shares is {given} before and {proposed} after "
        f"({hard} if proposed labels of at least 0.5 are counted as whole ones)."
    )


ARTEFACT = Artefact(
    NAME,
    "figure",
    "fig:label_dist_shift",
    "Labels of each class: clean, given with noise, and proposed by BoMD.",
    plan,
    make,
    usable=lambda record: bool(_histograms(record.result)),
)
