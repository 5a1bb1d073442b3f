"""One opinion: what follows for a reviewer by hand, and that accepting it makes planted labels better."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from bomd.clean.opinion import FEWEST, decide, form_opinion, is_learnt, rank_by
from bomd.clean.posterior import Posterior
from bomd.tables import NO_FINDING, LabelTable, Opinion

CLASSES = ("Mass", "Edema", NO_FINDING)


def table(values: list[list[float]] | np.ndarray, classes: tuple[str, ...] = CLASSES) -> LabelTable:
    rows = np.asarray(values, dtype=np.float32)
    return LabelTable(np.asarray([f"i{row}" for row in range(len(rows))]), classes, rows)


def believed(wrong: np.ndarray) -> Posterior:
    """A posterior of which nothing but the probability of wrong labels is looked at."""
    values, nothing = wrong.astype(np.float32), np.zeros(len(wrong), dtype=np.float32)
    return Posterior(values, values, nothing, nothing)


def decided(
    wrong: np.ndarray, given: LabelTable, learnt: list[bool] | None = None, at_least: float = 0.5, reasons: Any = ()
) -> Opinion:
    """What follows where a label is judged if its class was learnt."""
    known = np.ones(wrong.shape[1], dtype=np.bool_) if learnt is None else np.asarray(learnt)
    judged, urgency = np.broadcast_to(known, wrong.shape), np.nansum(wrong[:, given.findings], axis=1)
    return decide(believed(wrong), given, known, judged, at_least, reasons, urgency)


def test_decisions_by_hand() -> None:
    """Six images.

    0: Mass is probably wrong, nothing is left, so No Finding follows. 1: Edema is probably missed, so No Finding goes.
    2: exactly one half is no reason to change. 3: No Finding itself is never judged. 4: Mass is unknown and stays so; a
    soft label is taken as yes. 5: one finding goes and another stays.
    """
    given = table([[1, 0, 0], [0, 0, 1], [1, 0, 0], [0, 0, 1], [np.nan, 0.7, 0], [1, 1, 0]])
    wrong = [[0.9, 0.1, 0], [0, 0.6, 0.9], [0.5, 0, 0], [0, 0, 0.99], [np.nan, 0.4, 0], [0.7, 0.2, 0]]
    found = decided(np.asarray(wrong), given, reasons=("why",))
    hard = [[0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 1], [np.nan, 1, 0], [0, 1, 0]]
    np.testing.assert_array_equal(found.proposed, np.asarray(hard, dtype=np.float32))
    np.testing.assert_allclose(found.expected, [1.0, 0.6, 0.5, 0, 0.4, 0.9])
    assert found.rank.tolist() == [1, 3, 4, 6, 5, 2]  # as urgent as wrong labels are expected here
    assert found.reasons == ("why",)


def test_nothing_is_proposed_for_a_class_that_was_not_learnt() -> None:
    given = table([[1, 1, 0]])
    wrong = np.asarray([[0.9, 0.9, 0.0]])
    found = decided(wrong, given, learnt=[False, True, True])
    assert found.proposed.tolist() == [[1, 0, 0]]
    assert found.expected[0] == pytest.approx(1.8)
    assert found.learnt.tolist() == [False, True, True]
    strict = decided(wrong, given, at_least=0.95)
    assert strict.proposed.tolist() == given.values.tolist()


def test_an_unknown_no_finding_stays_unknown_and_none_is_needed() -> None:
    found = decided(np.asarray([[0.9, 0, np.nan]]), table([[1, 0, np.nan]]))
    assert np.isnan(found.proposed[0, 2])
    without = table([[1, 0]], ("Mass", "Edema"))
    assert decided(np.asarray([[0.9, 0]]), without).proposed.tolist() == [[0, 0]]


def test_where_a_class_was_not_learnt_an_image_may_still_be_judged() -> None:
    """Two images with the same doubt about a class that was not learnt: only one of them is told on by its others."""
    judged = np.asarray([[True, True, True], [False, True, True]])
    wrong, given, learnt = np.full((2, 3), 0.9), table([[1, 1, 0], [1, 1, 0]]), np.asarray([False, True, True])
    found = decide(believed(wrong), given, learnt, judged, 0.5, (), wrong[:, 0])
    assert found.proposed.tolist() == [[0, 0, 1], [1, 0, 0]]


def test_the_order_is_by_urgency_alone() -> None:
    three = table([[1, 1, 0], [1, 0, 0]], ("Mass", "Edema", "Hernia"))
    learnt, judged = np.ones(3, dtype=np.bool_), np.ones((2, 3), dtype=np.bool_)
    found = decide(believed(np.zeros((2, 3))), three, learnt, judged, 0.5, (), np.asarray([0.3, 0.6]))
    assert found.rank.tolist() == [2, 1]
    assert found.expected.tolist() == [0, 0]


def test_equal_images_keep_their_order() -> None:
    assert rank_by(np.asarray([0, 2, 0, 2, 5])).tolist() == [4, 2, 5, 3, 1]


def test_learnt_against_scikit_learn() -> None:
    """Strong evidence, none, the opposite, and strong evidence on one label too few."""
    rng = np.random.default_rng(0)
    labels = (rng.random((400, 4)) < 0.2).astype(np.float64)
    labels[:, 3] = np.arange(400) < FEWEST - 1
    evidence = np.stack([labels[:, 0], np.zeros(400), -labels[:, 2], labels[:, 3]], axis=1) + rng.random((400, 4))
    learnt, strength = is_learnt(evidence, labels)
    assert learnt.tolist() == [True, False, False, False]
    for column in range(4):
        assert strength[column] == pytest.approx(roc_auc_score(labels[:, column], evidence[:, column]))
    labels[FEWEST - 1, 3], evidence[FEWEST - 1, 3] = 1, 1.5
    assert is_learnt(evidence, labels)[0][3]
    labels[:, 0], labels[:, 1] = 0, np.nan
    learnt, strength = is_learnt(evidence, labels)
    assert not learnt[:2].any()
    assert np.isnan(strength[:2]).all()


def test_chance_is_seldom_taken_for_learning() -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random((300, 400)) < 0.1).astype(np.float64)
    assert is_learnt(rng.random(labels.shape), labels)[0].mean() < 0.06


def simulated(kind: str, seed: int, rows: int = 4000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, true labels and given labels: eight findings of 4 to 20 %, and No Finding where there is none."""
    rng = np.random.default_rng(seed)
    often = np.linspace(0.04, 0.2, 8)
    truth = (rng.random((rows, 8)) < often).astype(np.float32)
    scores = 3 * truth + rng.normal(size=truth.shape)
    given = truth.copy()
    if kind == "sparse":  # one finding is added, dropped or swapped in a fifth of the images
        for row in rng.permutation(rows)[: rows // 5]:
            have, lack = np.flatnonzero(truth[row]), np.flatnonzero(truth[row] == 0)
            way = rng.integers(3) if len(have) else 0
            if way > 0:
                given[row, rng.choice(have)] = 0
            if way != 1:
                given[row, rng.choice(lack)] = 1
    else:  # every label of a third of the images is turned round with probability 0.3
        hit = (np.arange(rows) % 3 == 0)[:, None]
        given = np.where(hit & (rng.random(truth.shape) < 0.3), 1 - truth, truth)
    full = [np.concatenate([part, part.max(axis=1, keepdims=True) == 0], axis=1) for part in (truth, given)]
    nothing = -scores.max(axis=1, keepdims=True)
    return np.concatenate([scores, nothing], axis=1), full[0].astype(np.float32), full[1].astype(np.float32)


NINE = (*(f"F{column}" for column in range(8)), NO_FINDING)


@pytest.mark.parametrize("kind", ["sparse", "affected"])
@pytest.mark.parametrize("seed", [0, 1])
def test_accepting_all_proposals_makes_labels_better(kind: str, seed: int) -> None:
    """At least a quarter of the wrong labels goes, no class gets worse, and no more is promised than is kept."""
    scores, truth, given = simulated(kind, seed)
    found, posterior, _ = form_opinion(scores, table(given, NINE))
    before, after = (given != truth)[:, :8], (found.proposed != truth)[:, :8]
    assert after.sum() < 0.75 * before.sum()
    assert (after.sum(axis=0) <= before.sum(axis=0)).all()
    changed = (found.proposed != given)[:, :8]
    assert changed.sum() > 200
    for low in (0.5, 0.6, 0.7, 0.8, 0.9):
        part = changed & (found.wrong[:, :8] >= low) & (found.wrong[:, :8] < low + 0.1)
        if part.sum() > 20:
            assert before[part].mean() > found.wrong[:, :8][part].mean() - 0.05
    first = before.any(axis=1)[np.argsort(found.rank)[:200]]
    assert first.mean() > 0.97
    assert np.array_equal(found.wrong[:, :8], posterior.wrong[:, :8], equal_nan=True)


def test_right_labels_are_left_alone() -> None:
    scores, truth, _ = simulated("sparse", 3)
    found = form_opinion(scores, table(truth, NINE))[0]
    assert (found.proposed != truth)[:, :8].mean() < 0.002


def test_confirmed_labels_and_known_rates() -> None:
    scores, _, given = simulated("sparse", 0, 1500)
    labels = table(given, NINE)
    free = form_opinion(scores, labels)[0]
    fixed = free.wrong > 0.5
    assert fixed.any()
    found = form_opinion(scores, replace(labels, confirmed=fixed))[0]
    assert (found.wrong[fixed] == 0).all()
    assert (found.proposed[:, :8][fixed[:, :8]] == given[:, :8][fixed[:, :8]]).all()
    some = np.zeros_like(fixed)
    some[:700] = fixed[:700]
    others = form_opinion(scores, replace(labels, confirmed=some))[0]
    assert (others.proposed != given)[700:, :8].any(), "what nobody decided on may still be proposed"
    never = np.zeros(9)
    content = form_opinion(scores, labels, known=(never, never))[0]
    assert content.expected.max() == 0
    np.testing.assert_array_equal(content.proposed, given)


def test_order_of_images_and_classes_is_nothing() -> None:
    scores, _, given = simulated("affected", 0, 1500)
    found = form_opinion(scores, table(given, NINE))[0]
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(1500), rng.permutation(9)
    names = tuple(NINE[column] for column in columns)
    other = form_opinion(scores[rows][:, columns], table(given[rows][:, columns], names))[0]
    np.testing.assert_allclose(other.wrong, found.wrong[rows][:, columns], atol=1e-5)
    np.testing.assert_array_equal(other.proposed, found.proposed[rows][:, columns])


def test_unknown_and_soft_labels() -> None:
    scores, _, given = simulated("sparse", 0, 1500)
    rng = np.random.default_rng(0)
    given[rng.random(given.shape) < 0.2] = np.nan
    given[given == 1] = 0.8
    found = form_opinion(scores, table(given, NINE))[0]
    assert np.array_equal(np.isnan(found.wrong), np.isnan(given))
    assert np.array_equal(np.isnan(found.proposed), np.isnan(given))
    assert set(np.unique(found.proposed[~np.isnan(given)])) == {0, 1}
    assert np.isfinite(found.expected).all()


@pytest.mark.parametrize("classes", [1, 2, 500])
def test_few_and_many_classes(classes: int) -> None:
    """And one class that nobody has, about which nothing is said."""
    rng = np.random.default_rng(0)
    given = (rng.random((300, classes)) < 0.2).astype(np.float32)
    given[:, -1] = 0
    names = tuple(f"F{column}" for column in range(classes))
    found = form_opinion(given + rng.normal(size=given.shape), table(given, names))[0]
    assert not found.learnt[-1]
    assert (found.proposed[:, -1] == 0).all()
    assert np.isfinite(found.wrong).all()
    assert found.wrong.min() >= 0
    assert found.wrong.max() <= 1
    assert names[-1] in found.reasons[-1]


def test_no_finding_is_as_doubtful_as_the_findings_make_it() -> None:
    """Findings that are there with .1 and .2 leave .9 x .8 = .72 for none: wrong with .28 if given, with .72 if not."""
    wrong = np.asarray([[0.1, 0.2, 0.5], [0.9, 0.2, 0.5]], dtype=np.float32)
    truth = np.asarray([[0.1, 0.2, 0.5], [0.1, 0.2, 0.5]], dtype=np.float32)
    nothing = np.zeros(2, dtype=np.float32)
    labels = LabelTable(
        np.asarray(["a", "b"]), ("Mass", "Edema", NO_FINDING), np.asarray([[0, 0, 1], [1, 0, 0]], dtype=np.float32)
    )
    posterior = Posterior(wrong, truth, nothing, nothing)
    found = decide(posterior, labels, np.ones(3, np.bool_), np.ones((2, 3), np.bool_), 0.6, (), nothing)
    assert found.wrong[:, 2].tolist() == pytest.approx([0.28, 0.72])
    assert found.proposed.tolist() == [[0, 0, 1], [0, 0, 1]]
    assert found.expected.tolist() == pytest.approx([0.3, 1.1])


def test_a_class_is_learnt_where_its_auc_beats_chance_by_two_standard_errors() -> None:
    """400 small classes near the limit, by Hanley and McNeil's error of scikit-learn's AUC."""
    random = np.random.default_rng(0)
    verdicts = []
    for _ in range(400):
        ill, well = (int(number) for number in random.integers(8, 16, size=2))
        labels = np.asarray([1.0] * ill + [0.0] * well)
        scores = labels * random.uniform(0, 1.6) + random.normal(size=ill + well)
        area = roc_auc_score(labels, scores)
        one, two = area / (2 - area), 2 * area * area / (1 + area)
        variance = area * (1 - area) + (ill - 1) * (one - area * area) + (well - 1) * (two - area * area)
        wanted = ill >= 10 and well >= 10 and area > 0.5 + 2 * (max(variance, 0) / (ill * well)) ** 0.5
        learnt, strength = is_learnt(scores[:, None], labels[:, None].astype(np.float32))
        assert strength[0] == pytest.approx(area)
        assert bool(learnt[0]) == wanted
        verdicts.append(wanted)
    assert 50 < sum(verdicts) < 350


def test_a_change_is_proposed_from_six_in_ten_on() -> None:
    """By default, for classes that are learnt; some labels lie just below that limit and some just above."""
    random = np.random.default_rng(4)
    truth = (random.random((1500, 3)) < 0.3).astype(np.float32)
    given = np.where(random.random(truth.shape) < 0.08, 1 - truth, truth).astype(np.float32)
    scores = 2.5 * truth + random.normal(size=truth.shape)
    table = LabelTable(np.asarray([f"i{row:04}" for row in range(1500)]), ("a", "b", "c"), given)
    known = (np.full(3, 0.08), np.full(3, 0.08))
    opinion, _, _ = form_opinion(scores, table, known=known)
    assert opinion.learnt.all()
    assert ((opinion.proposed != given) == (opinion.wrong > 0.6)).all()
    for low, high in ((0.5, 0.6), (0.6, 0.65)):
        assert ((opinion.wrong > low) & (opinion.wrong < high)).any()
