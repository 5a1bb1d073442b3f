"""Noisy prediction calibration: its formulas, the vote of the neighbours, and post-processing of a real classifier."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsRegressor
from torch import Tensor
from torch.distributions import Gamma, kl_divergence

from bomd.config import DeviceSettings, FitSettings
from bomd.errors import InputError
from bomd.learn.engine import Batch, fit, make_fabric, predict
from bomd.learn.learner import prepare
from bomd.methods.base import Context
from bomd.methods.npc import Npc, divergence, neighbour_vote, sample
from bomd.models import model
from bomd.networks.architectures import CorrectedNetwork, corrected_logit
from bomd.tables import LabelTable

FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
FIT = FitSettings(backbone="small", weights="none", epochs=2, batch=16, rate=1e-3, eps=1e-8, augment="light")
Train = tuple[LabelTable, Context]


def test_divergence_by_hand() -> None:
    found = divergence(torch.tensor([2.0, 1.5]), torch.tensor([6.0, 1.0]))
    assert found.item() == pytest.approx(3.235382, abs=1e-5)


def test_divergence_is_that_of_gamma_distributions() -> None:
    generator = torch.Generator().manual_seed(0)
    alpha, prior = 1.5 + 5 * torch.rand(2, 7, 2, generator=generator, dtype=torch.float64)
    wanted = kl_divergence(Gamma(alpha, torch.ones_like(alpha)), Gamma(prior, torch.ones_like(prior)))
    torch.testing.assert_close(divergence(alpha, prior), wanted.sum(dim=-1))


def test_a_draw_by_hand() -> None:
    """(u alpha Gamma(alpha)) ** (1 / alpha): sqrt(.5 * 2 * 1) = 1, and .3 for an exponential of rate 1."""
    found = sample(torch.tensor([2.0, 1.0, 3.0]), torch.tensor([0.5, 0.3, 0.25]))
    torch.testing.assert_close(found, torch.tensor([1.0, 0.3, (0.25 * 3 * 2) ** (1 / 3)]))


def test_votes_are_those_of_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(60, 4, generator=generator)
    logits = torch.randn(60, 2, generator=generator)
    verdicts = (logits > 0.3).float()
    found = neighbour_vote(features, logits, verdicts, share=0.5, neighbours=5).numpy()
    for c in range(2):
        order = logits[:, c].argsort(descending=True).tolist()
        ones = int(verdicts[:, c].sum())
        anchors = order[: round(ones / 2)] + order[60 - round((60 - ones) / 2) :]
        said = verdicts[anchors, c].numpy()
        reference = KNeighborsRegressor(5, weights="distance").fit(features[anchors].numpy(), said)
        np.testing.assert_allclose(found[:, c], reference.predict(features.numpy()), atol=1e-5)
        np.testing.assert_array_equal(found[anchors, c], said)  # at no distance from themselves


def test_few_images_and_one_verdict_still_vote() -> None:
    features, logits = torch.arange(4.0)[:, None], torch.tensor([[-1.0], [-2], [-3], [-4]])
    found = neighbour_vote(features, logits, torch.zeros(4, 1), share=0.1, neighbours=10)
    assert found.tolist() == [[0.0]] * 4
    found = neighbour_vote(features, logits, torch.tensor([[1.0], [0], [0], [0]]), share=0.3, neighbours=10)
    torch.testing.assert_close(found[:, 0], torch.tensor([1.0, 2 / 3, 1 / 3, 0.0]))


def prepared(train: Train, **settings: float) -> tuple[Npc, CorrectedNetwork]:
    table, context = train
    method = Npc(**settings)  # type: ignore[arg-type]
    method.prepare(table, context)
    method.start_epoch(0, lambda score=None: pytest.fail("no pass is needed"))
    (network,) = method.build(14, FIT, seed=0)
    assert isinstance(network, CorrectedNetwork)
    return method, network


def a_batch(train: Train, rows: list[int]) -> Batch:
    index = torch.tensor(rows)
    return Batch(index, torch.as_tensor(train[0].values)[index], train[1].images.batch(index), 1)


def test_a_verdict_is_a_probability_above_the_class_share(train: Train) -> None:
    method, _ = prepared(train)
    table, context = train
    assert method.classifier is not None
    probabilities = predict(method, [method.classifier], context.images).numpy()
    for c in (0, 2, 13):
        known = table.values[:, c][~np.isnan(table.values[:, c])]
        np.testing.assert_array_equal(method.verdicts[:, c].numpy(), probabilities[:, c] > known.mean())


def test_the_loss_against_a_loop(train: Train) -> None:
    method, network = prepared(train, trust=3.0, weight=0.7)
    batch = a_batch(train, [4, 9])
    loss = method.step([network], batch)
    method, network = prepared(train, trust=3.0, weight=0.7)
    head, features = network.head, network.features(batch.view())
    with torch.no_grad():
        total = 0.0
        for place, row in enumerate([4, 9]):
            alphas, latents = torch.zeros(14, 2), torch.zeros(1, 14, 2)
            for c in range(14):
                verdict, vote = int(method.verdicts[row, c]), method.prior[row, c].item()
                alphas[c] = head.concentrations(features)[place, c, verdict]
                latents[0, c] = sample(alphas[c], method.draws[row, c])
                prior = torch.tensor([3 * (1 - vote), 3 * vote]) + 1.5
                total += 0.7 * divergence(alphas[c], prior).item()
            guess = head.decode(features[place : place + 1], latents)[0].sigmoid()
            total -= sum((guess[c] if method.verdicts[row, c] else 1 - guess[c]).log().item() for c in range(14))
    assert loss.item() == pytest.approx(total / 28, rel=1e-4)


def test_draws_follow_the_image_and_the_epoch(train: Train) -> None:
    method, _ = prepared(train)
    assert ((method.draws > 0) & (method.draws < 1)).all()
    first = method.draws.clone()
    method.start_epoch(1, lambda score=None: pytest.fail("no pass is needed"))
    assert not torch.equal(method.draws, first)
    method.start_epoch(0, lambda score=None: pytest.fail("no pass is needed"))
    assert torch.equal(method.draws, first)


def test_given_labels_do_not_matter_once_the_classifier_is_trained(train: Train) -> None:
    method, network = prepared(train)
    batch = a_batch(train, list(range(16)))
    blind = Batch(batch.index, torch.full_like(batch.targets, torch.nan), batch.pixels, 1)
    loss = method.step([network], batch)
    _, again = prepared(train)
    assert torch.equal(method.step([again], blind), loss)


def test_training_corrects_the_frozen_classifier_and_can_be_saved(train: Train, tmp_path: Path) -> None:
    table, context = train
    method, _ = prepared(train)
    assert method.classifier is not None
    before = {key: value.clone() for key, value in method.classifier.state_dict().items()}
    networks, history = fit(
        method, context.images, table.values, FIT, outputs=14, fabric=FABRIC, seed=0, directory=tmp_path, what="test"
    )
    assert history[-1]["loss"] < history[0]["loss"]
    (network,) = networks
    assert isinstance(network, CorrectedNetwork)
    state = network.state_dict()
    for key, value in before.items():
        name = f"head.classifier{key[4:]}" if key.startswith("head") else f"trunk.frozen{key[5:]}"
        assert torch.equal(state[name], value), name
    found = predict(method, networks, context.images)

    def parts(networks: list[CorrectedNetwork], images: Tensor) -> Tensor:
        frozen, learnt = networks[0].features(images).chunk(2, dim=1)
        masses = networks[0].head.concentrations(learnt) - 1
        shares = (masses[..., 1] / masses.sum(dim=-1)).flatten(1)
        return torch.cat([networks[0].head.classifier(frozen).sigmoid(), shares], dim=1)

    asked = predict(method, networks, context.images, score=parts)  # type: ignore[arg-type]
    plain, shares = asked[:, :14], asked[:, 14:].unflatten(1, (14, 2))
    for row, c in itertools.product((0, 7, 40), range(14)):
        known = table.values[:, c][~np.isnan(table.values[:, c])]
        odds = max(known.mean(), 1e-6) / (1 - known.mean())
        verdict = plain[row, c] / (plain[row, c] + (1 - plain[row, c]) * odds)  # one half where plain is the share
        mixed = shares[row, c, 1] * verdict + shares[row, c, 0] * (1 - verdict)
        assert found[row, c].item() == pytest.approx((mixed * odds / (mixed * odds + 1 - mixed)).item(), rel=1e-3)
    torch.testing.assert_close(plain, predict(method, [method.classifier], context.images))
    model.save(tmp_path / "model", method.deployed(networks), table.classes, 32)
    opened = model.load(tmp_path / "model", "cpu").probabilities(context.images.batch(torch.arange(48)))
    torch.testing.assert_close(opened, found)


def constant(network: CorrectedNetwork, if_negative: float, if_positive: float) -> None:
    """Make the correction the same for every image: the probability of the label for a verdict of 0 and of 1."""
    head = network.head
    with torch.no_grad():
        head.encoder.weight.zero_()
        head.encoder.bias.zero_()
        for verdict, share in ((0, if_negative), (1, if_positive)):
            masses = torch.tensor([10 * (1 - share), 10 * share])  # softplus(x) + 0.5 of what the parameters say
            head.verdicts[:, verdict] = torch.expm1(masses - 0.5).log()


@pytest.mark.parametrize(("if_negative", "if_positive"), [(0.1, 0.2), (0.06, 0.94), (0.5, 0.51)])
def test_a_correction_that_is_the_same_for_all_images_leaves_the_auc(
    train: Train, if_negative: float, if_positive: float
) -> None:
    table, context = train
    _, network = prepared(train)
    constant(network, if_negative, if_positive)
    network.place(FABRIC)
    network.eval()
    with torch.no_grad():  # in double precision, since a weak correction brings probabilities close together
        features = network.features(prepare(context.images.batch(torch.arange(48)).float(), network.channels)).double()
        head = network.head.double()
        before, after = head.classifier(features.chunk(2, dim=1)[0]).numpy(), head(features).numpy()
    assert not np.allclose(before, after)
    for c in range(14):
        known = ~np.isnan(table.values[:, c])
        labels = table.values[known, c]
        if 0 < labels.sum() < len(labels):
            wanted = roc_auc_score(labels, before[known, c])
            assert roc_auc_score(labels, after[known, c]) == pytest.approx(wanted, abs=1e-6)


def test_a_rare_class_is_corrected_as_far_as_a_common_one(train: Train) -> None:
    """An image at the share of a class is half of either verdict: one image's correction weighs as another's."""
    method, network = prepared(train)
    constant(network, 0.2, 0.6)
    features = torch.zeros(1, 2 * network.feature_size)
    with torch.no_grad():
        network.head.classifier.weight.zero_()
        network.head.classifier.bias.copy_(method.limits)
        found = network.head(features)[0] - method.limits
    torch.testing.assert_close(found, torch.full((14,), 0.4).logit(), atol=1e-4, rtol=0)


def test_trust_in_every_verdict_changes_nothing(train: Train) -> None:
    _, network = prepared(train)
    logits = torch.linspace(-4, 3, 14)
    above = logits - network.head.limits
    sure = corrected_logit(above[None], torch.full((1, 14), 1 - 1e-9), torch.full((1, 14), 1e-9))
    torch.testing.assert_close(sure[0] + network.head.limits, logits, atol=1e-3, rtol=0)


def test_the_classifier_is_trained_once_for_all_settings(train: Train) -> None:
    _, context = train
    prepared(train)
    (stage,) = context.stages.root.glob("cross-entropy-*")
    written = (stage / "checkpoint.pt").stat().st_mtime_ns
    method, _ = prepared(train, neighbours=3)
    assert method.neighbours == 3
    assert [stage] == list(context.stages.root.glob("cross-entropy-*"))
    assert (stage / "checkpoint.pt").stat().st_mtime_ns == written


def test_bad_requests() -> None:
    for settings in ({"neighbours": 0}, {"anchors": 0.0}, {"anchors": 1.1}):
        with pytest.raises(InputError, match=rf"npc\.{next(iter(settings))} is"):
            Npc(**settings)  # type: ignore[arg-type]


def test_neighbours_have_no_vote_on_what_people_confirmed(train: Train) -> None:
    """The prior of such a label is the label; all other priors are as they were."""
    table, context = train
    voted, settled = Npc(), Npc()
    voted.prepare(table, context)
    confirmed = np.zeros(table.values.shape, dtype=np.bool_)
    confirmed[::3] = ~np.isnan(table.values[::3])
    settled.prepare(replace(table, confirmed=confirmed), context)
    assert torch.equal(settled.prior[confirmed], torch.from_numpy(table.values[confirmed]))
    assert torch.equal(settled.prior[~confirmed], voted.prior[~confirmed])
    assert not torch.equal(settled.prior, voted.prior)
