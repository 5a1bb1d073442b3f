"""Put the newest numbers and pictures of the demo into the README; `make results` calls it."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
import numpy as np

from bomd.measure.records import Examples, LabelRecord

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "flagged.png"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs")
    runs = parser.parse_args().runs
    replace_between("demo-results", (ROOT / "results" / "demo.md").read_text())
    draw_flagged(next(iter(sorted(runs.glob("demo/bomd/seed0-*")))))


def replace_between(name: str, text: str) -> None:
    """Replace what stands between two comment marks of the README."""
    path = ROOT / "README.md"
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, after = path.read_text().split(begin)[0], path.read_text().split(end)[1]
    path.write_text(f"{before}{begin}\n{text}{end}{after}")


def draw_flagged(run: Path) -> None:
    """One flagged image with its given and proposed labels, and the images that voted."""
    record, examples = LabelRecord.load(run / "labels.npz"), Examples.load(run / "examples.npz")
    assert record.neighbours is not None
    assert record.clean is not None
    pixels = dict(zip(examples.rows.tolist(), examples.pixels, strict=True))
    row = pick(record, examples)
    others = [int(other) for other in record.neighbours[row, :4]]
    figure, axes = plt.subplots(1, 6, figsize=(12, 2.9), width_ratios=[1.25, 1.5, 1, 1, 1, 1], facecolor="white")
    show(axes[0], pixels[row], "flagged image")
    bars(axes[1], record, row)
    for place, other in enumerate(others):
        names = [short(name) for name, value in labels(record, other) if value >= 0.5]
        show(axes[2 + place], pixels[other], "\n".join(["neighbour", ", ".join(names[:3]) or "-"]))
    figure.tight_layout()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=110)


def pick(record: LabelRecord, examples: Examples) -> int:
    """The first of the most suspect images whose noise both added and removed labels, if there is one."""
    assert record.clean is not None
    for row in examples.flagged:
        difference = record.given.values[row] - record.clean.values[row]
        if (difference > 0).any() and (difference < 0).any():
            return int(row)
    return int(examples.flagged[0])


def labels(record: LabelRecord, row: int) -> list[tuple[str, float]]:
    return list(zip(record.given.classes, record.given.values[row].tolist(), strict=True))


def short(name: str) -> str:
    return re.sub("_", " ", name)


def show(axis: plt.Axes, pixels: np.ndarray, title: str) -> None:
    axis.imshow(pixels, cmap="gray", vmin=0, vmax=255)
    axis.set_title(title, fontsize=8)
    axis.axis("off")


def bars(axis: plt.Axes, record: LabelRecord, row: int) -> None:
    """Given, true and proposed labels of one image, side by side, for the classes that any of them names."""
    assert record.clean is not None
    given, truth, proposed = (table.values[row] for table in (record.given, record.clean, record.proposed))
    shown = np.flatnonzero((given > 0) | (truth > 0) | (proposed > 0.1))
    shown = shown[np.argsort(-proposed[shown])][:9][::-1]
    axis.barh(np.arange(len(shown)), proposed[shown], color="#0072B2", height=0.6)
    for place, column in enumerate(shown):
        mark = ("given" if given[column] else "") + (" · true" if truth[column] else "")
        axis.text(1.03, place, mark.strip(" ·"), fontsize=7, va="center")
    axis.set_yticks(np.arange(len(shown)), [short(record.given.classes[column]) for column in shown], fontsize=8)
    axis.set_xlim(0, 1)
    axis.set_title("proposed label", fontsize=8)
    axis.tick_params(axis="x", labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
