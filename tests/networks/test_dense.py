"""DenseNet-121 is MONAI's, and its shared form is its plain form, forwards, backwards and in what it remembers."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from torch import Tensor, nn

from bomd.networks.dense import DenseNet121


@pytest.fixture(scope="module")
def network() -> DenseNet121:
    """In float64, where different orders of the same sums agree to ten digits; with norms that do something."""
    torch.manual_seed(0)
    made = DenseNet121().double().to(memory_format=torch.channels_last)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.3)
    return made


def images(height: int = 64, width: int = 64) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn((3, 3, height, width), dtype=torch.float64, generator=generator)


def test_it_is_monais_densenet(network: DenseNet121) -> None:
    nets = pytest.importorskip("monai.networks.nets")
    reference = nets.DenseNet121(spatial_dims=2, in_channels=3, out_channels=1).double()
    renamed = {re.sub(r"(denselayer\d+)\.", r"\1.layers.", name): value for name, value in network.state_dict().items()}
    reference.features.load_state_dict({name.removeprefix("features."): value for name, value in renamed.items()})
    expected = reference.eval().features(images()).relu().mean(dim=(2, 3))
    torch.testing.assert_close(copy.deepcopy(network).eval()(images()), expected)


def test_a_network_that_does_not_train_still_has_a_derivative(network: DenseNet121) -> None:
    """As a heat map asks for: with respect to the image, in evaluation mode."""
    slopes = []
    for share in (False, True):
        net, pixels = copy.deepcopy(network).eval(), images().requires_grad_()
        net.share = share
        net(pixels).square().sum().backward()
        slopes.append(pixels.grad)
    torch.testing.assert_close(*slopes)
    assert slopes[0] is not None
    assert slopes[0].any()


@pytest.mark.parametrize(("height", "width"), [(64, 64), (75, 50)])
@pytest.mark.parametrize("as_stages", [False, True])
def test_sharing_statistics_changes_nothing(network: DenseNet121, height: int, width: int, as_stages: bool) -> None:
    """Odd sides as well; with the early average of the features and without, as the four stages are asked for."""
    outcomes = []
    for share in (False, True):
        net, pixels = copy.deepcopy(network).train(), images(height, width).requires_grad_()
        net.share = share
        torch.manual_seed(2)
        found = net.stages(pixels) if as_stages else [net(pixels)]
        sum((part * torch.randn(part.shape, dtype=part.dtype)).sum() for part in found).backward()
        gradients = [weight.grad for weight in net.parameters()]
        net.eval()
        with torch.no_grad():
            later = net.stages(pixels) if as_stages else [net(pixels)]
        outcomes.append([*found, pixels.grad, *gradients, *net.buffers(), *later])
    for plain, shared in zip(*outcomes, strict=True):
        torch.testing.assert_close(shared, plain, rtol=1e-8, atol=1e-9)
