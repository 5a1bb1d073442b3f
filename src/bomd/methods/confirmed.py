"""Labels that people decided on are learnt as they are, whatever a method does to labels while it trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bomd.learn.engine import Batch, Learner
from bomd.methods.base import Method, one_number
from bomd.networks.backbone import Network
from bomd.tables import LabelTable


def hold_confirmed(method: Method, given: LabelTable, device: torch.device) -> Learner:
    """The method as it is, or, where it may doubt labels that people decided on, one that learns these in full."""
    unchanged = type(method).loss is Method.loss and type(method).step is Method.step
    if given.confirmed is None or not given.confirmed.any() or unchanged or method.trusts_labels:
        return method
    return Holding(method, torch.as_tensor(given.confirmed, device=device))


class Holding(Learner):
    """A method that is shown confirmed labels as unknown, beside plain cross-entropy on these.

    A label that nobody confirmed counts as the method says, one that people confirmed as much as in plain training: of
    a batch's loss each side has the share of the labels that are on it. Where a method has a step of its own, images go
    through its networks once more for that.
    """

    def __init__(self, method: Method, confirmed: Tensor) -> None:
        """Take the method and the (N, C) labels that people decided on; all hooks but the step are the method's."""
        self.method, self.confirmed = method, confirmed
        for name in vars(Learner):
            if name != "step" and not name.startswith("_"):
                setattr(self, name, getattr(method, name))

    def step(self, networks: Sequence[Network], batch: Batch) -> Tensor:
        confirmed = self.confirmed[batch.index]
        fixed, doubtful = (batch.targets.masked_fill(hidden, torch.nan) for hidden in (~confirmed, confirmed))
        share = (~fixed.isnan()).sum() / (~batch.targets.isnan()).sum().clamp(min=1)
        if type(self.method).step is Method.step:
            images = batch.view()
            logits = [network(images) for network in networks]
            others = torch.stack([one_number(self.method.loss(part, doubtful, batch.index)) for part in logits]).sum()
        else:
            images = replace(batch, _given=[0]).view()  # the first view, which the method sees as well
            logits = [network(images) for network in networks if _is_trained(network)]
            others = self.method.step(networks, replace(batch, targets=doubtful))
        plain = torch.stack([self.method.loss_of_confirmed(part, fixed) for part in logits]).sum()
        return share * plain + (1 - share) * others


def _is_trained(network: Network) -> bool:
    return any(weight.requires_grad for weight in network.parameters())
