from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bomd.data import noise
from bomd.data.noise import NOISES, NoisyLabels, report_mining, sparse, symmetric, within
from bomd.errors import InputError
from bomd.tables import NO_FINDING, LabelTable

NIH = (
    *(
        "Atelectasis",
        "Cardiomegaly",
        "Effusion",
        "Infiltration",
        "Mass",
        "Nodule",
        "Pneumonia",
        "Pneumothorax",
    ),
    *("Edema", "Emphysema", "Fibrosis", "Pleural_Thickening", "Hernia", NO_FINDING),
)


def flip_rates(drawn):
    """Per class, the share of clean negatives added and of clean positives removed, on exposed rows."""
    clean, changed = drawn.clean.values[drawn.exposed], drawn.changed[drawn.exposed]
    return {
        name: {
            what: changed[clean[:, column] == value, column].mean() for what, value in (("added", 0), ("removed", 1))
        }
        for column, name in enumerate(drawn.clean.classes)
    }


def table_of(values, classes=None):
    values = np.asarray(values, dtype=np.float32)
    names = np.array([f"image {i}" for i in range(len(values))])
    return LabelTable(names, classes or (*"abcdefghijklm"[: values.shape[1] - 1], NO_FINDING), values)


def realistic(count, seed=0, classes=NIH):
    """Half the images without findings, the others with one to three."""
    generator = np.random.default_rng(seed)
    values = np.zeros((count, len(classes)), dtype=np.float32)
    for row in range(count // 2):
        values[row, generator.choice(len(classes) - 1, generator.integers(1, 4), replace=False)] = 1
    values[count // 2 :, -1] = 1
    return table_of(generator.permutation(values), classes)


def consistent(values):
    return ((values[:, :-1] == 1).any(axis=1) == (values[:, -1] == 0)).all()


@pytest.mark.parametrize(
    ("given", "flips", "expected"),
    [
        ([0, 0, 0, 1], [1, 0, 0, 1], [1, 0, 0, 0]),
        ([0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 1]),
        ([1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 0, 1]),
        ([1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]),
        ([1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0]),
        (
            [0, 0, 0, 1],
            [1, 0, 1, 0],
            [1, 0, 1, 0],
        ),  # no finding is forced to 0 even if its own bit does not flip
        ([0, np.nan, 0, 1], [0, 1, 0, 1], [0, np.nan, 0, 1]),  # an unknown label never flips
        ([1, 0, 0, np.nan], [1, 0, 0, 1], [0, 0, 0, np.nan]),
    ],
)
def test_worked_flips(given, flips, expected, monkeypatch):
    """The drawn numbers are fixed so that exactly these labels flip; the rules after that are under test."""
    chance = np.where(np.asarray([flips], dtype=bool), 0.0, 0.9)
    monkeypatch.setattr(noise, "_draw", lambda seed, what, shape: np.zeros(1) if what == "rows" else chance)
    drawn = symmetric(table_of([given]), rows=1, labels=0.5, seed=0)
    np.testing.assert_array_equal(drawn.noisy.values, [expected])


@pytest.mark.parametrize("labels", [0.2, 0.4, 0.6])
def test_share_of_changed_rows(labels):
    """1 - (1 - p)^13 of rows without findings and 1 - (1 - p)^14 of the others change."""
    table = realistic(20_000)
    drawn = symmetric(table, 1, labels, seed=1)
    changed, healthy = drawn.changed.any(axis=1), table.values[:, -1] == 1
    assert changed[healthy].mean() == pytest.approx(1 - (1 - labels) ** 13, abs=0.008)
    assert changed[~healthy].mean() == pytest.approx(1 - (1 - labels) ** 14, abs=0.008)
    added = drawn.noisy.values[healthy][:, :-1].sum(axis=1).mean()
    assert added == pytest.approx(13 * labels, abs=0.08)
    assert (drawn.noisy.values[~healthy, -1] == 1).mean() >= labels - 0.02
    assert consistent(drawn.noisy.values)


def test_exactly_the_asked_share_of_each_group_is_drawn():
    """With certain flips every drawn row changes, so that the drawn rows can be counted."""
    table = realistic(1001)
    healthy = table.values[:, -1] == 1
    only = np.arange(1001) % 3 > 0
    drawn = within(only, table, lambda part: symmetric(part, 0.37, 1.0, seed=2))
    changed = drawn.changed.any(axis=1)
    assert changed[healthy].sum() == int(0.37 * (healthy & only).sum())
    assert changed[~healthy].sum() == int(0.37 * (~healthy & only).sum())
    assert not changed[~only].any()
    np.testing.assert_array_equal(drawn.exposed, only)


def test_no_noise_changes_nothing():
    table = realistic(100)
    for rows, labels in ((0, 1), (1, 0), (0, 0)):
        np.testing.assert_array_equal(symmetric(table, rows, labels, seed=0).noisy.values, table.values)


def test_without_a_no_finding_class_labels_just_flip():
    values = (np.random.default_rng(0).random((4000, 5)) < 0.3).astype(np.float32)
    drawn = symmetric(table_of(values, tuple("abcde")), 1, 0.25, seed=3)
    assert drawn.changed.mean() == pytest.approx(0.25, abs=0.02)
    for rates in flip_rates(drawn).values():
        assert rates["added"] == pytest.approx(0.25, abs=0.04)
        assert rates["removed"] == pytest.approx(0.25, abs=0.04)


def test_a_draw_depends_on_seed_and_place_only():
    table = realistic(400)
    first = symmetric(table, 0.4, 0.4, seed=5)
    np.random.seed(1)  # noqa: NPY002 (the global state must not matter)
    again = symmetric(table, 0.4, 0.4, seed=5)
    np.testing.assert_array_equal(first.noisy.values, again.noisy.values)
    assert (symmetric(table, 0.4, 0.4, seed=6).noisy.values != first.noisy.values).any()
    more = symmetric(table, 0.6, 0.4, seed=5)
    rows = first.changed.any(axis=1)
    np.testing.assert_array_equal(more.noisy.values[rows], first.noisy.values[rows])
    np.testing.assert_array_equal(
        symmetric(table.take(np.arange(50)), 1, 0.4, seed=5).noisy.values,
        symmetric(table, 1, 0.4, seed=5).noisy.values[:50],
    )
    np.testing.assert_array_equal(
        report_mining(table.take(np.arange(50)), 5, confusion={}).noisy.values,
        report_mining(table, 5, confusion={}).noisy.values[:50],
    )


@pytest.mark.parametrize("confusion", [None, {}])
def test_report_mining_realises_the_measured_rates(confusion):
    """Misses and false alarms are totals, so that confusions change how they arise but not how many."""
    table = realistic(60_000, seed=1)
    drawn = report_mining(table, seed=0, confusion=confusion)
    rates = flip_rates(drawn)
    asked = {
        **dict.fromkeys(NIH[:-1], (0.59, 0.09)),  # the medians
        **{"Pneumothorax": (0.54, 0.03), "Nodule": (0.58, 0.05), "Mass": (0.58, 0.05)},
        **{"Effusion": (0.32, 0.19), "Edema": (0.60, 0.14)},
        **{"Cardiomegaly": (0.72, 0.07), "Atelectasis": (0.81, 0.11)},
    }
    for name, (miss, alarm) in asked.items():
        assert rates[name]["removed"] == pytest.approx(miss, abs=0.03), name
        assert rates[name]["added"] == pytest.approx(alarm, abs=0.01), name
    assert consistent(drawn.noisy.values)


def test_the_strength_of_report_mining_scales_what_was_measured_and_nothing_else():
    table = realistic(60_000, seed=1)
    rates = flip_rates(report_mining(table, seed=0, strength=0.5, miss={"Mass": 0.4}))
    for name, (miss, alarm) in {"Effusion": (0.16, 0.095), "Hernia": (0.295, 0.045), "Mass": (0.4, 0.025)}.items():
        assert rates[name]["removed"] == pytest.approx(miss, abs=0.03), name
        assert rates[name]["added"] == pytest.approx(alarm, abs=0.01), name
    np.testing.assert_array_equal(report_mining(table, seed=0, strength=0.0).noisy.values, table.values)


def test_a_confused_finding_is_reported_as_its_neighbour():
    classes = ("Mass", "Nodule", "Hernia", NO_FINDING)
    values = np.zeros((30_000, 4))
    values[:10_000, 0] = values[10_000:20_000, 2] = values[20_000:, 3] = 1
    silent = dict.fromkeys(classes[:3], 0.0)
    drawn = report_mining(
        table_of(values, classes),
        seed=1,
        miss={**silent, "Mass": 0.5},
        false_alarm=silent,
        confusion={"Mass": {"Nodule": 0.3, "Hernia": 0.1}},
    )
    masses = drawn.noisy.values[:10_000]
    assert (masses[:, 0] == 1).mean() == pytest.approx(0.5, abs=0.02)
    assert (masses[:, 1] == 1).mean() == pytest.approx(0.3, abs=0.02)
    assert (masses[:, 2] == 1).mean() == pytest.approx(0.1, abs=0.02)
    assert (masses[:, 3] == 1).mean() == pytest.approx(0.1, abs=0.02)
    assert (masses.sum(axis=1) == 1).all()  # reported instead of, not beside
    assert not drawn.changed[10_000:].any()


def test_unknown_labels_stay_unknown():
    table = realistic(500)
    unknown = np.random.default_rng(0).random(table.values.shape) < 0.2
    table = table.replace(np.where(unknown, np.nan, table.values))
    for drawn in (symmetric(table, 1, 0.5, seed=0), report_mining(table, seed=0)):
        np.testing.assert_array_equal(np.isnan(drawn.noisy.values), unknown)
        assert not drawn.changed[unknown].any()
        assert drawn.changed.any()
        np.testing.assert_array_equal(drawn.clean.values, table.values)


@pytest.mark.parametrize("kind", NOISES)
def test_saved_noise_comes_back_whole(kind, tmp_path):
    single = kind == "pairflip"
    values = np.eye(4)[np.arange(50) % 4] if single else realistic(50).values
    table = replace(table_of(values), patients=np.arange(50) // 3, exclusive=single)
    arguments = {"rows": 0.4, "labels": 0.2} if kind == "symmetric" else {}
    drawn = NOISES[kind](table, seed=7, **arguments)
    drawn.save(tmp_path / "noise.npz")
    loaded = NoisyLabels.load(tmp_path / "noise.npz")
    np.testing.assert_array_equal(loaded.noisy.values, drawn.noisy.values)
    np.testing.assert_array_equal(loaded.clean.values, table.values)
    np.testing.assert_array_equal(loaded.changed, drawn.changed)
    np.testing.assert_array_equal(loaded.exposed, drawn.exposed)
    np.testing.assert_array_equal(loaded.noisy.patients, table.patients)
    assert loaded.noisy.exclusive == loaded.clean.exclusive == single
    table.save(tmp_path / "table.npz")
    with pytest.raises(InputError, match="not a file of noisy labels"):
        NoisyLabels.load(tmp_path / "table.npz")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: symmetric(t, 1.2, 0.2, 0), "rows is 1.2"),
        (lambda t: symmetric(t, 0.2, float("nan"), 0), "labels is nan"),
        (lambda t: within(np.ones(3, dtype=bool), t, lambda part: symmetric(part, 0.2, 0.2, 0)), "20 booleans"),
        (lambda t: symmetric(t.replace(t.values / 2), 0.2, 0.2, 0), "0, 1 or NaN"),
        (lambda t: report_mining(t, 0, miss={"Masses": 0.1}), "miss names 'Masses'"),
        (lambda t: report_mining(t, 0, false_alarm={NO_FINDING: 0.1}), "names 'No Finding'"),
        (lambda t: report_mining(t, 0, miss={"Mass": 2.0}), "miss of 'Mass' is 2"),
        (lambda t: report_mining(t, 0, strength=1.5), "strength is 1.5"),
        (lambda t: report_mining(t, 0, confusion={"Mass": {"Mass": 0.1}}), "confusion of 'Mass' names"),
        (lambda t: report_mining(t, 0, confusion={"Mass": {"Nodule": 0.59}}), "more than its miss rate"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call(realistic(20))


def test_sparse_noise_makes_one_mistake_in_each_affected_row() -> None:
    """Added, dropped or swapped, with "No Finding" right afterwards, and unknown labels left alone."""
    random = np.random.default_rng(1)
    values = (random.random((3000, 5)) < 0.25).astype(np.float32)
    values[:, 4] = ~values[:, :4].any(axis=1)
    values[7, 1] = np.nan
    table = LabelTable(np.asarray([f"i{row}" for row in range(3000)]), ("a", "b", "c", "d", NO_FINDING), values)
    found = sparse(table, seed=3)
    changed = found.changed[:, :4]
    rows = changed.any(axis=1)
    assert rows.sum() == 600
    given, clean = found.noisy.values[rows, :4], values[rows, :4]
    added, dropped = ((given == 1) & (clean == 0)).sum(axis=1), ((given == 0) & (clean == 1)).sum(axis=1)
    assert set(zip(added.tolist(), dropped.tolist(), strict=True)) == {(1, 0), (0, 1), (1, 1)}
    np.testing.assert_array_equal(found.noisy.values[~rows], values[~rows])
    np.testing.assert_array_equal(found.noisy.values[:, 4], ~(found.noisy.values[:, :4] == 1).any(axis=1))
    assert np.isnan(found.noisy.values[7, 1])
    ill = (clean == 1).any(axis=1)
    for pair in ((1, 0), (0, 1), (1, 1)):  # each kind equally likely where all are possible
        share = np.mean([(a, d) == pair for a, d in zip(added[ill], dropped[ill], strict=True)])
        assert abs(share - 1 / 3) < 0.08
    with pytest.raises(InputError, match="rows"):
        sparse(table, seed=0, rows=1.5)
