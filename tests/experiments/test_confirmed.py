"""Labels that people decided on are fixed in every run, and noise stays on all others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bomd.clean.opinion import form_opinion
from bomd.config import Config, parse
from bomd.data.datasets.corrected import DETAILS
from bomd.errors import InputError
from bomd.experiments import experiment
from bomd.experiments.confirmed import after_noise, keep_confirmed
from bomd.experiments.records import LabelRecord, load_predictions
from bomd.measure.result import VALIDATION
from bomd.methods import METHODS
from bomd.methods.base import Prepared
from bomd.runs import Run
from bomd.tables import NO_FINDING, Flags, LabelTable

NAN = float("nan")
GIVEN = LabelTable(
    np.asarray([*"abcd"]), ("Mass", "Edema"), np.asarray([[1, 0], [1, 0], [1, NAN], [1, 0]], dtype=np.float32)
)
CONFIRMED = np.asarray([[True, True], [True, False], [True, False], [False, False]])


def test_a_method_keeps_what_people_decided_on() -> None:
    """a: both confirmed. b: one of two. c: one, and the other is unknown. d: none; only b and d may stay flagged."""
    flags = Flags(GIVEN.ids, np.ones(4, dtype=np.bool_), np.full(4, -1, np.float32), np.full((4, 2), -1, np.float32))
    soft = np.full((4, 2), 0.4, dtype=np.float32)
    kept = keep_confirmed(Prepared(soft, flags), replace(GIVEN, confirmed=CONFIRMED))
    assert kept.flags is not None
    assert kept.flags.noisy.tolist() == [False, True, False, True]
    assert np.isnan(kept.flags.margin).tolist() == [True, False, True, False]
    assert np.array_equal(np.isnan(kept.flags.entry), CONFIRMED)
    assert kept.targets == pytest.approx(np.asarray([[1, 0], [1, 0.4], [1, 0.4], [0.4, 0.4]]))
    assert keep_confirmed(Prepared(soft, flags), GIVEN).flags is flags


def test_noise_spares_what_was_decided_about_a_part_of_the_set() -> None:
    marked, noisy = replace(GIVEN, confirmed=CONFIRMED), GIVEN.replace(1 - GIVEN.values)
    found = after_noise(noisy, marked)
    assert np.array_equal(found.values, [[1, 0], [1, 1], [1, NAN], [0, 1]], equal_nan=True)
    assert found.confirmed is CONFIRMED
    assert after_noise(noisy, GIVEN) is noisy


def test_an_opinion_leaves_out_what_people_decided_on() -> None:
    """Labels that fit no score at all are proposed to change, but for those that somebody confirmed."""
    random = np.random.default_rng(0)
    truth = (random.random((400, 4)) < 0.3).astype(np.float32)
    truth[:, 3] = ~truth[:, :3].any(axis=1)
    given = truth.copy()
    given[:40, :3] = 1 - given[:40, :3]
    given[:40, 3] = ~(given[:40, :3] == 1).any(axis=1)
    scores = 8 * truth - 4 + random.normal(0, 1, truth.shape)
    confirmed = np.zeros(truth.shape, dtype=np.bool_)
    confirmed[:20] = True
    table = LabelTable(np.asarray([f"i{row:03}" for row in range(400)]), ("a", "b", "c", NO_FINDING), given)
    plain, _, _ = form_opinion(scores, table)
    kept, posterior, _ = form_opinion(scores, replace(table, confirmed=confirmed))
    assert (plain.proposed[:20] != given[:20]).any(axis=1).all()
    assert np.array_equal(kept.proposed[:20], given[:20])
    assert (kept.wrong[:20] == 0).all()
    assert np.array_equal(posterior.truth[:20], given[:20])
    assert (kept.proposed[20:40] != given[20:40]).any(axis=1).all()
    assert kept.rank[:20].min() > kept.rank[20:40].max()


PHANTOM = {"dataset": "phantom", "hospital": "north", "count": 60}
NOISE = {"kind": "symmetric", "rows": 0.6, "labels": 0.4}
FIT = {"backbone": "small", "weights": "none", "epochs": 1, "batch": 32, "rate": 0.001, "eps": 1e-8}


def config(**changes: Any) -> Config:
    settings = {"validation": 0.25, "images": {"size": 32}, "train": PHANTOM, "fit": FIT, **changes}
    return parse(settings, METHODS)


def held_out(run: Run) -> tuple[list[str], np.ndarray]:
    truth = load_predictions(run.directory / "predictions.npz")[VALIDATION][0]
    return truth.ids.tolist(), truth.values


def test_decisions_bring_no_true_labels_back(tmp_path: Path) -> None:
    """The same noise on the same images, the same patients held out; but for what was decided."""
    before = experiment.run(config(method="bce", noise=NOISE), tmp_path)
    noisy = LabelRecord.load(before.directory / "labels.npz")
    assert noisy.clean is not None
    wrong = np.flatnonzero((noisy.given.values != noisy.clean.values).any(axis=1))[:2]
    lines = [
        f"{noisy.given.ids[row]},{name},,{noisy.clean.values[row, column]:.0f},Ada,,0"
        for row in wrong
        for column, name in enumerate(noisy.given.classes)
    ]
    details = tmp_path / "reviewed-details.csv"
    details.write_text("\n".join([",".join(DETAILS), *lines]) + "\n")
    after = experiment.run(
        config(method="bce", noise=NOISE, train={**PHANTOM, "labels_from": str(details)}), tmp_path / "after"
    )
    found = LabelRecord.load(after.directory / "labels.npz")
    expected = noisy.given.values.copy()
    expected[wrong] = noisy.clean.values[wrong]
    assert found.given.ids.tolist() == noisy.given.ids.tolist()
    assert np.array_equal(found.given.values, expected)
    assert found.given.confirmed is not None
    assert found.given.confirmed.any(axis=1).nonzero()[0].tolist() == wrong.tolist()
    assert held_out(after)[0] == held_out(before)[0]
    assert np.array_equal(held_out(after)[1], held_out(before)[1])
    assert any("as people decided (reviewed-details.csv)" in note for note in after.result()["notes"])


def test_noise_and_a_table_that_does_not_say_what_was_decided_do_not_go_together(tmp_path: Path) -> None:
    table = experiment.read_labels(config())["train"][0]
    (tmp_path / "mine.csv").write_text(f"id,{table.classes[0]}\n{table.ids[0]},1\n")
    train = {**PHANTOM, "labels_from": str(tmp_path / "mine.csv")}
    with pytest.raises(InputError, match=r"mine-details\.csv is missing"):
        experiment.run(config(method="bce", noise=NOISE, train=train), tmp_path)
    assert experiment.read_decided(config(train=train), table) is not None


def test_what_was_confirmed_is_learnt_in_full_and_never_flagged(tmp_path: Path) -> None:
    """Wrong labels, confirmed: BoMD would flag and soften them."""
    settings = config(method="bomd", validation=0.0, bomd={"epochs": 1, "batch": 16, "neighbours": 5}, noise=NOISE)
    plain = LabelRecord.load(experiment.run(settings, tmp_path).directory / "labels.npz")
    assert plain.flags is not None
    rows = np.flatnonzero(plain.flags.noisy)[:3]
    assert len(rows) == 3
    lines = [
        f"{plain.given.ids[row]},{name},,{plain.given.values[row, column]:.0f},Ada,,0"
        for row in rows
        for column, name in enumerate(plain.given.classes)
    ]
    details = tmp_path / "kept-details.csv"
    details.write_text("\n".join([",".join(DETAILS), *lines]) + "\n")
    again = replace(settings, train={**PHANTOM, "labels_from": str(details)})
    record = LabelRecord.load(experiment.run(again, tmp_path).directory / "labels.npz")
    assert record.flags is not None
    assert not record.flags.noisy[rows].any()
    assert np.array_equal(record.targets.values[rows], plain.given.values[rows])
    assert not np.array_equal(plain.targets.values[rows], plain.given.values[rows])
    others = np.setdiff1d(np.flatnonzero(plain.flags.noisy), rows)
    assert record.flags.noisy[others].all()  # the same labels, hence the same descriptors


def test_what_was_confirmed_is_not_softened_in_training_either(tmp_path: Path) -> None:
    """Label smoothing on labels that people decided on one and all is plain cross-entropy, to the same predictions."""
    table = experiment.read_labels(config())["train"][0]
    lines = [
        f"{identity},{name},,{value:.0f},Ada,,0"
        for identity, values in zip(table.ids, table.values, strict=True)
        for name, value in zip(table.classes, values, strict=True)
    ]
    details = tmp_path / "all-details.csv"
    details.write_text("\n".join([",".join(DETAILS), *lines]) + "\n")

    def predictions(method: str, **train: str) -> np.ndarray:
        run = experiment.run(config(method=method, train={**PHANTOM, **train}), tmp_path)
        return load_predictions(run.directory / "predictions.npz")[VALIDATION][1].values

    plain, smoothed = predictions("bce"), predictions("ls")
    held = predictions("ls", labels_from=str(details))
    assert np.abs(smoothed - plain).max() > 1e-3
    assert held == pytest.approx(plain, abs=1e-5)
