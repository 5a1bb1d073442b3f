"""Draw docs/images/how/*.svg from the numbers of one run of BoMD on phantoms; see how_it_works.py."""

from __future__ import annotations

import base64
import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray
from PIL import Image

from bomd.data.datasets import phantom
from bomd.files import write_text
from bomd.reports.figures import PALETTE

Numbers = Mapping[str, Any]

BLUE, ORANGE, GREEN = PALETTE[:3]  # told apart by the colour-blind
GREY = "#9aa0a6"
STYLE = {
    "svg.fonttype": "none",  # text stays text, in the reader's own font
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
}
LARGE, SMALL = 112, 72  # pixels of a phantom that stands alone, and of one in a row


def draw_all(numbers: Numbers, folder: Path) -> None:
    for name, draw in FIGURES.items():
        with rc_context({**STYLE, "svg.hashsalt": name}):
            save(draw(numbers), folder / f"{name}.svg")


def label_space(numbers: Numbers) -> Figure:
    """How alike the class names are, as cosines; only the lower half, since the upper repeats it."""
    names, cosines = _words(numbers["classes"]), np.asarray(numbers["similarities"])
    figure = Figure(figsize=(6.0, 5.2), layout="constrained")
    axes = figure.subplots()
    below = np.tril(np.ones_like(cosines, dtype=bool), -1)
    shown = axes.imshow(np.where(below, cosines, np.nan), cmap="Blues", vmin=0, vmax=max(0.6, cosines[below].max()))
    for row, column in np.argwhere(below):
        value = cosines[row, column]
        colour = "white" if value > 0.45 else "black"
        axes.text(
            column,
            row,
            f"{abs(value) if abs(value) < 0.05 else value:.1f}".replace("-", "−"),
            ha="center",
            va="center",
            fontsize=7,
            color=colour,
        )
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(shown, cax=axes.inset_axes((0.62, 0.88, 0.36, 0.03)), orientation="horizontal")
    bar.set_label("cosine of the two vectors")
    return figure


def ranking(numbers: Numbers) -> Figure:
    """Two phantoms with the scores of all classes, from best to worst."""
    figure = Figure(figsize=(6.2, 6.6), layout="constrained")
    rows = figure.subplots(2, 2, width_ratios=[1, 1.5])
    for (picture, bars), example, title in zip(
        rows,
        (numbers["agreeing"], numbers["contradicting"]),
        ("labels agree with the ranking", "labels contradict the ranking"),
        strict=True,
    ):
        _picture(picture, example, LARGE, title)
        _ranked_bars(bars, numbers["classes"], example)
    handles = [Patch(color=BLUE, label="given label"), Patch(color=GREY, label="not given")]
    line = Line2D([], [], color=ORANGE, ls="--", label="highest score among classes not given")
    figure.legend(handles=[*handles, line], loc="outside lower center", ncols=3, frameon=False, fontsize=8.5)
    return figure


def margins(numbers: Numbers) -> Figure:
    """Margins of images with right and with wrong labels."""
    counts = numbers["margins"]
    figure = Figure(figsize=(6.0, 3.1), layout="constrained")
    axes = figure.subplots()
    for key, colour, label, hatch in (
        ("unchanged", BLUE, "labels are right", None),
        ("changed", ORANGE, "a label was changed on purpose", "///"),
    ):
        axes.stairs(counts[key], counts["edges"], color=colour, lw=1.6, label=label)
        axes.stairs(counts[key], counts["edges"], color=colour, fill=True, alpha=0.22, hatch=hatch)
    axes.axvline(0, color="black", lw=1, ls=(0, (3, 3)))
    top = axes.get_ylim()[1]
    axes.text(-0.05, top, "◂ flagged", ha="right", va="top")
    axes.text(0.05, top, "kept ▸", ha="left", va="top")
    axes.set_xlabel("margin: lowest given class minus highest other class")
    axes.set_ylabel("images")
    axes.grid(axis="y", lw=0.4)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


