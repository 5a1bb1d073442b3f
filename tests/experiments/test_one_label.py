"""Recipes on images with one label each: accuracy and confusion in the result, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.testing import assert_allclose

from bomd import config
from bomd.config import Config
from bomd.errors import InputError
from bomd.experiments.experiment import check, make_method, read_labels, run
from bomd.experiments.noise import plan_noise
from bomd.experiments.recorded import Record
from bomd.measure.metrics import classification
from bomd.measure.result import Result
from bomd.methods import METHODS
from bomd.methods.base import Method, softmax_cross_entropy
from bomd.reports.report import write_report
from bomd.reports.tables import run_rows, summary
from bomd.saved import read_as
from bomd.tables import LabelTable

FIT = {"backbone": "small", "weights": "none", "epochs": 1, "batch": 8, "rate": 0.002, "augment": "none"}


def recipe(method: str = "bce", **others: object) -> Config:
    place = {"dataset": "phantom", "count": 40, "one_finding": True}
    values = {
        "name": "one",
        "method": method,
        "validation": 0.0,
        "images": {"size": 16},
        "train": place,
        "test": {"south": place | {"hospital": "south", "split": "test"}},
        "noise": {"kind": "pairflip", "rows": 0.2},
        "fit": FIT,
    }
    return config.parse(values | others, METHODS)


def test_the_phantom_is_labelled_with_its_strongest_finding() -> None:
    from bomd.data.datasets import phantom
    from bomd.data.datasets.phantom import drawing

    several, one = phantom.read(count=60), phantom.read(count=60, one_finding=True)
    assert (one.values.sum(axis=1) == 1).all()
    assert (several.values.sum(axis=1) > 1).any()
    assert (several.values[one.values == 1] == 1).all()
    strength = drawing.severity(one.ids)
    ill = one.values[:, -1] == 0
    np.testing.assert_array_equal(strength[ill].argmax(axis=1), one.values[ill].argmax(axis=1))


def test_a_run_has_accuracy_confusion_and_a_report(tmp_path: Path) -> None:
    done = run(recipe("ls"), tmp_path, loggers=())
    result = read_as(Result, done.result(), "result.json")
    scores = result.tests["south"]
    counts = np.asarray(scores.confusion)
    assert counts.shape == (14, 14)
    assert counts.sum() == 40
    assert scores.accuracy == pytest.approx(np.trace(counts) / 40)
    assert scores.accuracy_low <= scores.accuracy <= scores.accuracy_high
    assert any(note.startswith("Every image has one label") for note in result.notes)
    page = write_report([done], tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"accuracy {scores.accuracy:.3f}" in page
    records = [Record.of(done)]
    assert run_rows(records)[0]["accuracy"] == pytest.approx(scores.accuracy)
    assert "accuracy" in summary(records)


def test_what_makes_no_sense_is_one_clear_line() -> None:
    read = read_labels(recipe())
    train = read["train"][0]
    assert train.exclusive
    assert read["south"][0].exclusive
    for method in ("nvum", "elr", "asl"):
        own = recipe(method)
        with pytest.raises(InputError, match=f'{method} learns several labels per image, .* labels = "multi"'):
            check(own, make_method(own), train)
    own = recipe(fit=FIT | {"abnormality": 0.5})
    with pytest.raises(InputError, match=r"fit.abnormality is for several labels"):
        check(own, make_method(own), train)
    own = recipe(rates={"Mass": {"miss": 0.2}})
    with pytest.raises(InputError, match="for several labels per image"):
        check(own, make_method(own), train)
    with pytest.raises(InputError, match="'sparse' is for several labels"):
        plan_noise(recipe(noise={"kind": "sparse"}), train)
    several = read_labels(recipe(labels="multi"))["train"][0]
    assert not several.exclusive
    with pytest.raises(InputError, match="'pairflip' moves the one label"):
        plan_noise(recipe(), several)
    place = {"dataset": "phantom", "count": 40}
    with pytest.raises(InputError, match=r"train: image '.*' has .* labels = \"single\""):
        read_labels(recipe(train=place, labels="single"))
    with pytest.raises(InputError, match=r"Test set 'south': image '.*' has"):
        read_labels(recipe(test={"south": place | {"hospital": "south"}}))


def test_the_kind_of_labels_is_a_setting_that_old_runs_do_not_have() -> None:
    assert "labels" not in recipe().to_dict()
    assert recipe(labels="single").to_dict()["labels"] == "single"
    with pytest.raises(InputError, match="labels"):
        recipe(labels="both")


def test_softmax_cross_entropy_against_pytorch_and_by_hand() -> None:
    logits = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    classes = torch.tensor([0, 1, 2, 3, 0, 1])
    targets = F.one_hot(classes, 4).float()
    assert_allclose(softmax_cross_entropy(logits, targets), F.cross_entropy(logits, classes), rtol=1e-6)
    unknown = targets.clone()
    unknown[4], unknown[5] = torch.nan, 0.0  # neither is labelled
    assert_allclose(softmax_cross_entropy(logits, unknown), F.cross_entropy(logits[:4], classes[:4]), rtol=1e-6)
    soft = torch.tensor([[0.4, 0.4, 0.0, 0.0]])  # is scaled to a half and a half
    half = -torch.log_softmax(logits[:1], 1)[0, :2].mean()
    assert_allclose(softmax_cross_entropy(logits[:1], soft), half, rtol=1e-6)
    weights = torch.tensor([[2.0], [0.0], [0.0], [0.0], [0.0], [0.0]])
    assert_allclose(
        softmax_cross_entropy(logits, targets, weights), F.cross_entropy(logits[:1], classes[:1]) / 3, rtol=1e-6
    )
    nothing = softmax_cross_entropy(logits.requires_grad_(), torch.full((6, 4), torch.nan))
    nothing.backward()
    assert not logits.grad.isnan().any()


def test_a_method_predicts_by_softmax_where_it_is_told() -> None:
    method, logits = Method(), torch.tensor([[0.0, 0.0, np.log(2.0)]])
    predicted = {}
    for method.exclusive in (False, True):
        predicted[method.exclusive] = method.predict([lambda images: images], logits)
    assert_allclose(predicted[True], [[0.25, 0.25, 0.5]], rtol=1e-6)
    assert_allclose(predicted[False], [[0.5, 0.5, 2 / 3]], rtol=1e-6)


def test_accuracy_by_hand() -> None:
    """Three of four labelled images are right; the fifth has no label and does not count."""
    ids = np.asarray(list("abcde"))
    truth = np.asarray([[1, 0], [1, 0], [0, 1], [0, 1], [np.nan, np.nan]])
    scores = np.asarray([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.3, 0.7], [0.9, 0.1]])
    found = classification(
        LabelTable(ids, ("x", "y"), truth, exclusive=True), LabelTable(ids, ("x", "y"), scores), bootstrap=200
    )
    assert found.accuracy == 0.75
    assert found.confusion == ((1, 1), (0, 2))
    assert 0 < found.accuracy_low < 0.75 < found.accuracy_high <= 1
    several = classification(LabelTable(ids, ("x", "y"), truth), LabelTable(ids, ("x", "y"), scores), bootstrap=0)
    assert np.isnan(several.accuracy)
    assert several.confusion == ()
