"""What the paper claims of labels and descriptors: wrong ones are found, new ones are better, neighbours know."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

from bomd.experiments.recorded import Record
from bomd.measure.result import Result
from bomd.reports.sheet import Mean
from evidence.reproduce import ARTEFACTS
from evidence.reproduce.artefact import Material
from evidence.reproduce.claims.words import NO_RUNS, Claim, Tally, count, measured, over_grid, seen, tally
from evidence.reproduce.figures import label_histogram, votes
from evidence.reproduce.figures.detection import DEFAULT
from evidence.reproduce.figures.gather import LEVELS, NO_NOISE, NOISES, noise_of, show_noise
from evidence.reproduce.tables.entries import mean, recorded
from evidence.reproduce.tables.noise_grid import cell

MOST_VOTES = range(4, 7)  # of 10, at which the paper's curves are highest


def detection(material: Material) -> list[Claim]:
    """Precision and recall of finding wrong labels, against the small-loss split with DivideMix's own warm-up."""
    return [
        Claim(
            "BoMD finds noisy images with higher precision and higher recall than DivideMix's small-loss split at "
            "every level of noise.",
            *_against_split(material),
        ),
        Claim("As noise grows, the precision of BoMD's flags improves and their recall worsens.", *_trend(material)),
        Claim(
            "Flagging every image, and counting an image's labels, which the paper does not compare with.",
            tuple(
                f"{name}: {count(over_grid(material, *(measured('detection', key) for key in keys)), 'BoMD', other)}"
                for name, keys, other in (
                    ("Precision", ("precision", "base_rate"), "flagging every image"),
                    ("Detection AUROC", ("auroc", "auroc_by_count"), "counting labels"),
                )
            ),
            tally=None,
        ),
    ]


def _against_split(material: Material) -> tuple[tuple[str, ...], Tally]:
    """The claim is about precision and recall; the ranking is told beside them."""
    planned = ARTEFACTS["detection"].plan(material.setting)
    split = [config for config in planned if config.settings.get("small-loss", {}).get("warmup") == DEFAULT]
    here, total = [], Tally()
    for name, key in (("Precision", "precision"), ("Recall", "recall"), ("Detection AUROC", "auroc")):
        scores = {}
        for noise in NOISES:
            sides = (cell(material, "bomd", noise), [config for config in split if noise_of(config) == noise])
            scores[show_noise(noise)] = [mean(material, side, measured("detection", key)) for side in sides]
        here.append(f"{name}: {count(scores, 'BoMD', 'the split')}")
        total += tally(scores) if key != "auroc" else Tally()
    return tuple(here), total


def _trend(material: Material) -> tuple[tuple[str, ...], Tally]:
    """From the least to the most noise, and with more flipped labels in as many images."""
    keys = {"precision": "precision", "base_rate": "the share of wrong images", "recall": "recall"}
    scores = over_grid(material, *(measured("detection", key) for key in keys))
    ends = [[one.sample for one in scores[show_noise(noise)]] for noise in (NOISES[0], NOISES[-1])]
    moves = [
        f"{words} from {first.mean:.2f} to {last.mean:.2f}"
        for words, first, last in zip(keys.values(), *ends, strict=True)
        if first and last
    ]
    if len(moves) < len(keys):
        return (NO_RUNS,), Tally()
    text = f"From {show_noise(NOISES[0])} to {show_noise(NOISES[-1])}: {', '.join(moves)}."
    sides = [[scores[show_noise((share, labels))][0].sample for labels in (LEVELS[0], LEVELS[-1])] for share in LEVELS]
    rising = sum(first.mean < last.mean for first, last in sides if first and last)
    text += (
        f" With more of the labels flipped in as many images, from {LEVELS[0]} to {LEVELS[-1]}, precision rises for "
        f"{rising} of {len(LEVELS)} shares of the rows."
    )
    return (text,), seen(_steps(scores, 0, 1) + _steps(scores, 2, -1))


def _steps(scores: dict[str, list[Mean]], column: int, sign: int) -> list[bool]:
    """Whether a number moves the way it is said to at each step to more rows or to more labels."""
    steps = [((low, other), (high, other)) for low, high in pairwise(LEVELS) for other in LEVELS]
    steps += [((other, low), (other, high)) for low, high in pairwise(LEVELS) for other in LEVELS]
    both = [[scores[show_noise(noise)][column].sample for noise in step] for step in steps]
    return [(last.mean - first.mean) * sign > 0 for first, last in both if first and last]


