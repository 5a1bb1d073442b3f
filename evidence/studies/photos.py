"""Colour photographs with known errors in their labels: what an audit finds, in colour and in grey.

    python -m evidence.studies.photos ../shared/data/photos --results results/photos.csv
    python -m evidence.studies.photos ../shared/data/photos --results results/photos.csv --network --seeds 0
    python -m evidence.studies.photos --page

The photographs are frames of a few films, so that blocks of consecutive numbers stand for patients: the blocks that are
held out are never learnt from, and the folds of the evidence are made of whole blocks. Labels count as right before the
errors are planted. Every rule sees the same labels and, where it looks at images, the same out-of-fold scores. Settings
are those of an audit on a CPU; nothing was chosen by looking at a number below. Rows of a file of results are kept
unless they are made anew.
"""

from __future__ import annotations

import argparse
import csv
import io
import statistics
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from bomd import config, runs
from bomd.clean.heads import RIDGES, SCALE, cross_fit_heads
from bomd.clean.opinion import form_opinion
from bomd.data.batches import Images
from bomd.data.datasets import folder
from bomd.data.noise import NOISES
from bomd.data.split import split_by_patient
from bomd.data.store import pack
from bomd.experiments.experiment import run
from bomd.experiments.noise_names import noise_name
from bomd.files import read_arrays, write_text
from bomd.learn.learner import prepare
from bomd.measure.metrics import classification
from bomd.measure.result import BEFORE_NOISE
from bomd.methods import METHODS
from bomd.methods.bomd_plus import WORTH_SOFTENING, worth_softening
from bomd.networks.backbone import build
from bomd.seeds import derive
from bomd.tables import LabelTable
from evidence import DOCS
from evidence import RESULTS as RECORDS
from evidence.rows import read_rows
from evidence.studies.opinions import measure

PAGE, RESULTS = DOCS / "photos.md", RECORDS / "photos.csv"
BLOCK = 50  # consecutive numbers that stay together
HELD_OUT = 0.2  # of the blocks
FEWEST = 5  # positives among the held-out photographs, for a class to count in the mean AUC
SIZES = {"features": 96, "network": 64}  # pixels
SEEDS = (0, 1, 2)
MODES = ("grey", "colour")
NOISE: tuple[dict[str, Any], ...] = (
    {"kind": "symmetric", "rows": 0.2, "labels": 0.2},
    {"kind": "symmetric", "rows": 0.4, "labels": 0.4},
    {"kind": "sparse"},
)
EVIDENCE = {
    "features": "frozen features of efficientnet_lite0 (ImageNet)",
    "network": "a small network from scratch",
}
RULES = {
    "most positives": "most labels first",
    "rarest positives": "rarest labels first",
    "small loss": "largest loss first",
    "cleanlab": "cleanlab",
    "bomd-plus": "**bomd-plus**",
}
KEY = ("evidence", "mode", "noise", "seed", "rule")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, nargs="?", help="the folder with labels.csv and images/")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--work", type=Path, default=Path("runs/photos"), help="where packed images and runs are kept")
    parser.add_argument("--network", action="store_true", help="train networks instead of using frozen features")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--page", action="store_true", help="write docs/photos.md from the results, and stop")
    given = parser.parse_args()
    if given.page:
        write_text(PAGE, filled(PAGE.read_text(encoding="utf-8")))
        return
    table = read_photos(given.photos, given.work)
    make = with_network if given.network else with_features
    found = {tuple(str(row[key]) for key in KEY): row for row in read_rows(given.results)}
    for mode in MODES:
        for row in make(table, mode, given.seeds, given.work):
            found[tuple(str(row[key]) for key in KEY)] = row
            write_rows(given.results, list(found.values()))


