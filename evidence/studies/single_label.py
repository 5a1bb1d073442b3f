"""One label per image: wrong labels found and classifiers learnt, on scikit-learn's digits and on phantoms.

    python -m evidence.studies.single_label              # heads on the pixels of the digits: a minute
    python -m evidence.studies.single_label --network    # networks: minutes on a GPU, where parts may run side by side:
    for seed in 0 1 2 3 4; do for set in digits phantoms "many phantoms"; do
      python -m evidence.studies.single_label --network --sets "$set" --seeds $seed --results new.csv &
    done; done; wait
    python -m evidence.studies.single_label --add new.csv --page  # into results/ and docs/single-label.md

Heads on pixels judge all digits, as `bomd audit --features` does. For networks a third of the digits is held out with
right labels, and on the others labels are moved. The phantoms are labelled with the finding that is drawn most
strongly; they are tested on another hospital, and learnt on top of ImageNet: a start from phantoms would have seen the
generator of the test images. Every order of review sees the same labels and the same scores, by models
that never saw the image. The rule for single labels was developed on digits, too, with other models and splits. Rows
are kept unless they are made anew.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import statistics
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.special import softmax  # type: ignore[import-untyped]
from sklearn.datasets import load_digits

from bomd import config
from bomd.clean.heads import cross_fit_heads
from bomd.clean.opinion import form_opinion
from bomd.data.noise import NOISES
from bomd.data.one_label import with_kind
from bomd.experiments.experiment import run
from bomd.experiments.records import LabelRecord
from bomd.files import locked, write_text
from bomd.methods import METHODS
from bomd.methods.cleanlab import find_wrong_single
from bomd.seeds import derive
from bomd.tables import LabelTable, Opinion
from evidence import DOCS
from evidence import RESULTS as RECORDS
from evidence.rows import read_rows
from evidence.studies.photos import spread

PAGE, RESULTS = DOCS / "single-label.md", RECORDS / "single-label.csv"
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SIDE = 16  # pixels of a digit, twice as many as it has
SEEDS = (0, 1, 2, 3, 4)
NOISE: tuple[dict[str, Any], ...] = (
    {"kind": "symmetric", "rows": 0.2},
    {"kind": "symmetric", "rows": 0.4},
    {"kind": "pairflip", "rows": 0.2},
    {"kind": "pairflip", "rows": 0.4},
    {},
)
FIT = {"backbone": "small", "weights": "none", "epochs": 14, "batch": 64, "rate": 0.004, "betas": [0.9, 0.999]}
FIT |= {"eps": 1e-8, "schedule": "cosine", "augment": "light"}
ON_PHANTOMS = FIT | {"backbone": "efficientnet_lite0", "weights": "imagenet", "epochs": 8, "rate": 0.0015}
PHANTOMS, PHANTOM_SIDE = {"phantoms": 4_000, "many phantoms": 20_000}, 64
PHANTOM_NOISE = (NOISE[0], NOISE[2], NOISE[4])
RULES = {
    "cleanlab": "cleanlab, self-confidence",
    "cleanlab margin": "cleanlab, normalised margin",
    "bomd-plus": "**bomd**",
}
SETS = {"digits": "digits", "phantoms": "phantoms, one finding"}
SETS |= {"many phantoms": "20,000 phantoms, one finding"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", action="store_true", help="train networks instead of heads on pixels")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS), help="of networks, only these")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="of networks, only these")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where rows are added")
    parser.add_argument("--add", type=Path, nargs="+", help="files with such rows to add, instead of making any")
    parser.add_argument("--page", action="store_true", help="put the numbers into the page, and stop")
    parser.add_argument("--work", type=Path, default=Path("runs/single-label"), help="where runs are kept")
    chosen = parser.parse_args()
    for path in chosen.add or ():
        add(read_rows(path), chosen.results)
    if chosen.page:
        write_text(PAGE, filled(PAGE.read_text(encoding="utf-8")))
    if chosen.page or chosen.add:
        return
    for part in networks(chosen.work, chosen.sets, chosen.seeds) if chosen.network else heads():
        add(part, chosen.results)


def add(new: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Rows into a table, in place of older ones about the same; several processes may do so at once."""
    with locked(path):
        rows = {key_of(row): row for row in [*read_rows(path), *new]}
        write_rows(path, list(rows.values()))


def networks(work: Path, sets: Sequence[str], seeds: Sequence[int]) -> Iterator[list[dict[str, Any]]]:
    """The rows of each pair of runs."""
    for recipe, facts in recipes(work, seeds):
        if facts["set"] in sets:
            yield list(measured(recipe, facts, work))


