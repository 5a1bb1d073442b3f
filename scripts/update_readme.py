"""Put the newest numbers and pictures of the demo into the README; `make results` calls it."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
import numpy as np

from bomd.data.datasets import phantom
from bomd.measure.records import LabelRecord

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
    record = LabelRecord.load(run / "labels.npz")
    assert record.neighbours is not None
    row = pick(record)
    voters = [int(other) for other in record.neighbours[row, :6]]
    pixels = phantom.render(record.given.ids[[row, *voters]], 256).numpy()
    figure = plt.figure(figsize=(11.5, 3.7), facecolor="white", layout="constrained")
    left, middle, right = figure.subfigures(1, 3, width_ratios=[3.3, 3.6, 4.6])
    show(left.subplots(), pixels[0], "flagged: the given labels do not fit")
    bars(middle.subplots(), record, row)
    right.suptitle("its nearest images vote", fontsize=9)
    for axis, other, picture in zip(right.subplots(2, 3).ravel(), voters, pixels[1:], strict=True):
        names = [short(name) for name, value in labels(record, other) if value >= 0.5]
        show(axis, picture, ", ".join(names[:2]) + (f" +{len(names) - 2}" if len(names) > 2 else ""), 7)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=100)


def pick(record: LabelRecord) -> int:
    """The flagged image whose labels improve most, among those with few enough labels to read: an illustration."""
    assert record.clean is not None
    assert record.flags is not None
    given, truth, proposed = record.given.values, record.clean.values, record.targets.values
    gain = (np.abs(given - truth) - np.abs(proposed - truth)).sum(axis=1)
    findings = truth[:, record.given.findings].sum(axis=1)
    readable = record.flags.noisy & (given.sum(axis=1) <= 6) & (findings > 0)
    return int(np.argmax(np.where(readable, gain, -np.inf)))


def labels(record: LabelRecord, row: int) -> list[tuple[str, float]]:
    return list(zip(record.given.classes, record.given.values[row].tolist(), strict=True))


def short(name: str) -> str:
    return re.sub("_", " ", name)


def show(axis: plt.Axes, pixels: np.ndarray, title: str, size: int = 9) -> None:
    axis.imshow(pixels, cmap="gray", vmin=0, vmax=255)
    axis.set_title(title, fontsize=size)
    axis.axis("off")


def bars(axis: plt.Axes, record: LabelRecord, row: int) -> None:
    """Given and proposed labels of one image for the classes that matter; what is true is said beside them."""
    assert record.clean is not None
    given, truth, proposed = (table.values[row] for table in (record.given, record.clean, record.targets))
    shown = np.flatnonzero((given > 0) | (truth > 0) | (proposed > 0.25))
    shown = shown[np.argsort(-proposed[shown])][:9][::-1]
    places = np.arange(len(shown))
    axis.barh(places + 0.2, given[shown], color="#E69F00", height=0.36, label="given")
    axis.barh(places - 0.2, proposed[shown], color="#0072B2", height=0.36, label="proposed")
    names = [short(record.given.classes[column]) + ("  (true)" if truth[column] else "") for column in shown]
    axis.set_yticks(places, names, fontsize=8)
    for label, column in zip(axis.get_yticklabels(), shown, strict=True):
        label.set_fontweight("bold" if truth[column] else "normal")
    axis.set_xlim(0, 1)
    axis.set_title("given and proposed labels", fontsize=9)
    axis.tick_params(axis="x", labelsize=7)
    axis.legend(fontsize=7, frameon=False, loc="lower right")
    axis.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
