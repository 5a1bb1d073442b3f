"""The names that `import bomd` promises, and the array functions that stand alone."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import bomd


def test_every_public_name_exists() -> None:
    for name in bomd.__all__:
        assert getattr(bomd, name) is not None
    assert sorted(bomd.__all__) == sorted(bomd._PLACES)
    with pytest.raises(AttributeError, match="nonsense"):
        bomd.nonsense  # noqa: B018


def test_import_is_instant() -> None:
    script = "import sys, bomd; print('torch' in sys.modules or 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_readme_example_on_own_features() -> None:
    """Two clusters; the one image that carries the other cluster's label is flagged and leans back."""
    random = np.random.default_rng(0)
    features = np.concatenate([random.normal(0, 1, (20, 8)), random.normal(6, 1, (20, 8))]).astype(np.float32)
    truth = np.repeat(np.eye(2, dtype=np.float32), 20, axis=0)
    labels = truth.copy()
    labels[3] = [0, 1]
    scores = np.stack([-np.abs(features).mean(1), features.mean(1) - 6], axis=1)

    flags = bomd.detect(scores, labels)
    neighbours = bomd.nearest_images(features[:, None], k=10)
    better = bomd.relabel(labels, neighbours, flags.noisy)

    assert list(np.flatnonzero(flags.noisy)) == [3]
    assert better[3, 0] == pytest.approx(0.6 * (0.25 + 0.75 * 1.0))
    assert better[3, 1] == pytest.approx(0.4 + 0.6 * 0.25)
    np.testing.assert_array_equal(np.delete(better, 3, axis=0), np.delete(labels, 3, axis=0))