def voters(numbers: Numbers) -> Figure:
    """The contradicting phantom and its nearest images, each with its given labels."""
    cells = [numbers["contradicting"], *numbers["voters"]]
    columns = 4
    figure = Figure(figsize=(6.4, 2.35 * -(-len(cells) // columns)), layout="constrained")
    places = figure.subplots(-(-len(cells) // columns), columns).ravel()
    for number, (axes, cell) in enumerate(zip(places, cells, strict=False)):
        title = "flagged" if number == 0 else f"neighbour {number}, at {cell['distance']:.2f}"
        _picture(axes, cell, SMALL, title)
        if number == 0:
            axes.spines[:].set(visible=True, color=ORANGE, linewidth=2.5)
    for axes in places[len(cells) :]:
        axes.set_axis_off()
    return figure


def new_label(numbers: Numbers) -> Figure:
    """Given label, vote and new label of the contradicting phantom, by class."""
    example, names = numbers["contradicting"], numbers["classes"]
    vote, proposed = np.asarray(numbers["vote"]), np.asarray(numbers["proposed"])
    given = np.isin(names, example["given"])
    rows = [row for row in range(len(names)) if given[row] or vote[row] > 0 or names[row] in example["clean"]]
    figure = Figure(figsize=(6.0, 0.9 + 0.47 * len(rows)), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(rows))
    for offset, values, colour, label in (
        (-0.27, given.astype(float), GREY, "given label"),
        (0.0, vote, GREEN, f"vote of {numbers['neighbours']} neighbours"),
        (0.27, proposed, BLUE, "new label"),
    ):
        axes.barh(places + offset, values[rows], height=0.25, color=colour, label=label)
        for place, value in enumerate(values[rows].tolist()):
            axes.text(value + 0.01, place + offset, f"{value:.2f}", va="center", fontsize=7.5)
    marks = ["◂ truth" if names[row] in example["clean"] else "" for row in rows]
    for place, mark in enumerate(marks):
        axes.text(1.09, place, mark, va="center", fontsize=8.5)
    axes.set_yticks(places, _words([names[row] for row in rows]))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, 1.2)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", lw=0.4)
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, 1.0 + 0.7 / len(rows)), ncols=3, frameon=False)
    return figure


def smoothing(numbers: Numbers) -> Figure:
    """Two heaps of points coloured by their label, before and after each kind of smoothing."""
    toy = numbers["toy"]
    points, clean = np.asarray(toy["points"]), np.asarray(toy["clean"]) == 1
    panels = {"right labels": toy["clean"], "given labels": toy["given"], **toy["targets"]}
    titles = {"label smoothing": "label smoothing, r = 0.6", "negative smoothing": "negative, r = −0.4"}
    figure = Figure(figsize=(6.4, 3.7), layout="constrained")
    places = figure.subplots(2, 3).ravel()
    shown = None
    for axes, (name, values) in zip(places, panels.items(), strict=False):
        for heap, marker in ((clean, "o"), (~clean, "^")):
            colours = {"c": np.asarray(values)[heap], "cmap": "PuOr", "vmin": -0.2, "vmax": 1.2}
            shown = axes.scatter(*points[heap].T, marker=marker, s=20, lw=0, clip_on=False, **colours)
        axes.set_title(titles.get(name, name))
        axes.set(xticks=[], yticks=[], aspect="equal")
        axes.spines[:].set(visible=True, color="#cccccc")
    places[5].set_axis_off()
    assert shown is not None
    bar = figure.colorbar(shown, cax=places[5].inset_axes((0.05, 0.02, 0.14, 0.96)))
    bar.set_label("label of\n“is in the left heap”")
    return figure


FIGURES = {
    "label-space": label_space,
    "ranking": ranking,
    "margins": margins,
    "voters": voters,
    "new-label": new_label,
    "smoothing": smoothing,
}


def save(figure: Figure, path: Path) -> None:
    """Without the date and with short coordinates, so that the same numbers give the same small file."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    drawing = re.sub(r"<metadata>.*?</metadata>\s*", "", stream.getvalue(), flags=re.DOTALL)
    drawing = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 system-ui, sans-serif", drawing)  # older matplotlib
    drawing = re.sub(r"font-family: [^;\"]*", "font-family: system-ui, sans-serif", drawing)
    drawing = re.sub(r' transform="rotate\(-?0(\.0+)? [^)]*\)"| id="[a-z]\w*?_\d+"|<!--.*?-->', "", drawing)
    for number, name in enumerate(dict.fromkeys(re.findall(r' id="(\w*[0-9a-f]{10})"', drawing))):
        drawing = re.sub(rf"\b{name}\b", f"i{number}", drawing)
    drawing = re.sub(r"data:image/png;base64,([^\"]+)", _grey, drawing)
    drawing = re.sub(r' (d|x|y|transform)="[^"]*"', lambda found: re.sub(r"(\.\d)\d+", r"\1", found[0]), drawing)
    drawing = re.sub(r' d="[^"]*"', lambda found: re.sub(r"\s*\n", "", found[0]), drawing)
    write_text(path, re.sub(r">\s+<", ">\n<", drawing))


def _grey(found: re.Match[str]) -> str:
    """A picture inside a drawing in a third of the bytes: X-rays need no colours, and no more sharpness than this."""
    picture = Image.open(io.BytesIO(base64.b64decode(found[1]))).convert("RGB")
    red, green, blue = picture.split()
    if red.tobytes() != green.tobytes() or red.tobytes() != blue.tobytes():
        return found[0]
    content = io.BytesIO()
    red.save(content, "JPEG", quality=88, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"


def _picture(axes: Axes, cell: Numbers, size: int, title: str) -> None:
    """A phantom with what it is said to show below it, and what it does show if that differs."""
    axes.imshow(pixels(cell["id"], size), cmap="gray", vmin=0, vmax=255, interpolation="none")
    axes.set_title(title, fontsize=8.5 if size == SMALL else 9.5)
    lines = _wrapped("given: " + ", ".join(_words(cell["given"])), 27)
    if cell["given"] != cell["clean"]:
        lines += _wrapped("truth: " + ", ".join(_words(cell["clean"])), 27)
    axes.set_xlabel("\n".join(lines), fontsize=7.2 if size == SMALL else 8.5)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def pixels(name: str, size: int) -> NDArray[np.uint8]:
    """(size, size) the phantom of this name."""
    drawn: NDArray[np.uint8] = phantom.render([name], size)[0].numpy()
    return drawn


def _ranked_bars(axes: Axes, classes: Sequence[str], example: Numbers) -> None:
    scores = np.asarray(example["scores"])
    order = np.argsort(-scores)
    given = np.isin(classes, example["given"])
    axes.barh(range(len(order)), scores[order], color=[BLUE if given[row] else GREY for row in order], height=0.75)
    axes.axvline(scores[~given].max(), color=ORANGE, ls="--", lw=1.4)
    axes.set_yticks(range(len(order)), _words([classes[row] for row in order]))
    for tick, row in zip(axes.get_yticklabels(), order, strict=True):
        tick.set_fontweight("bold" if given[row] else "normal")
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.set_xlabel(f"score; margin {_signed(example['margin'])}")
    axes.grid(axis="x", lw=0.4)


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _words(names: Sequence[str]) -> list[str]:
    return [name.replace("_", " ") for name in names]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width)
