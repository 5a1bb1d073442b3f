"""Run BoMD on a few phantoms, draw one picture for each step, and write docs/how-it-works.md.

python -m evidence.pages.how_it_works           run, draw and write: about two minutes on one core
python -m evidence.pages.how_it_works --redraw  draw and write from the numbers of the last run

All that is drawn or said is in docs/images/how/numbers.json, and the pictures show nothing else.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.clean.detect import detect, scores_of
from bomd.clean.graph import nearest_images
from bomd.clean.relabel import neighbour_mean, relabel
from bomd.config import Config
from bomd.data.batches import Images
from bomd.data.datasets import phantom
from bomd.data.noise import NoisyLabels, symmetric
from bomd.data.store import pack
from bomd.describe.labelspace import embed
from bomd.experiments.experiment import make_method
from bomd.experiments.plan import configure
from bomd.files import read_json, write_json, write_text
from bomd.measure.quality import detection, label_auc
from bomd.methods.base import Context, Prepared
from bomd.methods.bomd import Bomd
from bomd.networks.device import make_fabric
from bomd.runs import Stages
from bomd.tables import Floats, LabelTable
from evidence import DOCS
from evidence.pages.how_it_works_figures import draw_all
from evidence.pages.how_it_works_page import page

FOLDER = DOCS / "images" / "how"
PAGE = DOCS / "how-it-works.md"
SEED = 0
OVERRIDES = ("train.count=2000", "train.seed=2")  # phantoms that no reported number comes from

Numbers = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What BoMD made of the phantoms; all rows are in the order of `labels.clean`."""

    config: Config
    method: Bomd
    labels: NoisyLabels
    prepared: Prepared


def main(redraw: bool) -> None:
    if not redraw:
        write_json(FOLDER / "numbers.json", numbers_of(clean_phantoms()) | {"toy": toy()})
    numbers = read_json(FOLDER / "numbers.json")
    draw_all(numbers, FOLDER)
    write_text(PAGE, page(numbers))


def clean_phantoms() -> Outcome:
    """Describe, detect and re-label on a CPU with the settings of the demo, on fewer images."""
    config = configure("demo", "bomd", SEED, [*OVERRIDES, "device.accelerator=cpu"])
    options = {key: value for key, value in config.train.items() if key != "dataset"}
    noise = {key: value for key, value in config.noise.items() if key != "kind"}
    labels = symmetric(phantom.read(**options), seed=SEED, **noise)
    method, fabric = make_method(config), make_fabric(config.device)
    assert isinstance(method, Bomd)
    with tempfile.TemporaryDirectory() as folder:
        store = pack(
            labels.clean,
            Path(folder) / "images",
            config.images.size,
            render=lambda ids, size: phantom.render(ids, size).numpy(),
        )
        images = Images(store, labels.clean.ids, fabric.device)
        context = Context(images, config.fit, fabric, SEED, Stages(Path(folder) / "stages"))
        return Outcome(config, method, labels, method.prepare(labels.noisy, context))


