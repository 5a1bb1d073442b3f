"""The declared counts are those of the real label files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bomd.data.datasets import chexpert, nih, nih_google, openi, padchest
from bomd.data.datasets.declared import DECLARED, OPTIONS
from evidence.pages.comparisons import COMPARISONS

READ = {
    "nih": nih.read,
    "chexpert": chexpert.read,
    "nih-google": nih_google.read,
    "openi": openi.read,
    "padchest": padchest.read,
}
LABELS = Path(__file__).parents[3] / "../shared/data/labels"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not LABELS.is_dir(), reason="needs the label files in ../shared/data/labels"),
]


@pytest.mark.parametrize(("dataset", "split"), [(name, split) for name in DECLARED for split in DECLARED[name]])
def test_declared_counts(dataset, split):
    table = READ[dataset](LABELS, split, classes="native", images=False, **OPTIONS.get(dataset, {}))
    counted = {"images": len(table), "patients": len(np.unique(table.patients))}
    counted |= dict(zip(table.classes, (table.values == 1).sum(axis=0).tolist(), strict=True))
    assert counted == DECLARED[dataset][split]


@pytest.mark.parametrize("row", COMPARISONS, ids=lambda row: f"{row.dataset}-{row.split}-{row.images}")
def test_images_beside_those_of_the_paper(row):
    assert len(READ[row.dataset](LABELS, row.split, images=False, **row.options)) == row.images
    assert (row.images == row.paper) == (row.why == "the same")


def test_splits_of_chexpert_are_all_frontal_images_with_an_age():
    parts = DECLARED["chexpert"]
    assert parts["train"]["images"] + parts["validation"]["images"] == 191027 - 3
