"""One contract over every method: what holds for one entry of METHODS holds for all."""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from bomd.config import DeviceSettings, FitSettings
from bomd.data.batches import Images
from bomd.data.datasets import phantom
from bomd.errors import InputError
from bomd.learn.engine import Batch, History, Learner, fit, make_fabric, predict
from bomd.methods import METHODS
from bomd.methods.base import Context, Method, Prepared
from bomd.methods.bomd import Bomd
from bomd.methods.confirmed import hold_confirmed
from bomd.methods.describe import describe
from bomd.models import model
from bomd.networks.backbone import Network
from bomd.runs import Stages
from bomd.tables import LabelTable
from bomd.typed import arguments

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(
    backbone="small",
    weights="none",
    epochs=2,
    batch=16,
    rate=1e-3,
    betas=(0.9, 0.999),
    eps=1e-8,
    augment="light",
)
Train = tuple[LabelTable, Images, Path]
QUICK = {"epochs": 1, "batch": 16, "rate": 1e-3}  # for methods with a stage of their own


@pytest.fixture(scope="module")
def train(train: tuple[LabelTable, Context]) -> Train:
    """The labels, their images and a folder for what the methods leave."""
    table, context = train
    return table, context.images, context.stages.root.parent


def make(name: str) -> Method:
    kind = METHODS[name]
    known = inspect.signature(kind).parameters
    settings: dict[str, typing.Any] = {key: value for key, value in QUICK.items() if key in known}
    return kind(**settings)


def prepare(name: str, train: Train, seed: int = 0, settings: FitSettings = FIT) -> tuple[Method, Prepared]:
    table, images, folder = train
    method = make(name)
    return method, method.prepare(table, Context(images, settings, FABRIC, seed, Stages(folder / f"stages{name}")))


@dataclass(frozen=True)
class Case:
    """One method on the tiny training set; stages of its own are done once and found again."""

    name: str
    train: Train

    def start(self, settings: FitSettings = FIT, epochs: int = 1) -> Started:
        """A fresh method with untrained networks, in the given number of epochs one after another."""
        method, prepared = prepare(self.name, self.train, settings=settings)
        networks = method.build(len(self.train[0].classes), settings, seed=0)
        for network in networks:
            network.place(FABRIC)
        started = Started(method, prepared, networks, self.train[1])
        for epoch in range(epochs):
            started.start_epoch(epoch)
        return started

    def fit(self, place: str, method: Method | None = None) -> Fitted:
        """Train to the end, or go on from what is in the folder."""
        fresh, prepared = prepare(self.name, self.train)
        method = method or fresh
        networks, history = fit(
            method,
            self.train[1],
            prepared.targets,
            FIT,
            outputs=len(self.train[0].classes),
            fabric=FABRIC,
            seed=3,
            directory=self.train[2] / self.name / place,
            what="test",
        )
        return Fitted(method, networks, history)

    @functools.cached_property
    def whole(self) -> Fitted:
        """Trained without an interruption, once for all tests."""
        return self.fit("whole")


@dataclass(frozen=True)
class Started:
    """A method about to make a step."""

    method: Method
    prepared: Prepared
    networks: list[Network]
    images: Images

    def start_epoch(self, epoch: int) -> None:
        self.method.start_epoch(epoch, lambda score=None: predict(self.method, self.networks, self.images, score=score))

    def batch(self, order: Sequence[int] = range(16)) -> Batch:
        index = torch.tensor(list(order))
        return Batch(index, torch.as_tensor(self.prepared.targets)[index], self.images.batch(index), 1)

    def batch_of(self, labels: NDArray[np.float32]) -> Batch:
        """The first 16 images with these labels in place of what the method made of them."""
        batch = self.batch()
        return replace(batch, targets=torch.from_numpy(labels)[batch.index])

    def step(self, batch: Batch | None = None, seed: int = 0) -> Tensor:
        torch.manual_seed(seed)
        return self.method.step(self.networks, batch or self.batch())

    def tensors(self) -> list[Tensor]:
        """Everything that a step may change in place."""
        weights = [value for network in self.networks for value in network.state_dict().values()]
        return [*weights, *tensors_in(vars(self.method))]


