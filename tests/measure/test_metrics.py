from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from bomd.errors import InputError
from bomd.measure import metrics
from bomd.measure.metrics import classification, mean_auc
from bomd.measure.quality import (
    clean_set_composition,
    detection,
    found_by_looking,
    histogram_distance,
    label_auc,
    label_histogram,
)
from bomd.tables import NO_FINDING, Flags, LabelTable

NAN = np.nan


def table_of(values, classes=None, ids=None, patients=None):
    values = np.asarray(values, dtype=np.float32)
    names = np.array([f"image {i}" for i in range(len(values))]) if ids is None else np.asarray(ids)
    return LabelTable(names, classes or tuple("abcdefghijklm"[: values.shape[1]]), values, patients=patients)


def random_case(seed=0, N=300, C=4, patients=120):
    generator = np.random.default_rng(seed)
    truth = (generator.random((N, C)) < 0.2).astype(np.float32)
    scores = np.clip(truth * 0.2 + generator.random((N, C)) * 0.8, 0, 1).round(2)  # rounding makes equal scores
    truth[generator.random((N, C)) < 0.1] = NAN
    return table_of(truth, patients=generator.integers(0, patients, N)), table_of(scores)


def test_point_estimates_are_those_of_scikit_learn():
    truth, predicted = random_case()
    result = classification(truth, predicted, bootstrap=0)
    for column, row in enumerate(result.classes):
        known = ~np.isnan(truth.values[:, column])
        labels, scores = truth.values[known, column], predicted.values[known, column]
        assert row.auc == roc_auc_score(labels, scores)
        assert row.ap == average_precision_score(labels, scores)
        assert (row.positives, row.negatives) == (labels.sum(), (1 - labels).sum())
        assert math.isnan(row.auc_low)
    assert result.mean_auc == pytest.approx(np.mean([row.auc for row in result.classes]))
    assert result.mean_ap == pytest.approx(np.mean([row.ap for row in result.classes]))
    assert mean_auc(truth, predicted) == result.mean_auc


def test_a_hand_sized_case():
    """Truth 1 0 1 0 in order of score: three of four pairs are right; precision is 1, then 2/3."""
    row = classification(table_of([[1], [0], [1], [0]]), table_of([[0.9], [0.8], [0.7], [0.6]])).classes[0]
    assert row.auc == 0.75
    assert row.ap == pytest.approx((1 + 2 / 3) / 2)


def test_a_draw_with_one_positive_or_one_negative_is_scored_and_one_without_is_not():
    """Scores .9 .8 .7 .6 of 1 0 1 0: without the first, the only positive beats one of two."""
    labels, scores = np.array([1.0, 0, 1, 0]), np.array([0.9, 0.8, 0.7, 0.6])
    weights = np.array([[0, 1, 1, 1], [2, 0, 1, 1], [0, 2, 0, 2], [2, 0, 2, 0]], dtype=np.float32)
    found = metrics.weighted_scores(labels, scores, weights)
    np.testing.assert_allclose(found, [[0.5, 1, NAN, NAN], [0.5, 1, NAN, NAN]])


def test_what_goes_with_a_model_is_rounded_and_lacks_what_was_not_measured():
    """Three of four pairs are right; of "b" there are no positives."""
    truth, predicted = table_of([[1, 0], [0, 0], [1, 0], [0, 0]]), table_of([[0.9, 0], [0.8, 0], [0.7, 0], [0.6, 0]])
    brief = classification(truth, predicted, bootstrap=0).brief()
    assert brief == {"mean_auc": 0.75, "low": None, "high": None, "findings": 1, "auc": {"a": 0.75, "b": None}}
    thirds = classification(table_of([[1], [0], [0], [0]]), table_of([[0.5], [0.9], [0.3], [0.1]]), bootstrap=0)
    assert thirds.brief()["auc"] == {"a": 0.6667}


@pytest.mark.parametrize("seed", range(3))
def test_weighted_scores_equal_scikit_learn_on_repeated_rows(seed):
    """Every draw scored the slow way: rows repeated as often as their patient was drawn."""
    truth, predicted = random_case(seed, N=80, patients=30)
    labels, scores = truth.values, predicted.values
    for _, weights in metrics.patient_draws(truth.groups, 20, seed):
        for patient in np.unique(truth.groups):  # whole patients are drawn, as many as there are
            assert (np.ptp(weights[:, truth.groups == patient], axis=1) == 0).all()
        first = [np.flatnonzero(truth.groups == patient)[0] for patient in np.unique(truth.groups)]
        assert (weights[:, first].sum(axis=1) == len(first)).all()
        for column in range(4):
            found = metrics.weighted_scores(labels[:, column], scores[:, column], weights)
            for draw, weight in enumerate(weights.astype(int)):
                rows = np.repeat(np.arange(80), weight)
                rows = rows[~np.isnan(labels[rows, column])]
                assert found[0, draw] == pytest.approx(roc_auc_score(labels[rows, column], scores[rows, column]))
                expected = average_precision_score(labels[rows, column], scores[rows, column])
                assert found[1, draw] == pytest.approx(expected)


