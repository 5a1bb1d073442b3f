"""Holistic label correction: scores of label sets, when they are replaced, and what is remembered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from bomd.config import DeviceSettings, FitSettings
from bomd.errors import InputError
from bomd.learn.engine import Batch, fit, make_fabric, predict
from bomd.methods.base import Context, masked_cross_entropy
from bomd.methods.hlc import Hlc, correct, limit
from bomd.models import model
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(backbone="small", weights="none", epochs=6, batch=16, rate=1e-3, eps=1e-8, augment="light")
Train = tuple[LabelTable, Context]
NAN = float("nan")


def corrected(
    labels: list[float],
    probabilities: list[float],
    *,
    limit: float = 0.4,
    edges: list[list[float]] | None = None,
    balance: float = 0.5,
    nothing: int | None = None,
) -> list[float]:
    ties = torch.zeros(1, len(labels), len(labels)) if edges is None else torch.tensor([edges])
    rows = (torch.tensor([labels]), torch.tensor([probabilities]), ties, torch.tensor(limit))
    return correct(*rows, balance, nothing)[0].tolist()


def test_correction_by_hand() -> None:
    """Scores of {1} and {0} are .1 and .45: a ratio of .2222."""
    assert corrected([0, 1, 0], [0.9, 0.2, 0.7]) == [1, 0, 0]
    assert corrected([0, 1, 0], [0.9, 0.2, 0.7], limit=0.2223) == [1, 0, 0]
    assert corrected([0, 1, 0], [0.9, 0.2, 0.7], limit=0.2221) == [0, 1, 0]


def test_ties_between_labels_count_in_both_directions_and_never_to_themselves() -> None:
    """{0, 1} scores (.9 + .1) / 2 + (.3 + .1) / 2 = .7 and {0, 2} scores (.9 + .7) / 2 = .8: a ratio of .875."""
    edges = [[9.0, 0.3, 0], [0.1, 9, 0], [0, 0, 9]]
    for bound, expected in ((0.874, [1, 1, 0]), (0.876, [1, 0, 1])):
        assert corrected([1, 1, 0], [0.9, 0.1, 0.7], edges=edges, limit=bound) == expected


def test_nothing_is_replaced_below_zero_or_without_a_score() -> None:
    assert corrected([0, 1, 0], [0.9, 0.0, 0.7], limit=-1) == [0, 1, 0]
    assert corrected([0, 1, 0], [0.9, 0.2, 0.7], limit=-1, balance=0) == [0, 1, 0]
    assert corrected([0, 1, 0], [0.9, 0.2, 0.7], limit=1, balance=0) == [0, 1, 0]
    assert corrected([0, 0, 0], [0.9, 0.2, 0.7], limit=1, nothing=2) == [0, 0, 0]


def test_unknown_labels_stay_and_are_never_chosen() -> None:
    found = corrected([NAN, 1, 0, 0], [0.99, 0.1, 0.9, 0.3])
    assert np.isnan(found[0])
    assert found[1:] == [0, 1, 0]


def test_no_finding_ends_consistent_in_rows_that_changed() -> None:
    assert corrected([1, 1, 0, 0], [0.05, 0.05, 0.8, 0.9], nothing=3) == [0, 0, 1, 0]
    assert corrected([1, 0, 0, 0], [0.05, 0.05, 0.1, 0.9], nothing=3) == [0, 0, 0, 1]
    assert corrected([1, 0, 0, 1], [0.9, 0.1, 0.1, 0.8], nothing=3) == [1, 0, 0, 1]  # was so, and did not change
    found = corrected([1, 0, 0, NAN], [0.05, 0.9, 0.1, 0.9], nothing=3)
    assert found[:3] == [0, 1, 0]
    assert np.isnan(found[3])


def test_correction_against_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(200, 5, generator=generator) < 0.4).float()
    labels[torch.rand(200, 5, generator=generator) < 0.1] = torch.nan
    probabilities = torch.rand(200, 5, generator=generator)
    edges = torch.rand(200, 5, 5, generator=generator)
    found = correct(labels, probabilities, edges, torch.tensor(0.6), 0.3, None)
    changes = 0
    for row in range(200):

        def score(members: list[int], row: int = row) -> float:
            ties = sum(edges[row, j, k].item() for j in members for k in members if j != k)
            return 0.3 * sum(probabilities[row, c].item() for c in members) + 0.7 * ties

        known = [c for c in range(5) if not labels[row, c].isnan()]
        given = [c for c in known if labels[row, c] == 1]
        best = sorted(known, key=lambda c: -probabilities[row, c].item())[: len(given)]
        replaced = bool(given) and score(given) <= 0.6 * score(best)
        changes += replaced
        wanted = best if replaced else given
        assert [c for c in known if found[row, c] == 1] == sorted(wanted)
        assert (found[row].isnan() == labels[row].isnan()).all()
    assert 10 < changes < 150


def limits_of(method: Hlc, train: Train, epochs: int) -> list[float]:
    table, context = train
    method.prepare(table, replace(context, fit=replace(FIT, epochs=epochs)))
    return [limit(epoch, method.first, method.last, 0.4) for epoch in range(epochs)]


def test_thirty_epochs_correct_in_the_papers_five(train: Train) -> None:
    limits = limits_of(Hlc(warmup=1 / 6, until=1 / 3), train, 30)
    assert limits[5:10] == pytest.approx([0.4, 0.32, 0.24, 0.16, 0.08])
    assert all(value == -1 for value in limits[:5] + limits[10:])


@pytest.mark.parametrize("epochs", range(1, 13))
def test_no_run_corrects_before_it_has_learnt(train: Train, epochs: int) -> None:
    method = Hlc()
    limits = limits_of(method, train, epochs)
    assert all(value == -1 for value in limits[: max(1, min(round(0.7 * epochs), epochs - 1))])
    assert max(limits) <= 0.4
    table, context = train
    notes = method.prepare(table, replace(context, fit=replace(FIT, epochs=epochs))).notes
    assert (max(limits) > 0) == (not notes)
    assert all("labels stay as given" in note for note in notes)
    assert (not notes) == (epochs >= 2)


def step_with(method: Hlc, train: Train, rows: list[int], bound: float) -> tuple[Tensor, Batch]:
    table, context = train
    targets = torch.as_tensor(method.prepare(table, context).targets)
    networks = method.build(14, FIT, seed=0)
    index = torch.tensor(rows)
    batch = Batch(index, targets[index], context.images.batch(index), 1)
    method.limit.fill_(bound)
    return method.step(networks, batch), batch


def test_corrections_are_remembered_for_the_rows_of_the_batch_alone(train: Train) -> None:
    method = Hlc(threshold=1.0)
    step_with(method, train, list(range(10, 26)), bound=0.99)
    changed = method.labels != torch.as_tensor(train[0].values).nan_to_num()
    assert changed[10:26].any()
    assert not changed[:10].any()
    assert not changed[26:].any()
    assert not method.labels.requires_grad
    assert method.labels.isfinite().all()


def test_without_correction_it_is_cross_entropy(train: Train) -> None:
    method = Hlc()
    loss, batch = step_with(method, train, list(range(16)), bound=-1)
    logits = method.build(14, FIT, seed=0)[0](batch.view())
    torch.testing.assert_close(loss, masked_cross_entropy(logits, batch.targets))
    assert torch.equal(method.labels, torch.as_tensor(train[0].values).nan_to_num())


def test_the_second_visit_starts_from_the_correction(train: Train) -> None:
    method = Hlc()
    _, batch = step_with(method, train, list(range(16)), bound=-1)
    method.labels[:16] = 1
    networks = method.build(14, FIT, seed=0)
    wanted = masked_cross_entropy(networks[0](batch.view()), torch.where(batch.targets.isnan(), torch.nan, 1.0))
    networks = method.build(14, FIT, seed=0)
    torch.testing.assert_close(method.step(networks, batch), wanted)


def test_whole_training(train: Train, tmp_path: Path) -> None:
    table, context = train
    method = Hlc(threshold=1.0, width=8)
    targets = method.prepare(table, context).targets
    networks, history = fit(
        method, context.images, targets, FIT, outputs=14, fabric=FABRIC, seed=0, directory=tmp_path, what="test"
    )
    assert all(np.isfinite(record["loss"]) for record in history)
    labels, nothing = method.labels.numpy(), table.classes.index("No Finding")
    rows = (labels != targets).any(axis=1) & ~np.isnan(targets).any(axis=1)
    assert rows.any()
    assert ((labels[rows, nothing] == 1) == ~(labels[rows][:, table.findings] == 1).any(axis=1)).all()
    model.save(tmp_path / "model", method.deployed(networks), table.classes, 32)
    found = predict(method, networks, context.images)
    opened = model.load(tmp_path / "model", "cpu").probabilities(context.images.batch(torch.arange(48)))
    torch.testing.assert_close(opened, found)


def test_bad_requests(train: Train) -> None:
    table, context = train
    soft = table.values.copy()
    soft[3, 1] = 0.4
    with pytest.raises(InputError, match=str(table.ids[3])):
        Hlc().prepare(table.replace(soft), context)
    with pytest.raises(InputError, match=r"hlc\.balance is 2"):
        Hlc(balance=2)
