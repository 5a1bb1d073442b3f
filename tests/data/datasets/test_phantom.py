"""The phantom: fixed by its ids, like NIH in its labels, and drawn where findings belong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bomd.data.datasets import phantom
from bomd.data.datasets.classes import CHEXPERT, NIH
from bomd.data.datasets.phantom import drawing
from bomd.data.datasets.phantom.devices import wear
from bomd.data.datasets.phantom.draws import Draws, identify, uniforms
from bomd.data.datasets.phantom.hospitals import HOSPITALS
from bomd.data.datasets.phantom.labels import CORRELATION, FINDINGS, PERSISTENCE, PREVALENCE
from bomd.data.datasets.phantom.shapes import noise, sample
from bomd.errors import InputError

LABEL_FILES = Path(__file__).parents[3] / "../shared/data/labels"
SIZE = 48


@pytest.fixture(scope="module")
def north():
    return phantom.read(count=20000)


@pytest.fixture(scope="module")
def south():
    return phantom.read(hospital="south", count=20000)


@pytest.fixture(scope="module")
def images(north):
    return phantom.render(north.ids[:200], SIZE)


# --- ids and labels ---------------------------------------------------------------------------------------------


def test_class_lists_of_the_paper():
    assert len(NIH) == 14
    assert NIH[-1] == "No Finding"
    assert len(CHEXPERT) == 8
    assert CHEXPERT[-1] == "No Finding"


def test_reading_twice_gives_the_same_table(north):
    again = phantom.read(count=20000)
    assert (again.ids == north.ids).all()
    assert (again.values == north.values).all()
    assert (again.views == north.views).all()


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_smaller_count_is_a_prefix(split):
    large = phantom.read(split=split, count=400)
    for count in (1, 2, 37, 399):
        small = phantom.read(split=split, count=count)
        assert (small.ids == large.ids[:count]).all()
        assert (small.values == large.values[:count]).all()


def test_ids_name_their_patient_and_count_visits_from_one(north):
    assert north.ids[0] == "north-s0-p000000-1"
    visits = {}
    for name, patient in zip(north.ids[:2000], north.patients[:2000], strict=True):
        visits[patient] = visits.get(patient, 0) + 1
        assert name == f"{patient}-{visits[patient]}"
    assert max(visits.values()) > 3


def test_patients_do_not_cross_splits_hospitals_or_seeds(north, south):
    groups = [
        set(north.patients),
        set(phantom.read(split="test", count=5000).patients),
        set(south.patients),
        set(phantom.read(hospital="south", split="test", count=5000).patients),
        set(phantom.read(seed=1, count=5000).patients),
    ]
    assert len(set.union(*groups)) == sum(len(group) for group in groups)
    assert not (phantom.read(seed=1, count=500).values == north.values[:500]).all()


def test_labels_are_binary_and_no_finding_excludes_all_others(north, south):
    for table in (north, south):
        assert set(np.unique(table.values)) == {0.0, 1.0}
        assert ((table.values[:, :-1].sum(axis=1) == 0) == (table.values[:, -1] == 1)).all()


def test_prevalences_are_those_of_the_table(north):
    """Images of a patient resemble each other, so that the error of a prevalence is about that of half the images."""
    error = np.sqrt(PREVALENCE[:-1] * (1 - PREVALENCE[:-1]) / (len(north) / 2))
    assert (np.abs(north.values[:, :-1].mean(axis=0) - PREVALENCE[:-1]) < 4 * error).all()
    assert (north.views == "AP").mean() == pytest.approx(PREVALENCE[-1], abs=0.02)


def test_the_copula_is_valid_and_findings_persist(north):
    kept = np.sqrt(np.outer(PERSISTENCE, PERSISTENCE)) + np.sqrt(np.outer(1 - PERSISTENCE, 1 - PERSISTENCE))
    assert np.linalg.eigvalsh(CORRELATION / kept).min() > 0.05
    assert (CORRELATION == CORRELATION.T).all()
    follow_up = north.patients[1:] == north.patients[:-1]
    before, after = north.values[:-1][follow_up], north.values[1:][follow_up]
    for name in ("Effusion", "Mass", "Pneumothorax", "Emphysema"):
        column = NIH.index(name)
        again = after[before[:, column] == 1, column].mean()
        assert 2.5 * PREVALENCE[column] < again < 0.9  # it stays far more often than it comes, and some heal


def test_the_south_is_sicker_and_more_often_in_bed(north, south):
    assert (south.values[:, :-1].mean(axis=0) > north.values[:, :-1].mean(axis=0)).mean() > 0.9
    assert (south.views == "AP").mean() > (north.views == "AP").mean() + 0.1


@pytest.mark.skipif(not LABEL_FILES.exists(), reason="the real NIH label file is not here")
def test_labels_resemble_the_real_nih_file(north):
    real = _real_labels()
    assert len(real) == 83672
    ours, theirs = north.values[:, :-1], real[:, :-1]
    assert np.allclose(PREVALENCE[:-1], theirs.mean(axis=0), atol=6e-5)
    assert np.allclose(ours.mean(axis=0), theirs.mean(axis=0), atol=0.008)
    assert (ours.sum(axis=1) == 0).mean() == pytest.approx(real[:, -1].mean(), abs=0.03)
    together_ours, together_theirs = ours.T @ ours / len(ours), theirs.T @ theirs / len(theirs)
    pairs = np.triu(together_theirs > 0.002, 1)
    assert pairs.sum() > 15
    assert np.abs(together_ours - together_theirs)[pairs].max() < 0.005
    assert np.corrcoef(together_ours[pairs], together_theirs[pairs])[0, 1] > 0.97
    for first, second in (("Effusion", "Atelectasis"), ("Effusion", "Infiltration"), ("Edema", "Infiltration")):
        a, b = NIH.index(first), NIH.index(second)
        assert together_ours[a, b] > 1.4 * ours[:, a].mean() * ours[:, b].mean()


def _real_labels() -> np.ndarray:
    """(83672, 14) labels of the real training list, without the rows that name Consolidation."""
    rows = pd.read_csv(LABEL_FILES / "Data_Entry_2017_v2020.csv.gz").set_index("Image Index")
    rows = rows.loc[(LABEL_FILES / "train_val_list.txt").read_text().split()]
    named = rows["Finding Labels"].str.get_dummies("|")
    return named[named["Consolidation"] == 0][list(NIH)].to_numpy(dtype=np.float32)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"hospital": "west"}, "north, south"),
        ({"split": "validation"}, "train, test"),
        ({"count": 0}, "at least 1"),
        ({"seed": -1}, "0 or more"),
    ],
)
def test_wrong_requests_are_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        phantom.read(**arguments)


def test_wrong_images_are_refused():
    with pytest.raises(InputError, match="not a phantom's id"):
        phantom.render(["00000001_000.png"], 64)
    with pytest.raises(InputError, match="'west'"):
        phantom.render(["west-s0-p000000-1"], 64)
    with pytest.raises(InputError, match="at least 16"):
        phantom.render(["north-s0-p000000-1"], 8)
    with pytest.raises(InputError, match="shape"):
        drawing.render_with(["north-s0-p000000-1"], np.zeros((1, 13), dtype=np.float32), 64)


# --- random numbers and shapes ----------------------------------------------------------------------------------


def test_named_numbers_are_even_and_unrelated():
    keys = identify(phantom.read(count=4000).ids).images
    first, second = uniforms(keys, "one", 3), uniforms(keys, "two", 3)
    assert first.mean(axis=0) == pytest.approx(0.5, abs=0.02)
    assert first.std(axis=0) == pytest.approx(1 / np.sqrt(12), abs=0.01)
    assert np.abs(np.corrcoef(np.hstack([first, second]).T) - np.eye(6)).max() < 0.06


def test_a_patients_numbers_are_the_same_on_every_image():
    identity = identify(["north-s0-p000007-1", "north-s0-p000007-2", "north-s0-p000008-1"])
    draws = Draws(identity.patients, identity.images, torch.device("cpu"))
    steady, daily = draws.uniform("a", 0, 1).flatten(), draws.uniform("a", 0, 1, of="image").flatten()
    assert steady[0] == steady[1] != steady[2]
    assert len(set(daily.tolist())) == 3


def test_noise_and_sample_interpolate_the_grid():
    grid = torch.tensor([[[0.0, 1.0], [2.0, 3.0]]])
    drawn = noise(grid, 101)
    assert drawn[0, 50, 50] == pytest.approx(1.5)
    assert drawn.min() >= 0
    assert drawn.max() <= 3
    place = torch.tensor([[[0.25]]])
    assert sample(grid, place, torch.tensor([[[0.5]]])).item() == pytest.approx(0.25 * 2 + 0.5)
    assert sample(grid, torch.tensor([[[-5.0]]]), torch.tensor([[[9.0]]])).item() == pytest.approx(1, abs=0.01)


# --- images -----------------------------------------------------------------------------------------------------


def test_images_depend_on_the_id_alone(north, images, monkeypatch):
    chosen = [3, 199, 0, 77]
    assert (phantom.render(north.ids[chosen], SIZE) == images[chosen]).all()
    for row in chosen:
        assert (phantom.render(north.ids[[row]], SIZE)[0] == images[row]).all()
    monkeypatch.setitem(drawing._PIXELS_AT_ONCE, "cpu", 7 * SIZE**2)
    assert (phantom.render(north.ids[:200], SIZE) == images).all()


def test_the_number_of_threads_changes_nothing_and_is_left_as_it_was(north, images):
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert (phantom.render(north.ids[:200], SIZE) == images).all()
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_hospitals_can_be_mixed_in_one_call(north, south, images):
    mixed = phantom.render([north.ids[0], south.ids[0], north.ids[1]], SIZE)
    assert (mixed[[0, 2]] == images[:2]).all()
    assert (mixed[1] == phantom.render(south.ids[:1], SIZE)[0]).all()


def test_nothing_is_drawn_for_no_ids():
    assert phantom.render([], 32).shape == (0, 32, 32)


def test_pixels_use_the_range_without_saturating(images):
    assert images.dtype == torch.uint8
    values = images.flatten(1).float()
    assert (values.std(1) > 25).all()
    assert (values.quantile(0.99, dim=1) - values.quantile(0.01, dim=1)).median() > 130
    assert ((images == 255).float().mean((1, 2)) < 0.05).all()
    assert (images == 0).float().mean() < 0.1


def test_other_sizes_show_the_same_image(north):
    small = phantom.render(north.ids[:12], 64).float()
    for size in (128, 192):
        large = torch.nn.functional.adaptive_avg_pool2d(phantom.render(north.ids[:12], size).float(), 64)
        for first, second in zip(small.flatten(1), large.flatten(1), strict=True):
            assert torch.corrcoef(torch.stack([first, second]))[0, 1] > 0.97


def test_lungs_are_darker_than_heart_and_belly(north):
    """Places are those of the standard chest; patients move about them by less than the boxes allow."""
    healthy = north.ids[(north.values[:, -1] == 1) & (north.views == "PA")][:60]
    drawn = phantom.render(healthy, 64).float()
    right_lung, left_lung = drawn[:, 22:36, 14:22].mean((1, 2)), drawn[:, 20:30, 44:50].mean((1, 2))
    heart, belly = drawn[:, 38:44, 32:38].mean((1, 2)), drawn[:, 58:62, 20:44].mean((1, 2))
    for lung in (right_lung, left_lung):
        assert (lung + 20 < heart).float().mean() > 0.95
        assert (lung + 20 < belly).float().mean() > 0.95


def test_images_of_a_patient_resemble_each_other(north):
    chosen = _numbers_of_pairs(north, 60)
    empty = np.zeros((len(chosen), 14), dtype=np.float32)
    drawn = drawing.render_with(north.ids[chosen], empty, 32).float()
    inner = drawn[:, 4:28, 4:28].flatten(1)
    inner = (inner - inner.mean(1, keepdim=True)) / inner.std(1, keepdim=True)  # exposure is not anatomy
    distance = torch.cdist(inner, inner)
    first, second = torch.arange(0, len(chosen), 2), torch.arange(1, len(chosen), 2)
    own = distance[first, second]
    others = distance[first][:, second]
    closer = (own[:, None] < others).float()
    assert closer.sum() / (len(own) * (len(own) - 1)) > 0.75


def _numbers_of_pairs(table, count: int) -> np.ndarray:
    """Rows of the first two images of `count` patients, pair after pair."""
    first = np.flatnonzero((table.patients[1:] == table.patients[:-1]) & np.char.endswith(table.ids[:-1], "-1"))[:count]
    return np.stack([first, first + 1], axis=1).ravel()


def test_hospitals_look_different(north, south):
    """A threshold on one plain measure already tells most images apart: the grain, by its local differences."""

    def grain(table) -> torch.Tensor:
        drawn = phantom.render(table.ids[:150], 64).float()[:, 8:56, 12:52]
        return (drawn[:, 1:] - drawn[:, :-1]).diff(dim=2).abs().mean((1, 2)) / drawn.flatten(1).std(1)

    ours, theirs = grain(north), grain(south)
    assert (ours[:, None] < theirs[None, :]).float().mean() > 0.8


def test_varied_images_are_each_from_a_hospital_of_their_own(north):
    """Brightness differs more, findings are more frequent and subtler, and some images lie or are inverted."""
    varied = phantom.read(hospital="varied", count=600)
    assert (varied.values[:, :-1].mean(0) > north.values[:, :-1].mean(0)).all()
    severe, usual = drawing.severity(varied.ids), drawing.severity(north.ids[:2000])
    assert severe[severe > 0].mean() < usual[usual > 0].mean() - 0.05
    draws = Draws(identify(varied.ids).patients, identify(varied.ids).images, torch.device("cpu"))
    turned, inverted = (draws.chance(name, share) for name, share in (("lying", 0.03), ("inverted", 0.08)))
    assert turned.any()
    assert inverted.any()
    plain = np.flatnonzero(~turned & ~inverted)[:120]
    means = phantom.render(varied.ids[plain], 32).float().mean((1, 2))
    assert means.std() > 1.3 * phantom.render(north.ids[:120], 32).float().mean((1, 2)).std()
    corner = phantom.render(varied.ids[np.flatnonzero(inverted & ~turned)[:20]], 32).float()[:, 26:30, 12:20].mean()
    belly = phantom.render(varied.ids[plain[:60]], 32).float()[:, 26:30, 12:20].mean()
    assert corner < belly - 60, "the belly is bright unless the image is inverted"


def test_varied_images_depend_on_their_ids_alone():
    ids = phantom.read(hospital="varied", count=30).ids
    whole = phantom.render(ids, 32)
    assert torch.equal(phantom.render(ids[::-1].copy(), 32).flip(0), whole)
    assert torch.equal(phantom.render(ids[7:8], 32)[0], whole[7])


# --- findings ---------------------------------------------------------------------------------------------------

# Where the standard chest may change for a finding, as rows and columns in parts of the side. The patient's right is on
# the left of the image. A range covers everyone's anatomy, zoom and position.
REGIONS = {
    "Atelectasis": ((0.45, 0.95), (0.05, 0.95)),
    "Cardiomegaly": ((0.35, 0.95), (0.15, 0.9)),
    "Effusion": ((0.25, 1.0), (0.02, 0.98)),
    "Infiltration": ((0.05, 0.95), (0.02, 0.98)),
    "Mass": ((0.1, 0.8), (0.1, 0.9)),
    "Nodule": ((0.1, 0.8), (0.1, 0.9)),
    "Pneumonia": ((0.05, 0.95), (0.02, 0.98)),
    "Pneumothorax": ((0.0, 0.85), (0.02, 0.98)),
    "Edema": ((0.05, 0.95), (0.02, 0.98)),
    "Emphysema": ((0.0, 1.0), (0.0, 1.0)),
    "Fibrosis": ((0.0, 1.0), (0.0, 1.0)),
    "Pleural_Thickening": ((0.0, 0.95), (0.0, 1.0)),
    "Hernia": ((0.5, 0.95), (0.25, 0.85)),
}


def _with_and_without(name: str, count: int = 80) -> tuple[torch.Tensor, np.ndarray]:
    """(N, H, W) what the finding alone adds to the brightness of PA images without devices' influence; (N) severity."""
    table = phantom.read(count=3 * count, seed=11)
    ids = table.ids[table.views == "PA"][:count]
    without = np.zeros((len(ids), 14), dtype=np.float32)
    without[:, -1] = 1
    with_it = without.copy()
    with_it[:, -1] = 0
    with_it[:, FINDINGS.index(name)] = 1
    change = drawing.render_with(ids, with_it, 64).float() - drawing.render_with(ids, without, 64).float()
    return change, drawing.severity(ids, with_it)[:, FINDINGS.index(name)]