class Fitted(typing.NamedTuple):
    method: Method
    networks: list[Network]
    history: History

    def assert_same(self, other: Fitted) -> None:
        """To the last bit, in weights, running statistics and memories."""
        for mine, yours in zip(self.history, other.history, strict=True):
            assert mine["loss"] == yours["loss"]
        states = [[*(n.state_dict() for n in one.networks), one.method.buffers()] for one in (self, other)]
        torch.testing.assert_close(*states, rtol=0, atol=0, equal_nan=True)


def tensors_in(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in inner for tensor in tensors_in(item)]


def holding(started: Started, confirmed: NDArray[np.bool_]) -> Learner | None:
    """The method as it trains where people confirmed labels; None where that changes nothing."""
    table = phantom.read(count=len(confirmed))
    learner = hold_confirmed(started.method, replace(table, confirmed=confirmed), FABRIC.device)
    if learner is started.method:
        kind = type(started.method)
        assert kind.trusts_labels or (kind.loss is Method.loss and kind.step is Method.step)
        return None
    return learner


def is_trained(network: Network) -> bool:
    return any(weight.requires_grad for weight in network.parameters())


def plain_loss(networks: Sequence[Network], batch: Batch) -> Tensor:
    images, known = batch.view(), ~batch.targets.isnan()
    logits = [network(images) for network in networks if is_trained(network)]
    entries = [F.binary_cross_entropy_with_logits(part[known], batch.targets[known]) for part in logits]
    return torch.stack(entries).sum()


def gradients(loss: Tensor, networks: Sequence[Network]) -> Tensor:
    weights = [weight for network in networks for weight in network.parameters() if weight.requires_grad]
    found = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in found])


@contextmanager
def undone(started: Started) -> Iterator[None]:
    """Put back afterwards what the block changes in memories, weights and running statistics."""
    kept = [(tensor, tensor.detach().clone()) for tensor in started.tensors()]
    yield
    with torch.no_grad():
        for tensor, before in kept:
            tensor.copy_(before)


@pytest.fixture(scope="module", params=list(METHODS))
def case(request: pytest.FixtureRequest, train: Train) -> Case:
    return Case(request.param, train)