def new_labels(material: Material) -> list[Claim]:
    """Whether they rank better, and whether as many of each class are there as there should be."""
    everywhere = over_grid(material, measured("labels", "after"), measured("labels", "before"))
    changed = over_grid(material, *(measured("labels", f"{when}_changed") for when in ("after", "before")))
    better, better_changed = (count(scores, "new", "given labels") for scores in (everywhere, changed))
    distances = over_grid(material, *(partial(_distance, column=column) for column in ("given", "proposed")))
    closer = count(distances, "that of the given", "that of the new labels")
    here = [closer if closer == NO_RUNS else f"Distance from the clean shares: {closer}"]
    sums = [_total(material, column) for column in ("clean", "given", "proposed")]
    if all(sums):
        clean, given, proposed = (f"{total.sample.mean:,.0f}" for total in sums if total and total.sample)
        here.append(
            f"At {show_noise(label_histogram.NOISE)} there are {clean} labels in all before noise, {given} with it, "
            f"and {proposed} after re-labelling, which adds up soft ones."
        )
    return [
        Claim(
            "Re-labelling raises the AUC of the labels themselves at every level of noise.",
            (f"Over all images: {better}", f"Over images with a changed label: {better_changed}"),
            tally(everywhere),
        ),
        Claim(
            "Re-labelling brings the distribution of labels over classes closer to the clean one.",
            tuple(here),
            tally(distances),
        ),
    ]


def _distance(record: Record, column: str) -> float | None:
    labels = record.result.labels
    return label_histogram.distance(record.result, column) if labels and labels.histograms else None


def _total(material: Material, column: str) -> Mean | None:
    """Labels of all classes, summed over images."""

    def value(record: Record) -> float | None:
        found = record.result.labels and record.result.labels.histograms
        return float(sum(getattr(item, column) for item in found)) if found else None

    total = mean(material, cell(material, "bomd", label_histogram.NOISE), value)
    return total if total.sample else None


def neighbours(material: Material) -> Claim:
    """The number of votes with the highest precision and recall, and what is left if all are asked for."""
    says = "Precision and recall of the neighbours' votes rise until 4 to 6 of 10 are asked for, then stay."
    curves = {
        noise: [record.result for record in recorded(material, cell(material, "bomd", noise))] for noise in votes.NOISES
    }
    here, total = [], Tally()
    for task, words in (("entry", "To find wrong labels"), ("positive", "To set findings")):
        for measure in votes.MEASURES:
            best = {noise[0]: found for noise in curves if (found := _by_votes(curves[noise], task, measure))}
            highest = {share: max(found, key=lambda step: found[step]) for share, found in best.items()}
            total += seen(step in MOST_VOTES for step in highest.values())
            tops = [f"{step} (rows = {share:g})" for share, step in highest.items()]
            here += (
                [f"{words}, {measure} is highest when this many votes are asked for: {', '.join(tops)}."]
                if tops
                else []
            )
    ends = {noise[0]: found for noise in curves if (found := _by_votes(curves[noise], "positive", "recall"))}
    shares = [f"{found[max(found)]:.0%} (rows = {share:g})" for share, found in ends.items()]
    if shares:
        here.append(
            f"If all must agree, this share of the true findings is still set: {', '.join(shares)}. Every given "
            "finding that is not set then counts as wrong, whether it is or not."
        )
    return Claim(says, tuple(here or [NO_RUNS]), total)


def _by_votes(results: list[Result], task: str, measure: str) -> dict[int, float]:
    """Mean over runs by the number of votes asked for, where every run has the measure."""
    tables = [result.votes.thresholds for result in results if result.votes]
    means = {}
    for lines in zip(*tables, strict=True):
        values = [getattr(getattr(line, task).micro, measure) for line in lines]
        if not any(map(math.isnan, values)):
            means[lines[0].threshold] = sum(values) / len(values)
    return means


def space(material: Material) -> Claim:
    """Whether images that have a class lie closer to its vector."""
    says = "Descriptors of images that have a class lie closer to its vector, by L2 distance, than those of others."
    runs = recorded(material, cell(material, "bomd", NO_NOISE))
    here = []
    for kind, words in (("nearest", "L2 distance of the nearest descriptor"), ("cosine", "cosine of the nearest")):
        gaps = _gaps(runs, kind)
        if gaps:
            here.append(f"By {words}: closer on average in {sum(gap > 0 for gap in gaps)} of {len(gaps)} classes.")
    return Claim(says, tuple(here or [NO_RUNS]), seen(gap > 0 for gap in _gaps(runs, "nearest")))


def _gaps(runs: list[Record], kind: str) -> list[float]:
    """How much closer images with a class lie, a mean over seeds for each class."""
    by_class: dict[str, list[float]] = {}
    for record in runs:
        for item in record.result.space.classes if record.result.space else ():
            gap = getattr(item, kind).gap
            if not math.isnan(gap):
                by_class.setdefault(item.name, []).append(gap)
    return [sum(gaps) / len(gaps) for gaps in by_class.values()]
