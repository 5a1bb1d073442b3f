"""The shared score of abnormality is a linear change of the head, and says what the formula says."""

from __future__ import annotations

import pytest
import torch

from bomd.errors import InputError
from bomd.networks.abnormality import share_abnormality
from bomd.networks.backbone import Network, build


@pytest.fixture
def trained() -> tuple[Network, torch.Tensor]:
    network = build("small", 4, seed=0).eval()
    images = torch.randn(64, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    return network, images


def logits_of(network: Network, images: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return network(images).double()


def test_by_hand(trained: tuple[Network, torch.Tensor]) -> None:
    """A finding's logit less that of No Finding (column 3), both of deviation 1, then of its old mean and spread."""
    network, images = trained
    before = logits_of(network, images)
    share_abnormality(network, before, nothing=3, share=1.0)
    after = logits_of(network, images)
    for column in range(3):
        own = (before[:, column] - before[:, column].mean()) / before[:, column].std()
        healthy = (before[:, 3] - before[:, 3].mean()) / before[:, 3].std()
        mixed = own - healthy
        expected = before[:, column].mean() + before[:, column].std() * (mixed - mixed.mean()) / mixed.std()
        torch.testing.assert_close(after[:, column], expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(after[:, 3], before[:, 3], atol=1e-5, rtol=1e-5)


def test_no_share_changes_nothing(trained: tuple[Network, torch.Tensor]) -> None:
    network, images = trained
    weight = network.head.weight.clone()  # type: ignore[operator, union-attr]
    share_abnormality(network, logits_of(network, images), nothing=3, share=0.0)
    assert torch.equal(weight, network.head.weight)  # type: ignore[arg-type]


def test_other_heads_are_refused(trained: tuple[Network, torch.Tensor]) -> None:
    network, _ = trained
    with pytest.raises(InputError, match="linear head"):
        share_abnormality(network, torch.zeros(2, 5), nothing=0, share=1.0)
