"""Who finds the images with wrong labels: BoMD's ranks or DivideMix's small loss, over the noise grid."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from bomd.config import Config
from bomd.measure.quality import Detection
from bomd.measure.significance import Sample
from bomd.reports.sheet import Cell
from evidence.reproduce.artefact import Artefact, Drawing, Material, Setting, Sheet
from evidence.reproduce.figures import gather
from evidence.reproduce.figures.gather import BY_IMPORTANCE, NOISES, Done, Noise
from evidence.reproduce.figures.noise_axis import grid_axis, grid_series
from evidence.reproduce.figures.style import (
    COLOURS,
    GREY,
    INK,
    Look,
    draw,
    legend_above,
    letter,
    share_axis,
)

NAME = "detection"
WARMUPS = (2, 1, 5)  # epochs before the losses are looked at; the first is compared with BoMD, whatever the others show
DEFAULT = WARMUPS[0]
SHIFT = 0.14  # between series, so that their bars do not hide one another
MEASURES = ("precision", "recall", "auroc", "auroc_by_count", "base_rate", "flagged")
HEADS = ("method", "warmup", "rows", "labels", *MEASURES, "runs")
Runs = Mapping[Noise, Sequence[Done]]


def plan(setting: Setting) -> list[Config]:
    """BoMD, then the small-loss split after each warm-up; what is trained after the split does not matter here."""
    planned = gather.plan(setting, ["bomd"], BY_IMPORTANCE)
    for warmup in WARMUPS:
        planned += gather.plan(setting, ["small-loss"], BY_IMPORTANCE, f"small-loss.warmup={warmup} fit.epochs=1")
    return planned


def make(material: Material) -> list[Sheet | Drawing]:
    found = gather.done(material, lambda result: result.detection)
    gather.need(found, material, NAME)
    bomd = gather.by_noise([one for one in found if one.config.method == "bomd"])
    split = [one for one in found if one.config.method == "small-loss"]
    splits = {
        warmup: runs
        for warmup in sorted(WARMUPS)
        if (runs := gather.by_noise([one for one in split if _warmup(one) == warmup]))
    }
    best = best_warmup(splits)
    drawn = [(Look("BoMD", COLOURS["bomd"], "o"), bomd)]
    if DEFAULT in splits:
        drawn.append((Look(f"small loss, {_epochs(DEFAULT)}", COLOURS["small-loss"], "s", "--"), splits[DEFAULT]))
    if best is not None and best != DEFAULT:
        look = Look(f"small loss, {_epochs(best)} (hindsight)", COLOURS["small-loss"], "^", "-.", filled=False)
        drawn.append((look, splits[best]))
    anyone = bomd or next(iter(splits.values()))  # base rate and counting do not depend on the method
    with draw(4.3) as figure:
        panels = figure.subplots(3, 1, sharex=True)
        for panel, measure in zip(panels, ("precision", "recall", "auroc"), strict=True):
            for place, (look, runs) in enumerate((look, runs) for look, runs in drawn if runs):
                grid_series(panel, _samples(runs, measure), look, SHIFT * (place - 1))
        grid_series(panels[0], _samples(anyone, "base_rate"), Look("flagging all images", GREY, "_", ":"))
        grid_series(panels[2], _samples(anyone, "auroc_by_count"), Look("counting labels", INK, "x", ":"), SHIFT * 2)
        for panel, mark, title in zip(panels, "abc", ("precision", "recall", "detection AUROC"), strict=True):
            letter(panel, mark, title)
            share_axis(panel)
            grid_axis(panel, labelled=panel is panels[2])
        legend_above(figure, panels[0], 2, panels[1:])
    rows = [_row(material, noise, runs) for noise, runs in bomd.items()]
    rows += [_row(material, noise, some) for runs in splits.values() for noise, some in runs.items()]
    title = "Finding the images with a wrong label, mean and sample standard deviation over seeds."
    return [Drawing(NAME, figure, _caption(material, found, best), Sheet(NAME, title, HEADS, rows))]


def best_warmup(splits: Mapping[int, Runs]) -> int | None:
    """The warm-up with the highest mean F1 over the cells that all have; None if there is nothing to choose from."""
    common = [noise for noise in NOISES if all(noise in runs for runs in splits.values())]
    if len(splits) < 2 or not common:
        return None
    scores = {
        warmup: statistics.fmean(_f1(one.result.detection) for noise in common for one in runs[noise])
        for warmup, runs in splits.items()
    }
    return max(scores, key=lambda warmup: (scores[warmup], warmup == DEFAULT))


def _f1(detection: Detection | None) -> float:
    """0 where nothing is flagged or nothing found."""
    both = (detection.precision, detection.recall) if detection else (0.0, 0.0)
    precision, recall = (0.0 if math.isnan(one) else one for one in both)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _warmup(one: Done) -> int | None:
    return None if one.config.method == "bomd" else int(one.config.settings["small-loss"]["warmup"])


def _epochs(count: int) -> str:
    return f"{count} epoch" + "s" * (count != 1)


def _samples(runs: Runs, measure: str) -> dict[Noise, Sample | None]:
    return {noise: _sample(some, measure) for noise, some in runs.items()}


def _sample(runs: Sequence[Done], measure: str) -> Sample | None:
    return gather.over_seeds(runs, lambda result: getattr(result.detection, measure))


def _row(material: Material, noise: Noise, runs: Sequence[Done]) -> list[Cell]:
    numbers = gather.means(material, runs, [_sample(runs, measure) for measure in MEASURES])
    return [runs[0].config.method, _warmup(runs[0]), *noise, *numbers, gather.names_of(runs)]


def _caption(material: Material, found: Sequence[Done], best: int | None) -> str:
    judged = gather.between([one.result.detection.images for one in found if one.result.detection])
    text = (
        "Finding the images whose labels were changed. (a) Precision, with that of flagging every image (the base "
        "rate), (b) recall, and (c) AUROC of BoMD's margin, of the loss, and of merely counting an image's labels. "
        "BoMD flags an image if a given label ranks below another; the small-loss split of DivideMix flags it if its "
        f"loss after a few epochs belongs to the heap of larger losses. {gather.AXES} "
    )
    if best == DEFAULT:
        text += f"Of the warm-ups tried the default of {_epochs(DEFAULT)} has the highest mean F1. "
    elif best is not None:
        text += (
            f"The default is {_epochs(DEFAULT)}; {best} has the highest mean F1 over the grid, which only those can "
            "know who know the wrong labels. "
        )
    return f"{text}Judged on {judged} images whose true labels are known. " + gather.provenance(material, found)


ARTEFACT = Artefact(
    NAME,
    "figure",
    "fig:noise_det",
    "Precision, recall and AUROC of finding wrong labels, BoMD against the small-loss split, over the noise grid.",
    plan,
    make,
)
