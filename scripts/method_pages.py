"""Write docs/methods-NAME.md and results/methods-NAME-comparison.* from the records of every method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bomd.files import write_text
from bomd.measure.benchmark import Record, read_records
from bomd.measure.comparison import (
    BASELINE,
    NO_NOISE,
    REFERENCE,
    Comparison,
    compare,
    markdown,
    noise_name,
    write_comparison,
)
from bomd.methods import METHODS

ROOT = Path(__file__).parents[1]
RESULTS, DOCS = ROOT / "results", ROOT / "docs"
SOURCES = {"methods-demo": "methods-demo", "methods-nih": "nih-64"}  # page -> records in results/
COLUMNS = (NO_NOISE, "(0.2, 0.2)", "(0.4, 0.4)", "(0.6, 0.6)")
SEEDS = (0, 1, 2)
ASKED = "Methods asked for: "  # opens the line that tells a reader, and a test, what the page is about


def main() -> None:
    for name, source in SOURCES.items():
        records = records_of(source)
        write_comparison(comparisons(records, list(METHODS)), RESULTS / f"{name}-comparison.csv")
        write_text(DOCS / f"{name}.md", page(f"{source}.jsonl", records, list(METHODS)))


def records_of(source: str) -> list[Record]:
    """The recorded runs that belong to the comparison; others of the same data are for other tables."""
    every = read_records(RESULTS / f"{source}.jsonl")
    return [
        record for record in every if noise_name(record["config"]["noise"]) in COLUMNS and not _detection_only(record)
    ]


def _detection_only(record: Record) -> bool:
    """Whether the classifier was cut short, because only the flags before it mattered."""
    return bool(record["config"]["fit"]["epochs"] == 1)


def comparisons(records: Sequence[Record], methods: Sequence[str]) -> list[Comparison]:
    """What there is of all methods, levels of noise and seeds that were asked for; the rest is missing."""
    return compare(records, methods, COLUMNS, SEEDS)


def page(source: str, records: Sequence[Record], methods: Sequence[str]) -> str:
    found = comparisons(records, methods)
    names = " and ".join(one.name for one in found)
    wanted = sum(len(one.rows) * len(one.columns) * len(one.seeds) for one in found)
    tests = len({(row, column) for one in found for row in one.rows if row != REFERENCE for column in one.columns})
    return f"""# Every method side by side: {names}

Written by `scripts/method_pages.py` from `results/{source}`: {len(records)} of {wanted} runs are in, the others are
called missing. {devices(records)}

{ASKED}{", ".join(methods)}. `bomd methods` says what each one is, where it is from and what is different here.

{chr(10).join(setting(one) for one in found)}
Every method is trained by the same loop on the same images, noise and splits. A column (0.4, 0.4) means that 40 % of
the training images have each label flipped with probability 0.4. Scores are mean ± sample standard deviation over
seeds, which redraw noise, split and networks. "Held-out patients" are of the training set and are judged by the labels
before noise was added.

How to read the p-values: they are one-sided, small where {REFERENCE} is better and near 1 where the other method is.
The z-test is the paper's, which divides the difference of the means by the other method's standard deviation over
seeds: it ignores the number of seeds and the spread of {REFERENCE} itself, and is here to be compared with the paper.
Welch's t-test takes both into account; with three seeds it finds large differences only. Nothing is corrected for the
number of comparisons: of {tests} on each test set, about {tests / 20:.0f} would fall below 0.05 by chance
if no method differed.

How to read the cost: training time is the mean of all runs, some of which shared the device with others ("runs at once"
is the most that did), so that it compares methods only roughly. Images presented count every image that went through a
network, with or without a gradient, relative to {BASELINE} with the same data. Memory is the largest peak of any run.

{chr(10).join(markdown(one) for one in found)}"""


def setting(found: Comparison) -> str:
    """What was trained on what, in a few words; one record stands for all."""
    record = next(iter(found.entries.values()))
    config, images = record["config"], record["result"]["images"]
    tests = ", ".join(f"{images[test]:,} of {test}" for test in found.tests if test in images)
    train = f"{images['train']:,} training images ({config['train']['dataset']}) at {config['images']['size']} px"
    return (
        f"**{found.name}**: {train}, {describe_fit(config['fit'])}; test images: {tests or 'none'}. Means are over "
        f"findings with at least {config['minimum_positives']} positives.\n"
    )


def describe_fit(fit: dict[str, Any]) -> str:
    start = "random weights" if fit["weights"] == "none" else f"{fit['weights']} weights"
    return f"{fit['backbone']} from {start}, {fit['epochs']} epochs in batches of {fit['batch']}"


def devices(records: Sequence[Record]) -> str:
    places = [record["environment"] for record in records]
    found = sorted({f"{place['device']}, torch {place['versions']['torch']}" for place in places})
    commits = sorted({commit(place) for place in places})
    return f"Run on {'; '.join(found)}; code: {', '.join(commits)}."


def commit(environment: dict[str, Any]) -> str:
    """Its first letters, and whether the code differed from it."""
    name = (environment["commit"] or "no commit")[:7]
    return f"{name} with changes not yet committed" if environment["uncommitted"] else name


if __name__ == "__main__":
    main()
