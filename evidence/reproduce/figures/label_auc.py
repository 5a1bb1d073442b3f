"""How well labels rank the true positives, before and after BoMD's proposal."""

from __future__ import annotations

from collections.abc import Sequence

from bomd.config import Config
from bomd.measure.result import Labels, Result
from bomd.measure.significance import Sample
from bomd.reports.sheet import Cell
from evidence.reproduce.artefact import Artefact, Drawing, Material, Setting, Sheet
from evidence.reproduce.figures import gather
from evidence.reproduce.figures.gather import BY_IMPORTANCE, Done, Noise
from evidence.reproduce.figures.noise_axis import grid_axis, grid_series
from evidence.reproduce.figures.style import (
    BLUE,
    VERMILION,
    Look,
    class_axis,
    class_dots,
    draw,
    legend_above,
    letter,
    share_axis,
)

NAME = "label-auc"
MEASURES = ("before", "after", "before_changed", "after_changed")
HEADS = ("rows", "labels", "class", *MEASURES, "runs")
LOOKS = {
    "before": Look("given labels", VERMILION, "s", "--", filled=False),
    "after": Look("proposed by BoMD", BLUE, "o"),
}
SINGLE: Noise = (0.4, 0.2)  # the cell whose findings are shown one by one, as in the figure of histograms
MEAN = "mean over findings"
SHIFT = 0.05


def plan(setting: Setting) -> list[Config]:
    return gather.plan(setting, ["bomd"], BY_IMPORTANCE)


def make(material: Material) -> list[Sheet | Drawing]:
    from matplotlib.ticker import MaxNLocator

    found = gather.done(material, lambda result: result.labels)
    gather.need(found, material, NAME)
    by_noise = gather.by_noise(found)
    single = SINGLE if SINGLE in by_noise else next(iter(by_noise))
    names = _findings(by_noise[single])
    with draw(2.6 + 0.16 * len(names)) as figure:
        top, bottom = figure.subplots(2, 1, height_ratios=[1.5, 0.3 + 0.16 * len(names)])
        for (measure, look), shift in zip(LOOKS.items(), (-SHIFT, SHIFT), strict=True):
            grid_series(top, {noise: _sample(runs, MEAN, measure) for noise, runs in by_noise.items()}, look, shift)
        share_axis(top)
        grid_axis(top)
        letter(top, "a", f"label AUC, {MEAN}")
        columns = [
            (look, [_sample(by_noise[single], name, measure) for name in names]) for measure, look in LOOKS.items()
        ]
        class_dots(bottom, columns, apart=0.2)
        class_axis(bottom, names)
        bottom.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        bottom.set_xlabel("label AUC")
        letter(bottom, "b", f"each finding at {gather.show_noise(single)}")
        legend_above(figure, top, 2)
    rows = [_row(material, noise, runs, name) for noise, runs in by_noise.items() for name in (MEAN, *_findings(runs))]
    title = "AUC of the labels themselves against the clean ones, mean and sample standard deviation over seeds."
    notes = ["before_changed and after_changed are on images with a changed label only."]
    caption = (
        "How well labels rank the images that truly have a finding, before and after BoMD's proposal: the AUC of the "
        "labels against the clean ones. (a) Mean over findings in every cell of the noise grid. (b) Each finding at "
        f"(rows, labels) = {gather.show_noise(single)}. {gather.AXES} " + gather.provenance(material, found)
    )
    return [Drawing(NAME, figure, caption, Sheet(NAME, title, HEADS, rows, notes))]


def _findings(runs: Sequence[Done]) -> list[str]:
    return list(dict.fromkeys(item.name for one in runs if one.result.labels for item in one.result.labels.classes))


def _sample(runs: Sequence[Done], name: str, measure: str) -> Sample | None:
    """A measure over seeds, of one finding or of the mean over all."""

    def value(result: Result) -> float | None:
        labels = result.labels or Labels()
        items = [labels] if name == MEAN else [item for item in labels.classes if item.name == name]
        return getattr(items[0], measure) if items else None

    return gather.over_seeds(runs, value)


def _row(material: Material, noise: Noise, runs: Sequence[Done], name: str) -> list[Cell]:
    numbers = gather.means(material, runs, [_sample(runs, name, measure) for measure in MEASURES])
    return [*noise, name, *numbers, gather.names_of(runs)]


ARTEFACT = Artefact(
    NAME,
    "figure",
    "fig:relabel_auc",
    "AUC of the labels themselves before and after BoMD's proposal, over the noise grid and for each finding.",
    plan,
    make,
)