def read_photos(photos: Path, work: Path) -> LabelTable:
    """The photographs with their blocks in place of patients, and a table of both for recipes."""
    with (photos / "labels.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    lines = [f"{row['file']},{int(row['file'][1:7]) // BLOCK},{row['animals']}" for row in rows]
    write_text(work / "labels.csv", "\n".join(["file,block,animals", *lines]) + "\n")
    return folder.read(**place_of(photos, work))


def place_of(photos: Path, work: Path) -> dict[str, Any]:
    columns = {"id_column": "file", "patient_column": "block", "label_column": "animals"}
    return {"root": str(work), "labels": "labels.csv", "images": str((photos / "images").absolute()), **columns}


def with_features(table: LabelTable, mode: str, seeds: tuple[int, ...], work: Path) -> Iterator[dict[str, Any]]:
    """Logistic heads on frozen features judge the labels, as in `bomd audit --features`, and classify."""
    features = frozen_features(table, mode, work)
    for noise in NOISE:
        for seed in seeds:
            kind, options = noise["kind"], {key: value for key, value in noise.items() if key != "kind"}
            noisy = NOISES[kind](table=table, seed=derive(seed, "noise"), **options)
            kept, held_out = split_by_patient(noisy.noisy, HELD_OUT, derive(seed, "validation"))
            given, truth = noisy.noisy.take(kept), noisy.clean.take(held_out)
            scores = cross_fit_heads(features[kept], given.values, given.groups, seed=seed).astype(np.float32)
            _, posterior, rates = form_opinion(scores, given)
            certain = worth_softening(rates, given)  # else bomd-plus learns what is given
            believed = posterior.truth if certain and rates.affected < 1 else given.values
            weights = posterior.weight if certain else np.ones(len(given))
            aucs = {
                "bce": head_auc(features, kept, held_out, given.values, np.ones(len(given)), truth),
                "bomd-plus": head_auc(features, kept, held_out, believed, weights, truth),
            }
            facts = {"evidence": "features", "mode": mode, "noise": noise_name(noise), "seed": seed}
            yield from rows_of(facts, given, noisy.clean.take(kept).values, scores, aucs, len(truth))


def with_network(table: LabelTable, mode: str, seeds: tuple[int, ...], work: Path) -> Iterator[dict[str, Any]]:
    """Whole runs of `bce` and `bomd-plus` with the network that an audit takes where there is no other."""
    assert table.paths is not None
    photos = Path(str(table.paths[0])).parents[1]
    for noise in NOISE:
        for seed in seeds:
            made: dict[str, runs.Run] = {}
            for method in ("bce", "bomd-plus"):
                recipe = {
                    "name": f"photos-{mode}",
                    "method": method,
                    "seed": seed,
                    "validation": HELD_OUT,
                    "minimum_positives": FEWEST,
                    "images": {"size": SIZES["network"], "mode": mode},
                    "train": {"dataset": "folder", **place_of(photos, work)},
                    "noise": noise,
                    "fit": {"backbone": "small", "weights": "none", "epochs": 12, "batch": 32, "rate": 0.002}
                    | {"betas": [0.9, 0.999], "eps": 1e-8, "schedule": "cosine", "augment": "light"},
                }
                made[method] = run(config.parse(recipe, METHODS), work / "runs", loggers=())
            aucs = {method: done.result()["tests"][BEFORE_NOISE]["mean_auc"] for method, done in made.items()}
            record = read_arrays(made["bomd-plus"].directory / "labels.npz")
            classes = tuple(map(str, record["classes"]))
            given = LabelTable(record["ids"], classes, record["given"], None, record["patients"])
            facts = {"evidence": "network", "mode": mode, "noise": noise_name(noise), "seed": seed}
            held_out = made["bce"].result()["images"][BEFORE_NOISE]
            yield from rows_of(facts, given, record["clean"], record["scores"], aucs, held_out)


def rows_of(
    facts: dict[str, Any],
    given: LabelTable,
    clean: NDArray[Any],
    scores: NDArray[Any],
    aucs: dict[str, float],
    held_out: int,
) -> Iterator[dict[str, Any]]:
    """One row for each order of review, and one for plain training."""
    yield {**facts, "rule": "bce", "held_out": held_out, "auc": round(aucs["bce"], 4)}
    _, _, rates = form_opinion(scores, given)
    believed = {"gain": round(rates.gain / len(given.classes), 5), "affected": round(rates.affected, 3)}
    for row in measure(given, clean, scores):
        own = {"held_out": held_out, "auc": round(aucs["bomd-plus"], 4), **believed}
        yield {**facts, **row, **(own if row["rule"] == "bomd-plus" else {})}


def frozen_features(table: LabelTable, mode: str, work: Path) -> NDArray[np.float32]:
    """(N, F) of every photograph, computed once."""
    path = work / f"features-{mode}-{SIZES['features']}.npy"
    if not path.exists():
        store = pack(table, work / f"packed-{mode}", SIZES["features"], colour=mode == "colour")
        network = build("efficientnet_lite0", 1, weights="imagenet", seed=0).eval()
        images = Images(store, table.ids, torch.device("cpu"))
        with torch.no_grad():
            parts = [
                network.features(prepare(pixels.float(), network.channels))
                for _, pixels in images.iterate(torch.arange(len(table)), 64)
            ]
        np.save(path, torch.cat(parts).numpy())
    return np.asarray(np.load(path))


def head_auc(
    features: NDArray[np.float32],
    kept: NDArray[Any],
    held_out: NDArray[Any],
    targets: NDArray[Any],
    weights: NDArray[Any],
    truth: LabelTable,
) -> float:
    """Mean AUC on the held-out blocks of logistic heads that learn these targets, each image with its weight."""
    spread, middle = features[kept].std(axis=0), features[kept].mean(axis=0)
    scaled = (features - middle) * (SCALE / np.where(spread > 0, spread, 1))
    rows, label = np.concatenate([scaled[kept], scaled[kept]]), np.repeat([1, 0], len(targets))
    scores = np.zeros(truth.values.shape)
    for column, chance in enumerate(np.clip(targets, 0, 1).T):
        weight = np.concatenate([weights * chance, weights * (1 - chance)])
        used = weight > 0
        if len(np.unique(label[used])) == 2:
            head = LogisticRegression(C=1 / (RIDGES[1] * len(targets)), max_iter=60)
            scores[:, column] = head.fit(rows[used], label[used], weight[used]).decision_function(scaled[held_out])
    found = LabelTable(truth.ids, truth.classes, (1 / (1 + np.exp(-scores))).astype(np.float32))
    return classification(truth, found, bootstrap=0, minimum_positives=FEWEST).mean_auc


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    columns = list(dict.fromkeys([*KEY, "held_out", "auc", *(name for row in rows for name in row)]))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(sorted(rows, key=lambda row: [str(row[key]) for key in KEY]))
    write_text(path, stream.getvalue())


def filled(page: str) -> str:
    """The page with its tables made anew from the results."""
    rows = read_rows(RESULTS)
    page = between(page, "photos-summary", summary(rows))
    for evidence in EVIDENCE:
        own = [row for row in rows if row["evidence"] == evidence]
        for name, table in (("auc", auc_table), ("orders", orders_table), ("proposals", proposals_table)):
            page = between(page, f"photos-{evidence}-{name}", table(own))
    return page


def between(page: str, mark: str, text: str) -> str:
    """The page with this text between its two marks."""
    before, _, rest = page.partition(f"<!-- {mark} -->")
    return f"{before}<!-- {mark} -->\n\n{text}\n\n<!-- /{mark} -->" + rest.partition(f"<!-- /{mark} -->")[2]


def summary(rows: list[dict[str, str]]) -> str:
    """What the tables below say, in sentences."""
    frozen = [row for row in rows if row["evidence"] == "features"]
    cells = [(noise, mode) for noise in noises(frozen) for mode in MODES]

    def average(noise: str, mode: str, rule: str, column: str) -> float:
        return statistics.fmean(pick(frozen, mode, noise, rule, column))

    hits = [average(*cell, "bomd-plus", "hits_200") - average(*cell, "cleanlab", "hits_200") for cell in cells]
    changes = {
        cell: average(*cell, "bomd-plus", "wrong_after_all") - average(*cell, "bomd-plus", "wrong_before")
        for cell in cells
    }
    worse = [f"{noise} in {mode} ({change:+.0f})" for (noise, mode), change in changes.items() if round(change) > 0]
    colour = [average(n, "colour", "bce", "auc") - average(n, "grey", "bce", "auc") for n in noises(frozen)]
    gains = {cell: average(*cell, "bomd-plus", "gain") for cell in cells}
    heavy = [average("(0.4, 0.4)", mode, "bomd-plus", "affected") for mode in MODES]
    same = all(average(*cell, "bomd-plus", "auc") == average(*cell, "bce", "auc") for cell in cells)
    sentences = (
        "Errors are found far more often than by chance and by counting labels. bomd-plus, cleanlab and the plain loss "
        f"order them about alike: in the first 200, frozen features, bomd-plus has {min(hits):+.0f} to {max(hits):+.0f}"
        " against cleanlab.",
        f"Colour against grey, frozen features, plain training: {min(colour):+.3f} to {max(colour):+.3f} AUC, within "
        "the spread of the seeds.",
        f"bomd-plus learns {'exactly what' if same else 'something else than'} plain training learns here. Labels are "
        f"softened where affected images explain them better by {WORTH_SOFTENING} nats a label, a limit from X-rays. "
        f"Five animals give at most {max(gains.values()):.4f}; at (0.4, 0.4) about {statistics.fmean(heavy):.0%} of "
        "the images are taken to be affected, instead of 40 %.",
        "Few changes are proposed, since the evidence is weak. Accepting them all changes the number of wrong labels "
        f"by {min(changes.values()):+.0f} to {max(changes.values()):+.0f}, and adds errors under "
        f"{', '.join(worse) or 'no noise'}: proposals are not worth accepting unseen on evidence like this.",
    )
    return "\n".join(textwrap.fill(f"- {sentence}", 120, subsequent_indent="  ") for sentence in sentences)


def auc_table(rows: list[dict[str, str]]) -> str:
    """Mean AUC on held-out blocks with right labels."""
    lines = [f"| images, learnt | {' | '.join(noises(rows))} |", "|---" * (len(noises(rows)) + 1) + "|"]
    for mode in MODES:
        for rule, name in (("bce", "as given"), ("bomd-plus", "bomd-plus")):
            cells = [spread(pick(rows, mode, noise, rule, "auc"), 3) for noise in noises(rows)]
            lines.append(f"| {mode}, {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def orders_table(rows: list[dict[str, str]]) -> str:
    """Images with a wrong label among the first 100 and 200."""
    lines = [f"| order | {' | '.join(noises(rows))} |", "|---" * (len(noises(rows)) + 1) + "|"]
    chance = []
    for noise in noises(rows):
        own = [row for row in rows if row["noise"] == noise and row["rule"] == "bomd-plus"]
        share = statistics.fmean(int(row["wrong_images"]) / int(row["images"]) for row in own)
        chance.append(f"{100 * share:.0f} / {200 * share:.0f}")
    lines.append(f"| at random | {' | '.join(chance)} |")
    for rule, name in RULES.items():
        for mode in MODES if rule in ("small loss", "cleanlab", "bomd-plus") else MODES[:1]:
            kind = f", {mode}" if rule in ("small loss", "cleanlab", "bomd-plus") else ""
            cells = []
            for noise in noises(rows):
                first, second = (pick(rows, mode, noise, rule, f"hits_{count}") for count in (100, 200))
                cells.append(f"{statistics.fmean(first):.0f} / {statistics.fmean(second):.0f}")
            lines.append(f"| {name}{kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def proposals_table(rows: list[dict[str, str]]) -> str:
    """Wrong labels before, and after accepting what is proposed."""
    heads = ("wrong labels", "after the first 100 images", "after all proposals", "proposed", "of these right")
    lines = [f"| noise, images | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    columns = ("wrong_before", "wrong_after_100", "wrong_after_all", "proposed_0.5", "right_0.5")
    for noise in noises(rows):
        for mode in MODES:
            cells = [f"{statistics.fmean(pick(rows, mode, noise, 'bomd-plus', name)):.0f}" for name in columns]
            lines.append(f"| {noise}, {mode} | {' | '.join(cells)} |")
    return "\n".join(lines)


def noises(rows: list[dict[str, str]]) -> list[str]:
    return sorted({row["noise"] for row in rows}, key=lambda noise: (noise == "sparse", noise))


def pick(rows: list[dict[str, str]], mode: str, noise: str, rule: str, column: str) -> list[float]:
    """A number of every seed."""
    own = [row for row in rows if (row["mode"], row["noise"], row["rule"]) == (mode, noise, rule)]
    return [float(row[column]) for row in own]


def spread(values: list[float], digits: int) -> str:
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{deviation}"


if __name__ == "__main__":
    main()
