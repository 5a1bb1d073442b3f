"""Kappa: textbook cases by hand, scikit-learn, and a slow loop."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from bomd.review.agreement import agreement, cohen, fleiss
from bomd.review.decisions import Event


def test_cohen_by_hand() -> None:
    """50 images: both yes 20, both no 15, one alone 5, the other alone 10. (0.7 - 0.5) / (1 - 0.5) = 0.4."""
    one = np.repeat([1, 1, 0, 0], [20, 5, 10, 15])
    other = np.repeat([1, 0, 1, 0], [20, 5, 10, 15])
    assert cohen(one, other) == pytest.approx(0.4)


def test_fleiss_by_hand() -> None:
    """Three people say 1, 1, 1 and 1, 0, 0: agreement (1 + 1/3) / 2 = 2/3, by chance (4/6)² + (2/6)² = 5/9."""
    ratings = np.asarray([[1, 1, 1], [1, 0, 0]], dtype=float)
    assert fleiss(ratings) == pytest.approx((2 / 3 - 5 / 9) / (1 - 5 / 9))


@pytest.mark.parametrize("values", [[], [0, 0], [1, 1, 1]])
def test_it_is_not_defined_where_all_say_the_same(values: list[int]) -> None:
    assert cohen(np.asarray(values), np.asarray(values)) is None
    assert fleiss(np.stack([np.asarray(values, dtype=float)] * 2, axis=1)) is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=40))
def test_cohen_is_what_scikit_learn_says(pairs: list[tuple[int, int]]) -> None:
    one, other = np.asarray(pairs).T
    found = cohen(one, other)
    if found is None:
        assert len({*one, *other}) == 1
    else:
        assert found == pytest.approx(cohen_kappa_score(one, other))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, np.nan]), min_size=4, max_size=4), max_size=20))
def test_fleiss_is_what_counting_pairs_of_people_says(rows: list[list[float]]) -> None:
    """Agreement on an image is the share of pairs of its judges who say the same."""
    shares, said = [], []
    for row in rows:
        judged = [value for value in row if not np.isnan(value)]
        pairs = list(combinations(judged, 2))
        if pairs:
            shares.append(np.mean([a == b for a, b in pairs]))
            said += judged
    found = fleiss(np.asarray(rows, dtype=float).reshape(-1, 4))
    if len(set(said)) < 2:
        assert found is None
    else:
        chance = np.mean(said) ** 2 + (1 - np.mean(said)) ** 2
        assert found == pytest.approx((np.mean(shares) - chance) / (1 - chance))


def judged(name: str, **labels: tuple[int | None, ...]) -> dict[str, Event]:
    return {image: Event(name, image, "edit", values) for image, values in labels.items()}


def test_only_images_that_two_people_judged_count() -> None:
    decisions = {
        "Ada": judged("Ada", a=(1, 0), b=(0, 0), c=(1, 1)) | {"e": Event("Ada", "e", "skip")},
        "Grace": judged("Grace", a=(1, 0), b=(1, 0), d=(0, 0)) | {"e": Event("Grace", "e", "skip")},
        "Nobody": {"a": Event("Nobody", "a", "skip")},
    }
    found = agreement(decisions, ("Mass", "Edema"))
    assert found["measure"] == "Cohen"
    assert found["shared"] == 2
    assert found["reviewers"] == [{"name": "Ada", "images": 3}, {"name": "Grace", "images": 3}]
    assert found["classes"][0] == {"name": "Mass", "labels": 2, "positive": 2, "same": 0.5, "kappa": 0.0}
    assert found["classes"][1] == {"name": "Edema", "labels": 2, "positive": 0, "same": 1.0, "kappa": None}
    assert found["overall"]["kappa"] == pytest.approx((0.75 - 0.5) / 0.5)
    assert found["pairs"] == [{"reviewers": ["Ada", "Grace"], "labels": 4, "kappa": 0.5}]


def test_three_people_get_fleiss_and_unknown_labels_do_not_count() -> None:
    decisions = {
        "A": judged("A", a=(1, None), b=(1, 1)),
        "B": judged("B", a=(1, 1), b=(0, None)),
        "C": judged("C", a=(1, 1), b=(0, None)),
    }
    found = agreement(decisions, ("Mass", "Edema"))
    assert found["measure"] == "Fleiss"
    assert found["classes"][0]["kappa"] == pytest.approx(0.25)
    assert found["classes"][1] == {"name": "Edema", "labels": 1, "positive": 1, "same": 1.0, "kappa": None}


@pytest.mark.parametrize("decisions", [{}, {"Ada": {}}, {"Ada": judged("Ada", a=(1, 0))}])
def test_nobody_or_one_person_is_no_agreement(decisions: dict[str, dict[str, Event]]) -> None:
    found = agreement(decisions, ("Mass", "Edema"))
    assert found["shared"] == 0
    assert found["overall"]["kappa"] is None
