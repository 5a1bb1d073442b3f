"""Write docs/demo.md and docs/nih-small.md from the records in results/; every number in them comes from there."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

from bomd.experiments.noise_names import noise_name
from bomd.experiments.recorded import Record
from bomd.files import write_text
from bomd.measure.result import HELD_OUT, VALIDATION
from bomd.measure.significance import Sample, show
from bomd.reports import tables
from bomd.reports.sheet import markdown_table
from bomd.tables import NO_FINDING
from evidence import DOCS
from evidence.records import records_of

GRID = [(0.2, 0.2), (0.4, 0.4), (0.6, 0.6), (0.2, 0.4), (0.2, 0.6), (0.4, 0.2), (0.4, 0.6), (0.6, 0.2), (0.6, 0.4)]
SEEDS = (0, 1, 2)
WEIGHED = {  # kinds of noise that the demo could have
    "no noise": "none",
    "sparse": "one wrong label in 20 % of the images",
    **{
        f"({rows}, {labels})": f"({rows}, {labels})"
        for rows, labels in ((0.2, 0.2), (0.4, 0.2), (0.4, 0.4), (0.6, 0.6))
    },
}
NIH_METHODS = ("bce", "bomd", "bomd-paper")
Cell = tuple[float | None, float | None, float | None]  # rows, labels, share of patients; None is labels as given


def main() -> None:
    write_text(DOCS / "demo.md", demo_page())
    write_text(DOCS / "nih-small.md", nih_page())


# ---------------------------------------------------------------- numbers


def summary(name: str) -> str:
    """The mean and spread of an experiment over seeds, as the tables beside its records have them."""
    return tables.summary(records_of(name))


def spread(values: Iterable[float | None]) -> str:
    return show(Sample.of(values))


def auc(test: str) -> Callable[[Record], float | None]:
    """Mean AUC on a test set; held-out patients are judged by their labels before noise was added."""

    def read(record: Record) -> float | None:
        return record.result.auc(HELD_OUT if test == VALIDATION else test)

    return read


def found(section: str, key: str) -> Callable[[Record], float | None]:
    return lambda record: getattr(getattr(record.result, section), key, None)


def of(records: Sequence[Record], method: str) -> list[Record]:
    return [record for record in records if record.config.method == method]


def gaps(records: Sequence[Record], others: Sequence[Record], value: Callable[[Record], float | None]) -> list[float]:
    """Differences seed by seed, since runs of one seed share noise and split."""
    second = {record.seed: value(record) for record in others}
    pairs = [(value(record), second.get(record.seed)) for record in records]
    return [one - other for one, other in pairs if one is not None and other is not None]


def signed(values: Sequence[float]) -> str:
    return f"{'+' * (bool(values) and statistics.fmean(values) >= 0)}{show(Sample.of(values))}"


def composition(records: Sequence[Record]) -> list[list[str]]:
    """Per class: positives given, and the share of them on images judged clean, over seeds."""
    names = [kept.name for kept in records[0].result.composition or ()]
    rows = []
    for place, name in enumerate(names):
        kept = [(record.result.composition or ())[place] for record in records]
        rows.append([name, f"{statistics.fmean(item.given for item in kept):.0f}", spread(item.share for item in kept)])
    return rows


def devices(records: Sequence[Record]) -> str:
    return "; ".join(sorted({record.environment.place for record in records}))


# ---------------------------------------------------------------- the demo


def demo_page() -> str:
    records = records_of("demo")
    short, ceiling = records_of("demo-short"), records_of("demo-clean")
    bce, bomd, plus = (of(records, method=method) for method in ("bce", "bomd", "bomd-plus"))
    measures = {
        "AUC on hospital south": auc("south"),
        "AUC on held-out patients of north": auc("validation"),
        "label AUC before": found("labels", "before"),
        "label AUC after": found("labels", "after"),
        "detection AUROC": found("detection", "auroc"),
        "AUROC of counting labels": found("detection", "auroc_by_count"),
        "flagged": found("detection", "flagged"),
        "precision": found("detection", "precision"),
        "base rate": found("detection", "base_rate"),
        "recall": found("detection", "recall"),
    }
    rows = [
        [name, *(spread(map(value, group)) for group in (bce, plus, bomd, short, ceiling))]
        for name, value in measures.items()
    ]
    return f"""# What the demo shows, and what it does not

