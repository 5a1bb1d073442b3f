"""How well wrong labels are found, and what proposals are worth, against other rules on the same evidence.

    python -m evidence.studies.opinions RUNS --results results/opinions.csv

Reads finished runs of bomd-plus to whose labels known noise was added. Every rule sees the same given labels and, where
it looks at images at all, the same out-of-fold scores. Two rules look at no image: they show what counting does. Images
on which no noise could fall count as right. Nothing is trained.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from bomd import runs
from bomd.clean.calibrate import calibrate
from bomd.clean.detect import detect
from bomd.clean.opinion import form_opinion
from bomd.experiments.noise_names import noise_name
from bomd.files import read_arrays, write_text
from bomd.methods.cleanlab import quality
from bomd.tables import NO_FINDING, LabelTable, Opinion

FIRST = (100, 200, 500)  # images that are looked at
BINS = ((0.5, 0.6), (0.6, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 1.01))  # probabilities of proposals
Scores = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", type=Path, nargs="+", help="finished runs, or folders of them")
    parser.add_argument("--results", type=Path, default=Path("results/opinions.csv"))
    given = parser.parse_args()
    found: list[dict[str, Any]] = []
    for run in runs.find(given.places):
        config = run.config()
        record = read_arrays(run.directory / "labels.npz")
        if config["method"] != "bomd-plus" or "clean" not in record:
            continue
        table = LabelTable(record["ids"], tuple(map(str, record["classes"])), record["given"], None, record["patients"])
        facts = {"recipe": config["name"], "noise": noise_name(config["noise"]), "seed": config["seed"]}
        found += [facts | row for row in measure(table, record["clean"], record["scores"])]
    columns = list(dict.fromkeys(name for row in found for name in row))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(sorted(found, key=lambda row: (row["recipe"], row["noise"], row["rule"], row["seed"])))
    write_text(given.results, stream.getvalue())


def measure(given: LabelTable, clean: NDArray[Any], scores: NDArray[Any]) -> Iterator[dict[str, Any]]:
    """One row of numbers for each rule."""
    columns = given.findings
    wrong = ((given.values >= 0.5) != (clean >= 0.5))[:, columns]
    opinion, _, _ = form_opinion(scores, given)
    for rule, (label, image) in rules(given, scores, opinion).items():
        row: dict[str, Any] = {"rule": rule, "images": len(given), "wrong_images": int(wrong.any(axis=1).sum())}
        row["wrong_labels"] = int(wrong.sum())
        if not wrong.any():
            continue
        row["label_ap"] = round(float(average_precision_score(wrong.ravel(), label[:, columns].ravel())), 4)
        row["image_ap"] = round(float(average_precision_score(wrong.any(axis=1), image)), 4)
        order = np.argsort(-image, kind="stable")
        for count in FIRST:
            row[f"hits_{count}"] = int(wrong[order[:count]].any(axis=1).sum())
        row["label_hits_200"] = int(wrong.ravel()[np.argsort(-label[:, columns].ravel(), kind="stable")[:200]].sum())
        if rule == "bomd-plus":
            row |= proposals(given, clean, opinion, order)
        yield row


def rules(given: LabelTable, scores: NDArray[Any], opinion: Opinion) -> dict[str, tuple[Scores, Scores]]:
    """(N, C) and (N) suspicion by each rule, higher is more suspect."""
    evidence = calibrate(scores, given.values)
    positive = given.values >= 0.5
    frequency = positive.mean(axis=0)
    rarity = np.where(positive, 1 - frequency, 0.0)
    findings = given.findings
    image, entry = quality(given.values, evidence.astype(np.float32))
    loss = -np.log(np.where(positive, evidence, 1 - evidence))
    ranked = detect(scores, given)
    return {
        "bomd-plus": (np.nan_to_num(opinion.wrong).astype(np.float64), -opinion.rank.astype(np.float64)),
        "cleanlab": (1 - entry.astype(np.float64), 1 - image.astype(np.float64)),
        "rank rule": (-np.nan_to_num(ranked.entry, nan=9.0), -np.nan_to_num(ranked.margin, nan=9.0)),
        "small loss": (loss, loss.mean(axis=1)),
        "most positives": (
            positive * positive[:, findings].sum(axis=1, keepdims=True) / 1.0,
            positive.sum(axis=1) / 1.0,
        ),
        "rarest positives": (rarity, rarity[:, findings].sum(axis=1)),
    }


def proposals(given: LabelTable, clean: NDArray[Any], opinion: Opinion, order: NDArray[np.intp]) -> dict[str, Any]:
    """What it would mean to accept what is proposed; "No Finding" counts as a label here."""
    now, true, better = given.values >= 0.5, clean >= 0.5, opinion.proposed >= 0.5
    findings = np.array([name != NO_FINDING for name in given.classes])
    changed = (now != better) & findings
    row: dict[str, Any] = {}
    for limit in (0.5, 0.8):
        made = changed & (opinion.wrong > limit)
        right = made & (now != true)
        row[f"proposed_{limit}"] = int(made.sum())
        row[f"right_{limit}"] = int(right.sum())
        row[f"recall_{limit}"] = round(float(right.sum() / max(1, ((now != true) & findings).sum())), 4)
    for low, high in BINS:
        made = changed & (opinion.wrong >= low) & (opinion.wrong < high)
        row[f"made_{low}"], row[f"held_{low}"] = int(made.sum()), int((made & (now != true)).sum())
    first = np.zeros(len(now), dtype=np.bool_)
    first[order[:100]] = True
    row["wrong_before"] = int((now != true).sum())
    row["wrong_after_100"] = int((np.where(first[:, None], better, now) != true).sum())
    row["wrong_after_all"] = int((better != true).sum())
    worse = [(better != true)[:, c].sum() > (now != true)[:, c].sum() for c in np.flatnonzero(findings)]
    row["classes_made_worse"] = int(sum(worse))
    return row


if __name__ == "__main__":
    main()
