"""The published algorithm in the shape in which it was released, written afresh: what our speed is compared with.

One image, one pair of classes, one list at a time.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def ranking_loss(bags: Tensor, words: Tensor, labels: Tensor, beta: float) -> Tensor:
    """The release's form of the loss as its equations read."""
    total = torch.zeros((), device=bags.device)
    for bag, row in zip(bags, labels, strict=True):
        positives = [c for c in range(len(words)) if row[c] == 1]
        negatives = [c for c in range(len(words)) if row[c] == 0]
        scores = [torch.stack([vector @ word for vector in bag]).max() for word in words]
        ranking = torch.zeros((), device=bags.device)
        for p in positives:
            for n in negatives:
                ranking = ranking + torch.nn.functional.softplus(scores[n] - scores[p])
        spread = words[positives].var(dim=0).sum() if len(positives) > 1 else torch.zeros((), device=bags.device)
        attraction = (1 + spread) * ranking / len(positives)
        total = total + 2 * ((1 - beta) * attraction + beta * bag.var(dim=0).sum())
    return total / len(bags)


def relabel(labels: NDArray[np.float32], neighbours: NDArray[np.int64]) -> NDArray[np.float64]:
    """Equation 6 with the paper's weights."""
    rows = []
    for given, near in zip(labels, neighbours, strict=False):
        mean = sum(labels[j].astype(np.float64) for j in near) / len(near)
        mask = (given + mean) > 0
        rows.append(0.4 * given + 0.6 * (0.25 + 0.75 * mean) * mask)
    return np.stack(rows)


def neighbours_by_rank_sum(bags: Tensor, rows: range, lists: int = 200, keep: int = 10) -> list[list[int]]:
    """For each descriptor of an image the nearest 200 of all; images by the sum of their places in those lists."""
    count = bags.shape[1]
    nodes = bags.reshape(-1, bags.shape[2])
    found = []
    for row in rows:
        places: dict[int, int] = {}
        for vector in bags[row]:
            nearest = torch.cdist(vector[None], nodes)[0].topk(lists, largest=False).indices.tolist()
            order = list(dict.fromkeys(node // count for node in nearest))
            for place, image in enumerate(order):
                places[image] = places.get(image, 0) + place
        places.pop(row, None)
        found.append(sorted(places, key=places.__getitem__)[:keep])
    return found