def test_intervals_hold_the_estimate_and_widen_with_fewer_patients():
    truth, predicted = random_case(patients=300)
    alone = classification(truth, predicted, seed=1)
    for row in alone.classes:
        assert 0 <= row.auc_low < row.auc < row.auc_high <= 1
        assert 0 <= row.ap_low < row.ap < row.ap_high <= 1
        assert row.draws == 1000
    assert alone.mean_auc_low < alone.mean_auc < alone.mean_auc_high
    spread = max(row.auc_high - row.auc_low for row in alone.classes)
    assert alone.mean_auc_high - alone.mean_auc_low < spread  # a mean is steadier than a class
    again = classification(truth, predicted, seed=1)
    assert again.to_dict() == alone.to_dict()  # where NaN is None: unlike NaN it equals itself
    assert classification(truth, predicted, seed=2).to_dict() != alone.to_dict()
    twice = np.r_[np.arange(300), np.arange(300)]  # every image twice is no new evidence
    names = [f"image {i}" for i in range(600)]
    copied = classification(
        table_of(truth.values[twice], ids=names, patients=truth.groups[twice]),
        table_of(predicted.values[twice], ids=names),
        seed=1,
    )
    assert copied.classes[0].auc_low == pytest.approx(alone.classes[0].auc_low)


def test_rows_match_by_id_and_classes_by_name():
    truth, predicted = random_case()
    order = np.random.default_rng(0).permutation(300)
    other = LabelTable(predicted.ids[order], ("d", "x", "a", "b", "c"), np.zeros((300, 5)))
    other = other.replace(predicted.take(order).align(other.classes).values)
    plain, shuffled = classification(truth, predicted), classification(truth, other)
    assert plain.to_dict() == shuffled.to_dict()
    with pytest.raises(InputError, match="No row for id"):
        classification(truth, predicted.take(np.arange(299)))


def test_classes_that_cannot_be_scored_are_left_out_and_named():
    classes = ("usual", "absent", "everywhere", "rare", "unpredicted", NO_FINDING)
    values = np.zeros((10, 6))
    values[:5, 0] = values[:, 2] = values[0, 3] = values[:3, 4] = values[5:, 5] = 1
    predicted = table_of(np.random.default_rng(0).random((10, 5)), (*classes[:4], NO_FINDING))
    result = classification(table_of(values, classes), predicted, minimum_positives=2, bootstrap=200)
    assert result.averaged == ("usual",)
    assert result.left_out == {
        "absent": "no positives",
        "everywhere": "no negatives",
        "rare": "1 positive, fewer than 2",
        "unpredicted": "not predicted",
    }
    rows = {row.name: row for row in result.classes}
    assert set(rows) == {"usual", "absent", "everywhere", "rare", NO_FINDING}
    assert result.mean_auc == rows["usual"].auc
    assert math.isnan(rows["absent"].auc)
    assert math.isnan(rows["everywhere"].ap)
    assert rows["absent"].draws == 0
    assert 0 < rows["rare"].draws < 200  # the single positive is in about two draws of three
    assert rows[NO_FINDING].auc == rows[NO_FINDING].auc
    text = json.dumps(result.to_dict(), allow_nan=False)
    assert json.loads(text)["classes"][1]["auc"] is None


def test_a_mean_over_nothing_is_missing():
    result = classification(table_of(np.zeros((4, 2))), table_of(np.zeros((4, 2))), bootstrap=5)
    assert math.isnan(result.mean_auc)
    assert result.to_dict()["mean_auc_low"] is None


def test_a_thousand_draws_are_quick():
    """1,000 draws of 2,000 images for 13 classes."""
    truth, predicted = random_case(N=2000, C=13, patients=900)
    start = time.process_time()
    classification(truth, predicted)
    assert time.process_time() - start < 6


