"""What a network says of all images, in a file that need not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from bomd import processes, progress, spread
from bomd.data.batches import Images
from bomd.files import fingerprint, mapped_array, read_array
from bomd.filling import drop, filling
from bomd.learn.learner import prepare
from bomd.networks.backbone import Network

Stored = Literal["float32", "float16"]


@torch.no_grad()
def write_all(
    path: Path,
    images: Images,
    networks: Sequence[Network],
    ask: Callable[[Tensor], Tensor],
    one: tuple[int, ...],
    *,
    what: str,
    stored: Stored = "float32",
    batch: int = 256,
) -> None:
    """Write what `ask` answers for un-augmented images batch by batch, or go on with it.

    Several processes ask for a share each, into a file of their own; the first then joins the files.

    Args:
        networks: Those that `ask` uses. With other weights than were used so far it begins anew.
        one: Shape of what is written of an image.
        what: In words, for whoever waits.
    """
    rows = spread.own_part(len(images))
    shape = (rows.stop - rows.start, *one)
    for network in networks:
        network.eval()
    bar = progress.bar(f"{what} of all images", shape[0])
    with filling(_part(path), shape, _weights_of(networks), stored) as file, bar as advance:
        advance(file.done)
        for _, pixels in images.iterate(torch.arange(rows.start + file.done, rows.stop), batch):
            found = ask(prepare(pixels.float(), networks[0].channels))
            file.add(found.reshape(len(found), *one).float().cpu().numpy())
            advance(len(found))
    processes.wait()
    if processes.count() > 1 and processes.first():
        with mapped_array(path, (len(images), *one), stored) as values:
            place = 0
            for rank in range(processes.count()):
                part = read_array(_part(path, rank), mapped=True)
                values[place : place + len(part)] = part
                place += len(part)
        for rank in range(processes.count()):
            drop(_part(path, rank))
    processes.wait()


def _part(path: Path, rank: int | None = None) -> Path:
    """Where one of several processes writes its share; a single process writes the whole."""
    if processes.count() == 1:
        return path
    return path.with_suffix(f".part{processes.rank() if rank is None else rank}.npy")


def _weights_of(networks: Sequence[Network]) -> str:
    """What tells these networks from others."""
    return fingerprint(*(value.cpu().numpy() for network in networks for value in network.state_dict().values()))