@pytest.mark.parametrize("name", FINDINGS)
def test_a_finding_changes_its_region_and_more_so_when_severe(name):
    change, severity = _with_and_without(name)
    (top, bottom), (left, right) = REGIONS[name]
    inside = torch.zeros(64, 64, dtype=torch.bool)
    inside[int(64 * top) : int(64 * bottom), int(64 * left) : int(64 * right)] = True
    # Devices may come with a finding; the median image has none.
    amount = change.abs().sum((1, 2))
    assert (amount > 0).all()
    share = (change.abs() * inside).sum((1, 2)) / amount
    assert share.median() > (0.7 if name == "Atelectasis" else 0.97)  # collapse also pulls the mediastinum over
    assert 0.1 <= severity.min() < 0.3
    assert 0.8 < severity.max() <= 1
    obvious, subtle = amount[severity > 0.65].median(), amount[severity < 0.4].median()
    assert obvious > 1.3 * subtle


@pytest.mark.parametrize(
    "name", ["Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia", "Edema", "Pleural_Thickening", "Fibrosis"]
)
def test_opacities_brighten(name):
    change, _ = _with_and_without(name)
    assert (change.sum((1, 2)) > 0).float().mean() > 0.95


@pytest.mark.parametrize("name", ["Pneumothorax", "Emphysema"])
def test_air_darkens(name):
    change, _ = _with_and_without(name)
    assert (change.clamp(max=0).sum((1, 2)) < -50).float().mean() > 0.9


