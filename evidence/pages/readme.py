"""Put the newest numbers and pictures of the demo into the README; `make results` calls it."""

from __future__ import annotations

import argparse
import textwrap
from csv import DictReader
from io import StringIO
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from bomd.data.datasets import phantom
from bomd.experiments.noise_names import NO_NOISE
from bomd.experiments.plan import configure
from bomd.experiments.recorded import Record
from bomd.experiments.records import LabelRecord
from bomd.files import write_json, write_text
from bomd.measure.result import HELD_OUT
from bomd.reports import outcome
from bomd.reports.opening import examples
from bomd.reports.outcome import found_of
from bomd.reports.sheet import markdown_table, rows_to_csv
from evidence import DOCS, RESULTS, ROOT
from evidence.pages import pretraining, pretraining_numbers, scale, successor
from evidence.records import records_of

FIRST = 200  # images that somebody looks at
LOOKED = (100, 200, 500)  # the same, in results/opinions.csv
FOUND = RESULTS / "demo-found.csv"
PICTURE = DOCS / "images" / "flagged.webp"
RECIPE, MINED = "nih-64", "report_mining share=0.2"
SUCCESSOR = "[more, and where it is not ahead](docs/successor.md)"
NOTES = """\
*Report mining*: errors of programs that read labels out of reports. Where bomd sees that errors sit together in some of
the images, its classifier learns better; elsewhere it is plain training, no better.
¹ is told how many images are wrong, and predicts with two networks.
"""
TYPE = 9.5  # points, of a picture 6 inches wide: can still be read where a phone shows it in 400 pixels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs")
    runs = parser.parse_args().runs
    write_found(runs)
    write_numbers()
    draw_flagged(next(iter(sorted(runs.glob("demo/bomd-plus/seed0-*")))))


def write_found(runs: Path) -> None:
    """Keep how many wrong images each recorded run of the demo finds, which its record does not say."""
    rows = []
    for record in of_method("demo", "bomd-plus"):
        labels = LabelRecord.load(runs / "demo" / "bomd-plus" / record.run / "labels.npz")
        rows.append({"seed": record.seed, **{name: round(count, 1) for name, count in found_of(labels).items()}})
    write_text(FOUND, rows_to_csv(rows))


def write_numbers() -> None:
    write_json(outcome.RECORD, demo_record())
    replace_between("demo-results", ending())
    replace_between("proof", proof())
    replace_between("start", start())
    replace_between("large", large())


def demo_record() -> dict[str, Any]:
    """What came of the demo as recorded, small enough to be shipped: every seed, and errors that are hard to find."""
    with FOUND.open(encoding="utf-8") as stream:
        rows = [{name: float(value) for name, value in row.items()} for row in DictReader(stream)]
    found = {int(row.pop("seed")): row for row in rows}
    groups = {
        outcome.NOISY: of_method("demo", "bce"),
        outcome.OURS: of_method("demo", "bomd-plus"),
        outcome.RIGHT: of_method("demo-clean", "bce"),
    }
    seeds = []
    for seed, numbers in found.items():
        scores = {name: outcome.scores_of(one) for name, group in groups.items() for one in group if one.seed == seed}
        seeds.append({"scores": scores, "found": numbers})
    light = [row for row in successor.read_rows() if (row["recipe"], row["noise"]) == ("successor-phantom", "sparse")]

    def hits(rule: str) -> list[float]:
        own = [row for row in light if row["rule"] == rule]
        return [mean(float(row[f"hits_{count}"]) for row in own) for count in LOOKED]

    share = mean(float(row["wrong_images"]) / float(row["images"]) for row in light)
    sparse = {
        "seeds": len({row["seed"] for row in light}),
        "looked": list(LOOKED),
        outcome.OURS: hits("bomd-plus"),
        outcome.COUNTING: hits("most positives"),
        outcome.RANDOM: [round(share * count, 1) for count in LOOKED],
        outcome.PERFECT: list(LOOKED),
    }
    return {"seeds": seeds, "sparse": sparse}


def of_method(name: str, method: str) -> list[Record]:
    return [record for record in records_of(name) if record.config.method == method]


def ending() -> str:
    """What the demo prints at its end, had its run been the first of the record."""
    record = demo_record()
    first = record["seeds"][0]
    scores = {name: numbers for name, numbers in first["scores"].items() if name in outcome.LEARNT.values()}
    stream = StringIO()
    console = Console(file=stream, width=80, color_system=None)
    console.print(*outcome.tables(outcome.Outcome.over([first | {"scores": scores}]), record), sep="\n")
    lines = [line.rstrip() for line in stream.getvalue().rstrip().splitlines()]
    return "\n".join(["```text", *lines, "```", ""])


def proof() -> str:
    """Two small tables of real X-rays: errors that an order of review finds, and what a classifier is worth.

    Where nothing is gained over plain training, and where another method is ahead, is in them.
    """
    size = configure(RECIPE).images.size
    planted = f"Errors planted into real chest X-rays of {size} pixels, five seeds ({SUCCESSOR}):\n"
    return "\n".join([planted, wrong_images(), classifiers(), NOTES])


