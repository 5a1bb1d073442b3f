"""Put the newest numbers and pictures of the demo into the README; `make results` calls it."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from statistics import mean

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
import numpy as np

from bomd.data.datasets import phantom
from bomd.experiments.noise_names import NO_NOISE
from bomd.experiments.records import LabelRecord
from bomd.reports.sheet import markdown_table
from evidence import DOCS, ROOT
from evidence.pages import successor
from evidence.pages.results import summary

FIRST = 200  # images that somebody looks at
PICTURE = DOCS / "images" / "flagged.webp"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs")
    runs = parser.parse_args().runs
    write_numbers()
    draw_flagged(next(iter(sorted(runs.glob("demo/bomd-plus/seed0-*")))))


def write_numbers() -> None:
    replace_between("demo-results", summary("demo"))
    replace_between("proof", proof())


def proof() -> str:
    """Two small tables of real X-rays: errors that an order of review finds, and what a classifier is worth."""
    noises = ("sparse", "(0.2, 0.2)", "report_mining share=0.2")
    heads = ("one wrong label in 20 %", "20 % of the labels in 20 %", "errors of report mining in 20 %")
    rows = [row for row in successor.read_rows() if row["recipe"] == "nih-64"]

    def found(noise: str, rule: str, column: str = "hits_200") -> float:
        return mean(float(row[column]) for row in rows if (row["noise"], row["rule"]) == (noise, rule))

    share = {noise: found(noise, "bomd-plus", "wrong_images") / found(noise, "bomd-plus", "images") for noise in noises}
    lines = [["at random", *(f"{FIRST * share[noise]:.0f}" for noise in noises)]]
    for name, rule in (("counting labels", "most positives"), ("cleanlab", "cleanlab"), ("**bomd**", "bomd-plus")):
        lines.append([name, *(f"{found(noise, rule):.0f}" for noise in noises)])
    hits = markdown_table([f"images with a wrong label among the first {FIRST}", *heads], lines, marked_up=True)
    scores, _ = successor.read_scores("successor-nih")
    levels = ("(0.2, 0.2)", "(0.4, 0.4)", "(0.6, 0.6)")

    def auc(method: str, noise: str) -> str:
        return f"{mean(scores['held-out patients', method, noise].values()):.3f}"

    learnt = [
        ["the noisy labels", *(auc("bce", noise) for noise in levels)],
        ["**bomd** from the noisy labels", *(auc("bomd-plus", noise) for noise in levels)],
        ["the labels before the noise", *(auc("bce", NO_NOISE) for _ in levels)],
    ]
    head = [
        "AUC on new patients, learnt from",
        *(f"{level} % of the labels in {level} % wrong" for level in (20, 40, 60)),
    ]
    return hits + "\n" + markdown_table(head, learnt, marked_up=True)


def replace_between(name: str, text: str) -> None:
    """Replace what stands between two comment marks of the README."""
    path = ROOT / "README.md"
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, after = path.read_text().split(begin)[0], path.read_text().split(end)[1]
    path.write_text(f"{before}{begin}\n{text}{end}{after}")


def draw_flagged(run: Path) -> None:
    """Three images from the top of the order of review: what was given, what is proposed, and what is true."""
    record = LabelRecord.load(run / "labels.npz")
    rows = pick(record)
    pixels = phantom.render(record.given.ids[rows], 256).numpy()
    figure = plt.figure(figsize=(13.5, 3), facecolor="white", layout="constrained")
    for part, row, picture in zip(figure.subfigures(1, len(rows)), rows, pixels, strict=True):
        left, right = part.subplots(1, 2, width_ratios=[1.5, 1])
        part.suptitle(
            f"no. {int(record.opinion.rank[row])} of {len(record.given):,} in the order of review", fontsize=9
        )
        show(left, picture, "")
        bars(right, record, row)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=100, pil_kwargs={"quality": 85, "method": 6})


def pick(record: LabelRecord) -> list[int]:
    """The first two images of the order of review with few enough labels to read, and the first one that is right."""
    assert record.clean is not None
    given, truth = record.given.values, record.clean.values
    changes = (record.opinion.proposed != given).any(axis=1)
    readable = (given.sum(axis=1) <= 5) & changes
    order = np.argsort(record.opinion.rank)
    wrong = (given != truth).any(axis=1)
    hits = [int(row) for row in order if readable[row] and wrong[row] and truth[row, record.given.findings].any()]
    alarms = [int(row) for row in order if not wrong[row]]
    return [*hits[:2], *alarms[:1]]


def short(name: str) -> str:
    return re.sub("_", " ", name)


def show(axis: plt.Axes, pixels: np.ndarray, title: str, size: int = 9) -> None:
    axis.imshow(pixels, cmap="gray", vmin=0, vmax=255)
    axis.set_title(title, fontsize=size)
    axis.axis("off")


def bars(axis: plt.Axes, record: LabelRecord, row: int) -> None:
    """How likely each given or proposed label is to be wrong; a tick says which are."""
    assert record.clean is not None
    given, truth, better = record.given.values[row], record.clean.values[row], record.opinion.proposed[row]
    shown = np.flatnonzero((given > 0) | (truth > 0) | (better != given))
    shown = shown[np.argsort(-record.opinion.wrong[row, shown])][:8][::-1]
    places = np.arange(len(shown))
    changed = better[shown] != given[shown]
    colours = ["#d55e00" if change else "#9aa5b1" for change in changed]
    axis.barh(places, record.opinion.wrong[row, shown], color=colours, height=0.6)
    words = {(1, 0): "take away", (0, 1): "add", (1, 1): "keep", (0, 0): "leave out"}
    names = [
        f"{short(record.given.classes[column])}: {words[int(given[column]), int(better[column])]}"
        + ("  (right)" if better[column] == truth[column] else "  (wrong)")
        for column in shown
    ]
    axis.set_yticks(places, names, fontsize=8)
    axis.set_xlim(0, 1)
    axis.set_xlabel("chance of being wrong", fontsize=8)
    axis.tick_params(axis="x", labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
