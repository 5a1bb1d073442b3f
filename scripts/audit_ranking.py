"""How many wrong labels the first images of an audit hold, against a random draw and against cleanlab.

    PYTHONPATH=src python scripts/audit_ranking.py --data NIH --results results/audit_ranking.csv

Labels of the NIH images count as right, and known noise is added to them. BoMD and cleanlab see the same labels, use
the same network and are shown as many images in training: cleanlab's folds divide what BoMD spends on descriptors and
classifier. Interrupted, the same command continues.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd import progress
from bomd.audits.choose import Choice, passes
from bomd.config import Config
from bomd.data import datasets
from bomd.errors import InputError
from bomd.files import write_text
from bomd.learn.backbone import build
from bomd.measure import experiment
from bomd.measure.records import LabelRecord
from bomd.tables import NO_FINDING

# Every label of a fifth of the images may flip; or a fifth of the patients have labels like those mined from reports.
NOISES: dict[str, dict[str, Any]] = {
    "symmetric 0.2 0.2": {"kind": "symmetric", "rows": 0.2, "labels": 0.2},
    "report mining, 20 % of patients": {"kind": "report_mining", "share": 0.2},
    "report mining": {"kind": "report_mining"},
}
FOLDS = 5  # cleanlab's usual number
COLUMNS = ("noise", "seed", "order", "images", "first", "wrong_images", "wrong_labels", "shown", "backbone", "size")
Order = NDArray[np.intp]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="NIH ChestX-ray14, or any part of it")
    parser.add_argument("--results", type=Path, default=Path("results/audit_ranking.csv"))
    parser.add_argument("--runs", type=Path, default=Path("runs/audit-ranking"), help="where runs are kept")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--first", type=int, default=200, help="images that are reviewed")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--backbone", default=None, help="by default efficientnet_lite0, or small where it is missing")
    parser.add_argument(
        "--epochs", type=int, default=None, help="passes for descriptors, and 0.6 of it for the classifier"
    )
    parser.add_argument("--phantoms", type=int, default=0, help="use that many generated images instead of --data")
    parser.add_argument("--noises", type=int, default=len(NOISES), help="only the first so many kinds")
    given = parser.parse_args()
    progress.enable()
    backbone = given.backbone or default_backbone()
    rows: list[dict[str, Any]] = []
    for name, noise in list(NOISES.items())[: given.noises]:
        for seed in map(int, given.seeds.split(",")):
            train = source(given.data, given.phantoms, seed)
            images = len(datasets.read(train, "train")[0])
            epochs, classifier_epochs = passes(backbone, images)
            if given.epochs is not None:
                epochs, classifier_epochs = given.epochs, max(1, round(0.6 * given.epochs))
            choice = Choice(backbone, given.size, epochs, classifier_epochs, 0.0, "")
            config = replace(choice.config("audit-ranking", train, images, seed), noise=noise)
            for order, record, ranked, shown in orders(config, given.runs):
                first = ranked[: given.first]
                wrong = wrong_labels(record)
                counts = {"wrong_images": int(wrong[first].any(axis=1).sum()), "wrong_labels": int(wrong[first].sum())}
                if order == "random":  # what any order that knows nothing finds on average
                    share = len(first) / len(wrong)
                    counts = {"wrong_images": wrong.any(axis=1).sum() * share, "wrong_labels": wrong.sum() * share}
                    counts = {key: round(float(value), 1) for key, value in counts.items()}
                facts = {"noise": name, "seed": seed, "order": order, "images": len(wrong), "first": len(first)}
                rows.append({**facts, **counts, "shown": shown, "backbone": backbone, "size": given.size})
                progress.say(", ".join(f"{key} {value}" for key, value in rows[-1].items()))
            write_text(given.results, as_csv(rows))


def source(data: Path, phantoms: int, seed: int) -> dict[str, Any]:
    """Where the images come from; other phantoms for every seed, which cost nothing."""
    if phantoms:
        return {"dataset": "phantom", "count": phantoms, "seed": 50 + seed}
    return {"dataset": "nih", "root": str(data), "split": "all", "missing": "drop"}


def orders(config: Config, root: Path) -> Iterator[tuple[str, LabelRecord, Order, int]]:
    """Name, labels, rows from the most suspect on, and images shown in training, for every order that is compared."""
    ours = experiment.run(config, root)
    record = LabelRecord.load(ours.directory / "labels.npz")
    assert record.flags is not None
    shown = int(ours.result()["images_presented"])
    yield "random", record, np.arange(len(record.given)), 0
    yield "most positive labels", record, down((record.given.values >= 0.5).sum(axis=1)), 0
    yield "bomd margin", record, down(-record.flags.margin), shown
    yield "bomd audit", record, np.argsort(record.opinion.rank), shown

    epochs = math.ceil((config.fit.epochs + config.settings["bomd"]["epochs"]) / (FOLDS - 1))
    fit = replace(config.fit, epochs=epochs)
    theirs = experiment.run(replace(config, method="cleanlab", fit=fit, settings={"cleanlab": {"folds": FOLDS}}), root)
    other = LabelRecord.load(theirs.directory / "labels.npz")
    assert other.flags is not None
    if not np.array_equal(record.given.values, other.given.values):
        raise InputError("BoMD and cleanlab did not get the same labels.")
    spent = (FOLDS - 1) * epochs * len(other.given)  # the classifier that follows the folds does not count
    yield "cleanlab score", other, down(-other.flags.margin), spent
    order = np.lexsort((other.flags.margin, ~other.flags.noisy))
    yield "cleanlab flagged, then score", other, order, spent


def down(suspicion: NDArray[Any]) -> Order:
    """Rows from the highest to the lowest value; what could not be judged comes last."""
    values = np.asarray(suspicion, dtype=np.float64)
    return np.argsort(-np.where(np.isnan(values), -np.inf, values), kind="stable")


def wrong_labels(record: LabelRecord) -> NDArray[np.bool_]:
    """(N, C) labels of findings that the noise changed, and "No Finding" where that is all that is wrong."""
    assert record.clean is not None
    wrong = np.asarray(record.given.values != record.clean.values)
    if NO_FINDING in record.given.classes:
        nothing = record.given.classes.index(NO_FINDING)
        wrong[:, nothing] &= ~wrong[:, record.given.findings].any(axis=1)
    return wrong


def default_backbone() -> str:
    try:
        build("efficientnet_lite0", 1, weights="imagenet")
    except InputError:
        return "small"
    return "efficientnet_lite0"


def as_csv(rows: list[dict[str, Any]]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


if __name__ == "__main__":
    main()
