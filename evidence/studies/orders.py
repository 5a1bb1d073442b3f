"""Orders of review side by side: how many wrong images each shows first, on patients that choose or on the others.

    python -m evidence.studies.orders choosing.npz reported.npz fresh.npz --results results/orders.csv

Reads three files that `python -m evidence.studies.opinions RUNS --keep FILE` has kept: of seeds that choose, of those
that are reported, and of those that were drawn when nothing was chosen any more. Every order sees the same labels and
out-of-fold scores of all patients, but is judged on one half of them in the first file, on the other half in the
second, and on all in the third.
"""

from __future__ import annotations

import argparse
import csv
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata  # type: ignore[import-untyped]
from sklearn.metrics import average_precision_score

from bomd.clean.calibrate import calibrate
from bomd.clean.order import TOGETHER, chance_of_any, how_urgent, suspect_patients, weighed
from bomd.clean.posterior import judge
from bomd.clean.rates import Rates, likeliest, possible_rates
from bomd.files import write_text
from bomd.methods.cleanlab import quality
from bomd.tables import LabelTable
from evidence.studies.opinions import Case, facts, read

Scores = NDArray[np.float64]
FIRST = 200  # images that are looked at
CHOOSING, REPORTED, FRESH = PARTS = ("half that chooses", "other half", "all")  # of the patients, in each file
STEEP = 0.8  # of cleanlab's moving average over the labels of an image
THEIRS, BEFORE = "cleanlab", "chance of any wrong label, by images (before)"
CHOSEN = "by the account that explains the labels best"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("choosing", type=Path, help="kept scores (.npz), or a folder of finished runs")
    parser.add_argument("reported", type=Path, help="likewise, of other seeds")
    parser.add_argument("fresh", type=Path, help="likewise, of seeds that nobody had looked at")
    parser.add_argument("--results", type=Path, default=Path("results/orders.csv"))
    given = parser.parse_args()
    rows = [
        facts(case) | row
        for part, place in zip(PARTS, (given.choosing, given.reported, given.fresh), strict=True)
        for case in read([place])
        for row in measure(case, part)
    ]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(given.results, stream.getvalue())


def measure(case: Case, part: str) -> Iterator[dict[str, Any]]:
    """One row of numbers for each order, by the images of some of the patients."""
    findings = case.given.findings
    judged = whose(case.given.groups, part)
    wrong = ((case.given.values >= 0.5) != (case.clean >= 0.5))[:, findings].any(axis=1)
    evidence = calibrate(case.scores, case.given.values)
    for form, order in ORDERS.items():
        urgency = order(case.given, evidence)[judged]
        hits = int(wrong[judged][np.argsort(-urgency, kind="stable")[:FIRST]].sum())
        precision = round(float(average_precision_score(wrong[judged], urgency)), 4)
        yield {"patients": part, "form": form, "hits": hits, "image_ap": precision}


def whose(patients: NDArray[Any], part: str) -> NDArray[np.bool_]:
    """(N) images of those patients by whom a part is judged."""
    half = np.asarray([zlib.crc32(str(patient).encode()) % 2 for patient in patients])
    return np.asarray({CHOOSING: half == 0, REPORTED: half == 1, FRESH: half >= 0}[part])


def _believed(labels: LabelTable, evidence: Scores) -> tuple[Rates, list[Rates]]:
    possible = possible_rates(evidence, labels.values, None, labels.findings)
    return likeliest(possible, evidence, labels.values), possible


def _chances(labels: LabelTable, evidence: Scores) -> Scores:
    """(N, findings) how likely each label is wrong."""
    rates, _ = _believed(labels, evidence)
    found = judge(evidence, labels.values, rates).wrong[:, labels.findings]
    return np.nan_to_num(found.astype(np.float64))


def _losses(labels: LabelTable, evidence: Scores) -> Scores:
    chance = np.where(labels.values >= 0.5, evidence, 1 - evidence)
    return -np.log(chance[:, labels.findings])


def _cleanlab(labels: LabelTable, evidence: Scores) -> Scores:
    return 1 - quality(labels.values, evidence.astype(np.float32))[0].astype(np.float64)


def _moving_average(labels: LabelTable, evidence: Scores) -> Scores:
    chances = np.sort(_chances(labels, evidence), axis=1)
    found = chances[:, 0]
    for column in chances.T[1:]:
        found = STEEP * column + (1 - STEEP) * found
    return found


def _former(labels: LabelTable, evidence: Scores) -> Scores:
    """The chance of any wrong label, by images alone."""
    rates, _ = _believed(labels, evidence)
    alone = np.arange(len(labels))
    suspect = suspect_patients(evidence, labels, rates, alone) if rates.affected < 1 else np.ones(len(labels))
    return chance_of_any(evidence, labels, rates, suspect)


def _by_patient(labels: LabelTable, evidence: Scores) -> Scores:
    """The chance of any wrong label, as if errors sat in whole patients, whatever the labels say."""
    _, possible = _believed(labels, evidence)
    patients = np.unique(labels.groups, return_inverse=True)[1]
    rates = likeliest(possible, evidence, labels.values, patients)
    if rates.affected == 1:
        return _former(labels, evidence)
    return chance_of_any(evidence, labels, rates, suspect_patients(evidence, labels, rates, patients))


def _unhedged(labels: LabelTable, evidence: Scores) -> Scores:
    """That of errors in whole patients, where nothing is added for errors that fall anywhere."""
    rates, possible = _believed(labels, evidence)
    patients = np.unique(labels.groups, return_inverse=True)[1]
    shared = likeliest(possible, evidence, labels.values, patients)
    if shared.gain < rates.gain + TOGETHER:
        return how_urgent(evidence, labels, rates, possible)[0]
    suspect = suspect_patients(evidence, labels, shared, patients)
    _, affected, mistaken = weighed(evidence, labels, shared, slice(None))
    return np.asarray(suspect * (1 - np.prod(1 - (mistaken / affected)[:, labels.findings], axis=1)))


def _blended(labels: LabelTable, evidence: Scores) -> Scores:
    return np.asarray(rankdata(_former(labels, evidence)) + rankdata(_cleanlab(labels, evidence)))


def _chosen(labels: LabelTable, evidence: Scores) -> Scores:
    rates, possible = _believed(labels, evidence)
    return how_urgent(evidence, labels, rates, possible)[0]


ORDERS: dict[str, Callable[[LabelTable, Scores], Scores]] = {
    THEIRS: _cleanlab,
    "sum of the losses": lambda labels, evidence: _losses(labels, evidence).sum(axis=1),
    "expected number of wrong labels": lambda labels, evidence: _chances(labels, evidence).sum(axis=1),
    "likeliest wrong label": lambda labels, evidence: _chances(labels, evidence).max(axis=1),
    "chances averaged as cleanlab does": _moving_average,
    BEFORE: _former,
    "the same and cleanlab, ranks added": _blended,
    "chance of any wrong label, always by patients": _by_patient,
    f"{CHOSEN}, patients unhedged": _unhedged,
    CHOSEN: _chosen,
}


if __name__ == "__main__":
    main()
