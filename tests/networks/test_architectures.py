"""Networks of other forms: the formulas they are made of, on every backbone, and that they can be made again."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bomd.config import DeviceSettings
from bomd.errors import InputError
from bomd.networks.architectures import (
    ARCHITECTURES,
    SLOPE,
    CorrectedNetwork,
    CorrectingHead,
    FusedTrunk,
    GraphHead,
    SaliencyTrunk,
    corrected_logit,
    describe,
    fuse,
    make,
    maps_of,
    soft_maximum,
)
from bomd.networks.backbone import BACKBONES, Network, build
from bomd.networks.device import make_fabric

ALL = [("small", name) for name in ARCHITECTURES] + [(name, "hermoza") for name in BACKBONES if name != "small"]


def pictures(network: Network, height: int = 64, width: int = 64) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(4, network.channels, height, width, generator=generator)


@pytest.mark.parametrize("name", BACKBONES)
def test_the_last_maps_are_what_the_trunk_averages(name: str) -> None:
    network = build(name, 2, seed=0).eval()
    with torch.no_grad():
        images = pictures(network, 75, 50)
        maps = maps_of(network.trunk, images)
        torch.testing.assert_close(maps[-1].mean(dim=(2, 3)), network.features(images))
    sides = [part.shape[2] for part in maps]
    assert sides == sorted(sides, reverse=True)
    assert len(set(sides)) == len(sides)


@pytest.mark.parametrize("name", BACKBONES)
def test_a_pyramid_has_four_levels_from_a_quarter_of_the_side(name: str) -> None:
    network = build(name, 2, seed=0).eval()
    with torch.no_grad():
        maps = maps_of(network.trunk, pictures(network))
    assert [part.shape[2] for part in maps] == [16, 8, 4, 2]


@pytest.mark.parametrize(("backbone", "name"), ALL)
@pytest.mark.slow
def test_shapes(backbone: str, name: str) -> None:
    network = make(name, backbone, 5, seed=0).eval()
    with torch.no_grad():
        features = network.features(pictures(network, 75, 50))
        logits = network(pictures(network, 75, 50))
    assert features.shape == (4, network.feature_size * (2 if name == "npc" else 1))
    assert logits.shape == (4, 5)
    torch.testing.assert_close(logits, network.head(features))


@pytest.mark.parametrize("name", ["can", "hermoza", "hlc"])
def test_gradients_reach_every_weight(name: str) -> None:
    network = make(name, "small", 5, seed=0).train()
    features = network.features(pictures(network))
    outputs = network.head.all(features) if name == "can" else [network.head(features)]  # type: ignore[operator]
    torch.stack(outputs).square().sum().backward()
    silent = [key for key, weight in network.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert silent == []


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_seed_alone_decides(name: str) -> None:
    before = torch.random.get_rng_state()
    one = make(name, "small", 3, seed=1)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.rand(5)
    same, other = make(name, "small", 3, seed=1), make(name, "small", 3, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), same.state_dict().values(), strict=True))
    drawn = [key for key, value in one.named_parameters() if value.dim() == 4 or key.endswith("layer.weight")]
    assert drawn
    assert all(not torch.equal(one.state_dict()[key], other.state_dict()[key]) for key in drawn)


def test_the_trunk_starts_as_that_of_a_plain_network() -> None:
    plain = build("small", 3, seed=5).trunk.state_dict()
    for name in ("hermoza", "hlc"):
        trunk = make(name, "small", 3, seed=5).trunk.trunk.state_dict()  # type: ignore[operator, union-attr]
        assert all(torch.equal(value, trunk[key]) for key, value in plain.items()), name


@pytest.mark.parametrize(("backbone", "name"), ALL)
@pytest.mark.slow
def test_a_description_makes_it_again(backbone: str, name: str) -> None:
    network = make(name, backbone, 3, seed=1)
    told = describe(network)
    assert told["name"] == name
    again = make(told["name"], network.name, 3, **told["arguments"])
    again.load_state_dict(network.state_dict())
    images = pictures(network)
    with torch.no_grad():
        assert torch.equal(again.eval()(images), network.eval()(images))


def test_other_widths_are_told() -> None:
    network = make("hermoza", "small", 3, seed=1, width=8, hidden=4)
    assert describe(network) == {"name": "hermoza", "arguments": {"width": 8, "hidden": 4}}
    assert describe(build("small", 3, seed=1)) == {"name": "plain", "arguments": {}}
    assert type(make("plain", "small", 3, seed=1)) is Network


def test_what_cannot_be_made_again_is_refused() -> None:
    class Homemade(Network):
        pass

    with pytest.raises(TypeError, match="Homemade is not one of ARCHITECTURES"):
        describe(Homemade("small", torch.nn.Identity(), 1, 4, 2))
    with pytest.raises(InputError, match="No architecture 'unet': use one of plain, can"):
        make("unet", "small", 2)


def test_trunks_within_a_trunk_follow_the_device() -> None:
    network = make("can", "densenet121", 2, seed=0)
    assert isinstance(network.trunk, FusedTrunk)
    network.place(make_fabric(DeviceSettings(accelerator="cpu", kernels=False)))
    assert [trunk.share for trunk in network.trunk.trunks] == [False, False]


class TestCan:
    def test_product_by_hand(self) -> None:
        """(1, 2) times (3, .5) is (3, 1), whose mean is 2."""
        first, second = torch.tensor([1.0, 2]).view(1, 1, 1, 2), torch.tensor([3, 0.5]).view(1, 1, 1, 2)
        assert fuse(first, second).item() == 2

    def test_either_trunk_can_silence_the_product(self) -> None:
        network = make("can", "small", 3, seed=0).eval()
        features = network.features(pictures(network))
        assert features[:, :512].any()
        network.trunk.transitions[1][1].bias.data.fill_(-100.0)  # type: ignore[union-attr, index]
        features = network.features(pictures(network))
        assert not features[:, :512].any()
        assert features[:, 512:1024].any()

    def test_an_image_counts_for_either_trunk(self) -> None:
        network = make("can", "small", 3, seed=0)
        network.features(pictures(network))
        assert network.shown == 8


class TestHermoza:
    def test_pooling_by_hand(self) -> None:
        maps = torch.tensor([0.0, 0, 0, 2]).view(1, 1, 2, 2)
        assert soft_maximum(maps, torch.ones(1)).item() == pytest.approx(0.954459, abs=1e-6)

    def test_pooling_lies_between_mean_and_maximum(self) -> None:
        maps = torch.randn(3, 2, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        sharpness = torch.full((2,), 1e-6, dtype=torch.float64)
        torch.testing.assert_close(soft_maximum(maps, sharpness), maps.mean(dim=(2, 3)), atol=1e-5, rtol=0)
        torch.testing.assert_close(soft_maximum(maps, sharpness * 1e12), maps.amax(dim=(2, 3)), atol=1e-5, rtol=0)

    def test_each_class_has_its_own_sharpness(self) -> None:
        maps = torch.randn(1, 2, 3, 3, generator=torch.Generator().manual_seed(0))
        pooled = soft_maximum(maps, torch.tensor([0.5, 3.0]))
        for place, sharpness in enumerate((0.5, 3.0)):
            mean = sum(math.exp(sharpness * value) for value in maps[0, place].flatten().tolist()) / 9
            assert pooled[0, place].item() == pytest.approx(math.log(mean) / sharpness, rel=1e-5)

    def test_a_bias_behind_the_pooling_is_one_before_it(self) -> None:
        maps = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
        sharpness, bias = torch.tensor([0.5, 1, 2]), torch.tensor([-1.0, 0, 3])
        shifted = soft_maximum(maps + bias[:, None, None], sharpness)
        torch.testing.assert_close(shifted, soft_maximum(maps, sharpness) + bias)

    def test_saliency_has_the_finest_resolution_and_a_map_per_class(self) -> None:
        network = make("hermoza", "small", 5, seed=0).eval()
        assert isinstance(network.trunk, SaliencyTrunk)
        assert network.trunk.maps(pictures(network)).shape == (4, 5, 16, 16)


def test_label_graph_against_a_loop() -> None:
    torch.manual_seed(0)
    head, C, D = GraphHead(6, 4, 3), 3, 4
    features = torch.randn(2, 6 + C * D)
    head.fixed_edges.data.normal_()
    logits, edges = head.read(features)
    assert ((edges > 0) & (edges < 1)).all()
    for row in range(2):
        nodes = [features[row, 6 + D * c : 6 + D * (c + 1)] for c in range(C)]
        mixed = [sum(head.fixed_edges[c, k] * nodes[k] for k in range(C)) for c in range(C)]
        nodes = [nodes[c] + F.leaky_relu(head.fixed(mixed[c]), SLOPE) for c in range(C)]
        context = F.leaky_relu(head.context(sum(nodes) / C), SLOPE)  # type: ignore[arg-type]
        for c in range(C):
            own = head.edges(torch.cat([nodes[c], context])).sigmoid()
            torch.testing.assert_close(edges[row, c], own)
            moved = F.leaky_relu(head.moving(sum(own[k] * nodes[k] for k in range(C))), SLOPE)
            logit = (head.plain(features[row, :6])[c] + moved @ head.output[c]) / 2
            torch.testing.assert_close(logits[row, c], logit)


class TestNpc:
    def test_correction_by_hand(self) -> None:
        """.9 of .6 and .2 of .4 are .62."""
        found = corrected_logit(torch.tensor([[0.6]]).logit(), torch.tensor([[0.9]]), torch.tensor([[0.2]]))
        assert found.sigmoid().item() == pytest.approx(0.62, abs=1e-6)

    def test_a_verdict_that_is_always_right_changes_nothing(self) -> None:
        logits = torch.tensor([[-30.0, -2, 0, 5, 30]])
        torch.testing.assert_close(corrected_logit(logits, torch.ones(1, 5), torch.zeros(1, 5)), logits)

    def test_concentrations_depend_on_the_verdict_as_a_loop_says(self) -> None:
        torch.manual_seed(0)
        head = CorrectingHead(6, 3)
        head.verdicts.data.normal_()
        features = torch.randn(2, 6)
        found = head.concentrations(features)
        encoded = head.encoder(features)
        for row, c, verdict, state in torch.cartesian_prod(*map(torch.arange, (2, 3, 2, 2))).tolist():
            wanted = F.softplus(encoded[row, 2 * c + state] + head.verdicts[c, verdict, state]) + 1.5
            torch.testing.assert_close(found[row, c, verdict, state], wanted)

    def test_training_leaves_the_classifier_alone(self) -> None:
        classifier = build("small", 3, seed=4)
        classifier.train()(pictures(classifier))  # running statistics of its own
        network = make("npc", "small", 3, seed=0)
        assert isinstance(network, CorrectedNetwork)
        network.start_from(classifier, torch.zeros(3))
        images = pictures(network)
        with torch.no_grad():
            learnt = network.train().features(images + 1)
            assert learnt.shape == (4, 192)
            both = network.eval().features(images)
            assert torch.equal(both[:, :192], classifier.eval().features(images))
            assert not torch.allclose(both[:, :192], both[:, 192:])  # whose statistics have moved
            torch.testing.assert_close(network.head.classifier(both[:, :192]), classifier(images))
        frozen = [key for key, weight in network.named_parameters() if not weight.requires_grad]
        assert {key.split(".")[1] for key in frozen} == {"frozen", "classifier"}
