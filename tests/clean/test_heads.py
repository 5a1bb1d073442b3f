"""Logistic heads on given features: against scikit-learn, and never fitted on the patient they judge."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from bomd.clean import features as files
from bomd.clean import heads
from bomd.clean.heads import SCALE, cross_fit_heads, find_turning, fit_heads, split_groups
from bomd.errors import InputError


def some(rows: int = 300, width: int = 6, classes: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features, and labels that follow one of them each."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, width)).astype(np.float32) * np.arange(1, width + 1) + 10
    standard = (features - features.mean(0)) / features.std(0)
    labels = (rng.random((rows, classes)) < 1 / (1 + np.exp(1 - 2 * standard[:, :classes]))).astype(np.float64)
    return features, labels


def rotate(features: np.ndarray) -> np.ndarray:
    return find_turning(features)(features)


def test_against_scikit_learn() -> None:
    """All classes at once give what one regression for each would; an unknown label is an image less."""
    features, labels = some()
    labels[::5, 1] = np.nan
    small = rotate(features)
    weights = fit_heads(small, labels, ridge=2.0)
    for column in range(2):
        known = ~np.isnan(labels[:, column])
        model = LogisticRegression(C=0.5, tol=1e-10, max_iter=1000).fit(small[known], labels[known, column])
        np.testing.assert_allclose(weights[:-1, column], model.coef_[0], atol=2e-3)
        assert weights[-1, column] == pytest.approx(model.intercept_[0], abs=2e-3)


def test_against_regressions_fold_by_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = some()
    groups = np.arange(300) // 3
    monkeypatch.setattr(heads, "RIDGES", (0.01,))
    found = cross_fit_heads(features, labels, groups, folds=4, seed=2)
    fold_of, small = split_groups(groups, 4, 2), rotate(features)
    for fold in range(4):
        own = fold_of == fold
        model = LogisticRegression(C=1 / (0.01 * (~own).sum()), tol=1e-10, max_iter=1000)
        model.fit(small[~own], labels[~own, 0])
        np.testing.assert_allclose(found[own, 0], model.decision_function(small[own]), atol=5e-3)


def test_nobody_is_judged_by_a_head_that_saw_the_patient() -> None:
    """Features say nothing but who it is: seen, every label would be known; unseen, none can be."""
    rng = np.random.default_rng(0)
    people = np.repeat(np.arange(60), 5)
    features = np.eye(60)[people]
    labels = (rng.random(60) < 0.5)[people][:, None].astype(np.float64)
    images = cross_fit_heads(features, labels, np.arange(300))
    patients = cross_fit_heads(features, labels, people)
    assert roc_auc_score(labels[:, 0], images[:, 0]) > 0.95
    assert roc_auc_score(labels[:, 0], patients[:, 0]) < 0.6


def test_groups_stay_together_and_folds_are_even() -> None:
    groups = np.random.default_rng(0).integers(0, 23, 200)
    fold_of = split_groups(groups, 5, 0)
    for name in np.unique(groups):
        assert len(set(fold_of[groups == name])) == 1
    sizes = [len(np.unique(groups[fold_of == fold])) for fold in range(5)]
    assert max(sizes) - min(sizes) <= 1
    assert set(split_groups(np.asarray(["a", "b", "c"]), 5, 0)) == {0, 1, 2}
    with pytest.raises(InputError, match="one patient"):
        split_groups(np.zeros(9), 5, 0)


def test_two_patients_judge_each_other() -> None:
    assert sorted(split_groups(np.asarray(["a", "b"]), 5, seed=0)) == [0, 1]


def test_turning_keeps_distances() -> None:
    """Few directions are only turned; many are cut to those of most variation. A constant feature is nothing."""
    features = some()[0]
    standard = SCALE * (features - features.mean(0)) / features.std(0)
    turned = rotate(features)
    np.testing.assert_allclose(
        np.linalg.norm(turned[0] - turned[1:], axis=1), np.linalg.norm(standard[0] - standard[1:], axis=1), rtol=1e-3
    )
    assert (np.diff(turned.std(axis=0)) <= 1e-6).all()
    constant = np.concatenate([features, np.full((300, 1), 3)], axis=1)
    np.testing.assert_allclose(np.abs(rotate(constant)[:, :6]), np.abs(turned), atol=1e-4)
    wide = np.random.default_rng(0).normal(size=(30, 500))
    assert rotate(wide).shape == (30, 30)


def test_the_best_ridge_is_the_one_that_predicts_held_out_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty images and thirty features that say nothing: the strongest pull is best."""
    rng = np.random.default_rng(0)
    features, labels, groups = rng.normal(size=(40, 30)), (rng.random((40, 1)) < 0.5).astype(float), np.arange(40)
    chosen = cross_fit_heads(features, labels, groups)
    alone = {}
    for ridge in heads.RIDGES:
        monkeypatch.setattr(heads, "RIDGES", (ridge,))
        alone[ridge] = cross_fit_heads(features, labels, groups)
    losses = {ridge: np.mean(np.logaddexp(0, z) - labels * z) for ridge, z in alone.items()}
    best = min(losses, key=lambda ridge: losses[ridge])
    assert best == 0.06
    np.testing.assert_array_equal(chosen, alone[best])


def test_order_seed_and_odd_classes() -> None:
    features, labels = some(classes=4)
    labels[:, 1], labels[:, 2] = 0, np.nan
    groups = np.arange(300)
    found = cross_fit_heads(features, labels, groups, seed=1)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found, cross_fit_heads(features, labels, groups, seed=1))
    turned = cross_fit_heads(features, labels[:, ::-1], groups, seed=1)
    np.testing.assert_allclose(turned[:, ::-1][:, [0, 3]], found[:, [0, 3]], atol=0.02)
    assert found[:, 1].max() < -5
    assert roc_auc_score(labels[:, 0], found[:, 0]) > 0.75


def test_a_part_of_many_images_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = some(2000)
    whole = cross_fit_heads(features, labels, np.arange(2000))
    monkeypatch.setattr(heads, "FITTED", 400)
    part = cross_fit_heads(features, labels, np.arange(2000))
    assert 0 < np.abs(part - whole).mean() < 0.4
    assert roc_auc_score(labels[:, 0], part[:, 0]) > roc_auc_score(labels[:, 0], whole[:, 0]) - 0.02


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not the number of blocks, nor whether features lie on disk; far from 0, nothing is lost."""
    features, labels = some()
    features = np.asarray(features + 1e4, dtype=np.float32)
    whole = cross_fit_heads(features, labels, np.arange(300) // 2)
    np.save(tmp_path / "features.npy", features)
    monkeypatch.setattr(files, "BLOCK", 6 * 7)
    mapped = cross_fit_heads(np.load(tmp_path / "features.npy", mmap_mode="r"), labels, np.arange(300) // 2)
    np.testing.assert_allclose(mapped, whole, atol=2e-3)
    spread = find_turning(features).factor * features.astype(np.float64).std(axis=0) / SCALE
    np.testing.assert_allclose(spread, 1, rtol=1e-5)


def test_bad_input() -> None:
    with pytest.raises(InputError, match="do not fit"):
        cross_fit_heads(np.zeros((3, 2)), np.zeros((2, 1)), np.arange(3))
    with pytest.raises(InputError, match="finite"):
        cross_fit_heads(np.full((3, 2), np.inf), np.zeros((3, 1)), np.arange(3))
