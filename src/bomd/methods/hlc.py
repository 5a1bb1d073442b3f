"""Holistic label correction: replace a set of labels that scores far below the set the network would choose."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bomd.config import FitSettings
from bomd.learn.engine import Batch, Predict
from bomd.methods.base import Context, Method, Prepared, masked_cross_entropy, refuse_soft
from bomd.methods.settings import check_shares, note_if_idle, warm_epochs, within
from bomd.networks.architectures import GraphNetwork, build_as
from bomd.networks.backbone import Network
from bomd.tables import NO_FINDING, LabelTable


class Hlc(Method):
    """Score whole label sets by the labels' probabilities and their ties, and correct those that score badly.

    Paper: Xia et al., Holistic Label Correction for Noisy Multi-Label Classification, ICCV 2023. A classifier with a
    label graph of each image (ADD-GCN); a set's score is the sum of its probabilities and of the edges between its
    labels. Where the ratio of the given set's score to that of as many most probable labels is below a threshold, the
    latter replace it. From pretrained weights correction starts when a sixth of 30 epochs is done, with a threshold of
    0.4 that falls to 0 when a third is.
    Differs: correction starts later (`warmup`), since a network from scratch knows too little after a sixth; the graph
    head is a small one of ours; corrections are kept by image, where the release keeps them by their order in the
    batches; rows that are corrected end with "No Finding" exactly where no finding is left. The size of a set does not
    change otherwise, so labels that are merely missing or added stay so.
    Found: a network that corrects early finds rare findings less probable than common ones and replaces sets with a
    rare finding by "No Finding". On phantoms with right labels, begun when 2 of 12 epochs were done, this made about
    3.5 % of them wrong; with `threshold` 0 nothing is corrected.
    Cost: 1.

    Args:
        balance: Weight of the probabilities in a score; the edges have the rest.
        threshold: Highest ratio of scores that is corrected when correction begins.
        warmup: Share of all epochs that learns from the given labels first.
        until: Share of all epochs after which nothing more is corrected; at least one epoch after the warm-up is.
        width: Numbers that describe a class in the graph.
    """

    def __init__(
        self, balance: float = 0.5, threshold: float = 0.4, warmup: float = 0.7, until: float = 0.9, width: int = 64
    ) -> None:
        within("[0, 1]", "hlc", balance=balance, threshold=threshold)
        check_shares("hlc", warmup=warmup, until=until)
        self.balance, self.threshold, self.width = balance, threshold, width
        self.warmup, self.until = warmup, until

    def check(self, train: LabelTable) -> None:
        refuse_soft(train, "hlc corrects sets of labels, which must be")

    def build(self, outputs: int, settings: FitSettings, seed: int) -> list[Network]:
        return [build_as("hlc", outputs, settings, seed, width=self.width)]

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.check(train)
        self.first = max(1, warm_epochs(self.warmup, context.fit.epochs))
        self.last = max(self.first + 1, round(self.until * context.fit.epochs))
        self.nothing = train.classes.index(NO_FINDING) if NO_FINDING in train.classes else None
        self.labels = context.tensor(train.values).nan_to_num()  # (N, C) as corrected so far, 0 where unknown
        self.limit = context.buffer(()).fill_(-1)
        notes = note_if_idle("hlc", self.first, context.fit.epochs, "labels stay as given")
        return Prepared(train.values, notes=notes)

    def buffers(self) -> dict[str, Tensor]:
        return {"labels": self.labels}

    def start_epoch(self, epoch: int, predict: Predict) -> None:
        self.limit.fill_(limit(epoch, self.first, self.last, self.threshold))

    def step(self, networks: Sequence[Network], batch: Batch) -> Tensor:
        (network,) = networks
        assert isinstance(network, GraphNetwork)
        logits, edges = network.head.read(network.features(batch.view()))
        given = torch.where(batch.targets.isnan(), batch.targets, self.labels[batch.index])
        found = correct(given, logits.detach().sigmoid(), edges.detach(), self.limit, self.balance, self.nothing)
        self.labels.index_copy_(0, batch.index, found.nan_to_num())
        return masked_cross_entropy(logits, found)


def limit(epoch: int, first: int, last: int, threshold: float) -> float:
    """The highest ratio of scores that is corrected in an epoch: the threshold in the first, -1 where none is."""
    return threshold * ((last - epoch) / (last - first)) if first <= epoch < last else -1.0


def correct(
    labels: Tensor, probabilities: Tensor, edges: Tensor, limit: Tensor, balance: float, nothing: int | None
) -> Tensor:
    """(B, C) labels, replaced where their score is at most `limit` times that of as many most probable ones.

    Args:
        labels: (B, C) 0, 1 or NaN; NaN stays and belongs to no set.
        edges: (B, C, C) ties of every class to every other; those of a class to itself do not count.
        balance: weight of the probabilities in a score.
        nothing: the column of "No Finding", which ends as 1 in a replaced row exactly where no finding is left.
    """
    known, chosen = ~labels.isnan(), labels == 1
    size = chosen.sum(dim=1, keepdim=True)
    ranks = probabilities.masked_fill(~known, -1).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    likeliest = ranks < size
    between = edges * (1 - torch.eye(edges.shape[1], device=edges.device))

    def score(members: Tensor) -> Tensor:
        weights = members.to(edges.dtype)
        ties = torch.einsum("bj,bjk,bk->b", weights, between, weights)
        return balance * (weights * probabilities).sum(dim=1) + (1 - balance) * ties

    best = score(likeliest)
    replaced = (best > 0) & (score(chosen) <= limit * best)
    found = likeliest.to(labels.dtype)
    if nothing is not None:
        others = torch.arange(labels.shape[1], device=labels.device) != nothing
        found[:, nothing] = (~(likeliest & others).any(dim=1)).to(labels.dtype)
    return torch.where(replaced[:, None] & known, found, labels)