The runs are in [results/demo.csv](../results/demo.csv) and the tables beside it ({devices(records)});
`make results` makes them again.

4,000 generated X-rays of hospital north, of which 40 % have every label flipped with probability 0.4; the test is on
2,000 clean ones of hospital south. Mean ± sample standard deviation over {len(bomd)} seeds, which redraw the noise, the
split and the networks. AUCs are means over the findings with at least 10 positives in the test set.

{markdown_table(["", "bce", "bomd-plus", "bomd", "bomd, short descriptor training", "bce, clean labels"], rows)}
Seed by seed, bomd-plus minus bce: {signed(gaps(plus, bce, auc("south")))} on south,
{signed(gaps(plus, bce, auc("validation")))} on held-out patients of north; bomd minus bce:
{signed(gaps(bomd, bce, auc("south")))} and {signed(gaps(bomd, bce, auc("validation")))}. The two last columns were run
with an earlier state of the code; their methods have not changed since.

![The chest phantom: one row per finding, from obvious to subtle](images/phantom.webp)

## What to make of it

- **What BoMD gains does not travel; what bomd-plus gains does, in part.** On other patients of the same hospital both gain
  much; on the other hospital, whose images look different, BoMD's gain is small. The last column says how far even clean
  labels get a network of this size, trained this briefly, from one hospital to the other.
- **BoMD depends on how well its descriptors are trained.** With a quarter of the steps in its first stage the labels still
  get better, but nothing is left of the gain on south ({signed(gaps(short, bce, auc("south")))}). Of all given
  findings {kept_share(short)} are then on images judged clean, against {kept_share(bomd)}.
- **Finding is easy at this noise.** Flipping 40 % of 14 labels adds about five findings to a healthy chest, so
  that merely *counting* the positive labels of an image finds the corrupted ones, too. Judge the detection by that
  number and not by 0.5; see below for errors that counting does not find.
- **BoMD's rule flags more than is wrong**, and what it leaves as clean is mostly No Finding (below). Neighbours are therefore
  taken from all images with their given labels, as in the paper, and not from clean ones alone.
- The phantom is a drawing. It shows that the pipeline does what it says; it says nothing about real X-rays, for which see
  [successor.md](successor.md) and [nih-small.md](nih-small.md).

## Why this noise

A demo has minutes. No single kind of noise makes both finding and training hard. Mean AUC by right labels and detection
over five seeds of the same recipe, on a GPU ([more of them](successor.md)):

{noises()}
Where one label of an image is wrong, counting labels is of no use and bomd-plus finds most of them; but a classifier
suffers little from so few errors, and bomd-plus learns them as they are. With (0.2, 0.2) and (0.4, 0.2) it is ahead of
counting and learns a little better or no better, by less than a single run can tell from chance. At (0.4, 0.4) plain
training loses a good part of what right labels give, and a single run shows how much of it comes back; at (0.6, 0.6)
plain training is no better than guessing. The demo therefore runs (0.4, 0.4), says beside its curve that counting is
enough there, and shows the recorded curve of one wrong label in an image next to it.

## What BoMD's clean set is made of

{markdown_table(["class", "given positives", "share on images judged clean"], composition(bomd))}"""


def noises() -> str:
    """How hard it is to find errors, and what training is worth, under each kind of noise."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records_of("successor-phantom"):
        groups.setdefault((noise_name(record.config.noise), record.config.method), []).append(record)
    lines = []
    for noise, words in WEIGHED.items():
        bce, plus = groups[noise, "bce"], groups[noise, "bomd-plus"]
        judged = [mean_of(plus, found("detection", key)) for key in ("base_rate", "auroc_by_count", "auroc")]
        scored = [mean_of(group, auc(test)) for test in ("validation", "south") for group in (bce, plus)]
        lines.append([words, *judged, *scored])
    heads = ["noise", "images wrong", "AUROC of counting labels", "detection AUROC"]
    heads += [f"{where}, {what}" for where in ("north", "south") for what in ("noisy labels", "bomd-plus")]
    return markdown_table(heads, lines)


