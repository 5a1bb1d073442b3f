"""cleanlab's own verdicts on cross-validated probabilities: folds, flags, pruning and flipping."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from bomd.config import DeviceSettings, FitSettings
from bomd.data.datasets import phantom
from bomd.errors import InputError
from bomd.learn.engine import make_fabric
from bomd.methods import base, crossfit
from bomd.methods.base import Context
from bomd.methods.cleanlab import Cleanlab, find_wrong, flip, quality
from bomd.methods.crossfit import split_into_folds
from bomd.tables import LabelTable

multilabel = pytest.importorskip("cleanlab.multilabel_classification")

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(backbone="small", weights="none", epochs=1, batch=16, rate=1e-3, eps=1e-8, augment="light")
Train = tuple[LabelTable, Context]


def a_table(values: np.ndarray, classes: tuple[str, ...] | None = None) -> LabelTable:
    ids = np.asarray([f"i{number:03}" for number in range(len(values))])
    return LabelTable(ids, classes or tuple("abcdefgh"[: values.shape[1]]), values)


def planted(count: int = 400) -> tuple[LabelTable, np.ndarray, np.ndarray]:
    """Good probabilities of three classes, and labels of which about a tenth are wrong."""
    random = np.random.default_rng(0)
    truth = (random.random((count, 3)) < 0.4).astype(np.float32)
    probabilities = np.clip(truth * 0.8 + 0.1 + random.normal(0, 0.1, truth.shape), 0.01, 0.99).astype(np.float32)
    wrong = random.random(truth.shape) < 0.1
    return a_table(np.where(wrong, 1 - truth, truth)), probabilities, wrong


def test_flags_are_the_packages_own() -> None:
    table, probabilities, wrong = planted()
    found, notes = find_wrong(table, probabilities)
    sets = [np.flatnonzero(row).tolist() for row in table.values]
    wanted = multilabel.filter.find_multilabel_issues_per_class(sets, probabilities.astype(float), n_jobs=1)
    np.testing.assert_array_equal(found, wanted)
    assert notes == ()
    assert found[wrong].mean() > 0.8
    assert found[~wrong].mean() < 0.02


def test_unknown_labels_are_as_if_the_image_were_not_there() -> None:
    table, probabilities, _ = planted()
    values = table.values.copy()
    values[::7, 1] = np.nan
    found, _ = find_wrong(table.replace(values), probabilities)
    kept = np.arange(len(table)) % 7 > 0
    wanted, _ = find_wrong(table.take(kept), probabilities[kept])
    assert not found[~kept, 1].any()
    np.testing.assert_array_equal(found[kept, 1], wanted[:, 1])


def test_classes_that_cannot_be_judged_are_noted() -> None:
    table, probabilities, _ = planted(60)
    values = table.values.copy()
    values[:, 0] = 0
    values[:, 1] = np.arange(60) == 0
    found, notes = find_wrong(table.replace(values), probabilities)
    assert not found[:, 0].any()
    assert notes[0] == "cleanlab: a has labels of one kind only and was not judged."
    assert notes[1].startswith("cleanlab: b: ")
    assert "too few examples" in notes[1]
    assert len(notes) == 2


def test_scores_by_hand() -> None:
    """Self-confidences (.9, .9, .3) give .42 and (.4, .9, .6) give .452, from best to worst .8 s + .2 e."""
    values = np.array([[1, 1, 0], [0, 1, 1], [1, np.nan, 0], [np.nan] * 3], dtype=np.float32)
    probabilities = np.array([[0.9, 0.9, 0.7], [0.6, 0.9, 0.6], [0.9, 0.5, 0.7], [0.5] * 3], dtype=np.float32)
    image, entry = quality(values, probabilities)
    np.testing.assert_allclose(image, [0.42, 0.452, 0.42, np.nan], atol=1e-6)
    np.testing.assert_allclose(entry[:2], [[0.9, 0.9, 0.3], [0.4, 0.9, 0.6]], atol=1e-6)
    np.testing.assert_array_equal(np.isnan(entry), np.isnan(values))


def test_scores_are_the_packages_own() -> None:
    table, probabilities, _ = planted()
    sets = [np.flatnonzero(row).tolist() for row in table.values]
    image, entry = quality(table.values, probabilities)
    np.testing.assert_allclose(image, multilabel.get_label_quality_scores(sets, probabilities), atol=1e-6)
    wanted = multilabel.rank.get_label_quality_scores_per_class(sets, probabilities)
    np.testing.assert_allclose(entry, wanted, atol=1e-6)


def test_one_class_and_no_labels_have_scores_too() -> None:
    image, _ = quality(np.array([[1], [0], [np.nan]], dtype=np.float32), np.full((3, 1), 0.3, dtype=np.float32))
    np.testing.assert_allclose(image, [0.3, 0.7, np.nan], atol=1e-6)
    image, _ = quality(np.full((2, 3), np.nan, dtype=np.float32), np.full((2, 3), 0.3, dtype=np.float32))
    assert np.isnan(image).all()


def test_flipped_rows_end_with_no_finding_where_nothing_is_left() -> None:
    values = np.array([[1, 0, 0], [0, 0, 1], [0, 0, 1], [1, 0, 1], [1, 0, np.nan]], dtype=np.float32)
    table = a_table(values, ("Mass", "Edema", "No Finding"))
    wrong = np.zeros((5, 3), dtype=bool)
    wrong[[0, 1, 2, 4], [0, 1, 2, 0]] = True
    found = flip(table, wrong, table.values)
    np.testing.assert_array_equal(found, [[0, 0, 1], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 0, np.nan]])
    plain = flip(a_table(values), wrong, a_table(values).values)
    np.testing.assert_array_equal(plain, [[0, 0, 0], [0, 1, 1], [0, 0, 0], [1, 0, 1], [0, 0, np.nan]])


def test_folds_keep_patients_together_and_classes_spread() -> None:
    table = phantom.read(count=1500)
    fold_of = split_into_folds(table, 5, seed=3)
    assert set(fold_of.tolist()) == set(range(5))
    for patient in np.unique(table.groups):
        assert len(set(fold_of[table.groups == patient].tolist())) == 1
    sizes = np.bincount(fold_of)
    assert sizes.min() > 0.8 * 300
    assert sizes.max() < 1.2 * 300
    effusions = np.bincount(fold_of, table.values[:, table.classes.index("Effusion")])
    assert effusions.min() > 0.7 * effusions.mean()


def test_nobody_is_predicted_by_a_network_that_learnt_from_them(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fold trains on exactly the images that it does not predict."""
    table, context = train
    seen: list[tuple[str, list[str]]] = []
    real_fit, real_write = base.fit, crossfit.write_all

    def spy_fit(learner, images, targets, *rest, **more):  # type: ignore[no-untyped-def]
        seen.append(("fit", images.ids.tolist()))
        np.testing.assert_array_equal(targets, table.select(images.ids).values)
        return real_fit(learner, images, targets, *rest, **more)

    def spy_write(path, images, *rest, **more):  # type: ignore[no-untyped-def]
        seen.append(("predict", images.ids.tolist()))
        return real_write(path, images, *rest, **more)

    monkeypatch.setattr(base, "fit", spy_fit)
    monkeypatch.setattr(crossfit, "write_all", spy_write)
    fresh = Context(context.images, FIT, FABRIC, 1, context.stages)
    prepared = Cleanlab(folds=3).prepare(table, fresh)
    patient_of = dict(zip(table.ids.tolist(), table.groups.tolist(), strict=True))
    assert [what for what, _ in seen] == ["fit", "predict"] * 3
    for (_, learnt), (_, scored) in zip(seen[::2], seen[1::2], strict=True):
        assert not {patient_of[name] for name in learnt} & {patient_of[name] for name in scored}
        assert len(learnt) + len(scored) == 48
    assert sorted(name for _, scored in seen[1::2] for name in scored) == sorted(table.ids.tolist())
    assert prepared.scores is not None
    assert np.isfinite(prepared.scores).all()
    assert sum(record["images"] for record in prepared.history) <= 2 * 48
    seen.clear()
    again = Cleanlab(folds=3, action="flip").prepare(table, fresh)
    assert seen == []  # the folds are kept
    np.testing.assert_array_equal(again.scores, prepared.scores)  # type: ignore[arg-type]


