"""The common look of the paper's figures: one column wide, for print, for grey and for the colour-blind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bomd.measure.significance import Sample
from bomd.reports.figures import OWN, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 3.3  # inches: one column of a paper with two, so that nothing is scaled down in print
SMALLEST = 7.0  # points
BLUE, VERMILION, GREEN, PINK, ORANGE, SKY = PALETTE
GREY, FAINT, INK = "#767676", "#D9D9D9", "#222222"
COLOURS = {method: PALETTE[place] for method, place in OWN.items()} | {"small-loss": ORANGE, "co-teaching": SKY}
ROOM = 0.03  # for half a marker beyond 0 and 1

STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine draws the same
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.titlepad": 3.0,
    "axes.labelsize": 7.5,
    "axes.labelpad": 2.0,
    "xtick.labelsize": SMALLEST,
    "ytick.labelsize": SMALLEST,
    "legend.fontsize": SMALLEST,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "legend.columnspacing": 1.2,
    "legend.labelspacing": 0.3,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.6,
    "lines.markeredgewidth": 0.8,
    "errorbar.capsize": 1.5,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
    "figure.constrained_layout.hspace": 0.02,
    "figure.constrained_layout.wspace": 0.02,
}


@dataclass(frozen=True)
class Look:
    """How a series is drawn: a colour, and a marker and a line that tell it apart without colour."""

    label: str
    colour: str
    marker: str
    line: str = "-"
    filled: bool = True
    size: float = 3.6


@contextmanager
def draw(height: float, width: float = WIDTH) -> Iterator[Figure]:
    """A figure with the common look, one column wide unless said otherwise; it is laid out once when the block ends.

    Args:
        height: inches.
        width: inches.
    """
    from matplotlib.figure import Figure
    from matplotlib.style import context

    with context(STYLE, after_reset=True):  # a user's own settings of matplotlib must not change a figure
        figure = Figure(figsize=(width, height), layout="constrained", dpi=300, facecolor="white")
        yield figure
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # else every file that is saved would be laid out a little differently


def tidy(axes: Axes, along: Literal["x", "y"] = "y") -> None:
    """Faint lines to read values by, no ticks, and few labels."""
    axes.grid(axis=along)
    # Written out, since ticks that are made later, when the file is saved, would take their size from elsewhere.
    axes.tick_params(length=0, pad=2, labelsize=SMALLEST, labelcolor=INK, grid_color=FAINT, grid_linewidth=0.5)


def series(axes: Axes, places: Sequence[float], samples: Sequence[Sample | None], look: Look) -> None:
    """A line through means with the standard deviation as bars; a gap where there is nothing."""
    means = [np.nan if sample is None else sample.mean for sample in samples]
    bars = [0.0 if sample is None else sample.std or 0.0 for sample in samples]
    axes.errorbar(
        places,
        means,
        yerr=bars if any(bars) else None,
        color=look.colour,
        marker=look.marker,
        linestyle=look.line,
        markerfacecolor=look.colour if look.filled else "white",
        elinewidth=0.8,
        label=look.label,
    )


def share_axis(axes: Axes, label: str = "", whole: bool = False) -> None:
    """A vertical axis for a share or an AUROC, which cannot leave 0 to 1.

    Args:
        whole: From 0 to 1 whatever is drawn.
    """
    bottom, top = (0.0, 1.0) if whole else axes.get_ylim()
    axes.set_ylim(max(bottom, 0.0) - ROOM * (bottom <= 0), min(top, 1.0) + ROOM * (top >= 1))
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.set_ylabel(label)
    tidy(axes)


def class_axis(axes: Axes, names: Sequence[str]) -> None:
    """Classes from top to bottom."""
    axes.set_yticks(range(len(names)), [readable(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.spines["left"].set_visible(False)
    tidy(axes, "x")
    axes.grid(axis="y", color=FAINT, linewidth=0.3)


def class_dots(axes: Axes, columns: Sequence[tuple[Look, Sequence[Sample | None]]], apart: float = 0.0) -> None:
    """Dots for each class on a line, from top to bottom; a band joins those of a class.

    Args:
        apart: Between the rows of dots, so that long bars do not hide one another.
    """
    for row, together in enumerate(zip(*(samples for _, samples in columns), strict=True)):
        known = [sample.mean for sample in together if sample is not None]
        if known:
            axes.plot([min(known), max(known)], [row, row], color=FAINT, linewidth=2.2, solid_capstyle="butt", zorder=1)
    for place, (look, samples) in enumerate(columns):
        shift = apart * (place - (len(columns) - 1) / 2)
        rows = [row + shift for row, sample in enumerate(samples) if sample is not None]
        some = [sample for sample in samples if sample is not None]
        axes.errorbar(
            [sample.mean for sample in some],
            rows,
            xerr=[sample.std or 0.0 for sample in some],
            fmt=look.marker,
            color=look.colour,
            markerfacecolor=look.colour if look.filled else "white",
            markersize=look.size,
            elinewidth=0.8,
            label=look.label,
        )


def readable(name: str) -> str:
    """A class name as people write it; a dollar sign must not start a formula."""
    return name.replace("_", " ").replace("$", r"\$")


def letter(axes: Axes, mark: str, title: str) -> None:
    """A title such as "(a) precision" above the left edge."""
    axes.set_title(f"({mark}) {title}", loc="left")


def legend_above(figure: Figure, axes: Axes, columns: int, more: Iterable[Axes] = ()) -> None:
    """One legend over all panels, with every series once."""
    handles: dict[str, Any] = {}
    for panel in (axes, *more):
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=columns)


@contextmanager
def small_multiples(count: int, height: float) -> Iterator[tuple[Figure, list[Axes], Axes]]:
    """A panel for each class, three in a row and on the same axes, and an empty one for the legend.

    Args:
        height: of a row, in inches.
    """
    lines = count // 3 + 1
    with draw(0.25 + height * lines) as figure:
        panels = list(figure.subplots(lines, 3, sharex=True).flat)
        for empty in panels[count:]:
            empty.set_axis_off()
        for lowest in panels[max(0, count - 3) : count]:
            lowest.tick_params(labelbottom=True)  # the panel below may be empty
        yield figure, panels[:count], panels[-1]
