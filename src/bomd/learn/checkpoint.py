"""What a fit leaves behind after each epoch, so that the next process continues as if nothing had happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bomd import processes
from bomd.errors import InputError
from bomd.files import replacing


def save(
    path: Path,
    networks: Sequence[nn.Module],
    optimiser: torch.optim.Optimizer,
    buffers: Mapping[str, Tensor],
    history: Sequence[Mapping[str, Any]],
    best: Mapping[str, Any] | None,
) -> None:
    """Write everything whole; of several processes, the first does."""
    if not processes.first():
        return
    state = {
        "networks": weights_of(networks),
        "optimiser": optimiser.state_dict(),
        "buffers": {name: tensor.cpu() for name, tensor in buffers.items()},
        "history": history,
        "best": best,
    }
    with replacing(path) as temporary:
        try:
            torch.save(state, temporary)
        except RuntimeError as error:  # what PyTorch makes of a full disk
            reason = str(error).splitlines()[0]
            raise InputError(
                f"Cannot write {path}: {reason}. Is the disk full? The same command then goes on."
            ) from error


def load(path: Path) -> dict[str, Any] | None:
    """What `save` wrote; nothing where there is no file."""
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a damaged archive
        raise InputError(f"Cannot read checkpoint {path}: {error}. Delete it to start over.") from error
    return state


def weights_of(networks: Sequence[nn.Module]) -> list[dict[str, Tensor]]:
    """A copy of all weights and running statistics."""
    return [{name: value.detach().cpu().clone() for name, value in net.state_dict().items()} for net in networks]