class TestEveryMethod:
    def test_says_where_it_is_from_how_it_differs_and_what_it_costs(self, case: Case) -> None:
        found = describe(case.name)
        assert found.line.endswith(".")
        assert found.sections.get("Paper")
        assert found.sections.get("Differs")
        assert found.cost is not None, "a line such as 'Cost: 2.' is needed: image presentations relative to bce"

    def test_settings_have_types_defaults_and_a_meaning(self, case: Case) -> None:
        kind = METHODS[case.name]
        hints = typing.get_type_hints(kind.__init__)
        told = [one for one in describe(case.name).settings if one.meaning]
        explained = " ".join(f"{one.name}: {one.meaning}" for one in told)
        for key, parameter in inspect.signature(kind).parameters.items():
            assert key in hints
            assert parameter.default is not inspect.Parameter.empty
            assert re.search(rf"\b{key}\b", explained), f"{key} is not explained under Args"
        with pytest.raises(InputError, match="unknown key 'nonsense'"):
            arguments(kind, {"nonsense": 1}, case.name)

    def test_a_variant_takes_the_settings_of_its_base(self, case: Case) -> None:
        base = METHODS[case.name].variant_of
        if base is not None:
            assert METHODS[base].variant_of is None
            assert set(inspect.signature(METHODS[base]).parameters) <= set(
                inspect.signature(METHODS[case.name]).parameters
            )

    def test_targets_are_labels_and_unknown_stays_unknown(self, case: Case) -> None:
        _, prepared = prepare(case.name, case.train)
        table = case.train[0]
        assert prepared.targets.shape == table.values.shape
        assert np.isnan(prepared.targets[np.isnan(table.values)]).all()
        table.replace(prepared.targets)  # refuses anything outside [0, 1]

    @pytest.mark.parametrize("epochs", [1, 2])
    def test_loss_is_finite_and_reaches_every_trained_network(self, case: Case, epochs: int) -> None:
        """In the first epoch and in the last; networks without trainable weights are teachers."""
        started = case.start(epochs=epochs)
        loss = started.step()
        loss.backward()  # type: ignore[no-untyped-call]
        assert loss.shape == ()
        assert loss.isfinite()
        for network in started.networks:
            trained = [weight for weight in network.parameters() if weight.requires_grad]
            gradients = [weight.grad for weight in trained if weight.grad is not None]
            assert all(gradient.isfinite().all() for gradient in gradients)
            assert not trained or any((gradient != 0).any() for gradient in gradients)
        assert any(weight.requires_grad for network in started.networks for weight in network.parameters())
        assert not any(tensor.requires_grad for tensor in started.method.buffers().values())

    @pytest.mark.parametrize("epochs", [1, 2])
    def test_order_in_the_batch_does_not_matter(self, case: Case, epochs: int) -> None:
        started = case.start(epochs=epochs)
        with undone(started):
            other = started.step(seed=1).item()
        with undone(started):
            loss = started.step().item()
            memories = [memory.flatten().sort()[0] for memory in started.method.buffers().values()]
        if loss != other:
            pytest.skip("draws random numbers for each place of a batch")
        assert started.step(started.batch(range(15, -1, -1))).item() == pytest.approx(loss, rel=1e-4)
        for memory, expected in zip(started.method.buffers().values(), memories, strict=True):
            # Sorted, since a queue may be filled in another order.
            torch.testing.assert_close(memory.flatten().sort()[0], expected, rtol=1e-3, atol=1e-5, equal_nan=True)

    @pytest.mark.parametrize("epochs", [1, 2])
    def test_unlabelled_entries_do_not_count(self, case: Case, epochs: int) -> None:
        """A class that no image of the batch has a label for, and an image without any label."""
        started = case.start(epochs=epochs)
        batch = started.batch()
        batch.targets[:, 3] = torch.nan
        batch.targets[7] = torch.nan
        with undone(started):
            loss = started.step(batch)
            loss.backward()  # type: ignore[no-untyped-call]
        assert loss.isfinite()
        for network in started.networks:
            for weight in network.parameters():
                assert weight.grad is None or weight.grad.isfinite().all()
        if type(started.method).step is Method.step:
            logits = torch.randn(batch.targets.shape, generator=torch.Generator().manual_seed(0), requires_grad=True)
            started.method.loss(logits, batch.targets, batch.index).backward()  # type: ignore[no-untyped-call]
            assert logits.grad is not None
            assert (logits.grad[batch.targets.isnan()] == 0).all()
            assert (logits.grad[~batch.targets.isnan()] != 0).any()

    @pytest.mark.parametrize("epochs", [1, 2])
    def test_labels_that_people_confirmed_are_learnt_by_plain_cross_entropy(self, case: Case, epochs: int) -> None:
        """All of them confirmed: the gradients are those of plain training, times the same number of at least 1."""
        started = case.start(epochs=epochs)
        learner = holding(started, np.ones_like(case.train[0].values, dtype=np.bool_))
        if learner is None:
            return
        batch = started.batch_of(case.train[0].values)
        with undone(started):
            found = gradients(learner.step(started.networks, batch), started.networks)
        with undone(started):
            expected = gradients(plain_loss(started.networks, batch), started.networks)
        factor = float(found.norm() / expected.norm())
        assert factor >= 0.9999
        torch.testing.assert_close(found, factor * expected, rtol=1e-3, atol=1e-3 * float(found.abs().max()))

    @pytest.mark.parametrize("epochs", [1, 2])
    def test_a_confirmed_label_counts_in_full_beside_others(self, case: Case, epochs: int) -> None:
        """Its cross-entropy is softplus(-z) or softplus(z), which differ by z: so does the loss, times its share."""
        started = case.start(epochs=epochs)
        confirmed = np.zeros(case.train[0].values.shape, dtype=np.bool_)
        confirmed[:16:2, ::3] = True
        learner = holding(started, confirmed)
        if learner is None:
            return
        losses = []
        for label in (0.0, 1.0):
            batch = started.batch_of(case.train[0].values)
            batch.targets[4, 3] = label
            with undone(started):
                torch.manual_seed(0)
                losses.append(learner.step(started.networks, batch).item())
        with undone(started), torch.no_grad():
            logit = sum(network(batch.view())[4, 3].item() for network in started.networks if is_trained(network))
        share = getattr(started.method, "full", 1.0) / int((~batch.targets.isnan()).sum())
        assert losses[0] - losses[1] == pytest.approx(share * logit, rel=2e-2, abs=2e-6)

    def test_same_seed_same_result(self, case: Case) -> None:
        case.fit("again").assert_same(case.whole)

    def test_interrupted_and_taken_up_again_it_ends_the_same(self, case: Case) -> None:
        stopped, _ = prepare(case.name, case.train)
        whole = stopped.start_epoch

        def start_epoch(epoch: int, predict: typing.Any) -> None:
            if epoch == 1:
                raise KeyboardInterrupt
            whole(epoch, predict)

        stopped.start_epoch = start_epoch  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            case.fit("interrupted", stopped)
        case.fit("interrupted").assert_same(case.whole)

    def test_a_saved_model_predicts_the_same(self, case: Case, tmp_path: Path) -> None:
        table, images, _ = case.train
        expected = predict(case.whole.method, case.whole.networks, images)
        assert expected.shape == table.values.shape
        model.save(tmp_path, case.whole.method.deployed(case.whole.networks), table.classes, 32)
        found = model.load(tmp_path, "cpu").probabilities(images.batch(torch.arange(len(table))))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)

    def test_python_values_that_a_step_reads_change_with_the_phase(self, case: Case) -> None:
        """A recorded step keeps the values it was recorded with: put back, they must make no difference."""
        if METHODS[case.name].start_epoch is Method.start_epoch:
            return
        started = case.start(replace(FIT, epochs=4))
        method = started.method
        phase = method.phase(0)
        for epoch in (1, 2, 3):
            before = plain_values(method)
            started.start_epoch(epoch)
            last, phase = phase, method.phase(epoch)
            assert hash(phase) == hash(method.phase(epoch))
            if phase == last:
                after = plain_values(method)
                with undone(started):
                    loss = started.step().item()
                vars(method).update(before)
                with undone(started):
                    assert started.step().item() == loss, f"epoch {epoch} needs a phase of its own"
                vars(method).update(after)

    @pytest.mark.parametrize("epochs", [1, 2])
    def test_recordable_steps_never_wait_for_the_device(self, case: Case, epochs: int) -> None:
        started = case.start(epochs=epochs)
        if not started.method.recordable:
            pytest.skip("says that it cannot be recorded")
        batch = started.batch()
        started.step(batch)  # what is made once and kept is allowed
        with NoWaiting(), NoCopies():
            loss = started.step(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            started.method.after_step(started.networks)


def plain_values(method: Method) -> dict[str, object]:
    kinds = (bool, int, float, str, type(None))
    return {key: value for key, value in vars(method).items() if isinstance(value, kinds)}


class NoWaiting(TorchDispatchMode):
    """Refuses operations whose outcome the host has to wait for, which no recording of a GPU's work can hold."""

    refused = (
        *("_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select", "bincount"),
        *("_unique", "_unique2", "unique_dim", "unique_consecutive"),
        *("linalg_eigh", "_linalg_eigh", "_linalg_svd", "linalg_lstsq"),
    )

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = function._schema.name.removeprefix("aten::")
        if name in self.refused:
            raise AssertionError(f"{name} makes the host wait for the device")
        if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
            masks = [place for place in args[1] if place is not None and place.dtype in (torch.bool, torch.uint8)]
            assert not masks, f"{name} by a mask makes the host wait for the device: use torch.where or a weight"
        return function(*args, **(kwargs or {}))


class NoCopies(TorchFunctionMode):
    """Refuses what moves values between the host and the device."""

    refused = (Tensor.tolist, Tensor.numpy, Tensor.cpu, Tensor.new_tensor, torch.tensor, torch.from_numpy)

    def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if function in self.refused or (function is torch.as_tensor and not isinstance(args[0], Tensor)):
            raise AssertionError(f"{function.__name__} moves values between host and device")
        return function(*args, **(kwargs or {}))


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
