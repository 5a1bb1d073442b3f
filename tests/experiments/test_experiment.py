"""What happens around training: who may be tested on, where noise falls, and what is checked first."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bomd.config import Config, parse
from bomd.errors import InputError
from bomd.experiments import experiment
from bomd.experiments.noise import add_noise
from bomd.experiments.records import LabelRecord, load_predictions
from bomd.measure.result import VALIDATION
from bomd.methods import METHODS
from bomd.runs import Stages
from bomd.tables import LabelTable
from bomd.version import VERSION

PHANTOM = {"dataset": "phantom", "hospital": "north", "count": 200}
SYMMETRIC = {"kind": "symmetric", "rows": 0.5, "labels": 0.5}


def config(**changes: Any) -> Config:
    return parse({"train": PHANTOM, **changes}, METHODS)


def noise_of(tmp_path: Path, table: LabelTable | None = None, run_seed: int = 0, **noise: Any) -> Any:
    settings = config(noise=noise, seed=run_seed)
    table = experiment.read_labels(settings)["train"][0] if table is None else table
    return add_noise(settings, table, Stages(tmp_path))


def test_patients_in_both_sets_are_refused_or_held_out() -> None:
    """The first 50 images of the training hospital as a test set share all their patients with it."""
    shared = {"same": {**PHANTOM, "count": 50}}
    with pytest.raises(InputError, match="patients of test set 'same' are in the training set too"):
        experiment.read_labels(config(test=shared))
    tables = experiment.read_labels(config(test=shared, hold_out_test_patients=True))
    train, test = tables["train"][0], tables["same"][0]
    assert not set(train.groups) & set(test.groups)
    whole = experiment.read_labels(config())["train"][0]
    assert set(train.ids) == {
        name for name, who in zip(whole.ids, whole.groups, strict=True) if who not in set(test.groups)
    }


def test_other_hospitals_and_splits_share_nobody() -> None:
    others = {"south": {**PHANTOM, "hospital": "south"}, "later": {**PHANTOM, "split": "test"}}
    assert set(experiment.read_labels(config(test=others))) == {"train", "south", "later"}


@pytest.mark.parametrize("name", ["train", "validation", "validation before noise"])
def test_reserved_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot be called"):
        experiment.read_labels(config(test={name: {**PHANTOM, "hospital": "south"}}))


def test_other_seeds_hold_out_other_patients_and_all_methods_of_a_seed_the_same(tmp_path: Path) -> None:
    """What a run says it held out: by seed, and again for another method of the first seed."""
    fit = {"backbone": "small", "weights": "none", "epochs": 1, "batch": 16, "rate": 0.001, "eps": 1e-8}
    shared = {"validation": 0.3, "images": {"size": 32}, "fit": fit, "train": {**PHANTOM, "count": 60}}
    held_out = []
    for method, seed in (("bce", 0), ("bce", 1), ("ls", 0)):
        run = experiment.run(config(method=method, seed=seed, **shared), tmp_path)
        truth, _ = load_predictions(run.directory / "predictions.npz")[VALIDATION]
        trained_on = LabelRecord.load(run.directory / "labels.npz").given
        assert len(truth) == pytest.approx(0.3 * 60, abs=2)
        assert not set(truth.groups) & set(trained_on.groups)
        held_out.append(set(truth.ids))
    assert held_out[0] != held_out[1]
    assert held_out[0] == held_out[2]


def test_noise_is_drawn_once_per_seed(tmp_path: Path) -> None:
    first, again = noise_of(tmp_path, **SYMMETRIC), noise_of(tmp_path, **SYMMETRIC)
    other = noise_of(tmp_path, run_seed=1, **SYMMETRIC)
    np.testing.assert_array_equal(first.noisy.values, again.noisy.values)
    assert (first.noisy.values != other.noisy.values).any()
    assert len(list(tmp_path.glob("noise-*/noise.npz"))) == 2


def test_noise_may_fall_on_a_share_of_whole_patients(tmp_path: Path) -> None:
    noise = noise_of(tmp_path, share=0.3, **SYMMETRIC)
    changed = noise.changed.any(axis=1)
    assert changed.any()
    assert not changed[~noise.exposed].any()
    assert 0.2 < noise.exposed.mean() < 0.4
    assert not set(noise.clean.groups[noise.exposed]) & set(noise.clean.groups[~noise.exposed])


def test_noise_may_fall_on_one_origin_only(tmp_path: Path) -> None:
    mixture = {
        "dataset": "mixture",
        "base": {**PHANTOM, "count": 60},
        "part": {**PHANTOM, "hospital": "south", "count": 40},
    }
    table = experiment.read_labels(config(train=mixture))["train"][0]
    noise = noise_of(tmp_path, table, only="part", **SYMMETRIC)
    assert list(np.unique(table.origins[noise.exposed])) == ["part"]
    assert noise.exposed.sum() == 40
    with pytest.raises(InputError, match=r"no training image comes from 'padchest'. There are: \['base', 'part'\]"):
        noise_of(tmp_path, table, only="padchest", **SYMMETRIC)


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        ({"kind": "symetric"}, "Did you mean 'symmetric'"),
        ({"rows": 0.2}, "'rows' is set, but 'kind' is not"),
        ({"kind": "symmetric", "rows": 0.2}, "'labels' is needed"),
        ({"kind": "symmetric", "rows": 0.2, "labels": 0.2, "seed": 3}, "unknown key 'seed'"),
        ({**SYMMETRIC, "share": 0}, "share must be above 0"),
        ({**SYMMETRIC, "share": "some"}, "expected float"),
    ],
)
def test_mistakes_in_noise_are_found_before_anything_is_drawn(
    tmp_path: Path, noise: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        noise_of(tmp_path, **noise)
    assert message in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_no_noise_is_no_noise(tmp_path: Path) -> None:
    assert noise_of(tmp_path) is None


def test_joint_class_is_scored_where_the_truth_has_it() -> None:
    ids = np.array(["a", "b"])
    predicted = LabelTable(ids, ("Mass", "Nodule", "Edema"), np.array([[0.2, 0.6, 0.1], [1.0, 0.0, 0.3]]))
    truth = LabelTable(ids, ("Pneumothorax", "Nodule or mass"), np.zeros((2, 2)))
    joined = experiment.with_joint_classes(predicted, truth)
    np.testing.assert_allclose(joined.align(["Nodule or mass"]).values[:, 0], [0.4, 0.5])
    assert experiment.with_joint_classes(predicted, predicted) is predicted


def test_variant_starts_from_the_settings_of_its_method() -> None:
    made = experiment.make_method(config(method="bomd-paper", bomd={"neighbours": 7}))
    assert made.neighbours == 7  # type: ignore[attr-defined]
    assert made.weighting == "paper"  # type: ignore[attr-defined]
    own = config(method="bomd-paper", bomd={"neighbours": 7}, **{"bomd-paper": {"neighbours": 9}})
    assert experiment.make_method(own).neighbours == 9  # type: ignore[attr-defined]
    assert experiment.make_method(config(bomd={"neighbours": 7})).weighting == "release"  # type: ignore[attr-defined]


def test_soft_labels_of_held_out_patients_are_not_judged_by(tmp_path: Path) -> None:
    """A probability is neither right nor wrong, and must not end a run."""
    table = experiment.read_labels(config())["train"][0]
    name = table.classes[0]
    lines = [
        f"{image},{'0.7' if row % 2 else int(value)}"
        for row, (image, value) in enumerate(zip(table.ids, table.values[:, 0], strict=True))
    ]
    (tmp_path / "soft.csv").write_text("\n".join([f"id,{name}", *lines]) + "\n")
    settings = config(
        method="bce",
        validation=0.3,
        images={"size": 32},
        train={**PHANTOM, "labels_from": str(tmp_path / "soft.csv")},
        fit={"backbone": "small", "weights": "none", "epochs": 1, "batch": 32, "rate": 0.001, "eps": 1e-8},
    )
    done = experiment.run(settings, tmp_path)
    (first,) = [found for found in done.result()["tests"]["validation"]["classes"] if found["name"] == name]
    assert 0 < first["positives"] + first["negatives"] < done.result()["images"]["validation"]


SMALL = {
    "images": {"size": 16},
    "train": {**PHANTOM, "count": 60},
    "test": {"south": {**PHANTOM, "hospital": "south", "count": 30}},
    "method": "bce",
    "fit": {"backbone": "small", "weights": "none", "epochs": 2, "batch": 16, "rate": 1e-3, "eps": 1e-8},
}


def test_a_run_from_source_alone_ends_with_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody installed the package: the version is in its source."""

    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    done = experiment.run(config(**SMALL), tmp_path)
    assert done.finished
    assert f"bomd {VERSION}." in (done.directory / "model" / "README.md").read_text()


