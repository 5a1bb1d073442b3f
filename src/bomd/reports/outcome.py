"""What came of the demo, for a person: errors found by looking, what training is worth, today and as recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.table import Column, Table

from bomd import recipes
from bomd.experiments.recorded import Record
from bomd.experiments.records import LabelRecord
from bomd.files import read_json
from bomd.measure.quality import found_by_looking
from bomd.measure.result import HELD_OUT
from bomd.measure.significance import Sample, show
from bomd.reports.gallery import known_truth, truly_changed

RECORD = Path(recipes.__file__).with_name("demo.json")  # written by evidence/pages/readme.py from results/
NOISY, OURS, RIGHT = "noisy labels", "ours", "right labels"
COUNTING, RANDOM, PERFECT = "counting labels", "at random", "perfect"
LEARNT = {"bce": NOISY, "bomd-plus": OURS}  # what each method of the demo learns from
ORDERS = (OURS, COUNTING, RANDOM, PERFECT)
TESTS = {HELD_OUT: "new patients, same hospital", "south": "another hospital"}
Facts = dict[str, Any]  # of one seed, as JSON has them: "scores" by what was learnt from and test set, and "found"


@dataclass(frozen=True)
class Outcome:
    """What came of the demo, of one seed or over several."""

    scores: dict[tuple[str, str], Sample]  # mean AUC by what was learnt from and by test set
    found: dict[str, Sample]  # how many "images", "wrong" ones, and wrong ones among as many first in each order
    seeds: int

    @classmethod
    def over(cls, seeds: Sequence[Facts]) -> Outcome:
        """Of one seed with its intervals, of several with their spread."""
        scores, found = {}, {}
        for learnt in (NOISY, OURS, RIGHT):
            for test in TESTS:
                known = [seed["scores"][learnt][test] for seed in seeds if test in seed["scores"].get(learnt, {})]
                if known and (sample := Sample.of([value for value, _, _ in known], *known[0][1:])):
                    scores[learnt, test] = sample
        for name in ("images", "wrong", *ORDERS):
            if sample := Sample.of(seed["found"].get(name) for seed in seeds):
                found[name] = sample
        return cls(scores, found, len(seeds))


def scores_of(record: Record) -> dict[str, list[float]]:
    """Mean AUC of a run with the ends of its interval, by test set."""
    return {
        test: [scores.mean_auc, scores.mean_auc_low, scores.mean_auc_high]
        for test in TESTS
        if (scores := record.result.scores(test))
    }


def curves(labels: LabelRecord) -> dict[str, NDArray[np.float64]]:
    """By order of review, how many wrong images there are among the first 0 to N; nothing where none is known."""
    known = known_truth(labels)
    wrong = truly_changed(labels)[known]
    if not wrong.any():
        return {}
    orders = {
        OURS: -labels.opinion.rank[known],
        COUNTING: (labels.given.values[known] >= 0.5).sum(axis=1),
        RANDOM: np.zeros(len(wrong)),
        PERFECT: wrong,
    }
    return {name: found_by_looking(wrong, order) for name, order in orders.items()}


def found_of(labels: LabelRecord) -> dict[str, float]:
    """How many wrong images are found when as many are looked at as are wrong, by order of review."""
    lines = curves(labels)
    if not lines:
        return {}
    wrong = round(lines[PERFECT][-1])
    found = {name: float(line[wrong]) for name, line in lines.items()}
    return {"images": len(lines[OURS]) - 1, "wrong": wrong, **found}


def labels_of(runs: Sequence[Record]) -> LabelRecord:
    """The labels of the run that judged them."""
    ours = next(run for run in runs if LEARNT.get(run.config.method) == OURS)
    return LabelRecord.load((ours.directory or Path()) / "labels.npz")


def facts_of(runs: Sequence[Record]) -> Facts:
    """What came of the runs of one seed."""
    scores = {LEARNT[run.config.method]: scores_of(run) for run in runs if run.config.method in LEARNT}
    return {"scores": scores, "found": found_of(labels_of(runs))}


def recorded() -> dict[str, Any]:
    """What was recorded with the settings that ship: "seeds", facts of each, and "sparse", errors hard to find."""
    return dict(read_json(RECORD))


def tables(today: Outcome, record: Mapping[str, Any] | None) -> list[Table]:
    """For the terminal: errors found and mean AUC, today's beside those of the record."""
    past = Outcome.over(record["seeds"]) if record else None
    both = [("this run", today), *([(f"record, {past.seeds} seeds", past)] if past else [])]
    found = _table("Images with a wrong label among those looked at first", ["looked at", *ORDERS])
    for name, outcome in both:
        if outcome.found:
            found.add_row(name, *(f"{outcome.found[key].mean:,.0f}" for key in ("wrong", *ORDERS)))
    if record:
        sparse = record["sparse"]
        row = [f"{line[-1]:,.0f}" for line in (sparse["looked"], *(sparse[order] for order in ORDERS))]
        found.add_row("record, one wrong label\nin 20 % of the images", *row)
    scores = _table("Mean AUC over findings, learnt from", [NOISY, OURS, RIGHT])
    for test, words in TESTS.items():
        scores.add_row(words)
        for name, outcome in both:
            cells = [show(outcome.scores.get((learnt, test))) for learnt in (NOISY, OURS, RIGHT)]
            scores.add_row(f"  {name}", *(cell.replace(" (", "\n(") for cell in cells))
    return [found, scores] if found.row_count else [scores]


def _table(title: str, heads: Sequence[str]) -> Table:
    columns = [Column(), *(Column(head, justify="right") for head in heads)]
    return Table(*columns, title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
