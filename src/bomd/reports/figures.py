"""Figures of the report as inline SVG that takes its text colour from the page and needs no other file."""

from __future__ import annotations

import base64
import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from bomd.measure.significance import Sample

if TYPE_CHECKING:  # it takes a second to load, and a page may turn out to have nothing to draw
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which the colour-blind can tell apart; yellow and black vanish on one background
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# The methods that pages speak of most look the same in every figure: their places in the palette
OWN = {"bomd": 0, "bce": 1, "bomd-plus": 2, "nvum": 3}
MARKERS = (("o", "●"), ("s", "■"), ("^", "▲"), ("D", "◆"), ("v", "▼"))  # for matplotlib, and for a legend
WIDTH = 4.4  # inches at 96 px: the width of a phone, so that text is never scaled down much
INK, FAINT = "#010203", "#040506"  # stand-ins that become colours of the page
FOUND_LINES: dict[str, dict[str, Any]] = {  # orders in which images are looked at
    "perfect": {"sign": "⋯", "color": INK, "ls": (0, (1, 2)), "lw": 1.2},
    "at random": {"sign": "╌", "color": INK, "ls": (0, (5, 3)), "lw": 1},
    "counting labels": {"sign": "━", "color": PALETTE[4], "lw": 3.4},  # so wide that it is seen below ours
    "ours": {"sign": "━", "color": PALETTE[OWN["bomd-plus"]], "lw": 1.6},
}
STYLE = {
    "svg.fonttype": "none",  # text stays text: small, searchable, in the reader's own font
    "text.parse_math": False,  # a dollar sign in a class name is a dollar sign
    "font.size": 8.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
}


@dataclass(frozen=True)
class Look:
    """How a method is drawn in every figure."""

    label: str
    colour: str
    marker: str
    glyph: str


@dataclass(frozen=True)
class Dots:
    """A number per class or kind of noise, with an interval where there is one; None leaves a gap."""

    look: Look
    samples: Sequence[Sample | None]

    def numbers(self) -> NDArray[np.float64]:
        """(3, N) means, lower and upper ends; what is unknown is NaN, which matplotlib leaves out."""
        return np.asarray([(one and one.mean, *ends(one)) for one in self.samples], dtype=np.float64).T