@pytest.mark.parametrize("action", ["prune", "flip"])
def test_flagged_labels_alone_are_changed(train: Train, action: str) -> None:
    table, context = train
    prepared = Cleanlab(folds=2, action=action).prepare(table, context)  # type: ignore[arg-type]
    assert prepared.flags is not None
    assert prepared.scores is not None
    wrong, _ = find_wrong(table, prepared.scores)
    assert wrong.any()
    np.testing.assert_array_equal(prepared.flags.noisy, wrong.any(axis=1))
    known = ~np.isnan(table.values)
    assert not (wrong & ~known).any()
    if action == "prune":
        np.testing.assert_array_equal(np.isnan(prepared.targets), wrong | ~known)
        np.testing.assert_array_equal(prepared.targets[known & ~wrong], table.values[known & ~wrong])
    else:
        findings = table.findings
        flipped = wrong[:, findings]
        np.testing.assert_array_equal(prepared.targets[:, findings][flipped], 1 - table.values[:, findings][flipped])
        clean = ~wrong.any(axis=1)
        np.testing.assert_array_equal(prepared.targets[clean], table.values[clean])


def test_bad_requests(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = train
    with pytest.raises(InputError, match=r"cleanlab\.folds is 1"):
        Cleanlab(folds=1)
    with pytest.raises(InputError, match="patients are too few"):
        Cleanlab(folds=40).check(table)
    soft = table.values.copy()
    soft[3, 1] = 0.4
    with pytest.raises(InputError, match=str(table.ids[3])):
        Cleanlab().check(table.replace(soft))
    monkeypatch.setitem(sys.modules, "cleanlab.filter", None)
    with pytest.raises(InputError, match=r"pip install 'bomd\[cleanlab\]'"):
        Cleanlab().check(table)