def test_a_mass_is_wider_than_a_nodule():
    def area(name: str) -> float:
        change, severity = _with_and_without(name)
        return float((change[severity > 0.6] > 12).float().sum((1, 2)).median())

    assert area("Mass") > 1.5 * area("Nodule")


def test_edema_is_on_both_sides_and_a_pneumothorax_on_one():
    def balance(name: str) -> torch.Tensor:
        change, _ = _with_and_without(name)
        left, right = change[:, :, :32].abs().sum((1, 2)), change[:, :, 32:].abs().sum((1, 2))
        return torch.minimum(left, right) / torch.maximum(left, right)

    assert balance("Edema").median() > 0.6
    assert balance("Pneumothorax").median() < 0.35


def test_severity_is_zero_exactly_where_a_finding_is_absent(north):
    drawn = drawing.severity(north.ids[:500])
    assert drawn.shape == (500, 13)
    assert ((drawn > 0) == (north.values[:500, :-1] == 1)).all()


def test_devices_do_not_decide_a_finding(north):
    """Drains come with a pneumothorax more often than without, but most patients with one have none."""
    identity = identify(north.ids)
    draws = Draws(identity.patients, identity.images, torch.device("cpu"))
    drained = wear(draws, north.values, north.views == "AP", HOSPITALS["north"])["drain"]
    present = north.values[:, FINDINGS.index("Pneumothorax")] == 1
    assert 3 * drained[~present].mean() < drained[present].mean() < 0.5
    assert drained[~present].sum() > 100
