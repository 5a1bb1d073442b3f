"""How far reviewers agree beyond chance: Cohen's kappa for two, Fleiss' for more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.review.decisions import JUDGEMENTS, Event

Ratings = NDArray[np.float64]


def cohen(one: NDArray[Any], other: NDArray[Any]) -> float | None:
    """Cohen's kappa of two people's 0/1 judgements (I); None where chance alone explains everything or I is 0."""
    a, b = np.asarray(one) == 1, np.asarray(other) == 1
    if not len(a):
        return None
    expected = a.mean() * b.mean() + (1 - a.mean()) * (1 - b.mean())
    return None if expected >= 1 else float(((a == b).mean() - expected) / (1 - expected))


def fleiss(ratings: Ratings) -> float | None:
    """Fleiss' kappa of 0/1 judgements (I, R), NaN where somebody has not judged.

    Images may have different numbers of judgements; one with fewer than two says nothing about agreement and is
    left out.
    """
    judged = (~np.isnan(ratings)).sum(axis=1)
    ratings, judged = ratings[judged >= 2], judged[judged >= 2]
    if not len(ratings):
        return None
    positive = np.nansum(ratings, axis=1)
    negative = judged - positive
    agreed = (positive * (positive - 1) + negative * (negative - 1)) / (judged * (judged - 1))
    share = positive.sum() / judged.sum()
    expected = share**2 + (1 - share) ** 2
    return None if expected >= 1 else float((agreed.mean() - expected) / (1 - expected))


def agreement(decisions: Mapping[str, Mapping[Any, Event]], classes: Sequence[str]) -> dict[str, Any]:
    """Kappa for every class and over all of them, and Cohen's kappa of every pair of reviewers, as plain values.

    An image counts where at least two reviewers have judged it, not skipped. Kappa is None where it is not defined,
    which is so when all judgements are the same.
    """
    judged = {}
    for name, events in sorted(decisions.items()):
        if own := {image: event for image, event in events.items() if event.action in JUDGEMENTS}:
            judged[name] = own
    ratings = _ratings(list(judged.values()), len(classes))
    shared = (~np.isnan(ratings)).any(axis=2).sum(axis=1) >= 2
    pooled = ratings[shared].transpose(0, 2, 1).reshape(int(shared.sum()) * len(classes), len(judged))
    pairs = []
    for (first, one), (second, other) in combinations(enumerate(judged), 2):
        both = pooled[:, [first, second]]
        both = both[~np.isnan(both).any(axis=1)]
        pairs.append({"reviewers": [one, other], "labels": len(both), "kappa": _rounded(cohen(both[:, 0], both[:, 1]))})
    return {
        "measure": "Cohen" if len(judged) == 2 else "Fleiss",
        "reviewers": [{"name": name, "images": len(events)} for name, events in judged.items()],
        "shared": int(shared.sum()),
        "overall": _line(pooled),
        "classes": [{"name": name, **_line(ratings[shared, :, column])} for column, name in enumerate(classes)],
        "pairs": pairs,
    }


def _ratings(judged: Sequence[Mapping[Any, Event]], C: int) -> Ratings:
    """(I, R, C) labels of all images that anybody judged; NaN where somebody has not, or left it unknown."""
    places = {image: place for place, image in enumerate(dict.fromkeys(image for events in judged for image in events))}
    ratings = np.full((len(places), len(judged), C), np.nan)
    for reviewer, events in enumerate(judged):
        for image, event in events.items():
            ratings[places[image], reviewer] = np.asarray(event.labels, dtype=np.float64)  # None becomes NaN
    return ratings


def _line(ratings: Ratings) -> dict[str, Any]:
    """One line of the table from judgements (I, R)."""
    count = (~np.isnan(ratings)).sum(axis=1)
    ratings, count = ratings[count >= 2], count[count >= 2]
    positive = np.nansum(ratings, axis=1)
    kappa = cohen(ratings[:, 0], ratings[:, 1]) if ratings.shape[1] == 2 else fleiss(ratings)
    same = (positive == 0) | (positive == count)
    return {
        "labels": len(ratings),
        "positive": int((positive > 0).sum()),
        "same": round(float(same.mean()), 4) if len(ratings) else None,
        "kappa": _rounded(kappa),
    }


def _rounded(kappa: float | None) -> float | None:
    return None if kappa is None else round(kappa, 4)
