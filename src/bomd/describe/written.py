"""What a network says of all images, in a file that need not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from bomd import progress, spread
from bomd.data.batches import Images
from bomd.files import fingerprint
from bomd.learn.learner import prepare
from bomd.networks.backbone import Network
from bomd.shares import own_share

Stored = Literal["float32", "float16"]


@torch.no_grad()
def write_all(
    path: Path,
    images: Images,
    networks: Sequence[Network],
    ask: Callable[[Tensor], Tensor],
    one: tuple[int, ...] | None = None,
    *,
    what: str,
    stored: Stored = "float32",
    batch: int = 256,
) -> None:
    """Write what `ask` answers for un-augmented images batch by batch, or go on with it.

    Several processes ask for a share each.

    Args:
        networks: Those that `ask` uses. With other weights than were used so far it begins anew.
        one: Shape of what is written of an image; by default that of the answer about the first.
        what: In words, for whoever waits.
    """
    rows = spread.own_part(len(images))
    for network in networks:
        network.eval()

    def answers(rows: Tensor) -> Iterator[Tensor]:
        for _, pixels in images.iterate(rows, batch):
            yield ask(prepare(pixels.float(), networks[0].channels))

    if one is None:
        one = tuple(next(answers(torch.arange(1))).shape[1:])
    bar = progress.bar(what, rows.stop - rows.start)
    with own_share(path, (len(images), *one), _weights_of(networks), stored) as file, bar as advance:
        advance(file.done)
        for found in answers(torch.arange(rows.start + file.done, rows.stop)):
            file.add(found.reshape(len(found), *one).float().cpu().numpy())
            advance(len(found))


def _weights_of(networks: Sequence[Network]) -> str:
    """What tells these networks from others."""
    return fingerprint(*(value.cpu().numpy() for network in networks for value in network.state_dict().values()))
