"""One label per image: how labels go wrong is estimated, and a label that is wrong moves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax

from bomd.clean.heads import cross_fit_heads, fit_heads
from bomd.clean.opinion import form_opinion
from bomd.clean.transition import Reading, Transition, fit_transition
from bomd.data.noise import pairflip, symmetric
from bomd.data.one_label import with_kind
from bomd.errors import InputError
from bomd.tables import LabelTable

CLASSES = ("cat", "dog", "fish", "bird")


def world(count: int = 3000, seed: int = 0, sure: float = 3.0) -> tuple[LabelTable, np.ndarray]:
    """Images with one class each, and logits from which the class can mostly be told, at a temperature of 2."""
    generator = np.random.default_rng(seed)
    noise = generator.normal(size=(count, 4)) * 1.0
    true = generator.integers(0, 4, count)
    noise[np.arange(count), true] += sure
    values = np.eye(4, dtype=np.float32)[true]
    table = LabelTable(np.asarray([f"i{row}" for row in range(count)]), CLASSES, values)
    return with_kind(table, "single"), sure * noise / 2


def as_learnt(scores: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """What a perfect network says that learnt the noisy labels: it spreads as the noise does."""
    return np.log(np.exp(log_softmax(2 * scores, axis=1)) @ matrix)


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.4])
def test_the_share_of_wrong_labels_is_found(rate: float) -> None:
    clean, scores = world(2000)
    noisy = symmetric(clean, rows=rate, seed=1).noisy
    matrix = np.full((4, 4), rate / 3) + np.eye(4) * (1 - rate - rate / 3)
    for evidence in (scores, as_learnt(scores, matrix)):
        found = fit_transition(evidence, noisy.values)
        assert found.wrong == pytest.approx(rate, abs=0.03)
        assert found.gain > 0.02


def repeated_noise(certain: int, unsure: int, rare: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels: of `certain` images a model is 80 % sure, and it says nothing of others.

    A fifth of the labels of each class are of the next. `rare` more images are said to be of a third class.
    """
    true = np.repeat([0, 1, 2], [certain // 2, certain // 2, rare])
    said = np.where(np.eye(3)[true] == 1, 0.8, 0.1)
    labels = np.eye(3)[np.where(np.arange(len(true)) % 5 == 0, (true + 1) % 3, true)]
    nothing = np.eye(3)[np.arange(unsure) % 3]
    return np.log(np.concatenate([said, np.full((unsure, 3), 1 / 3)])), np.concatenate([labels, nothing])


@pytest.mark.parametrize(("certain", "undone"), [(640, True), (360, False)])
def test_noise_is_taken_out_where_most_images_are_decided_then(certain: int, undone: bool) -> None:
    """Of 1,000 images the others are those of which nothing is known."""
    assert (fit_transition(*repeated_noise(certain, 1000 - certain)).reading.undo is not None) == undone


@pytest.mark.parametrize(("rare", "known"), [(10, True), (9, False)])
def test_ten_images_of_a_class_say_what_a_model_repeats_of_it(rare: int, known: bool) -> None:
    undo = fit_transition(*repeated_noise(800, 0, rare)).reading.undo
    assert undo is not None
    assert (undo[2] != np.eye(3)[2]).all() == known


def test_which_class_is_given_for_which_is_found() -> None:
    clean, scores = world()
    found = fit_transition(scores, pairflip(clean, seed=1, rows=0.3).noisy.values)
    expected = 0.7 * np.eye(4) + 0.3 * np.roll(np.eye(4), 1, axis=1)
    np.testing.assert_allclose(found.matrix, expected, atol=0.06)


def test_rates_of_a_class_are_those_of_its_row_and_column() -> None:
    """Three in ten of a class are given as the next, and so is one in ten of the others, three times as many."""
    clean, scores = world()
    _, _, rates = form_opinion(scores, pairflip(clean, seed=1, rows=0.3).noisy)
    np.testing.assert_allclose(rates.miss, 0.3, atol=0.06)
    np.testing.assert_allclose(rates.false_alarm, 0.1, atol=0.02)


def test_the_temperature_is_found_without_noise() -> None:
    """Scores were made so that twice their value is the logit of the true class."""
    clean, scores = world(6000)
    found = fit_transition(scores, clean.values)
    assert found.wrong < 0.02
    assert found.gain < 0.01
    blank = np.full(clean.values.shape, np.nan)
    assert np.abs(found.truth(scores, blank) - np.exp(log_softmax(2 * scores, axis=1))).mean() < 0.01


def test_the_posterior_by_hand() -> None:
    """Evidence 3 : 1 for the second class; the first is given, as the second is in 1 of 5 images: 0.8 against 0.6."""
    known = Transition(
        np.asarray([[0.8, 0.2], [0.2, 0.8]]), np.asarray([0.5, 0.5]), Reading(1.0, np.zeros(2)), 1.0, np.zeros(2), 0.0
    )
    scores = np.log([[0.25, 0.75]])
    np.testing.assert_allclose(known.truth(scores, np.asarray([[1.0, 0.0]])), [[0.2 / 0.35, 0.15 / 0.35]])
    np.testing.assert_allclose(known.truth(scores, np.full((1, 2), np.nan)), [[0.25, 0.75]])
    fixed = np.asarray([[True, False]])
    np.testing.assert_allclose(known.truth(scores, np.asarray([[0.0, 1.0]]), fixed), [[0.0, 1.0]])
    np.testing.assert_allclose(known.truth(scores, np.asarray([[1.0, 0.0]]), fixed), [[1.0, 0.0]])


def test_a_wrong_label_moves_and_never_adds_one() -> None:
    clean, scores = world()
    noisy = symmetric(clean, rows=0.2, seed=1).noisy
    opinion, posterior, rates = form_opinion(scores, noisy)
    moved = (opinion.proposed != noisy.values).any(axis=1)
    assert (opinion.proposed.sum(axis=1) == 1).all()
    assert 400 < moved.sum() < 700
    assert (opinion.proposed[moved] == clean.values[moved]).all(axis=1).mean() > 0.9
    np.testing.assert_allclose(posterior.truth.sum(axis=1), 1, rtol=1e-5)
    own = noisy.values.argmax(axis=1)
    np.testing.assert_allclose(opinion.expected, opinion.wrong[np.arange(len(own)), own], rtol=1e-5)
    wrong = (noisy.values != clean.values).any(axis=1)
    assert wrong[np.argsort(opinion.rank)[:300]].mean() > 0.97
    assert opinion.expected.sum() == pytest.approx(wrong.sum(), rel=0.1)
    assert rates.affected == pytest.approx(0.2, abs=0.03)
    assert rates.gain > 0.05
    assert opinion.reasons[0].startswith("Every image has one label; about 2")


def test_a_frequent_mistake_is_told_and_chance_is_not() -> None:
    clean, scores = world()
    told = form_opinion(scores, pairflip(clean, seed=1, rows=0.2).noisy)[0].reasons
    assert any("fish as bird" in reason or "cat as dog" in reason for reason in told)
    assert len(form_opinion(scores, symmetric(clean, rows=0.2, seed=1).noisy)[0].reasons) == 1


def test_what_people_decided_stays() -> None:
    clean, scores = world()
    noisy = symmetric(clean, rows=0.2, seed=1).noisy
    wrong = (noisy.values != clean.values).any(axis=1)
    confirmed = np.repeat(wrong[:, None], 4, axis=1)
    opinion, posterior, _ = form_opinion(scores, replace(noisy, confirmed=confirmed))
    np.testing.assert_array_equal(opinion.proposed[wrong], noisy.values[wrong])
    assert not opinion.wrong[wrong].any()
    assert (posterior.weight[wrong] == 1).all()


def test_unlabelled_images_and_classes_nobody_learnt_are_left_alone() -> None:
    clean, scores = world(600)
    values = clean.values.copy()
    rare = np.flatnonzero(values[:, 3] == 1)[6:]  # six birds stay
    values[rare] = np.eye(4)[0]
    values[:5] = np.nan
    opinion, posterior, _ = form_opinion(scores, clean.replace(values))
    assert np.isnan(opinion.proposed[:5]).all()
    assert np.isnan(opinion.wrong[:5]).all()
    assert not opinion.learnt[3]
    assert posterior.truth[rare, 3].max() > 0.6
    assert not (opinion.proposed[rare, 3] == 1).any()
    assert "No label is moved to bird" in " ".join(opinion.reasons)


@pytest.mark.parametrize(("sure", "moves"), [(1.5, False), (2.0, True), (4.0, True)])
def test_nothing_moves_where_evidence_hardly_knows_the_class(sure: float, moves: bool) -> None:
    clean, scores = world(sure=sure)
    noisy = symmetric(clean, rows=0.2, seed=1).noisy
    opinion, _, rates = form_opinion(scores, noisy)
    assert bool((opinion.proposed != noisy.values).any()) == moves
    assert bool(opinion.learnt.any()) == moves
    assert bool(rates.gain > 0) == moves, "a classifier would learn something else than the given labels"
    assert any("too little to move any" in reason for reason in opinion.reasons) != moves


def test_what_evidence_tells_is_counted_in_entropy() -> None:
    """Half of the images are certain and the others may be either of two equally frequent classes."""
    nothing = Reading(1.0, np.zeros(2))
    found = Transition(np.eye(2), np.full(2, 0.5), nothing, 1.0, np.zeros(2), 0.0)
    assert found.told(np.asarray([[40.0, 0.0], [0.0, 0.0]])) == pytest.approx(0.5)
    assert found.told(np.asarray([[40.0, 0.0], [0.0, 40.0]])) == pytest.approx(1.0)


def test_measured_rates_are_for_several_labels() -> None:
    clean, scores = world(200)
    with pytest.raises(InputError, match="for several labels per image"):
        form_opinion(scores, clean, known=(np.zeros(4), np.zeros(4)))
    with pytest.raises(InputError, match="do not fit"):
        fit_transition(scores[:, :2], clean.values)
    with pytest.raises(InputError, match="finite"):
        fit_transition(scores * np.nan, clean.values)


def test_softmax_heads_minimise_the_cross_entropy_of_one_class() -> None:
    """At the minimum the slope is nothing: features times what is left of the labels balance the ridge."""
    clean, scores = world(400)
    weights = fit_heads(scores, clean.values, 4.0, exclusive=True)
    rest = np.exp(log_softmax(scores @ weights[:-1] + weights[-1], axis=1)) - clean.values
    np.testing.assert_allclose(scores.T @ rest + 4.0 * weights[:-1], 0, atol=0.2)
    np.testing.assert_allclose(rest.sum(axis=0), 0, atol=0.2)
    found = cross_fit_heads(scores, clean.values, clean.groups, exclusive=True)
    assert (found.argmax(axis=1) == clean.values.argmax(axis=1)).mean() > 0.9
