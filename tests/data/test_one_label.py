"""Sets with one label per image: told apart, forced, forbidden, and with noise of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bomd.data.noise import pairflip, report_mining, sparse, symmetric
from bomd.data.one_label import like_training, with_kind
from bomd.errors import InputError
from bomd.tables import NO_FINDING, LabelTable

CLASSES = ("cat", "dog", "fish")


def table_of(values: object, classes: tuple[str, ...] = CLASSES) -> LabelTable:
    array = np.asarray(values, dtype=np.float32)
    return LabelTable(np.asarray([f"i{row}" for row in range(len(array))]), classes, array)


def one_each(count: int, classes: int = 3) -> np.ndarray:
    return np.eye(classes, dtype=np.float32)[np.random.default_rng(0).integers(0, classes, count)]


def single(count: int = 300) -> LabelTable:
    return with_kind(table_of(one_each(count)), "single")


def test_exactly_one_positive_in_every_row_is_noticed() -> None:
    assert with_kind(table_of(one_each(60))).exclusive
    for spoiler in ([1, 1, 0], [0, 0, 0], [1, np.nan, 0], [0.6, 0.4, 0]):
        assert not with_kind(table_of([*one_each(60), spoiler])).exclusive, spoiler
    assert not with_kind(table_of(one_each(60)), "multi").exclusive


def test_rare_findings_that_never_meet_by_chance_are_still_several() -> None:
    """40 images, two with a finding each: findings this rare meet in 0.025 images, so that it proves nothing."""
    values = np.zeros((40, 3))
    values[:, 2], values[0], values[1] = 1, [1, 0, 0], [0, 1, 0]
    assert not with_kind(table_of(values, ("Mass", "Nodule", NO_FINDING))).exclusive
    assert with_kind(table_of(values, ("Mass", "Nodule", NO_FINDING)), "single").exclusive


def test_whoever_says_single_learns_which_image_is_not() -> None:
    with pytest.raises(InputError, match=r"The labels: image 'i60' has cat, dog, .* allows one class.* \(1 such"):
        with_kind(table_of([*one_each(60), [1, 1, 0]]), "single")
    with pytest.raises(InputError, match="'i60' has cat, dog"):
        with_kind(table_of([*one_each(60), [0.6, 0.4, 0]]), "single")
    with pytest.raises(InputError, match="at least two classes"):
        with_kind(table_of(np.ones((9, 1)), ("cat",)), "single")
    blank = with_kind(table_of([*one_each(60), [0, 0, 0]]), "single")
    assert np.isnan(blank.values[-1]).all()  # an image without a class is not labelled


def test_a_test_set_has_to_be_of_the_same_kind_and_classes() -> None:
    train = single()
    fewer = like_training(table_of([[1, 0], [0, 1]], ("dog", "cat")), train, "new")
    assert fewer.exclusive
    np.testing.assert_array_equal(fewer.align(CLASSES).values, [[0, 1, 0], [1, 0, 0]])
    with pytest.raises(InputError, match=r"Test set 'new' has a class 'cow' .* among cat, dog, fish"):
        like_training(table_of([[1, 0]], ("dog", "cow")), train, "new")
    with pytest.raises(InputError, match="Test set 'new': image 'i0' has cat, dog"):
        like_training(table_of([[1, 1, 0]]), train, "new")
    assert not like_training(train, replace(train, exclusive=False), "new").exclusive


def test_the_mark_stays_with_the_table(tmp_path) -> None:
    table = single()
    table.save(tmp_path / "labels.npz")
    for kept in (LabelTable.load(tmp_path / "labels.npz"), table.take([1, 2]), table.replace(table.values)):
        assert kept.exclusive


def test_symmetric_moves_a_label_to_any_other_class() -> None:
    drawn = symmetric(single(6000), rows=0.3, seed=1)
    moved = drawn.changed.any(axis=1)
    assert moved.sum() == 1800
    assert (drawn.noisy.values.sum(axis=1) == 1).all()
    assert drawn.noisy.exclusive
    for true in range(3):
        to = drawn.noisy.values[moved & (drawn.clean.values[:, true] == 1)].mean(axis=0)
        assert to[true] == 0
        np.testing.assert_allclose(np.delete(to, true), 0.5, atol=0.06)
    half = symmetric(single(6000), rows=0.3, labels=0.5, seed=1)
    assert half.changed.any(axis=1).mean() == pytest.approx(0.15, abs=0.02)


def test_pairflip_moves_a_label_to_the_next_class() -> None:
    drawn = pairflip(single(), seed=1, rows=0.4)
    moved = drawn.changed.any(axis=1)
    assert moved.sum() == 120
    np.testing.assert_array_equal(drawn.noisy.values[moved], np.roll(drawn.clean.values[moved], 1, axis=1))


def test_noise_of_the_other_kind_is_refused() -> None:
    several = table_of(one_each(60))
    with pytest.raises(InputError, match=r"'pairflip' moves the one label.* labels = \"single\""):
        pairflip(several, seed=0)
    with pytest.raises(InputError, match="'labels' is needed"):
        symmetric(several, rows=0.2, seed=0)
    for call in (lambda: sparse(single(), seed=0), lambda: report_mining(single(), seed=0)):
        with pytest.raises(InputError, match=r"several labels per image.* use symmetric or pairflip"):
            call()


def test_an_unlabelled_image_stays_so() -> None:
    table = with_kind(table_of([*one_each(60), [0, 0, 0]]), "single")
    assert np.isnan(pairflip(table, seed=0, rows=1.0).noisy.values[-1]).all()