def heads() -> Iterator[list[dict[str, Any]]]:
    """The rows of softmax heads on the pixels of all digits, for each noise and seed."""
    pixels, places = load_digits(return_X_y=True)
    ids = np.asarray([f"{number:04}" for number in range(len(places))])
    clean = with_kind(LabelTable(ids, WORDS, np.eye(10, dtype=np.float32)[places]), "single")
    for seed in SEEDS:
        for noise in NOISE:
            given = clean
            if noise:
                given = NOISES[noise["kind"]](clean, rows=noise["rows"], seed=derive(seed, "noise")).noisy
            scores = cross_fit_heads(pixels, given.values, given.groups, seed=seed, exclusive=True)
            opinion, _, _ = form_opinion(scores, given)
            yield list(judged(_facts("heads", "digits", noise, seed), given, clean, scores, opinion))


def write_digits(folder: Path) -> Path:
    """The digits as a folder: `labels.csv` with image, label and split, and a PNG for each."""
    digits, classes = load_digits(return_X_y=True)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    lines = ["image,label,split"]
    for number, (pixels, place) in enumerate(zip(digits, classes, strict=True)):
        name = f"{number:04}.png"
        grey = np.round(pixels.reshape(8, 8) * (255 / 16)).astype(np.uint8)
        Image.fromarray(grey).save(folder / "images" / name)
        lines.append(f"{name},{WORDS[place]},{'test' if number % 3 == 2 else 'train'}")
    write_text(folder / "labels.csv", "\n".join(lines) + "\n")
    return folder


