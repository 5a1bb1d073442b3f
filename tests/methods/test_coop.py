"""Prompt pre-training: what it learns, and that the classifier starts from it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from bomd.config import DeviceSettings, FitSettings
from bomd.describe.prompts import PromptHead, open_tower
from bomd.errors import InputError
from bomd.learn.engine import Batch, fit, make_fabric, predict
from bomd.methods.base import Context, frequencies, masked_cross_entropy
from bomd.methods.coop import Coop, PromptLearner
from bomd.networks.architectures import SaliencyTrunk
from bomd.runs import Stages
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
Train = tuple[LabelTable, Context]


def quick(classifier: Literal["linear", "hermoza"] = "linear", context: int = 4, epochs: int = 1) -> Coop:
    return Coop(classifier=classifier, context=context, epochs=epochs, batch=16, rate=1e-3)


def learner_of(table: LabelTable) -> PromptLearner:
    tower = open_tower(table.classes, "minilm", FABRIC.device, seed=0)
    return PromptLearner(tower, 4, torch.as_tensor(frequencies(table.values)))


def test_frequencies_count_known_labels_only() -> None:
    values = np.array([[1, np.nan, np.nan], [0, 1, np.nan], [0, 1, np.nan], [0, np.nan, np.nan]])
    assert frequencies(values).tolist() == [0.25, 1, 0]


class TestPromptLearner:
    def test_loss_is_cross_entropy_of_scaled_cosines(self, train: Train) -> None:
        """Against the formula, entry by entry, with the unknown label left out."""
        table, context = train
        learner = learner_of(table)
        (network,) = learner.build(learner.tower.width, FIT, seed=0)
        index = torch.arange(8)
        batch = Batch(index, torch.as_tensor(table.values)[index], context.images.batch(index), 1)
        loss = learner.step([network], batch)
        head = network.head
        assert isinstance(head, PromptHead)
        images = head.projection(network.features(batch.view())).detach().tolist()
        prompts = learner.tower(head.context).detach().tolist()
        share = [max(value, 1e-4) for value in frequencies(table.values).tolist()]  # a bias is never infinite
        entries = []
        for image, labels in zip(images, batch.targets.tolist(), strict=True):
            for prompt, label, frequency in zip(prompts, labels, share, strict=True):
                dot = sum(a * b for a, b in zip(image, prompt, strict=True))
                cosine = dot / math.hypot(*image) / math.hypot(*prompt)
                logit = 10 * cosine + math.log(frequency / (1 - frequency))
                probability = 1 / (1 + math.exp(-logit))
                if not math.isnan(label):
                    entries.append(-math.log(probability if label == 1 else 1 - probability))
        assert len(entries) == 8 * len(table.classes) - 1
        assert loss.item() == pytest.approx(sum(entries) / len(entries), rel=1e-4)

    def test_trunk_context_scale_and_bias_all_learn_and_the_unknown_does_not_count(self, train: Train) -> None:
        table, context = train
        learner = learner_of(table)
        (network,) = learner.build(learner.tower.width, FIT, seed=0)
        index = torch.arange(4, 8)
        targets = torch.as_tensor(table.values)[index]
        unlabelled = torch.full_like(targets, torch.nan)
        learner.step([network], Batch(index, targets, context.images.batch(index), 1)).backward()  # type: ignore[no-untyped-call]
        for name, weight in network.named_parameters():
            assert weight.grad is not None, name
            assert weight.grad.isfinite().all(), name
            assert (weight.grad != 0).any(), name
        network.zero_grad()
        learner.step([network], Batch(index, unlabelled, context.images.batch(index), 1)).backward()  # type: ignore[no-untyped-call]
        assert all(weight.grad is None or (weight.grad == 0).all() for weight in network.parameters())

    def test_checkpoints_hold_no_text_tower(self, train: Train) -> None:
        (network,) = learner_of(train[0]).build(384, FIT, seed=0)
        head = {name for name in network.state_dict() if name.startswith("head.")}
        assert head == {"head.projection.weight", "head.projection.bias", "head.context", "head.log_scale", "head.bias"}

    def test_learns(self, train: Train, tmp_path: Path) -> None:
        table, context = train
        learner, settings = learner_of(table), replace(FIT, epochs=6, augment="none")
        networks, history = fit(
            learner,
            context.images,
            table.values,
            settings,
            outputs=learner.tower.width,
            fabric=FABRIC,
            seed=0,
            directory=tmp_path,
            what="test",
        )
        assert history[-1]["loss"] < 0.8 * history[0]["loss"]
        scores = predict(learner, networks, context.images)
        assert ((scores > 0) & (scores < 1)).all()


class TestCoop:
    def test_classifier_starts_from_the_trunk_that_prompts_taught(self, train: Train) -> None:
        table, context = train
        method = quick()
        prepared = method.prepare(table, context)
        (network,) = method.build(len(table.classes), FIT, seed=7)
        (folder,) = context.stages.root.glob("prompts-*")
        kept = load_file(folder / "trunk.safetensors")
        assert network.trunk.state_dict().keys() == kept.keys()
        assert all(torch.equal(value, kept[name]) for name, value in network.trunk.state_dict().items())
        (fresh,) = quick().build(len(table.classes), FIT, seed=7)
        assert any(not torch.equal(value, kept[name]) for name, value in fresh.trunk.state_dict().items())
        assert torch.equal(network.head.state_dict()["weight"], fresh.head.state_dict()["weight"])
        np.testing.assert_array_equal(prepared.targets, table.values)
        assert [record["stage"] for record in prepared.history] == ["learn prompts"]
        assert prepared.history[0]["images"] == 48
        assert any("not CoOp" in note for note in prepared.notes)

    def test_hermoza_starts_from_the_same_trunk_with_its_own_loss(self, train: Train, tmp_path: Path) -> None:
        table, context = train
        quick().prepare(table, context)
        method = quick("hermoza")
        prepared = method.prepare(table, context)
        (folder,) = context.stages.root.glob("prompts-*")  # pre-training is shared with the linear classifier
        (network,) = method.build(len(table.classes), FIT, seed=7)
        assert isinstance(network.trunk, SaliencyTrunk)
        kept = load_file(folder / "trunk.safetensors")
        assert all(torch.equal(value, kept[name]) for name, value in network.trunk.trunk.state_dict().items())

        logits, targets = torch.zeros(2, len(table.classes)), torch.as_tensor(table.values[:2])
        share = np.nansum(table.values, axis=0) / np.nansum(table.values)
        weight = np.where(table.values[:2] == 1, 1 - share, share)
        expected = 10 * math.log(2) * weight.mean()
        assert method.loss(logits, targets, torch.arange(2)).item() == pytest.approx(expected, rel=1e-5)
        fit(
            method,
            context.images,
            prepared.targets,
            FIT,
            outputs=len(table.classes),
            fabric=FABRIC,
            seed=0,
            directory=tmp_path,
            what="test",
        )

    def test_pre_training_is_done_once_for_the_same_settings(self, train: Train, tmp_path: Path) -> None:
        table, context = train
        own = replace(context, stages=Stages(tmp_path))
        first = quick().prepare(table, own).history
        assert quick().prepare(table, own).history == first
        assert len(list(tmp_path.iterdir())) == 1
        quick(context=2).prepare(table, own)
        assert len(list(tmp_path.iterdir())) == 2

    def test_linear_classifier_is_plain_cross_entropy(self, train: Train) -> None:
        targets = torch.as_tensor(train[0].values)
        logits = torch.randn(targets.shape, generator=torch.Generator().manual_seed(0), requires_grad=True)
        loss = Coop().loss(logits, targets, torch.arange(len(targets)))
        assert loss.item() == masked_cross_entropy(logits, targets).item()
        known = ~targets.isnan()
        assert loss.item() == pytest.approx(
            F.binary_cross_entropy_with_logits(logits[known], targets[known]).item(), rel=1e-6
        )

    @pytest.mark.parametrize("language", ["bluebert-typo", "glove"])
    def test_a_language_without_vectors_is_refused_before_images_are_read(self, train: Train, language: str) -> None:
        with pytest.raises(InputError) as caught:
            Coop(language=language).check(train[0])
        assert "\n" not in str(caught.value)

    def test_prompts_without_a_learnt_word_are_refused(self) -> None:
        with pytest.raises(InputError, match=r"coop\.context is 0"):
            Coop(context=0)
