"""What noise costs: mean AUC of BCE, NVUM and BoMD as more labels are wrong."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from bomd.config import Config
from bomd.measure.result import VALIDATION
from bomd.measure.significance import Sample
from bomd.reports.sheet import Cell
from evidence.reproduce.artefact import Artefact, Drawing, Material, Setting, Sheet
from evidence.reproduce.figures import gather
from evidence.reproduce.figures.gather import BY_IMPORTANCE, LEVELS, NO_NOISE, NOISES, Done, Noise
from evidence.reproduce.figures.style import COLOURS, Look, draw, legend_above, series, share_axis

NAME = "noise-curves"
LOOKS = {
    "bce": Look("BCE", COLOURS["bce"], "s", "--"),
    "bomd": Look("BoMD", COLOURS["bomd"], "o"),
    "nvum": Look("NVUM", COLOURS["nvum"], "D", "-."),
}
HEADS = ("test", "method", "rows", "labels", "mean_auc", "findings", "runs")
SHIFT = 0.008  # between methods, so that their bars do not hide one another


def plan(setting: Setting) -> list[Config]:
    return gather.plan(setting, list(LOOKS), [NO_NOISE, *BY_IMPORTANCE])


def make(material: Material) -> list[Sheet | Drawing]:
    found = gather.done(material, lambda result: result.tests)
    gather.need(found, material, NAME)
    tests = list(dict.fromkeys(name for one in found for name in one.config.test)) or [VALIDATION]
    levels = (0.0, *LEVELS)
    with draw(0.65 + 1.35 * len(tests)) as figure:
        panels = figure.subplots(len(tests), len(LEVELS), sharex=True, sharey="row", squeeze=False)
        for row, test in zip(panels, tests, strict=True):
            for axes, share in zip(row, LEVELS, strict=True):
                for place, (method, look) in enumerate(LOOKS.items()):
                    noises = [(share, level) if level else NO_NOISE for level in levels]
                    samples = [_sample(_some(found, test, method, noise), test) for noise in noises]
                    if any(samples):
                        series(axes, [level + SHIFT * (place - 1) for level in levels], samples, look)
                axes.set_xlim(-0.06, LEVELS[-1] + 0.06)  # room for the first label and the last bar
                axes.set_xticks(levels, [f"{level:g}" for level in levels])
                if test == tests[0]:
                    axes.set_title(f"rows = {share:g}")
            for axes in row:
                share_axis(axes, f"mean AUC, {test}" if axes is row[0] else "")
        figure.supxlabel("labels: chance that a label flips", fontsize=7.5)
        legend_above(figure, panels[0][0], len(LOOKS), panels.ravel())
    rows: list[list[Cell]] = []
    for test, method, noise in itertools.product(tests, LOOKS, (NO_NOISE, *NOISES)):
        if some := _some(found, test, method, noise):
            findings = len(some[0].result.tests[test].averaged)
            mean = gather.means(material, some, [_sample(some, test)])
            rows.append([test, method, *noise, *mean, findings, gather.names_of(some)])
    title = "Mean AUC over the noise grid, mean and sample standard deviation over seeds."
    caption = (
        f"Mean AUC over findings ({_averaged(found, tests)}) against the chance that a label flips; the panels "
        "differ in the share of training images with noise. At 0 no noise was added, which is the same run in all "
        "panels. " + gather.provenance(material, found)
    )
    return [Drawing(NAME, figure, caption, Sheet(NAME, title, HEADS, rows))]


def _averaged(found: Sequence[Done], tests: Sequence[str]) -> str:
    """How many findings the mean is over, on each test set."""
    counts = {
        test: {len(one.result.tests[test].averaged) for one in found if test in one.result.tests} for test in tests
    }
    return "; ".join(f"{gather.between(sorted(numbers))} on {test}" for test, numbers in counts.items() if numbers)


def _some(found: Sequence[Done], test: str, method: str, noise: Noise) -> list[Done]:
    """Runs that have a mean AUC on the test set."""
    own = [one for one in found if one.config.method == method and one.noise == noise]
    return [one for one in own if one.result.auc(test) is not None]


def _sample(runs: Sequence[Done], test: str) -> Sample | None:
    return gather.over_seeds(runs, lambda result: result.auc(test))


ARTEFACT = Artefact(
    NAME,
    "figure",
    "tab:noise_auc",
    "Mean AUC of BCE, NVUM and BoMD against the noise level, as curves.",
    plan,
    make,
)
