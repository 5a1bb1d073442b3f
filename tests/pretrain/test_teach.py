"""Labels, severities and places of phantoms as targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bomd.config import FitSettings
from bomd.data.datasets import phantom
from bomd.data.datasets.classes import NIH
from bomd.data.datasets.phantom import drawing
from bomd.learn.engine import Batch
from bomd.pretrain.teach import FINDINGS, GRID, PhantomLearner, cells, lessons, patients

HOSPITALS = ("north", "south", "varied")


def test_hospitals_share_alike_and_splits_share_nobody() -> None:
    train, test = (patients(HOSPITALS, 41, split, seed=0) for split in ("train", "test"))
    counts = [sum(name.startswith(hospital) for name in train.ids) for hospital in HOSPITALS]
    assert counts == [14, 14, 13]
    assert not set(train.groups) & set(test.groups)
    assert set(train.ids) != set(patients(HOSPITALS, 41, "train", seed=1).ids)


def test_a_cell_is_on_where_the_picture_changes() -> None:
    """8 x 8 pixels in 4 x 4 cells: one strong corner, a weak spot below a quarter of it, an absent finding."""
    changes = torch.zeros(1, 2, 8, 8, dtype=torch.uint8)
    changes[0, 0, 0, 1] = 100
    changes[0, 0, 7, 7] = 25
    changes[0, 0, 0, 7] = 24
    found = cells(changes).view(2, GRID, GRID)
    assert found[0].nonzero().tolist() == [[0, 0], [3, 3]]
    assert not found[1].any()


def test_lessons_are_labels_then_severities_then_places() -> None:
    table = patients(("varied",), 24, "train", seed=0)
    taught = lessons(table, ("severity", "place"), torch.device("cpu"))
    learner = PhantomLearner(("severity", "place"))
    assert taught.shape == (24, learner.outputs) == (24, len(NIH) + FINDINGS * (1 + GRID**2))
    labels, severity, place = np.split(taught, [len(NIH), len(NIH) + FINDINGS], axis=1)
    present = table.values[:, :-1] > 0
    assert np.array_equal(labels, table.values)
    assert np.array_equal(severity > 0, present)
    assert np.array_equal(place.reshape(24, FINDINGS, -1).any(axis=2), present), "present findings lie somewhere"


def test_the_loss_is_the_sum_of_its_parts() -> None:
    """Cross-entropy of each part by hand, from the network's own outputs."""
    learner = PhantomLearner(("severity",))
    (network,) = learner.build(learner.outputs, FitSettings(backbone="small", weights="none"), 0)
    network.eval()
    table = patients(("varied",), 6, "train", seed=0)
    pixels, targets = (
        phantom.render(table.ids, 32),
        torch.from_numpy(lessons(table, ("severity",), torch.device("cpu"))),
    )
    batch = Batch(torch.arange(6), targets, pixels, network.channels)
    logits = network(batch.view())
    entries = -(targets * logits.sigmoid().log() + (1 - targets) * (1 - logits.sigmoid()).log())
    expected = entries[:, : len(NIH)].mean() + entries[:, len(NIH) :].mean()
    assert learner.step([network], batch).item() == pytest.approx(expected.item(), rel=1e-5)
    assert learner.predict([network], batch.view()).shape == (6, len(NIH))


def test_places_are_where_a_finding_was_drawn() -> None:
    """Taking one finding away changes the picture there and nowhere else; devices stay."""
    table = patients(HOSPITALS, 60, "train", seed=2)
    changes = drawing.places(table.ids, 32).numpy()
    whole = phantom.render(table.ids, 32).numpy().astype(int)
    present = table.values[:, :-1] > 0
    assert np.array_equal(changes.any(axis=(2, 3)), present)
    tried = 0
    for row in np.flatnonzero(present.sum(axis=1) >= 1)[:12]:
        for column in np.flatnonzero(present[row]):
            if NIH[column] in ("Pneumothorax", "Cardiomegaly", "Edema"):
                continue  # without these, patients may also lose a device
            values = table.values[row : row + 1].copy()
            values[0, column] = 0
            without = drawing.render_with(table.ids[row : row + 1], values, 32).numpy().astype(int)
            assert np.array_equal(changes[row, column], np.abs(whole[row] - without[0]))
            tried += 1
    assert tried >= 6
