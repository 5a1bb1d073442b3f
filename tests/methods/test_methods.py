"""One contract over every method: what holds for one entry of METHODS holds for all."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bomd.config import DeviceSettings, FitSettings
from bomd.data.batches import Images
from bomd.data.datasets import phantom
from bomd.data.store import pack
from bomd.errors import InputError
from bomd.learn.engine import Batch, fit, make_fabric
from bomd.methods import METHODS
from bomd.methods.base import Context, Method, Prepared
from bomd.methods.bomd import Bomd
from bomd.runs import Stages
from bomd.tables import LabelTable
from bomd.typed import arguments

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(
    backbone="small",
    weights="none",
    epochs=1,
    batch=16,
    rate=1e-3,
    betas=(0.9, 0.999),
    eps=1e-8,
    augment="light",
)
Train = tuple[LabelTable, Images, Path]
QUICK = {"epochs": 1, "batch": 16, "rate": 1e-3}  # for methods with a stage of their own


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Train:
    table = phantom.read(count=48)
    values = table.values.copy()
    values[5, 2] = np.nan
    table = table.replace(values)
    folder = tmp_path_factory.mktemp("methods")
    store = pack(table, folder / "store", 32, render=phantom.render)
    return table, Images(store, table.ids, FABRIC.device), folder


def make(name: str) -> Method:
    kind = METHODS[name]
    known = inspect.signature(kind).parameters
    return kind(**{key: value for key, value in QUICK.items() if key in known})


def prepare(name: str, train: Train, seed: int = 0) -> tuple[Method, Prepared]:
    table, images, folder = train
    method = make(name)
    return method, method.prepare(table, Context(images, FIT, FABRIC, seed, Stages(folder / f"stages{name}")))


def a_batch(prepared: Prepared, images: Images, order: list[int]) -> Batch:
    index = torch.tensor(order)
    targets = torch.as_tensor(prepared.targets)[index]
    return Batch(index, targets, images.batch(index), 1)


@pytest.mark.parametrize("name", METHODS)
class TestEveryMethod:
    def test_says_where_it_is_from_and_how_it_differs(self, name: str) -> None:
        text = METHODS[name].__doc__ or ""
        assert "Paper:" in text
        assert "Differs:" in text

    def test_settings_have_types_and_defaults(self, name: str) -> None:
        hints = typing.get_type_hints(METHODS[name].__init__)
        for key, parameter in inspect.signature(METHODS[name]).parameters.items():
            assert key in hints
            assert parameter.default is not inspect.Parameter.empty
        with pytest.raises(InputError, match="unknown key 'nonsense'"):
            arguments(METHODS[name], {"nonsense": 1}, name)

    def test_targets_are_labels_and_unknown_stays_unknown(self, name: str, train: Train) -> None:
        _, prepared = prepare(name, train)
        table = train[0]
        assert prepared.targets.shape == table.values.shape
        np.testing.assert_array_equal(np.isnan(prepared.targets), np.isnan(table.values))
        table.replace(prepared.targets)  # refuses anything outside [0, 1]

    def test_loss_is_finite_and_reaches_every_network(self, name: str, train: Train) -> None:
        method, prepared = prepare(name, train)
        networks = method.build(len(train[0].classes), FIT, seed=0)
        loss = method.step(networks, a_batch(prepared, train[1], list(range(16))))
        loss.backward()
        assert torch.isfinite(loss)
        for network in networks:
            assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in network.parameters())
            assert any((weight.grad != 0).any() for weight in network.parameters() if weight.grad is not None)

    def test_order_in_the_batch_does_not_matter(self, name: str, train: Train) -> None:
        losses = []
        for order in (list(range(16)), list(range(16))[::-1]):
            method, prepared = prepare(name, train)
            networks = method.build(len(train[0].classes), FIT, seed=0)
            losses.append(method.step(networks, a_batch(prepared, train[1], order)).item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)

    def test_one_epoch_runs_and_repeats(self, name: str, train: Train, tmp_path: Path) -> None:
        outcomes = []
        for place in ("first", "again"):
            method, prepared = prepare(name, train)
            networks, history = fit(
                method,
                train[1],
                prepared.targets,
                FIT,
                outputs=len(train[0].classes),
                fabric=FABRIC,
                seed=3,
                directory=tmp_path / place,
                what="test",
            )
            outcomes.append((history[0]["loss"], networks[0].state_dict()))
        assert outcomes[0][0] == outcomes[1][0]
        for key, value in outcomes[0][1].items():
            assert torch.equal(value, outcomes[1][1][key])


class TestBomd:
    def test_without_weight_on_the_graph_the_labels_are_as_given(self, train: Train) -> None:
        table, images, folder = train
        context = Context(images, FIT, FABRIC, 0, Stages(folder / "stagesbomd"))
        prepared = Bomd(graph_weight=0, **QUICK).prepare(table, context)
        np.testing.assert_array_equal(prepared.targets, table.values)

    def test_rows_judged_clean_are_untouched(self, train: Train) -> None:
        _, prepared = prepare("bomd", train)
        assert prepared.flags is not None
        assert prepared.flags.noisy.any()
        clean = ~prepared.flags.noisy
        np.testing.assert_array_equal(prepared.targets[clean], train[0].values[clean])
        assert (prepared.targets[~clean] != train[0].values[~clean]).any()

    def test_descriptors_are_learnt_once_for_all_settings_of_the_graph(self, train: Train) -> None:
        table, images, folder = train
        stages = Stages(folder / "once")
        for changes in ({}, {"neighbours": 5}, {"graph_weight": 0.2}):
            Bomd(**QUICK, **changes).prepare(table, Context(images, FIT, FABRIC, 0, stages))  # type: ignore[arg-type]
        assert len(list((folder / "once").glob("descriptors-*"))) == 1
        Bomd(**{**QUICK, "rate": 2e-3}).prepare(table, Context(images, FIT, FABRIC, 0, stages))
        other = replace(FIT, augment="none")
        Bomd(**QUICK).prepare(table, Context(images, other, FABRIC, 0, stages))
        assert len(list((folder / "once").glob("descriptors-*"))) == 3

    @pytest.mark.parametrize(
        ("change", "settings", "message"),
        [
            (lambda table: table.align(["Mass"]), {}, "at least 2 are needed"),
            (lambda table: table.replace(np.zeros_like(table.values)), {}, "No image has a positive label"),
            (lambda table: table, {"neighbours": 48}, "neighbours is 48, but there are only 48 images"),
            (lambda table: table, {"language": "minilm-typo"}, "minilm-typo"),
        ],
    )
    def test_impossible_requests_get_one_line(
        self,
        train: Train,
        change: Callable[[LabelTable], LabelTable],
        settings: dict[str, typing.Any],
        message: str,
    ) -> None:
        table, images, folder = train
        context = Context(images, FIT, FABRIC, 0, Stages(folder / "stages"))
        with pytest.raises(InputError) as caught:
            Bomd(**QUICK, **settings).prepare(change(table), context)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
