"""How well wrong labels are found, and what proposals are worth, against other rules on the same evidence.

    python -m evidence.studies.opinions RUNS --keep scores.npz      # of finished runs, and what they rest on
    python -m evidence.studies.opinions scores.npz                  # again, when a rule has changed

Reads finished runs of bomd-plus to whose labels known noise was added, or what was kept of them. Every rule sees the
same given labels and, where it looks at images at all, the same out-of-fold scores. Two rules look at no image: they
show what counting does. Images on which no noise could fall count as right. Nothing is trained. Rows of other runs in
results/opinions.csv stay as they are.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    parser.add_argument("places", type=Path, nargs="+", help="finished runs, folders of them, or kept scores (.npz)")
    parser.add_argument("--results", type=Path, default=Path("results/opinions.csv"))
    parser.add_argument("--keep", type=Path, help="write labels and scores of all of them to this file")
    given = parser.parse_args()
    cases = list(read(given.places))
    if given.keep is not None:
        keep(cases, given.keep)
    found = [facts(case) | row for case in cases for row in measure(case.given, case.clean, case.scores)]
    write_table(found, given.results)


@dataclass(frozen=True, eq=False)
class Case:
    """One run: labels with known noise, and the scores by networks that did not see the image."""

    recipe: str
    noise: str
    seed: int
    given: LabelTable
    clean: NDArray[Any]
    scores: NDArray[Any]


def facts(case: Case) -> dict[str, Any]:
    return {"recipe": case.recipe, "noise": case.noise, "seed": case.seed}


def read(places: Sequence[Path]) -> Iterator[Case]:
    """What finished runs of bomd-plus, or kept scores of them, have to say of labels to which noise was added."""
    for path in (place for place in places if place.suffix == ".npz"):
        kept = read_arrays(path)
        for name in sorted({key.rpartition("|")[0] for key in kept}):
            record = {key.rpartition("|")[2]: value for key, value in kept.items() if key.rpartition("|")[0] == name}
            recipe, noise, seed = json.loads(name)
            yield from _case(recipe, noise, seed, record)
    folders = [place for place in places if place.suffix != ".npz"]
    for run in runs.find(folders) if folders else ():
        config = run.config()
        if config["method"] == "bomd-plus":
            yield from _case(config["name"], config["noise"], config["seed"], read_arrays(run.directory / "labels.npz"))


def _case(recipe: str, noise: str | dict[str, Any], seed: int, record: dict[str, NDArray[Any]]) -> Iterator[Case]:
    if "clean" in record:
        values, classes = np.asarray(record["given"], dtype=np.float32), tuple(map(str, record["classes"]))
        table = LabelTable(record["ids"], classes, values, None, record["patients"])
        spoken = noise if isinstance(noise, str) else noise_name(noise)
        yield Case(recipe, spoken, seed, table, record["clean"], np.asarray(record["scores"], dtype=np.float32))


def keep(cases: Sequence[Case], path: Path) -> None:
    """Labels as bytes and scores as halves: a run of 5,000 images takes 150 kB."""
    arrays: dict[str, NDArray[Any]] = {}
    for case in cases:
        name = json.dumps([case.recipe, case.noise, case.seed])
        arrays |= {
            f"{name}|given": (case.given.values >= 0.5).astype(np.uint8),
            f"{name}|clean": (case.clean >= 0.5).astype(np.uint8),
            f"{name}|scores": case.scores.astype(np.float16),
            f"{name}|ids": case.given.ids,
            f"{name}|classes": np.asarray(case.given.classes, dtype=np.str_),
            f"{name}|patients": case.given.groups,
        }
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def write_table(found: Sequence[dict[str, Any]], path: Path) -> None:
    """Rows of these runs take the place of older ones of the same."""
    new = {tuple(str(row[key]) for key in ("recipe", "noise", "seed")) for row in found}
    with path.open(encoding="utf-8") if path.exists() else io.StringIO() as stream:
        older = [row for row in csv.DictReader(stream) if (row["recipe"], row["noise"], row["seed"]) not in new]
    rows = [*older, *found]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(sorted(rows, key=lambda row: (row["recipe"], row["noise"], row["rule"], int(row["seed"]))))
    write_text(path, text.getvalue())


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
            row["account"] = next(reason for reason in opinion.reasons if reason.endswith("come first."))
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
