"""Every method as a dot: one picture for each test set, sorted, with a panel for each level of noise."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bomd.experiments.grid import BASELINE, Grid
from bomd.measure.significance import Sample
from bomd.reports.sheet import markdown_table
from evidence.reproduce.figures.style import COLOURS, FAINT, GREY, INK, draw, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, ROW = 7.2, 0.165  # inches, as wide as the text of a page


def name_of(grid: Grid, test: str) -> str:
    """Of the file, without its ending."""
    return f"{grid.name}-{test}".replace(" ", "-")


def write(grid: Grid, folder: Path) -> list[Path]:
    """One SVG for each test set."""
    import matplotlib

    files = []
    for test in grid.judged:
        path = folder / f"{name_of(grid, test)}.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context({"svg.hashsalt": path.stem}):  # fixed ids: the same numbers give the same file
            _figure(grid, test).savefig(path, metadata={"Date": None})
        files.append(path)
    return files


def ordered(grid: Grid, test: str) -> list[str]:
    """Methods that have run, the best first by their mean over the levels of noise that most of them have."""
    means = {
        label: [sample.mean for noise in grid.noises if (sample := grid.score(label, noise, test))]
        for label in grid.methods
    }
    most = max((len(found) for found in means.values()), default=0)
    run = [label for label in means if means[label]]
    return sorted(run, key=lambda label: (len(means[label]) < most, -statistics.fmean(means[label])))


def _figure(grid: Grid, test: str) -> Figure:
    rows = ordered(grid, test)
    # The table has the other levels, too, as not run; a panel without a dot would say nothing.
    noises = [noise for noise in grid.noises if any(grid.score(label, noise, test) for label in rows)]
    with draw(0.75 + ROW * len(rows), WIDTH) as figure:
        panels = figure.subplots(1, len(noises), sharey=True, squeeze=False)[0]
        for axes, noise in zip(panels, noises, strict=True):
            _panel(axes, rows, [grid.score(label, noise, test) for label in rows])
            axes.set_title(noise if noise.startswith("no") else f"noise {noise}")
        panels[0].set_yticks(range(len(rows)), rows)
        panels[0].set_ylim(len(rows) - 0.5, -0.5)
        for label, method in zip(panels[0].get_yticklabels(), rows, strict=True):
            label.set_color(COLOURS.get(method, INK))
            label.set_fontweight("bold" if method in COLOURS else "normal")
        figure.supxlabel(f"mean AUC on {test}; the dashed line is plain training ({BASELINE})", fontsize=7.5)
    return figure


def _panel(axes: Axes, rows: Sequence[str], samples: Sequence[Sample | None]) -> None:
    """Dots with the standard deviation over seeds as bars."""
    from matplotlib.ticker import MaxNLocator

    for row, (method, sample) in enumerate(zip(rows, samples, strict=True)):
        if sample is None:
            continue
        colour = COLOURS.get(method, GREY)
        axes.errorbar([sample.mean], [row], xerr=[sample.std or 0.0], fmt="o", color=colour, elinewidth=0.9)
        if method == BASELINE:
            axes.axvline(sample.mean, color=colour, linestyle="--", linewidth=0.7, zorder=0)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.spines["left"].set_visible(False)
    tidy(axes, "x")
    axes.grid(axis="y", color=FAINT, linewidth=0.3)


def shown(grid: Grid, place: str) -> str:
    """The pictures as Markdown, each with its numbers folded below it.

    Args:
        place: The folder of the pictures on the site.
    """
    parts = []
    for test in grid.judged:
        rows = ordered(grid, test)
        body = [[label, *(_cell(grid.score(label, noise, test)) for noise in grid.noises)] for label in rows]
        parts += [
            f"### AUC on {test}",
            "",
            f"![Mean AUC on {test} of {len(rows)} methods, the best above]({place}/{name_of(grid, test)}.svg)",
            "",
            f'<details markdown="1"><summary>The numbers: mean and standard deviation of the AUC on {test}</summary>',
            "",
            markdown_table(["method", *grid.noises], body),
            "</details>",
            "",
        ]
    return "\n".join(parts)


def _cell(sample: Sample | None) -> str:
    if sample is None:
        return "not run"
    return f"{sample.mean:.3f}" + (f" ± {sample.std:.3f}" if sample.std is not None else "")
