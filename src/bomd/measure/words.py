"""The outcome of a set of runs in plain sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bomd.measure import paired
from bomd.measure.summary import VALIDATION, Group, number, show, spread, summarise

DESCRIBED = 2  # methods that flag or change labels and are described; the sections below have them all


def in_words(groups: Sequence[Group]) -> list[dict[str, str]]:
    """What came out of one experiment, as points with a lead and a text, the most important first."""
    rows = [summarise(group) for group in groups]
    tests = dict.fromkeys(test for row in rows for test in row["tests"] if test != VALIDATION)
    points = [point for test in tests if (point := _winner(groups, rows, test))]
    if not tests:
        points.append(
            {"lead": "No test set.", "text": "Only held-out patients were scored, whose labels may be wrong."}
        )
    ranked = sorted(zip(groups, rows, strict=True), key=lambda pair: -_best(pair[1]))
    judging = [(group, row) for group, row in ranked if row["flagged"] or _relabelled(row)]
    for group, row in judging[:DESCRIBED]:
        sentences = (_flagged(row), _detected(row), _relabelled(row), _emptied(group))
        points += [point for point in sentences if point]
    if rest := [row["method"] for _, row in judging[DESCRIBED:]]:
        points.append({"lead": f"{len(rest)} more flag or change labels:", "text": f"{', '.join(rest)}; see below."})
    if not any(row["flagged"] for row in rows):
        points.append({"lead": "No flags.", "text": "None of these methods says which labels look wrong."})
    return points


def _best(row: dict[str, Any]) -> float:
    """The highest mean AUC on a test set, to put the methods that matter most first."""
    return max((value["mean"] for test, value in row["tests"].items() if value and test != VALIDATION), default=0.0)


def _winner(groups: Sequence[Group], rows: Sequence[dict[str, Any]], test: str) -> dict[str, str] | None:
    scored = [(group, row["tests"].get(test)) for group, row in zip(groups, rows, strict=True)]
    ranked = sorted((pair for pair in scored if pair[1]), key=lambda pair: -pair[1]["mean"])
    if not ranked:
        return {"lead": f"{test}: no mean AUC.", "text": "No finding has both positives and negatives there."}
    best, score = ranked[0]
    reached = f"{best.label} reaches a mean AUC of {show(score)} over the findings of test set {test}"
    if len(ranked) == 1:
        return {"lead": reached + ".", "text": _runs(score)}
    second, other = ranked[1]
    gap = score["mean"] - other["mean"]
    if round(gap, 3) == 0:
        lead = f"{best.label} and {second.label} are level on test set {test}: {show(score)} and {show(other)}."
    else:
        lead = f"{reached}, {gap:.3f} above {second.label} at {show(other)}."
    rest = [f"{group.label} {value['mean']:.3f}" for group, value in ranked[2:]]
    behind = f" Behind them: {', '.join(rest)}." if rest else ""
    return {"lead": lead, "text": f"{_runs(score)} {_certainty(best, second, test)}{behind}".strip()}


def _runs(score: dict[str, Any]) -> str:
    if score["count"] > 1:
        return f"± is the standard deviation over {score['count']} seeds."
    if score["low"] is None:
        return "This is a single run: another seed may shift it."
    return "Brackets hold the 95 % interval over the test patients of a single run; another seed adds to it."


def _certainty(best: Group, second: Group, test: str) -> str:
    """How sure the order of two groups is: over seeds they share, or over the patients of a single run."""
    theirs = {run.seed: run for run in second.runs}
    shared = [(run, theirs[run.seed]) for run in best.runs if run.seed in theirs]
    if len(shared) > 1:
        gaps = [
            one - other
            for mine, yours in shared
            if (one := number(mine.result["tests"].get(test), "mean_auc")) is not None
            and (other := number(yours.result["tests"].get(test), "mean_auc")) is not None
        ]
        won = sum(gap > 0 for gap in gaps)
        gap = _signed(spread(gaps))
        return f"Seed by seed the difference is {gap}; {best.label} is ahead in {won} of {len(gaps)}."
    if len(shared) == 1 and (found := _paired(*shared[0], test)) is not None:
        low, high = found
        verdict = "more than the choice of patients explains" if low > 0 else "so it may be chance"
        between = f"between {low:+.3f} and {high:+.3f} (95 %)"
        return f"On resampled test patients the difference lies {between}, {verdict}."
    return ""


def _paired(mine: Any, yours: Any, test: str) -> tuple[float, float] | None:
    """The interval of the difference, where both runs scored the very same images."""
    from bomd.measure.records import load_predictions  # here, since it brings PyTorch along

    one = load_predictions(mine.run.directory / "predictions.npz")
    other = load_predictions(yours.run.directory / "predictions.npz")
    if test not in one or test not in other:
        return None
    (truth, scores), (same, others) = one[test], other[test]
    if truth.classes != same.classes or not np.array_equal(truth.ids, same.ids):
        return None
    found = paired.difference(truth, scores, others)
    return None if found is None else found[1:]


def _signed(value: dict[str, Any] | None) -> str:
    if value is None:
        return "unknown"
    return f"{value['mean']:+.3f}" + ("" if value["std"] is None else f" ± {value['std']:.3f}")


def _flagged(row: dict[str, Any]) -> dict[str, str] | None:
    flagged = row["flagged"]
    if not flagged:
        return None
    lead = f"{row['method']} flags {show(flagged, percent=True)} of the training images."
    text = f"That is {flagged['images']:,.0f} of {flagged['of']:,.0f}"
    text += f" on average over {flagged['count']} runs." if flagged["count"] > 1 else "."
    if not row["detection"]:
        text += " Their right labels are not known, so nothing says how many are truly wrong."
    return {"lead": lead, "text": text}


def _emptied(group: Group) -> dict[str, str] | None:
    """A warning when the rule leaves nothing of a class: its positives are then never learnt as given."""
    items = group.first.result["composition"] or []
    present = [item for item in items if item["given"]]
    empty = [item["name"] for item in present if not item["kept"]]
    if not empty:
        return None
    lead = f"{group.label} keeps no positive label of {len(empty)} of {len(present)} classes as clean."
    return {"lead": lead, "text": f"In the run with seed {group.first.seed}: {', '.join(empty)}."}


def _detected(row: dict[str, Any]) -> dict[str, str] | None:
    found = row["detection"]
    if not found.get("precision") or not found.get("base_rate") or not found.get("recall"):
        return None
    lead = (
        f"{show(found['precision'], percent=True)} of the images that {row['method']} flags have a wrong "
        f"label (of all images with known truth: {show(found['base_rate'], percent=True)})."
    )
    text = f"It finds {show(found['recall'], percent=True)} of those that do."
    if found.get("auroc"):
        text += f" As a ranking its margin has AUROC {show(found['auroc'])}"
        counted = found.get("auroc_by_count")
        beaten = counted and counted["mean"] < found["auroc"]["mean"]
        verdict = "merely counting positive labels has" if beaten else "merely counting positive labels does no worse,"
        text += f"; {verdict} {show(counted)}." if counted else "."
    return {"lead": lead, "text": text}


def _relabelled(row: dict[str, Any]) -> dict[str, str] | None:
    before, after = row["labels"].get("before"), row["labels"].get("after")
    if not before or not after or before["mean"] == after["mean"]:
        return None
    better = "closer to" if after["mean"] > before["mean"] else "further from"
    lead = f"The labels that {row['method']} proposes are {better} the truth than the given ones."
    return {"lead": lead, "text": f"Label AUC {show(before)} before, {show(after)} after."}
