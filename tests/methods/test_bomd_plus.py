"""bomd-plus: who judges whom, what is learnt, and the limits in which it is plain training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from bomd.clean import opinion as opinions
from bomd.clean.rates import Rates
from bomd.config import DeviceSettings, FitSettings
from bomd.data.batches import Images
from bomd.data.datasets import phantom
from bomd.data.noise import symmetric
from bomd.data.store import pack
from bomd.describe.written import write_all
from bomd.errors import InputError
from bomd.learn.engine import fit, make_fabric
from bomd.methods import base, bomd_plus, crossfit
from bomd.methods.base import Context, Method, masked_cross_entropy
from bomd.methods.bomd_plus import BomdPlus
from bomd.methods.crossfit import cross_fit
from bomd.networks.backbone import Network
from bomd.runs import Stages
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(backbone="small", weights="none", epochs=1, batch=16, rate=1e-3, eps=1e-8, augment="light")


def some_phantoms(folder: Path, count: int = 96) -> tuple[LabelTable, Context]:
    """Phantoms of 32 pixels, three images of each patient, one label unknown."""
    table = phantom.read(count=count)
    values = table.values.copy()
    values[5, 2] = np.nan
    patients = np.asarray([f"p{row // 3}" for row in range(count)])
    table = replace(table.replace(values), patients=patients)
    store = pack(table, folder / "store", 32, render=phantom.render)
    return table, Context(Images(store, table.ids, FABRIC.device), FIT, FABRIC, 0, Stages(folder / "stages"))


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> tuple[LabelTable, Context]:
    return some_phantoms(tmp_path_factory.mktemp("plus"))


def test_nobody_is_judged_by_a_network_that_saw_the_patient(
    train: tuple[LabelTable, Context], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Follow the images through training and scoring, and compare patients; every image is scored once."""
    table, context = train
    patient_of = dict(zip(table.ids.tolist(), table.groups.tolist(), strict=True))
    seen: list[set[str]] = []
    scored: list[str] = []

    def watched_fit(learner: object, images: Images, *rest: object, **named: object) -> object:
        seen.append({patient_of[name] for name in images.ids.tolist()})
        return fit(learner, images, *rest, **named)  # type: ignore[arg-type]

    def watched_write(path: Path, images: Images, *rest: object, **named: object) -> None:
        assert not seen[-1] & {patient_of[name] for name in images.ids.tolist()}
        scored.extend(images.ids.tolist())
        write_all(path, images, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(base, "fit", watched_fit)
    monkeypatch.setattr(crossfit, "write_all", watched_write)
    cross_fit(table, replace(context, stages=Stages(tmp_path)), 3)
    assert len(seen) == 3
    assert sorted(scored) == sorted(table.ids.tolist())


def test_judging_goes_on_where_it_was_interrupted(
    train: tuple[LabelTable, Context], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a fold's network says is kept as it comes; the first image is asked about once more, for the shape."""
    table, context = train
    asked: list[int] = []
    most = 10

    def score(networks: Sequence[Network], views: torch.Tensor) -> torch.Tensor:
        if sum(asked) + len(views) > most:
            raise KeyboardInterrupt
        asked.append(len(views))
        return base.logits(networks, views)

    monkeypatch.setattr(crossfit, "write_all", partial(write_all, batch=4))
    stages = replace(context, stages=Stages(tmp_path / "twice"))
    with pytest.raises(KeyboardInterrupt):
        cross_fit(table, stages, 2, score=score)
    assert sum(asked) == 9
    asked, most = [], 1000
    parts, fold_of, _ = cross_fit(table, stages, 2, score=score)
    assert sum(asked) == len(table) - 8 + 2
    once, same, _ = cross_fit(table, replace(context, stages=Stages(tmp_path / "once")), 2, score=base.logits)
    np.testing.assert_array_equal(fold_of, same)
    for part, other in zip(parts, once, strict=True):
        np.testing.assert_array_equal(part, other)


def test_labels_are_learnt_to_the_bit_where_errors_fall_anywhere(
    train: tuple[LabelTable, Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every image then counts alike, so that the loss is plain cross-entropy."""
    table, context = train
    count = len(table.classes)
    anywhere = Rates(np.full(count, 0.03), np.full(count, 0.1))
    monkeypatch.setattr(opinions, "likeliest", lambda *_: anywhere)
    method = BomdPlus()
    prepared = method.prepare(table, context)
    np.testing.assert_array_equal(prepared.targets, table.values)
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(16, count, generator=random)
    targets, index = torch.as_tensor(table.values[:16]), torch.arange(16)
    torch.testing.assert_close(method.loss(logits, targets, index), masked_cross_entropy(logits, targets))
    assert any("as they are given" in note for note in prepared.notes)


def test_suspect_images_are_softened_and_count_for_less(
    train: tuple[LabelTable, Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, context = train
    count = len(table.classes)
    monkeypatch.setattr(
        opinions, "likeliest", lambda *_: Rates(np.full(count, 0.1), np.full(count, 0.1), 0.3, gain=1.0)
    )
    prepared = BomdPlus().prepare(table, context)
    assert prepared.weights is not None
    assert prepared.weights.mean() == pytest.approx(1)
    assert prepared.weights.min() < prepared.weights.max()
    known = ~np.isnan(table.values)
    assert (prepared.targets[known] != table.values[known]).any()
    assert ((prepared.targets[known] >= 0) & (prepared.targets[known] <= 1)).all()
    np.testing.assert_array_equal(np.isnan(prepared.targets), ~known)
    plain = BomdPlus(soften=False, weigh=False).prepare(table, context)
    np.testing.assert_array_equal(plain.targets, table.values)
    np.testing.assert_array_equal(plain.weights, np.ones((len(table), 1)))


@pytest.mark.parametrize("gain", [0.09, 0.103])
def test_a_slight_suspicion_orders_the_review_but_leaves_training_alone(
    train: tuple[LabelTable, Context], monkeypatch: pytest.MonkeyPatch, gain: float
) -> None:
    """Below a limit nobody is asked again, and what is learnt are the given labels, each counting alike.

    0.09 nats an image are less than 0.007 for each of 14 labels; 0.103 are more, but 96 images make that 9.9 in all.
    """
    table, context = train
    count = len(table.classes)
    rates = Rates(np.full(count, 0.1), np.full(count, 0.1), affected=0.3, gain=gain)
    monkeypatch.setattr(opinions, "likeliest", lambda *_: rates)
    asked, judge = [], BomdPlus._judge
    monkeypatch.setattr(BomdPlus, "_judge", lambda *given: asked.append(given) or judge(*given))
    prepared = BomdPlus().prepare(table, context)
    assert len(asked) == 1
    np.testing.assert_array_equal(prepared.targets, table.values)
    np.testing.assert_array_equal(prepared.weights, np.ones((len(table), 1)))
    assert prepared.opinion is not None
    assert np.nanmax(prepared.opinion.wrong) > 0


def test_the_second_opinion_learns_what_the_first_believed_and_never_from_those_it_judges(
    train: tuple[LabelTable, Context], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pairs of networks: the first learns the given labels, the second softened ones; folds are the same."""
    table, context = train
    count = len(table.classes)
    monkeypatch.setattr(opinions, "likeliest", lambda *_: Rates(np.full(count, 0.1), np.full(count, 0.1), 0.3, 1.0))
    learnt: list[tuple[frozenset[str], np.ndarray]] = []
    judged: list[frozenset[str]] = []

    def watched_fit(learner: object, images: Images, targets: np.ndarray, *rest: object, **named: object) -> object:
        learnt.append((frozenset(images.ids.tolist()), targets))
        return fit(learner, images, targets, *rest, **named)  # type: ignore[arg-type]

    def watched_write(path: Path, images: Images, *rest: object, **named: object) -> None:
        judged.append(frozenset(images.ids.tolist()))
        assert not learnt[-1][0] & judged[-1]
        write_all(path, images, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(base, "fit", watched_fit)
    monkeypatch.setattr(crossfit, "write_all", watched_write)
    prepared = BomdPlus().prepare(table, replace(context, stages=Stages(tmp_path)))
    assert len(learnt) == 4
    assert judged[:2] == judged[2:]
    row_of = {name: row for row, name in enumerate(table.ids.tolist())}
    for number, (names, targets) in enumerate(learnt):
        rows = sorted(row_of[name] for name in names)
        given = np.array_equal(targets, table.values[rows], equal_nan=True)
        assert given == (number < 2)
    assert len(prepared.history) == 4  # one epoch each
    once = BomdPlus(second=0.0).prepare(table, replace(context, stages=Stages(tmp_path)))
    assert len(learnt) == 4  # the first pair was finished already
    assert prepared.scores is not None
    assert once.scores is not None
    assert not np.array_equal(prepared.scores, once.scores)


def test_the_weighted_loss_by_hand() -> None:
    """Logits 0 cost ln 2 a label; weights 2 and 0 leave the first image, twice, and NaN does not count."""
    logits = torch.zeros(2, 3)
    targets = torch.tensor([[1.0, 0.0, torch.nan], [1.0, 1.0, 1.0]])
    found = masked_cross_entropy(logits, targets, torch.tensor([[2.0], [0.0]]))
    assert float(found) == pytest.approx(2 * 2 * np.log(2) / 5)


def test_votes_and_descriptors_run(train: tuple[LabelTable, Context]) -> None:
    table, context = train
    found = BomdPlus(votes=0.5, neighbours=5, evidence="descriptors").prepare(table, context)
    assert found.neighbours is not None
    assert found.neighbours.indices.shape == (len(table), 5)
    fold_of = crossfit.split_into_folds(table, 2, crossfit.derive(context.seed, "folds"))
    assert (fold_of[found.neighbours.indices] == fold_of[:, None]).all()


def test_features_are_kept_where_neighbours_are_wanted(train: tuple[LabelTable, Context], tmp_path: Path) -> None:
    """With the same evidence either way."""
    table, context = train
    widths, scores = {}, []
    for shown in (0, 4):
        stages = Stages(tmp_path / str(shown))
        prepared = BomdPlus(shown=shown, second=0.0).prepare(table, replace(context, stages=stages))
        widths[shown] = {np.load(file).shape[1] for file in stages.root.glob("fold-*/scores.npy")}
        scores.append(prepared.scores)
    assert widths[0] == {len(table.classes)}
    assert min(widths[4]) > len(table.classes)
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-5)


def test_neighbours_are_shown_of_the_first_to_look_at(
    train: tuple[LabelTable, Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are of the fold, and the same as among more; who votes does so for every image."""
    table, context = train
    fold_of = crossfit.split_into_folds(table, 2, crossfit.derive(context.seed, "folds"))
    every = BomdPlus(shown=4).prepare(table, context)
    monkeypatch.setattr(bomd_plus, "LOOKED_AT", 7)
    some = BomdPlus(shown=4).prepare(table, context)
    assert every.neighbours is not None
    assert some.neighbours is not None
    assert some.opinion is not None
    first = some.opinion.rank <= 7
    assert (every.neighbours.indices >= 0).all()
    assert (fold_of[every.neighbours.indices] == fold_of[:, None]).all()
    np.testing.assert_array_equal(some.neighbours.indices, np.where(first[:, None], every.neighbours.indices, -1))
    votes = BomdPlus(votes=0.5, neighbours=3).prepare(table, context).neighbours
    assert votes is not None
    assert (votes.indices >= 0).all()


@pytest.mark.parametrize("classes", [1, 2])
def test_few_classes_and_none_called_no_finding(
    train: tuple[LabelTable, Context], tmp_path: Path, classes: int
) -> None:
    table, context = train
    small = table.align(table.classes[:classes])
    prepared = BomdPlus().prepare(small, replace(context, stages=Stages(tmp_path)))
    assert prepared.targets.shape == (len(table), classes)
    assert prepared.opinion is not None
    assert sorted(prepared.opinion.rank.tolist()) == list(range(1, len(table) + 1))


def test_too_few_patients_are_refused(train: tuple[LabelTable, Context]) -> None:
    table, context = train
    with pytest.raises(InputError, match="patients are too few"):
        BomdPlus(folds=2).prepare(replace(table, patients=np.asarray(["same"] * len(table))), context)


@pytest.mark.slow
def test_wrong_images_are_found_and_wrong_labels_fall(tmp_path: Path) -> None:
    """On generated images with whole wrong rows, accepting every proposal leaves fewer wrong labels."""
    table = phantom.read(count=1200)
    noisy = symmetric(table, 0.3, 0.4, seed=0).noisy
    store = pack(table, tmp_path / "store", 32, render=phantom.render)
    images = Images(store, table.ids, FABRIC.device)
    settings = replace(FIT, epochs=4, batch=32, rate=2e-3)
    prepared = BomdPlus().prepare(noisy, Context(images, settings, FABRIC, 0, Stages(tmp_path / "stages")))
    found = prepared.opinion
    assert found is not None
    wrong = noisy.values != table.values
    assert wrong[np.argsort(found.rank)[:100]].any(axis=1).mean() > 0.9
    assert (found.proposed != table.values).sum() < 0.6 * wrong.sum()


def test_it_is_a_method_like_any_other() -> None:
    assert issubclass(BomdPlus, Method)
    with pytest.raises(InputError, match="folds"):
        BomdPlus(folds=1)
    with pytest.raises(InputError, match="effort"):
        BomdPlus(effort=0)
    for second in (-0.1, float("nan")):
        with pytest.raises(InputError, match="second"):
            BomdPlus(second=second)
    with pytest.raises(InputError, match="votes"):
        BomdPlus(votes=1.5)