def mean_of(records: Sequence[Record], value: Callable[[Record], float | None]) -> str:
    sample = Sample.of(map(value, records))
    return "–" if sample is None else f"{sample.mean:.3f}"


# ---------------------------------------------------------------- real X-rays


def nih_page() -> str:
    records = records_of("nih-small")
    cells: dict[Cell, list[Record]] = {}
    for record in records:
        noise = record.config.noise
        cells.setdefault((noise.get("rows"), noise.get("labels"), noise.get("share")), []).append(record)
    harsh: list[Cell] = [(None, None, None), (0.2, 0.2, None), (0.4, 0.4, None)]
    paper: list[Cell] = [(rows, labels, 0.15) for rows, labels in GRID]
    first = records[0].result.tests["openi"]
    positives = {item.name: item.positives for item in first.classes}
    averaged = ", ".join(f"{name} {positives[name]}" for name in first.averaged)
    images = records[0].result.images
    missing = [
        f"{name(cell)}: {method}, seed {seed}"
        for cell in [*harsh, *paper]
        for method in NIH_METHODS
        for seed in SEEDS
        if seed not in {record.seed for record in of(cells.get(cell, []), method=method)}
    ]
    as_given = of(cells[(None, None, None)], method="bomd")
    noisy = of(cells[(0.4, 0.4, None)], method="bomd")
    return f"""# Real X-rays at twice the size: NIH to OpenI

An earlier look at real X-rays, at 128 px, in the paper's protocol, too: noise in a part of the training set alone. Of
recipe `nih-small`, {len(records)} runs are in ({devices(records)}); {len(missing)} are missing and listed at the end.

Training: {images["train"]} images of the official NIH training list at 128 px, EfficientNet-lite0 with an
ImageNet start. Tests: {images["openi"]} frontal OpenI images, and {images["google"]} NIH images
adjudicated by Google's radiologists, whose patients are held out of training; there only "Nodule or mass" has ten
positives, so that column is close to noise. OpenI means are over the findings with at least ten positives ({averaged}).
Held-out patients are those of {images["validation"]} other NIH images, with labels as given by NIH. Settings were
chosen by the AUC on the held-out patients of seed 0 alone, which makes that column slightly optimistic; no test set
took part in any choice. Mean ± sample standard deviation over
seeds, which redraw noise, split and heads.

## Labels as given, and noise over all training rows

{comparison(harsh, cells)}
## The paper's protocol: noise in a part of the training set

15 % of the patients stand in for PadChest; (rows, labels) is the share of their images that is corrupted and the
probability with which each label of such an image flips.

{comparison(paper, cells)}
## Flags and labels, where the labels before noise are known

"Before" takes NIH's own labels for true, which they are not quite.

{quality([cell for cell in [*harsh, *paper] if cell[0] is not None], cells)}
## What the clean set is made of

The share of a class's given positives that sit on images judged clean (BoMD, release weighting).

{merged(composition(as_given), composition(noisy))}
## What this shows and does not show

- **BoMD helps where noise is heavy and everywhere.** With 40 % of all rows corrupted its difference from BCE is
  {signed(gaps(noisy, of(cells[(0.4, 0.4, None)], method="bce"), auc("openi")))} on OpenI and
  {signed(gaps(noisy, of(cells[(0.4, 0.4, None)], method="bce"), auc("validation")))} on held-out patients. With labels as given
  and with light noise it is within the spread of three seeds.
- **Inside the paper's protocol OpenI does not confirm it**: the differences there have both signs and are mostly smaller than
  their spread. Held-out patients lean towards BoMD at the heavier levels.
- **The paper's weighting of the ranking loss detects much worse**: a detection AUROC of {bounds(records, "bomd-paper")} over all cells and seeds,
  where the release's weighting has {bounds(records, "bomd")}; at (0.4, 0.4) over all rows it is below chance. Rows with many
  wrong positives weigh most in it.
- **Counting positive labels is as good a detector as the margin** for symmetric noise on such imbalanced labels, often a
  better one. Precision and recall of any method on this benchmark should be read next to it.
- **The clean set is nearly all No Finding** once noise is heavy: most findings keep few or none of their positives. Relying on
  it alone, for neighbours or for training, would lose the findings; BoMD here votes with all images and keeps all rows.
- Three seeds and a few dozen positives per class: differences under three points are not evidence. The paper's setting
  (all of NIH at 512 px, noise on real PadChest images) has not been run.

## Missing

{chr(10).join(f"- {item}" for item in grouped(missing)) or "Nothing."}
"""