def looks(labels: Sequence[str]) -> list[Look]:
    """A colour and a marker for each label; together they repeat only after 30. Well-known methods have their own."""
    taken = {OWN[label] for label in labels if label in OWN}
    free = (place for place in itertools.count() if place not in taken)
    places = [OWN[label] if label in OWN else next(free) for label in labels]
    return [
        Look(label, PALETTE[i % len(PALETTE)], *MARKERS[(i + i // len(PALETTE)) % len(MARKERS)])
        for label, i in zip(labels, places, strict=True)
    ]


def dot_plot(classes: Sequence[str], series: Sequence[Dots], axis: str, name: str) -> Markup:
    """Classes from top to bottom, one dot per method beside each other, with intervals as lines."""
    step = 0.8 / max(len(series), 1)
    height = 0.6 + len(classes) * max(0.2, 0.06 + 0.11 * len(series))
    with _axes(name, height, axis, names=classes) as axes:
        for place, dots in enumerate(series):
            rows = np.arange(len(classes)) + (place - (len(series) - 1) / 2) * step
            values, lows, highs = dots.numbers()
            axes.hlines(rows, lows, highs, color=dots.look.colour, lw=1.4, alpha=0.7)
            axes.plot(values, rows, dots.look.marker, color=dots.look.colour, ms=4.5)
        if axes.get_xlim()[0] < 0.5:
            axes.axvline(0.5, color=INK, lw=0.8, ls=(0, (2, 3)))
        return _svg(axes, f"{axis}, by class")


def noise_plot(
    panel: Mapping[str, Any], series: Sequence[Dots], faint: Sequence[Dots], limits: Sequence[float], up: str, name: str
) -> Markup:
    """A line per method over kinds of noise with its spread as bars, and thin lines for the methods not named."""
    across, places, ticks = panel["axis"], panel["places"], panel["ticks"]
    width = (max(places) - min(places)) or 1.0
    crowded = len(ticks) > 5 and max(map(len, ticks)) > 4
    with _axes(name, 3.0 if crowded else 2.6, across, up, below=0.9 if crowded else 0.46) as axes:
        for dots in faint:
            axes.plot(places, dots.numbers()[0], color=FAINT, lw=1)
        for place, dots in enumerate(series):
            beside = np.asarray(places) + (place - (len(series) - 1) / 2) * 0.012 * width
            values, lows, highs = dots.numbers()
            axes.vlines(beside, lows, highs, color=dots.look.colour, lw=1.4, alpha=0.7)
            axes.plot(beside, values, color=dots.look.colour, lw=1.3, marker=dots.look.marker, ms=4.5)
        axes.set_xticks(places, ticks, rotation=35 if crowded else 0, ha="right" if crowded else "center")
        axes.set_ylim(*limits)
        return _svg(axes, f"{up} over {across}, a line per method")


def change_plot(
    classes: Sequence[str], before: Sequence[float | None], after: Sequence[float | None], axis: str, name: str
) -> Markup:
    """An open dot for before, a filled one for after, joined by a line."""
    with _axes(name, 0.6 + 0.2 * len(classes), axis, names=classes) as axes:
        starts, ends, rows = _numbers(before), _numbers(after), np.arange(len(classes))
        for kind, colour in ((ends >= starts, PALETTE[0]), (ends < starts, PALETTE[1])):
            axes.hlines(rows[kind], starts[kind], ends[kind], color=colour, lw=1.4, alpha=0.7)
            axes.plot(ends[kind], rows[kind], "o", color=colour, ms=5)
            axes.plot(starts[kind], rows[kind], "o", mfc="none", mec=colour, ms=5)
        return _svg(axes, f"{axis} before and after, by class")


def bars(classes: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], axis: str, name: str) -> Markup:
    """Horizontal bars, one per series (colour, values) beside each other."""
    height = 0.8 / len(series)
    with _axes(name, 0.6 + len(classes) * (0.1 + 0.09 * len(series)), axis, names=classes) as axes:
        for place, (colour, values) in enumerate(series):
            offset = (place - (len(series) - 1) / 2) * height
            axes.barh(np.arange(len(classes)) + offset, values, height=height * 0.92, color=colour)
        return _svg(axes, f"{axis}, by class")


def score_bars(rows: Sequence[tuple[str, str, Sequence[tuple[Sample, bool]]]], title: str, name: str) -> Markup:
    """Mean AUC as bars from chance, 0.5: rows of a name, a colour and numbers, which are pale if of this run."""
    known = [end for *_, parts in rows for part, _ in parts for end in (part.mean, *ends(part)) if end is not None]
    start, stop = min([0.5, *known]), max([0.6, *known])
    with _axes(name, 0.6 + 0.5 * len(rows), "mean AUC", names=[row[0] for row in rows]) as axes:
        for row, (_, colour, parts) in enumerate(rows):
            for place, (part, pale) in enumerate(parts):
                at = row + (place - (len(parts) - 1) / 2) * 0.4
                low, high = ends(part)
                axes.barh(at, part.mean - start, 0.36, start, color=colour, alpha=0.45 if pale else 1)
                axes.hlines(at, *_numbers([low, high]), color=INK, lw=1.2)
                axes.annotate(f"{part.mean:.3f}", (high or part.mean, at), (4, 0), "data", "offset points", va="center")
        axes.set_xlim(start, stop + 0.16 * (stop - start))
        said = [[f"{part.mean:.3f}{' in this run' * pale}" for part, pale in parts] for *_, parts in rows]
        told = [f"{row[0]}: {', '.join(numbers)}" for row, numbers in zip(rows, said, strict=True)]
        return _svg(axes, title, "; ".join(told) + ".")


def ends(value: Sample | None) -> tuple[float | None, float | None]:
    """The interval to draw: of a single run its own, else one standard deviation over seeds."""
    if value is None:
        return None, None
    return (value.low, value.high) if value.std is None else (value.mean - value.std, value.mean + value.std)


def found_plot(lines: Mapping[str, Sequence[float]], looked: Sequence[float], title: str, name: str) -> Markup:
    """A line for each order in which images are looked at: how many wrong ones were found after so many."""
    with _axes(name, 2.6, "images looked at", "wrong ones found") as axes:
        for order, drawn in FOUND_LINES.items():
            axes.plot(looked, lines[order], **{key: value for key, value in drawn.items() if key != "sign"})
        axes.set_xlim(0, looked[-1])
        axes.set_ylim(0, None)
        axes.locator_params("x", nbins=6)
        half = len(looked) // 2
        said = [f"{order} {lines[order][half]:,.0f}" for order in FOUND_LINES]
        return _svg(axes, title, f"Found among the first {looked[half]:,.0f}: {', '.join(said)}.")


def histogram(changed: NDArray[np.float32], unchanged: NDArray[np.float32], border: float | None, name: str) -> Markup:
    """Margins of images whose labels were and were not changed, each as shares of its own kind."""
    both = np.concatenate([changed, unchanged])
    low, high = np.percentile(both, [0.5, 99.5]) if len(both) else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, 41)
    with _axes(name, 2.4, "margin (lower is more suspect)", "share of images") as axes:
        for values, colour in ((unchanged, PALETTE[0]), (changed, PALETTE[1])):
            if len(values):
                counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
                axes.stairs(counts / len(values), edges, color=colour, lw=1.5)
                axes.stairs(counts / len(values), edges, color=colour, fill=True, alpha=0.25)
        if border is not None:
            axes.axvline(border, color=INK, lw=0.8, ls=(0, (2, 3)))
            place = ("data", "axes fraction")
            axes.annotate("flagged ◂", (border, 1), (-3, 0), place, "offset points", ha="right", va="top")
        axes.locator_params("x", nbins=6)
        return _svg(axes, "Histogram of margins, truly changed and unchanged labels")


def curves(lines: Sequence[tuple[Look, Sequence[int], Sequence[float]]], axis: str, name: str) -> Markup:
    """A line per run over epochs."""
    with _axes(name, 2.2, "epoch", axis) as axes:
        for look, epochs, values in lines:
            axes.plot(epochs, values, color=look.colour, lw=1.4, marker=look.marker, ms=3, alpha=0.85)
        axes.locator_params("x", integer=True)
        return _svg(axes, f"{axis} over epochs")


def thumbnail(pixels: NDArray[np.uint8]) -> str:
    """(H, W) or (H, W, 3) pixels as a JPEG inside a data URI."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


def _numbers(values: Sequence[Any]) -> NDArray[np.float64]:
    """None becomes NaN, which matplotlib leaves out."""
    return np.asarray(values, dtype=np.float64)


@contextmanager
def _axes(
    salt: str, height: float, across: str, up: str = "", names: Sequence[str] = (), below: float = 0.46
) -> Iterator[Axes]:
    """A figure with one pair of axes, placed by hand: measuring every text would take longer than all the rest.

    `salt` makes the ids in it, `names` of classes are left of the axes, and `below` are inches for what is below them.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    short = [name if len(name) <= 24 else name[:23] + "…" for name in names]
    left = 0.12 + 0.074 * max(map(len, short), default=6)
    box = (left / WIDTH, below / height, (WIDTH - left - 0.16) / WIDTH, (height - below - 0.1) / height)
    with rc_context({**STYLE, "svg.hashsalt": salt}):
        axes = Figure(figsize=(WIDTH, height)).add_axes(box)
        axes.tick_params(length=0)
        axes.set(xlabel=across, ylabel=up)
        axes.grid(axis="x" if names else "y", lw=0.5)
        if names:
            axes.set_yticks(range(len(names)), short)
            axes.set_ylim(len(names) - 0.4, -0.6)
            rows = axes.get_yaxis_transform()  # places by fractions of the width and by rows
            axes.barh(range(0, len(names), 2), 1, 1, color=FAINT, alpha=0.25, lw=0, zorder=0, transform=rows)
        yield axes


def _svg(axes: Any, title: str, description: str = "") -> Markup:
    """The drawing as one `<svg>` element with the page's colours and font; the words are for those who cannot see."""
    stream = io.StringIO()
    axes.figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    drawing = stream.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    opening = re.match(r'<svg[^>]*viewBox="([^"]+)"[^>]*>', drawing)
    assert opening is not None
    body = drawing[opening.end() :]
    body = re.sub(r'<g id="[^"]*"', "<g", body)  # names such as axes_1 would repeat in every figure
    body = body.replace("xlink:href=", "href=").replace(f": {INK}", ": currentColor")
    body = body.replace(f": {FAINT}", ": var(--line)")
    body = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", body)
    # Coordinates to a hundredth of a point, which is finer than any screen and halves the file.
    body = re.sub(r' (d|x|y|transform)="[^"]*"', lambda found: re.sub(r"(\d\.\d\d)\d+", r"\1", found[0]), body)
    width = float(opening.group(1).split()[2]) * 4 / 3
    head = Markup('<svg viewBox="{}" role="img" style="max-width: {}px"><title>{}</title>').format(
        opening.group(1), round(width), title
    )
    head += Markup("<desc>{}</desc>").format(description) if description else ""
    return head + Markup(re.sub(r">\s+<", "><", body))  # noqa: S704 - matplotlib escaped every text in it