def test_no_error_is_left_until_after_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test set of probabilities, one of other findings, and what the environment does not say."""
    (tmp_path / "soft" / "images").mkdir(parents=True)
    lines = ["id,Effusion,Mass"]
    for row in range(4):
        Image.fromarray(np.full((16, 16), 10 * row, np.uint8)).save(tmp_path / "soft" / "images" / f"{row}.png")
        lines.append(f"{row}.png,0.3,{row % 2}")
    (tmp_path / "soft" / "labels.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(experiment, "fit", None)  # any call would fail
    soft = {"dataset": "folder", "root": str(tmp_path / "soft")}
    with pytest.raises(InputError, match=r"Test set 'soft' cannot be judged: .* neither 0, 1 nor NaN for 'Effusion'"):
        experiment.run(config(**SMALL | {"test": {"soft": soft}}), tmp_path / "runs")
    (tmp_path / "soft" / "labels.csv").write_text("\n".join(lines).replace("Effusion,Mass", "Cat,Dog") + "\n")
    with pytest.raises(InputError, match="'soft' has no class in common"):
        experiment.run(config(**SMALL | {"test": {"soft": soft}}), tmp_path / "runs")
    assert not (tmp_path / "runs").exists(), "nothing was spent on images either"


@pytest.mark.parametrize("validation", [0.0, 0.3])
def test_the_best_epoch_that_nobody_can_choose_is_the_last_with_a_note(tmp_path: Path, validation: float) -> None:
    values = {**SMALL, "validation": validation, "fit": {**SMALL["fit"], "select": "best"}}
    done = experiment.run(config(**values), tmp_path)
    notes = [note for note in done.result()["notes"] if "the last epoch was kept" in note]
    assert len(notes) == (0 if validation else 1)