def numbers_of(outcome: Outcome) -> Numbers:
    """Everything that the page shows, rounded."""
    method, labels, prepared = outcome.method, outcome.labels, outcome.prepared
    given, clean, flags = labels.noisy, labels.clean, prepared.flags
    assert flags is not None
    assert prepared.neighbours is not None
    changed = given.values != clean.values
    wrong, positives = changed.any(axis=1), given.values.sum(axis=1)
    # The clearest of those whose few labels fit a picture; the page gives the rule and how often it errs.
    agreeing = ~flags.noisy & ~wrong & (positives >= 2)
    contradicting = flags.noisy & wrong & (positives >= 2) & (positives <= 4)
    well = int(np.argmax(np.where(agreeing, flags.margin, -np.inf)))
    badly = int(np.argmin(np.where(contradicting, flags.margin, np.inf)))
    space = embed(given.classes, method.language)
    found = detection(flags, changed, given)
    quality = label_auc(clean, given, given.replace(prepared.targets))
    low, high = (float(value) for value in np.percentile(flags.margin, [0.5, 99.5]))
    edges = np.linspace(low, high, 41)
    shown = np.clip(flags.margin, edges[0], edges[-1])
    vote = neighbour_mean(given.values, prepared.neighbours.indices[[badly]])[0]
    return {
        "images": len(given),
        "size": outcome.config.images.size,
        "noise": {key: outcome.config.noise[key] for key in ("rows", "labels")},
        "epochs": method.epochs,
        "descriptors": method.descriptors,
        "neighbours": method.neighbours,
        "graph_weight": method.graph_weight,
        "uniform": method.uniform,
        "language": space.source,
        "dimensions": int(space.vectors.shape[1]),
        "classes": list(given.classes),
        "similarities": _rounded(space.vectors @ space.vectors.T),
        "agreeing": _example(well, outcome),
        "contradicting": _example(badly, outcome),
        "margins": {
            "edges": _rounded(edges),
            "unchanged": np.histogram(shown[~wrong], edges)[0].tolist(),
            "changed": np.histogram(shown[wrong], edges)[0].tolist(),
        },
        "detection": {
            name: round(getattr(found, name), 3)
            for name in ("base_rate", "flagged", "precision", "recall", "auroc", "auroc_by_count")
        },
        "voters": [
            {**_labels_of(int(row), given, clean), "distance": round(float(distance), 3)}
            for row, distance in zip(
                prepared.neighbours.indices[badly], prepared.neighbours.distances[badly], strict=True
            )
        ],
        "vote": _rounded(vote),
        "proposed": _rounded(prepared.targets[badly]),
        "label_auc": {"before": round(quality.before, 3), "after": round(quality.after, 3)},
    }


def toy(points: int = 120, share: float = 0.2) -> Numbers:
    """Two Gaussian heaps, a fifth of whose labels are exchanged, and what each kind of smoothing makes of them.

    A point is its own and only descriptor; the two class vectors point at the two heaps.
    """
    draws = np.random.default_rng(SEED)
    first = np.arange(points) < points // 2
    places = draws.normal(scale=0.75, size=(points, 2)) + np.where(first, -1.3, 1.3)[:, None] * [1, 0]
    clean = np.stack([first, ~first], axis=1).astype(np.float32)
    swapped = np.isin(np.arange(points), draws.choice(points, int(share * points), replace=False))
    given = np.where(swapped[:, None], 1 - clean, clean)
    bags = places[:, None].astype(np.float32)
    flags = detect(scores_of(bags, np.array([[-1, 0], [1, 0]], dtype=np.float32)), given)
    new = relabel(given, nearest_images(bags, 10, device="cpu"), flags.noisy)

    def towards_half(rate: float) -> Floats:
        return np.asarray((1 - rate) * given + rate / 2, dtype=np.float32)

    targets = {"label smoothing": towards_half(0.6), "negative smoothing": towards_half(-0.4), "BoMD": new}
    return {
        "points": _rounded(places),
        "clean": clean[:, 0].astype(int).tolist(),
        "given": given[:, 0].astype(int).tolist(),
        "targets": {name: _rounded(values[:, 0]) for name, values in targets.items()},
        "share": share,
        "swapped": int(swapped.sum()),
        "flagged": int(flags.noisy.sum()),
        "flagged_and_swapped": int((flags.noisy & swapped).sum()),
        "right_heap": {
            name: [round(float((values * clean).sum(axis=1)[rows].mean()), 2) for rows in (swapped, ~swapped)]
            for name, values in {"given": given, **targets}.items()
        },
    }


def _example(row: int, outcome: Outcome) -> Numbers:
    flags, scores = outcome.prepared.flags, outcome.prepared.scores
    assert flags is not None
    assert scores is not None
    return {
        **_labels_of(row, outcome.labels.noisy, outcome.labels.clean),
        "scores": _rounded(scores[row]),
        "margin": round(float(flags.margin[row]), 3),
    }


def _labels_of(row: int, given: LabelTable, clean: LabelTable) -> Numbers:
    """The name of an image and its classes, as given and as they are."""

    def names(table: LabelTable) -> list[str]:
        return [name for name, value in zip(table.classes, table.values[row], strict=True) if value >= 0.5]

    return {"id": str(given.ids[row]), "given": names(given), "clean": names(clean)}


def _rounded(values: NDArray[Any]) -> list[Any]:
    rounded: list[Any] = np.round(values.astype(np.float64), 3).tolist()
    return rounded


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redraw", action="store_true", help="use the numbers of the last run")
    main(parser.parse_args().redraw)