def bounds(records: Sequence[Record], method: str) -> str:
    """The lowest and highest detection AUROC of a method."""
    values = [found("detection", "auroc")(record) for record in of(records, method=method)]
    known = [value for value in values if value is not None]
    return f"{min(known):.2f} to {max(known):.2f}"


def kept_share(records: Sequence[Record]) -> str:
    """The part of all given findings that sit on images judged clean."""
    shares = []
    for record in records:
        findings = [item for item in record.result.composition or () if item.name != NO_FINDING]
        shares.append(sum(item.kept for item in findings) / sum(item.given for item in findings))
    return f"{statistics.fmean(shares):.1%}"


def name(cell: Cell) -> str:
    rows, labels, share = cell
    if rows is None:
        return "labels as given"
    return f"({rows:g}, {labels:g})" + ("" if share is None else f" in {share:.0%} of the patients")


def comparison(wanted: Sequence[Cell], cells: dict[Cell, list[Record]]) -> str:
    rows = []
    for cell in wanted:
        runs = cells.get(cell, [])
        baseline = of(runs, method="bce")
        for method in NIH_METHODS:
            group = of(runs, method=method)
            columns = [spread(auc(test)(record) for record in group) for test in ("openi", "validation", "google")]
            against = [signed(gaps(group, baseline, auc(test))) for test in ("openi", "validation")]
            rows.append([name(cell), method, str(len(group)), *columns, *(against if method != "bce" else ["", ""])])
    heads = [
        "noise",
        "method",
        "seeds",
        "OpenI",
        "held-out patients",
        "Google",
        "OpenI − BCE",
        "held-out patients − BCE",
    ]
    return markdown_table(heads, rows)


def quality(wanted: Sequence[Cell], cells: dict[Cell, list[Record]]) -> str:
    rows = []
    for cell in wanted:
        for method in ("bomd", "bomd-paper"):
            group = of(cells.get(cell, []), method=method)
            if group:
                keys = ("base_rate", "flagged", "precision", "recall", "auroc", "auroc_by_count")
                numbers = [spread(found("detection", key)(record) for record in group) for key in keys]
                numbers += [spread(found("labels", key)(record) for record in group) for key in ("before", "after")]
                rows.append([name(cell), method, *numbers])
    heads = [
        "noise",
        "method",
        "base rate",
        "flagged",
        "precision",
        "recall",
        "detection AUROC",
        "AUROC of counting labels",
    ]
    return markdown_table([*heads, "label AUC before", "after"], rows)


def merged(first: list[list[str]], second: list[list[str]]) -> str:
    rows = [[*one, *other[1:]] for one, other in zip(first, second, strict=True)]
    return markdown_table(["class", "positives as given", "kept", "positives at (0.4, 0.4)", "kept"], rows)


def grouped(missing: Sequence[str]) -> list[str]:
    """One line per cell and method instead of one per seed."""
    together: dict[str, list[str]] = {}
    for item in missing:
        head, seed = item.rsplit(", seed ", 1)
        together.setdefault(head, []).append(seed)
    return [f"{head}, seeds {', '.join(seeds)}" for head, seeds in together.items()]


if __name__ == "__main__":
    main()
