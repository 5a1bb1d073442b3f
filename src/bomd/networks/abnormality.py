"""One shared score of abnormality at prediction, folded into a network's head: nothing else has to know of it.

How little an image looks like "No Finding" is learnt from many more images than any single finding. Added to each
finding's own logit, in the same spread, it steadies findings that were learnt from few or wrong labels, and blurs those
that were learnt well; see docs/successor.md for what it was worth.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bomd.errors import InputError
from bomd.networks.backbone import Network


@torch.no_grad()
def share_abnormality(network: Network, logits: Tensor, nothing: int, share: float) -> None:
    """Subtract the logit of "No Finding" from each finding's, in place.

    z_c becomes (z_c - share k_c z_nothing), scaled and moved so that its mean and deviation over the training images
    stay what they were; k_c is the ratio of the two deviations. "No Finding" itself stays.

    Args:
        network: Its head is linear and gives the logits.
        logits: (N, C) of the training images, by this network.
        share: 0 changes nothing, 1 gives both scores the same weight.
    """
    head = network.head
    if not isinstance(head, nn.Linear) or head.out_features != logits.shape[1]:
        raise InputError("fit.abnormality needs a network with a linear head of one logit for each class.")
    if share == 0:
        return
    values = logits.double()
    spread, middle = values.std(dim=0), values.mean(dim=0)
    ratio = share * spread / spread[nothing].clamp(min=1e-12)
    mixed = values - ratio * values[:, nothing : nothing + 1]
    scale = spread / mixed.std(dim=0).clamp(min=1e-12)
    scale[nothing], ratio[nothing] = 1.0, 0.0
    weight, bias = head.weight.double(), head.bias.double()
    scale, ratio = scale.to(weight.device), ratio.to(weight.device)
    new_weight = scale[:, None] * (weight - ratio[:, None] * weight[nothing])
    new_bias = scale * (bias - ratio * bias[nothing])
    moved = middle.to(weight.device) - scale * (middle.to(weight.device) - ratio * middle[nothing].to(weight.device))
    head.weight.copy_(new_weight)
    head.bias.copy_(new_bias + moved)
