"""The names that `import bomd` promises, and the array functions that stand alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bomd
from bomd.models import model
from bomd.networks.backbone import build


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
    neighbours = bomd.nearest_images(features, k=10)
    better = bomd.relabel(labels, neighbours, flags.noisy)

    assert list(np.flatnonzero(flags.noisy)) == [3]
    assert better[3, 0] == pytest.approx(0.6 * (0.25 + 0.75 * 1.0))
    assert better[3, 1] == pytest.approx(0.4 + 0.6 * 0.25)
    np.testing.assert_array_equal(np.delete(better, 3, axis=0), np.delete(labels, 3, axis=0))


def test_one_descriptor_per_image_needs_no_axis_of_its_own() -> None:
    vectors = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
    flat, deep = bomd.nearest_images(vectors, 3), bomd.nearest_images(vectors[:, None], 3)
    np.testing.assert_array_equal(flat.indices, deep.indices)
    with pytest.raises(bomd.InputError, match=r"\(N, M, D\) or \(N, D\)"):
        bomd.nearest_images(vectors[0], 3)


def test_a_wrong_keyword_is_told_in_the_name_of_what_was_called() -> None:
    with pytest.raises(TypeError, match=r"^bomd\.audit\(\) got an unexpected.*'id_colum'\. Did you mean 'id_column'"):
        bomd.audit("labels.csv", id_colum="file")


def test_results_are_shown_in_a_line() -> None:
    values = np.asarray([[1, 0, 0, 0], [0, 1, np.nan, 0]], dtype=np.float32)
    table = bomd.LabelTable(["a", "b"], ["Mass", "Edema", "Hernia", "No Finding"], values)
    assert repr(table) == "LabelTable: 2 images, 4 classes (Mass, Edema, Hernia, …), 2 positive, 1 not labelled"
    flags = bomd.detect(np.asarray([[0, 1, 0, 0], [0, 1, 0, 0]], dtype=np.float32), values)
    assert repr(flags) == "Flags: 1 of 2 images look wrong"
    many = np.zeros((5000, 30), dtype=np.float32)
    assert repr(bomd.Descriptors(np.arange(5000).astype(str), many[:, None])).count("\n") == 0
    assert repr(bomd.nearest_images(many[:50] + np.arange(50, dtype=np.float32)[:, None], 3)) == (
        "Neighbours of 50 images, 3 each"
    )


class TestLoad:
    def model(self, place: Path) -> Path:
        model.save(place, [build("small", 2, seed=0)], ["Mass", "Edema"], 32)
        return place

    def test_a_model_is_found_where_an_audit_left_it(self, tmp_path: Path) -> None:
        for name in ("old", "new"):
            self.model(tmp_path / "runs" / name / "model")
        with pytest.raises(bomd.InputError, match="2 models are in"):
            bomd.load(tmp_path)
        (tmp_path / "audit.json").write_text('{"run": "runs/new"}')
        found = bomd.load(tmp_path)
        assert repr(found) == "Model: 2 classes (Mass, Edema), 32 x 32 pixels, 1 network 'small' on cpu"
        assert bomd.load(tmp_path / "runs" / "old").classes == ("Mass", "Edema")

    @pytest.mark.parametrize("facts", ["[]", '{"run": "../elsewhere"}', "{}"])
    def test_what_an_audit_names_must_be_its_own(self, tmp_path: Path, facts: str) -> None:
        (tmp_path / "audit").mkdir()
        (tmp_path / "audit" / "audit.json").write_text(facts)
        self.model(tmp_path / "elsewhere" / "model")
        with pytest.raises(bomd.InputError, match="No model in"):
            bomd.load(tmp_path / "audit")
