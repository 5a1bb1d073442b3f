"""The ablations of BoMD's stage one, and the search for neighbours of suspect images only."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from bomd import runs, sources
from bomd.clean.detect import detect
from bomd.clean.graph import nearest_images
from bomd.clean.relabel import relabel
from bomd.config import DeviceSettings, FitSettings
from bomd.data.batches import Images
from bomd.data.datasets import phantom
from bomd.data.store import Store, pack
from bomd.errors import InputError
from bomd.experiments.records import LabelRecord, choose_examples, label_record
from bomd.learn.engine import fit, make_fabric, predict
from bomd.methods.base import Context, Prepared
from bomd.methods.bomd import Bomd, outvoted
from bomd.methods.nvum import Nvum
from bomd.reports.gallery import read_pages
from bomd.runs import Stages
from bomd.seeds import derive
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(
    backbone="small",
    weights="none",
    epochs=1,
    batch=16,
    rate=1e-3,
    betas=(0.9, 0.999),
    eps=1e-8,
    augment="light",
)
Stage = Literal["descriptors", "nvum", "self-supervised"]
EVERY_STAGE: tuple[Stage, ...] = ("descriptors", "nvum", "self-supervised")


class Bench:
    """48 noisy phantoms of 32 pixels, and stages that all tests of this file share."""

    def __init__(self, folder: Path) -> None:
        table = phantom.read(count=48)
        values = table.values.copy()
        values[5, 2] = np.nan
        values[::4] = 1 - values[::4]
        self.table = table.replace(values)
        self.store: Store = pack(
            table, folder / "store", 32, render=lambda ids, size: phantom.render(ids, size, device="cpu").numpy()
        )
        self.images = Images(self.store, table.ids, FABRIC.device)
        self.stages = folder / "stages"

    def context(self, stages: Path | None = None, settings: FitSettings = FIT) -> Context:
        return Context(self.images, settings, FABRIC, 0, Stages(stages or self.stages))

    def prepare(self, stage: Stage, table: LabelTable | None = None, **settings: Any) -> Prepared:
        method = Bomd(stage=stage, epochs=1, batch=16, rate=1e-3, **settings)
        return method.prepare(self.table if table is None else table, self.context())

    def descriptors(self, name: str) -> np.ndarray:
        (folder,) = self.stages.glob(f"{name}-*")
        found: np.ndarray = np.load(folder / "descriptors.npy", allow_pickle=False)
        return found


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    bench = Bench(tmp_path_factory.mktemp("bomd"))
    for stage in EVERY_STAGE:  # so that any test may read what a stage left behind
        bench.prepare(stage)
    return bench


@pytest.mark.parametrize(("edited", "trained"), [("clean/relabel.py", 0), ("describe/ranking.py", 1)])
def test_descriptors_are_learnt_anew_for_their_own_code_alone(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edited: str, trained: int
) -> None:
    package = Path(sources.__file__).parent
    copy = tmp_path / "bomd"
    shutil.copytree(
        package, copy, ignore=lambda _, names: [name for name in names if Path(name).suffix not in ("", ".py")]
    )
    with (copy / edited).open("a") as file:
        file.write("EXTRA = 1\n")
    stages = tmp_path / "stages"
    shutil.copytree(bench.stages, stages)
    before = len(list(stages.glob("descriptors-*")))
    monkeypatch.setattr(runs, "code_of", partial(sources.code_of, package=copy))
    Bomd(epochs=1, batch=16, rate=1e-3).prepare(bench.table, bench.context(stages))
    assert len(list(stages.glob("descriptors-*"))) == before + trained


class TestNeighboursOfSuspects:
    @pytest.mark.parametrize("reading", ["images", "nodes", "ranksum"])
    def test_targets_are_those_of_a_search_for_everyone(self, bench: Bench, reading: Any) -> None:
        prepared = bench.prepare("descriptors", reading=reading)
        assert prepared.flags is not None
        assert prepared.neighbours is not None
        noisy = prepared.flags.noisy
        assert 0 < noisy.sum() < len(noisy)
        everyone = nearest_images(bench.descriptors("descriptors"), 10, reading=reading)
        np.testing.assert_array_equal(prepared.neighbours.indices[noisy], everyone.indices[noisy])
        np.testing.assert_array_equal(prepared.neighbours.distances[noisy], everyone.distances[noisy])
        assert (prepared.neighbours.indices[~noisy] == -1).all()
        assert np.isinf(prepared.neighbours.distances[~noisy]).all()
        np.testing.assert_array_equal(prepared.targets, relabel(bench.table, everyone, noisy).values)

    def test_nothing_suspect_means_nothing_changed(self, bench: Bench, tmp_path: Path) -> None:
        """Without a negative label nobody can break the rank rule."""
        table = bench.table.replace(np.where(bench.table.values == 0, np.nan, bench.table.values))
        prepared = Bomd(epochs=1, batch=16).prepare(table, bench.context(tmp_path))
        assert prepared.flags is not None
        assert prepared.neighbours is not None
        assert not prepared.flags.noisy.any()
        assert (prepared.neighbours.indices == -1).all()
        np.testing.assert_array_equal(prepared.targets, table.values)

    @pytest.mark.parametrize("stage", EVERY_STAGE)
    def test_records_and_pages_show_every_voter(self, bench: Bench, stage: Stage, tmp_path: Path) -> None:
        prepared = bench.prepare(stage)
        assert prepared.neighbours is not None
        label_record(bench.table, prepared, None, prepared.targets).save(tmp_path / "labels.npz")
        record = LabelRecord.load(tmp_path / "labels.npz")
        examples = choose_examples(record, bench.store, seed=0)
        examples.save(tmp_path / "examples.npz")
        cards = [card for kind in read_pages(tmp_path, record, most=12) for card in kind["cards"]]
        assert len(cards) == len(examples.flagged) > 0
        for card, row in zip(cards, examples.flagged, strict=True):
            voters = bench.table.ids[prepared.neighbours.indices[row, :5]].tolist()
            assert [voter["id"] for voter in card["neighbours"]] == voters
            assert all(voter["image"] for voter in card["neighbours"])


class TestNvum:
    def test_features_describe_and_logits_detect(self, bench: Bench, tmp_path: Path) -> None:
        """The same as training NVUM by hand and asking its averaged network."""
        method, seed = Nvum(), derive(bench.context().seed, "nvum")
        targets = method.prepare(bench.table, bench.context()).targets
        networks, history = fit(
            method,
            bench.images,
            targets,
            FIT,
            outputs=len(bench.table.classes),
            fabric=FABRIC,
            seed=seed,
            directory=tmp_path,
            what="by hand",
        )
        averaged = networks[1]
        logits = predict(method, networks, bench.images, score=lambda _, images: averaged(images)).numpy()
        features = predict(method, networks, bench.images, score=lambda _, images: averaged.features(images))

        prepared = bench.prepare("nvum")
        assert prepared.flags is not None
        assert bench.descriptors("nvum").shape == (48, 1, averaged.feature_size)
        np.testing.assert_allclose(bench.descriptors("nvum")[:, 0], features.numpy(), rtol=1e-5, atol=1e-6)
        assert prepared.scores is not None
        np.testing.assert_allclose(prepared.scores, logits, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(prepared.flags.noisy, detect(logits, bench.table).noisy)
        assert prepared.history[0]["loss"] == history[0]["loss"]

    def test_is_trained_as_the_recipe_says(self, bench: Bench, tmp_path: Path) -> None:
        context = bench.context(tmp_path, replace(FIT, epochs=2))
        history = Bomd(stage="nvum", epochs=1).prepare(bench.table, context).history
        assert [record["epoch"] for record in history] == [1, 2]


class TestSelfSupervised:
    def test_every_image_is_relabelled_by_equation_6(self, bench: Bench) -> None:
        prepared = bench.prepare("self-supervised")
        given = bench.table.values
        bags = bench.descriptors("contrast").astype(np.float64)
        np.testing.assert_allclose(np.linalg.norm(bags, axis=2), 1, rtol=1e-5)
        for i in range(len(given)):
            distance = ((bags[:, 0] - bags[i, 0]) ** 2).sum(axis=1)
            distance[i] = math.inf
            near = np.argsort(distance, kind="stable")[:10]
            for c in range(given.shape[1]):
                votes = [given[j, c] for j in near if not math.isnan(given[j, c])]
                mean = sum(votes) / len(votes)
                mask = given[i, c] + mean > 0
                expected = 0.4 * given[i, c] + 0.6 * (0.25 + 0.75 * mean) * mask
                assert prepared.targets[i, c] == pytest.approx(expected, abs=1e-6, nan_ok=True)

    def test_outvoted_images_are_flagged(self, bench: Bench) -> None:
        prepared = bench.prepare("self-supervised")
        assert prepared.flags is not None
        assert prepared.scores is not None
        wrong = [
            any((label >= 0.5) != (vote >= 0.5) for label, vote in zip(*row, strict=True) if not math.isnan(label))
            for row in zip(bench.table.values, prepared.scores, strict=True)
        ]
        assert prepared.flags.noisy.tolist() == wrong
        assert sum(wrong) > 0

    def test_flags_by_hand(self) -> None:
        """Half of the votes make a class positive; what is unknown is never held against an image."""
        given = np.array([[1, 0], [1, 0], [0, 0], [np.nan, 0], [np.nan, np.nan]], dtype=np.float32)
        votes = np.array([[0.5, 0.4], [0.3, 0.0], [0.5, 0.1], [0.9, np.nan], [1, 1]], dtype=np.float32)
        flags = outvoted(votes, LabelTable(np.array(list("abcde")), ("x", "y"), given))
        assert flags.noisy.tolist() == [False, True, True, False, False]
        np.testing.assert_allclose(flags.margin, [0, -0.2, 0, np.nan, np.nan], atol=1e-6)
        nan = np.nan
        np.testing.assert_allclose(flags.entry, [[0, 0.1], [-0.2, 0.5], [0, 0.4], [nan, nan], [nan, nan]], atol=1e-6)

    def test_labels_have_no_part_in_it(self, bench: Bench) -> None:
        bench.prepare("self-supervised", bench.table.replace(np.zeros_like(bench.table.values)), language="no-such")
        bench.prepare("self-supervised", bench.table.align(["Mass"]))
        assert len(list(bench.stages.glob("contrast-*"))) == 1

    def test_two_views_of_each_image_are_counted(self, bench: Bench) -> None:
        assert bench.prepare("self-supervised").history[0]["images"] == 2 * 48

    def test_without_augmentation_it_is_refused(self, bench: Bench, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"fit\.augment must not be none"):
            Bomd(stage="self-supervised").prepare(bench.table, bench.context(tmp_path, replace(FIT, augment="none")))


@pytest.mark.parametrize(("stage", "name"), [("nvum", "nvum"), ("self-supervised", "contrast")])
def test_stage_one_is_done_once_for_all_settings_of_the_graph(
    bench: Bench, stage: Stage, name: str, tmp_path: Path
) -> None:
    context = bench.context(tmp_path)
    changes: tuple[dict[str, Any], ...] = ({}, {"neighbours": 5}, {"graph_weight": 0.2}, {"language": "random"})
    for change in changes:
        Bomd(stage=stage, epochs=1, batch=16, **change).prepare(bench.table, context)
    # The nearest images are searched for by each number of neighbours.
    assert sorted(folder.name.rpartition("-")[0] for folder in tmp_path.iterdir()) == sorted([name, *["nearest"] * 2])


def test_unlabelled_stays_unlabelled_and_gets_no_gradient(bench: Bench) -> None:
    for stage in EVERY_STAGE:
        targets = torch.as_tensor(bench.prepare(stage).targets)
        assert torch.equal(targets.isnan(), torch.as_tensor(bench.table.values).isnan())
        logits = torch.zeros_like(targets, requires_grad=True)
        Bomd(stage=stage).loss(logits, targets, torch.arange(len(targets))).backward()  # type: ignore[no-untyped-call]
        assert logits.grad is not None
        assert torch.equal(logits.grad == 0, targets.isnan() | (targets == 0.5))
