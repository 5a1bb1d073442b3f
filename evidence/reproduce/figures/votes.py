"""What the votes of an image's neighbours are worth, for every number of votes asked for."""

from __future__ import annotations

from collections.abc import Sequence

from bomd.config import Config
from bomd.measure.result import Result
from bomd.measure.significance import Sample
from bomd.reports.sheet import Cell
from evidence.reproduce.artefact import Artefact, Drawing, Material, Setting, Sheet
from evidence.reproduce.figures import gather
from evidence.reproduce.figures.gather import LEVELS, Done, Noise
from evidence.reproduce.figures.style import (
    BLUE,
    GREEN,
    VERMILION,
    Look,
    draw,
    legend_above,
    letter,
    series,
    share_axis,
)

NAME = "votes"
NOISES: tuple[Noise, ...] = tuple((rows, 0.2) for rows in LEVELS)
TASKS = ("positive", "entry")
MEASURES = ("precision", "recall")
LOOKS = {
    NOISES[0]: Look("rows = 0.2", BLUE, "o"),
    NOISES[1]: Look("rows = 0.4", VERMILION, "s", "--"),
    NOISES[2]: Look("rows = 0.6", GREEN, "^", "-."),
}
HEADS = ("task", "mean", "rows", "labels", "votes", *MEASURES, "runs")


def plan(setting: Setting) -> list[Config]:
    return gather.plan(setting, ["bomd"], NOISES)


def make(material: Material) -> list[Sheet | Drawing]:
    from matplotlib.ticker import MaxNLocator

    found = gather.done(material, lambda result: result.votes)
    gather.need(found, material, NAME)
    by_noise = gather.by_noise(found, NOISES)
    most = min(one.result.votes.neighbours for one in found if one.result.votes)
    steps = range(1, most + 1)
    with draw(3.3) as figure:
        panels = figure.subplots(2, 2, sharex=True, sharey="row")
        for row, measure in zip(panels, MEASURES, strict=True):
            for panel, task in zip(row, TASKS, strict=True):
                for noise, runs in by_noise.items():
                    series(panel, steps, [_drawn(runs, step, task, measure) for step in steps], LOOKS[noise])
                share_axis(panel, measure if task == TASKS[0] else "", whole=True)
                panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        letter(panels[0][0], "a", "findings set by votes")
        letter(panels[0][1], "b", "labels found wrong")
        figure.supxlabel(f"votes asked for, of {most} neighbours", fontsize=7.5)
        legend_above(figure, panels[0][0], 3)
    rows = [
        _row(material, task, mean, runs, step)
        for task in TASKS
        for mean in ("micro", "macro")
        for runs in by_noise.values()
        for step in steps
    ]
    title = "Precision and recall of the neighbours' votes by the number of votes asked for, over findings."
    return [Drawing(NAME, figure, _caption(material, found, most), Sheet(NAME, title, HEADS, rows))]


def _sample(runs: Sequence[Done], step: int, task: str, mean: str, measure: str) -> Sample | None:
    def value(result: Result) -> float | None:
        lines = [line for line in result.votes.thresholds if line.threshold == step] if result.votes else []
        return getattr(getattr(getattr(lines[0], task), mean), measure) if lines else None

    return gather.over_seeds(runs, value)


def _drawn(runs: Sequence[Done], step: int, task: str, measure: str) -> Sample | None:
    """Only what every run has: the few labels that reach many votes in one run alone would pass for a mean."""
    sample = _sample(runs, step, task, "micro", measure)
    return sample if sample is not None and sample.count == len(runs) else None


def _row(material: Material, task: str, mean: str, runs: Sequence[Done], step: int) -> list[Cell]:
    numbers = gather.means(material, runs, [_sample(runs, step, task, mean, measure) for measure in MEASURES])
    return [task, mean, *runs[0].noise, step, *numbers, gather.names_of(runs)]


def _caption(material: Material, found: Sequence[Done], most: int) -> str:
    judged = gather.between([one.result.votes.images for one in found if one.result.votes])
    return (
        f"What the votes of an image's {most} neighbours are worth at labels = 0.2: a finding is set if at least so "
        "many neighbours have it as a given label. (a) Findings so set against the clean ones. (b) Given labels that "
        "differ from the label so set are taken for wrong, and compared with those that are. All labels count alike "
        "(micro); means over findings (macro) are among the numbers. No point is drawn where nothing is set or "
        "flagged in some run; before that, few labels are behind a precision. Judged on "
        f"{judged} images. " + gather.provenance(material, found)
    )


ARTEFACT = Artefact(
    NAME,
    "figure",
    "fig:knn_acc",
    "Precision and recall of the neighbours' votes against the number of votes asked for.",
    plan,
    make,
    usable=lambda record: record.result.votes is not None,
)