def wrong_images() -> str:
    """How many images with a wrong label are among the first, the mean over seeds and of two rules also the range."""
    noises = ("sparse", "(0.2, 0.2)", MINED)
    heads = (
        "one wrong label in 20 % of the images",
        "20 % of the labels in 20 % of the images",
        "report mining in 20 % of the patients",
    )
    rows = [row for row in successor.read_rows() if row["recipe"] == RECIPE]

    def found(noise: str, rule: str, column: str = "hits_200") -> list[int]:
        return [int(row[column]) for row in rows if (row["noise"], row["rule"]) == (noise, rule)]

    def ranged(counts: list[int]) -> str:
        return f"{mean(counts):.0f} ({min(counts)}–{max(counts)})"

    images = sorted(count for noise in noises for count in found(noise, "bomd-plus", "images"))
    shares = [mean(found(noise, "bomd-plus", "wrong_images")) / mean(images) for noise in noises]
    lines = [
        ["at random", *(f"{FIRST * share:.0f}" for share in shares)],
        ["counting labels", *(f"{mean(found(noise, 'most positives')):.0f}" for noise in noises)],
        ["cleanlab", *(ranged(found(noise, "cleanlab")) for noise in noises)],
        ["**bomd**", *(ranged(found(noise, "bomd-plus")) for noise in noises)],
    ]
    about = f"images with a wrong label among the first {FIRST} of {images[0]:,} to {images[-1]:,}"
    return markdown_table([f"{about}: mean (range)", *heads], lines, marked_up=True)


def classifiers() -> str:
    """Mean AUC on held-out patients from light errors to heavy ones."""
    scores, _ = successor.read_scores("successor-nih")
    columns = {
        NO_NOISE: "none",
        "sparse": "one wrong label in 20 %",
        MINED: "report mining in 20 %",
        **{f"(0.{level}, 0.{level})": f"{level}0 % of the labels in {level}0 %" for level in (2, 4, 6)},
    }
    methods = {"bce": "plain training", "bomd-plus": "**bomd**", "co-teaching": "co-teaching ¹"}
    lines = [
        [name, *(f"{mean(scores[HELD_OUT, method, noise].values()):.3f}" for noise in columns)]
        for method, name in methods.items()
    ]
    return markdown_table(["AUC on new patients, by planted errors", *columns.values()], lines, marked_up=True)


def start() -> str:
    """What phantoms add to ImageNet on held-out NIH patients, in one item of a list."""
    found = pretraining_numbers.tally(
        pretraining_numbers.read_scores(pretraining.TABLE), "imagenet+phantom", "imagenet", HELD_OUT
    )
    assert found is not None
    where = "[A start from generated X-rays](docs/pretraining.md), on top of ImageNet"
    count = f"{found.higher} of {found.settings} settings, {found.average:+.3f} AUC on average"
    count += f" (at least {found.seeds[0]} seeds each)"
    text = f"- {where}: higher on held-out NIH patients in {count}; a minute or a few on a GPU, no download."
    return textwrap.fill(text, 118, subsequent_indent="  ", break_on_hyphens=False) + "\n"


def large() -> str:
    """The largest set that was audited on a CPU, in one item of a list."""
    audits = [row for row in scale.read() if (row["device"], row["step"]) == ("cpu", "audit")]
    most = max(audits, key=lambda row: int(row["images"]))
    text = f"- [Large sets](docs/large-sets.md): labels of {int(most['images']):,} images judged by their features on "
    text += f"{most['cores']} cores, within {float(most['peak_mb']):,.0f} MB of memory."
    return textwrap.fill(text, 118, subsequent_indent="  ", break_on_hyphens=False) + "\n"


def replace_between(name: str, text: str) -> None:
    """Replace what stands between two comment marks of the README."""
    path = ROOT / "README.md"
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, after = path.read_text().split(begin)[0], path.read_text().split(end)[1]
    path.write_text(f"{before}{begin}\n{text}{end}{after}")


def draw_flagged(run: Path) -> None:
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    flagged(LabelRecord.load(run / "labels.npz")).savefig(PICTURE, pil_kwargs={"quality": 85, "method": 6})


def flagged(record: LabelRecord) -> Figure:
    """Three images from the order of review: what was given, what is proposed, and what is true."""
    rows = examples(record, hits=2)
    pixels = phantom.render(record.given.ids[rows], 256).numpy()
    why = ("first hit with few labels", "second hit with few labels", "first false alarm")
    figure: Figure = plt.figure(figsize=(6, 1.75 * len(rows)), dpi=120, facecolor="white", layout="constrained")
    panels = figure.subplots(len(rows), 2, width_ratios=[1.6, 1], sharex="col", squeeze=False)
    for (left, right), row, picture, words in zip(panels, rows, pixels, why, strict=True):
        left.imshow(picture, cmap="gray", vmin=0, vmax=255)
        left.axis("off")
        bars(right, record, row)
        place = f"no. {int(record.opinion.rank[row])} of {len(record.given):,}: {words}"
        right.set_title(place, fontsize=TYPE, loc="right")
    figure.supxlabel("chance of being wrong", fontsize=TYPE, x=1, ha="right")
    return figure


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
        f"{record.given.classes[column].replace('_', ' ')}: {words[int(given[column]), int(better[column])]}"
        + (" (right)" if better[column] == truth[column] else " (wrong)")
        for column in shown
    ]
    axis.set_yticks(places, names, fontsize=TYPE)
    axis.set_xlim(0, 1)
    axis.tick_params(axis="x", labelsize=TYPE)
    axis.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