def test_bad_tables_are_refused():
    truth, predicted = random_case()
    with pytest.raises(InputError, match="neither 0, 1 nor NaN"):
        classification(predicted, predicted)
    broken, labels = predicted.values.copy(), truth.values.copy()
    broken[3, 1], labels[3, 1] = NAN, 1
    with pytest.raises(InputError, match="'image 3' has no prediction for 'b'"):
        classification(truth.replace(labels), predicted.replace(broken))
    with pytest.raises(InputError, match="no class in common"):
        classification(truth, table_of(predicted.values, tuple("wxyz")))
    with pytest.raises(InputError, match="at least"):
        classification(truth, predicted, bootstrap=-1)
    with pytest.raises(InputError, match="no image"):
        classification(truth.take(np.zeros(300, dtype=bool)), predicted)


def flags_of(noisy, margin=None, entry=None, classes=1):
    count = len(noisy)
    return Flags(
        np.array([f"image {i}" for i in range(count)]),
        np.asarray(noisy, dtype=bool),
        np.asarray(np.zeros(count) if margin is None else margin, dtype=np.float32),
        np.asarray(np.zeros((count, classes)) if entry is None else entry, dtype=np.float32),
    )


def test_detection_worked_example():
    """Changed {1, 2, 5}, flagged {2, 5, 7, 8} of ten: precision 1/2, recall 2/3."""
    changed = np.isin(np.arange(10), [1, 2, 5])[:, None]
    flags = flags_of(np.isin(np.arange(10), [2, 5, 7, 8]))
    result = detection(flags, changed, table_of(np.ones((10, 1))))
    assert result.precision == 0.5
    assert result.recall == pytest.approx(2 / 3)
    assert result.base_rate == pytest.approx(0.3)
    assert result.flagged == pytest.approx(0.4)
    assert result.auroc == 0.5  # all margins are equal
    assert result.images == 10


def test_detection_scores_margin_entries_and_the_count_of_labels():
    given = table_of([[1, 1], [1, 0], [0, 0], [1, NAN], [0, 1]])
    changed = np.array([[True, False], [False, False], [False, False], [False, False], [False, True]])
    entry = [[-0.5, -0.3], [0.2, 0.4], [NAN, NAN], [NAN, NAN], [-0.4, -0.4]]
    flags = flags_of([1, 0, 0, 0, 1], margin=[-0.5, 0.2, NAN, NAN, -0.4], entry=entry)
    result = detection(flags, changed, given)
    assert result.auroc == 1  # rows that cannot be judged count as least suspect
    assert result.auroc_by_count == roc_auc_score([1, 0, 0, 0, 1], [2, 1, 0, 1, 1])
    truth, suspicion = [1, 0, 0, 0, 0, 0, 0, 0, 1], [0.5, 0.3, -0.2, -0.4, -9, -9, -9, 0.4, 0.4]
    assert result.entry_auroc == pytest.approx(roc_auc_score(truth, suspicion))
    assert result.entry_ap == pytest.approx(average_precision_score(truth, suspicion))
    assert result.entry_base_rate == pytest.approx(2 / 9)  # the unlabelled entry is not judged
    some = detection(flags, changed, given, rows=np.array([True, True, True, False, False]))
    assert (some.images, some.precision, some.recall) == (3, 1.0, 1.0)


def test_the_count_of_labels_is_of_those_that_are_more_likely_there_than_not():
    """Labels of 0.5 and more count: 2, 1, 0."""
    given, changed = table_of([[0.5, 0.6], [0.5, 0.4], [0.4, 0.2]]), np.zeros((3, 2), dtype=bool)
    changed[0, 0] = True
    assert detection(flags_of([1, 0, 0], classes=2), changed, given).auroc_by_count == 1
    changed[1, 0] = True
    assert detection(flags_of([1, 1, 0], classes=2), changed, given).auroc_by_count == 1


def test_detection_of_nothing_is_missing_rather_than_made_up():
    result = detection(flags_of([0, 0]), np.zeros((2, 1), dtype=bool), table_of([[1], [0]]))
    assert math.isnan(result.precision)
    assert math.isnan(result.recall)
    assert math.isnan(result.auroc)
    assert result.to_dict()["entry_auroc"] is None
    with pytest.raises(InputError, match="same images"):
        detection(flags_of([0, 0]), np.zeros((2, 1), dtype=bool), table_of([[1], [0]], ids=["p", "q"]))
    with pytest.raises(InputError, match="booleans"):
        detection(flags_of([0, 0]), np.zeros((2, 1)), table_of([[1], [0]]))