def recipes(work: Path, seeds: Sequence[int]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every run but for its method, and what its rows are called by."""
    with locked(work / "digits"):  # others may read them already
        written = (work / "digits" / "labels.csv").exists()
        root = str(work / "digits" if written else write_digits(work / "digits"))
    place: dict[str, Any] = {"dataset": "folder", "root": root}
    digits = {"train": place | {"split": "train"}, "test": {"new": place | {"split": "test"}}}
    kinds: list[tuple[str, int, dict[str, Any], Sequence[dict[str, Any]], dict[str, Any]]]
    kinds = [("digits", SIDE, FIT, NOISE, digits)]
    for name, count in PHANTOMS.items():
        place = {"dataset": "phantom", "count": count, "one_finding": True}
        new = place | {"count": PHANTOMS["phantoms"], "hospital": "south", "split": "test"}
        kinds.append((name, PHANTOM_SIDE, ON_PHANTOMS, PHANTOM_NOISE, {"train": place, "test": {"new": new}}))
    for seed, (name, size, fit, noises, data) in itertools.product(seeds, kinds):
        for noise in noises:
            recipe = {"name": name, "seed": seed, "validation": 0.0, "images": {"size": size}, "noise": dict(noise)}
            yield recipe | {"fit": fit} | data, _facts("network", name, noise, seed)


def _facts(evidence: str, name: str, noise: Mapping[str, Any], seed: int) -> dict[str, Any]:
    return {"evidence": evidence, "set": name, "noise": spelt(noise), "seed": seed}


def spelt(noise: Mapping[str, Any]) -> str:
    return f"{noise['kind']} {100 * noise['rows']:.0f} %" if noise else "none"


def measured(recipe: dict[str, Any], facts: dict[str, Any], work: Path) -> Iterator[dict[str, Any]]:
    """One row for each method and order of review."""
    done = {
        method: run(config.parse(recipe | {"method": method}, METHODS), work / "runs", loggers=())
        for method in ("bce", "bomd-plus")
    }
    tests = {method: one.result()["tests"]["new"] for method, one in done.items()}
    scores = {
        method: {"accuracy": round(test["accuracy"], 4), "auc": round(test["mean_auc"], 4)}
        for method, test in tests.items()
    }
    record = LabelRecord.load(done["bomd-plus"].directory / "labels.npz")
    assert record.scores is not None
    yield {**facts, "rule": "bce", **scores["bce"]}
    right = record.given if record.clean is None else record.clean
    for row in judged(facts, record.given, right, record.scores, record.opinion):
        yield row | (scores["bomd-plus"] if row["rule"] == "bomd-plus" else {})


def judged(
    facts: dict[str, Any], given: LabelTable, clean: LabelTable, scores: NDArray[Any], opinion: Opinion
) -> Iterator[dict[str, Any]]:
    """One row for each order of review, and what comes of proposals, all by the same scores."""
    wrong = np.asarray((clean.values != given.values).any(axis=1))
    probabilities = softmax(scores.astype(np.float64), axis=1)
    proposed = {"bomd-plus": opinion.proposed, "cleanlab": moved_by_cleanlab(given, probabilities)}
    for rule, order in orders(given, probabilities, opinion).items():
        hits = {f"hits_{count}": int(wrong[order[:count]].sum()) for count in (100, 200)}
        row = {**facts, "rule": rule, "images": len(wrong), "wrong": int(wrong.sum()), **hits}
        if rule in proposed:
            moves = (proposed[rule] != given.values).any(axis=1)
            good = (proposed[rule] == clean.values).all(axis=1)
            row |= {"moved": int(moves.sum()), "moved_right": int((moves & good).sum())}
            row |= {"wrong_after": int((~good).sum())}
        yield row


def orders(given: LabelTable, probabilities: NDArray[np.float64], opinion: Opinion) -> dict[str, NDArray[np.intp]]:
    """(N) rows in the order that each rule would have them looked at."""
    labels = given.values.argmax(axis=1)
    rank = import_module("cleanlab.rank").get_label_quality_scores
    quality = {
        "cleanlab": rank(labels, probabilities),
        "cleanlab margin": rank(labels, probabilities, method="normalized_margin"),
        "bomd-plus": opinion.rank,
    }
    return {rule: np.argsort(values, kind="stable") for rule, values in quality.items()}


def moved_by_cleanlab(given: LabelTable, probabilities: NDArray[np.float64]) -> NDArray[np.float32]:
    """(N, C) labels after those that cleanlab finds wrong have moved to the likeliest class."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong, _ = find_wrong_single(given, probabilities.astype(np.float32))
    likeliest = np.eye(probabilities.shape[1], dtype=np.float32)[probabilities.argmax(axis=1)]
    return np.where(wrong, likeliest, given.values)


def key_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What a row is about, by which rows are sorted, too."""
    return tuple(str(row[name]) for name in ("evidence", "set", "noise", "rule", "seed"))


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(sorted(rows, key=key_of))
    write_text(path, stream.getvalue())


def filled(page: str) -> str:
    """The page with its tables made anew from the results."""
    tables = {"orders": orders_table, "labels": labels_table, "accuracy": accuracy_table}
    for evidence, name in itertools.product(("heads", "network"), tables):
        rows, table = [row for row in read_rows(RESULTS) if row["evidence"] == evidence], tables[name]
        mark = f"single-{evidence}-{name}"
        if f"<!-- {mark} -->" not in page:
            continue
        before, _, rest = page.partition(f"<!-- {mark} -->")
        page = f"{before}<!-- {mark} -->\n\n{table(rows)}\n\n<!-- /{mark} -->" + rest.partition(f"<!-- /{mark} -->")[2]
    return page


def orders_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Wrong images among the first 100 and 200."""
    noisy = [case for case in cases(rows) if case[1] != "none"]
    lines = [_head("order", noisy), "|---" * (len(noisy) + 1) + "|"]
    chance = [mean(rows, case, "bomd-plus", "wrong") / mean(rows, case, "bomd-plus", "images") for case in noisy]
    lines.append(f"| at random | {' | '.join(f'{100 * share:.0f} / {200 * share:.0f}' for share in chance)} |")
    for rule, name in RULES.items():
        hits = [[mean(rows, case, rule, f"hits_{count}") for count in (100, 200)] for case in noisy]
        lines.append(f"| {name} | {' | '.join(f'{first:.0f} / {second:.0f}' for first, second in hits)} |")
    return "\n".join(lines)


def labels_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Wrong labels before and after all proposals."""
    heads = ("wrong", "moved", "of these right", "wrong after", "wrong after cleanlab's moves")
    lines = [f"| labels | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    columns = [("bomd-plus", key) for key in ("wrong", "moved", "moved_right", "wrong_after")]
    for case in cases(rows):
        cells = [f"{mean(rows, case, rule, key):.0f}" for rule, key in (*columns, ("cleanlab", "wrong_after"))]
        lines.append(f"| {SETS[case[0]]}, {case[1]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def accuracy_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Accuracy and mean AUC on right labels."""
    lines = [_head("learnt by", cases(rows)), "|---" * (len(cases(rows)) + 1) + "|"]
    for rule in ("bce", "bomd-plus"):
        cells = [
            f"{spread(pick(rows, case, rule, 'accuracy'), 3)} ({mean(rows, case, rule, 'auc'):.3f})"
            for case in cases(rows)
        ]
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cases(rows: Sequence[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Sets with their noise, in the order in which they are made."""
    every = [("digits", spelt(noise)) for noise in NOISE]
    every += [(name, spelt(noise)) for name in PHANTOMS for noise in PHANTOM_NOISE]
    found = {(row["set"], row["noise"]) for row in rows}
    return [case for case in every if case in found]


def pick(rows: Sequence[Mapping[str, str]], case: tuple[str, str], rule: str, column: str) -> list[float]:
    """A number of every seed."""
    return [float(row[column]) for row in rows if (row["set"], row["noise"], row["rule"]) == (*case, rule)]


def mean(rows: Sequence[Mapping[str, str]], case: tuple[str, str], rule: str, column: str) -> float:
    return statistics.fmean(pick(rows, case, rule, column))


def _head(first: str, shown: Sequence[tuple[str, str]]) -> str:
    return f"| {first} | {' | '.join(f'{SETS[name]}, {noise}' for name, noise in shown)} |"


if __name__ == "__main__":
    main()