def test_label_auc_worked_example():
    """Clean 1 1 0 0: given 1 0 1 0 is a coin toss, new 1 .375 .2 0 is in order."""
    clean = table_of([[1], [1], [0], [0]])
    result = label_auc(clean, table_of([[1], [0], [1], [0]]), table_of([[1], [0.375], [0.2], [0]]))
    assert (result.before, result.after) == (0.5, 1.0)
    assert (result.before_changed, result.after_changed) == (0.0, 1.0)  # images 1 and 2 only
    assert result.classes[0].positives == 2


def test_label_auc_matches_rows_and_classes_masks_and_leaves_out():
    generator = np.random.default_rng(0)
    classes = ("a", "b", "never", NO_FINDING)
    clean = (generator.random((60, 4)) < 0.4).astype(float)
    clean[:, 2] = 0
    given = np.abs(clean - (generator.random((60, 4)) < 0.3))
    new = generator.random((60, 4))
    given[::7, 0] = NAN
    order = generator.permutation(60)
    before, after = table_of(given, classes), table_of(new, classes)
    result = label_auc(table_of(clean, classes), before, after.take(order).align(classes[::-1]))
    assert [row.name for row in result.classes] == ["a", "b", "never"]
    assert result.left_out == {"never": "no positives"}
    known = ~np.isnan(given[:, 0])
    assert result.classes[0].before == roc_auc_score(clean[known, 0], given[known, 0])
    assert result.classes[0].after == pytest.approx(roc_auc_score(clean[known, 0], new[known, 0].astype(np.float32)))
    changed = ((clean != given) & ~np.isnan(given))[:, :3].any(axis=1)
    assert result.classes[1].before_changed == roc_auc_score(clean[changed, 1], given[changed, 1])
    assert result.before == pytest.approx(np.mean([row.before for row in result.classes[:2]]))


def test_histograms():
    assert histogram_distance([8, 2], [5, 5]) == pytest.approx(0.3)
    assert histogram_distance([8, 2], [4, 1]) == 0
    assert histogram_distance([1, 0], [0, 3]) == 1
    assert math.isnan(histogram_distance([0, 0], [1, 1]))
    with pytest.raises(InputError, match="non-negative"):
        histogram_distance([1, 2], [1, 2, 3])
    table = table_of([[0.6, 0.4], [0.5, NAN], [0.1, 0.4]])
    np.testing.assert_allclose(label_histogram(table), [1.2, 0.8], rtol=1e-6)
    np.testing.assert_array_equal(label_histogram(table, threshold=0.5), [2, 0])


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=6))
def test_histogram_distance_is_a_bounded_symmetric_distance(pairs):
    first, second = np.array(pairs).T
    distance = histogram_distance(first, second)
    if first.sum() and second.sum():
        assert -1e-12 <= distance <= 1 + 1e-12
        assert distance == histogram_distance(second, first)


def test_what_is_left_in_the_clean_set():
    """Three given positives of a, of which the flagged image 0 loses one; none of b."""
    labels = table_of([[1, 0], [1, 0], [1, NAN], [0, 0]])
    first, second = clean_set_composition(flags_of([1, 0, 0, 1], classes=2), labels)
    assert (first.name, first.given, first.kept) == ("a", 3, 2)
    assert first.share == pytest.approx(2 / 3)
    assert (second.given, second.kept) == (0, 0)
    assert second.to_dict()["share"] is None


def test_a_mean_over_findings_leaves_out_those_without_a_score() -> None:
    """Of three draws the first has one finding that counts, the second two, the third none."""
    scores = np.asarray([[0.8, 0.6, np.nan], [np.nan, 0.9, np.nan]])
    assert metrics.mean_of_known(scores) == pytest.approx([0.8, 0.75, np.nan], nan_ok=True)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=1, max_size=12))
def test_found_by_looking_is_the_mean_over_orders_of_equal_suspicion(images):
    """Against every order drawn many times; what is alike comes in random order."""
    wrong, suspicion = (np.array(part) for part in zip(*images, strict=True))
    found = found_by_looking(wrong, suspicion)
    generator = np.random.default_rng(0)
    drawn = np.zeros(len(wrong) + 1)
    for _ in range(400):
        order = np.lexsort((generator.random(len(wrong)), -suspicion))
        drawn[1:] += np.cumsum(wrong[order]) / 400
    np.testing.assert_allclose(found, drawn, atol=0.3)
    np.testing.assert_allclose(found_by_looking(wrong, wrong), np.minimum(np.arange(len(wrong) + 1), wrong.sum()))
    alike = found_by_looking(wrong, np.ones(len(wrong)))
    np.testing.assert_allclose(alike, np.linspace(0, wrong.sum(), len(wrong) + 1), atol=1e-9)
