"""Several processes that work on one run, as `torchrun` starts them: who is first, and how they wait and agree.

In a single process, which is the usual case, every function here does nothing and costs nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# What gloo and NCCL say when another process is gone; all else that they say is an error here.
_GONE = re.compile(r"connection \w+ by (remote )?peer|broken pipe|timed out waiting|ncclRemoteError", re.IGNORECASE)

_in_step = True


class LostProcessError(Exception):
    """Another process of this run ended; the message is one line, its cause is what was said of the connection."""


def joined() -> bool:
    """Whether `torchrun` started this process, maybe as the only one of a group, so that steps exchange gradients."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def count() -> int:
    """How many processes share the run; clusters set WORLD_SIZE for purposes of their own, too."""
    return int(os.environ["WORLD_SIZE"]) if joined() else 1


def beside() -> int:
    """How many of them are on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if joined() else 1


def rank() -> int:
    """This process's number, from 0."""
    return int(os.environ["RANK"]) if count() > 1 else 0


def first() -> bool:
    """Whether this process writes files and shows progress for all."""
    return rank() == 0


def wait() -> None:
    """Go on when every process has come here."""
    if (distributed := _group()) is not None:
        with exchange():
            distributed.barrier()


@contextmanager
def exchange() -> Iterator[None]:
    """Processes exchange something in here; where one of them is gone, the others say so in a line."""
    try:
        yield
    except RuntimeError as error:
        if (said := _GONE.search(str(error))) is None:
            raise
        raise LostProcessError(
            f"Another process of this run ended or no longer answers ({said[0].lower()}). "
            "The same command continues where it stopped."
        ) from error


def agreed(value: bool) -> bool:
    """What the first process says."""
    if (distributed := _group()) is None:
        return value
    import torch

    nccl = distributed.get_backend() == "nccl"
    said = torch.tensor([float(value)], device=torch.cuda.current_device() if nccl else "cpu")
    with exchange():
        distributed.broadcast(said, 0)
        return bool(said.item())


@contextmanager
def first_before_others() -> Iterator[None]:
    """The block runs in the first process; when it is through, in the others, who find its work done."""
    if not first():
        wait()
    yield
    if first():
        wait()


@contextmanager
def together() -> Iterator[None]:
    """All processes do this. Where it fails in one of them, the others may be waiting for it somewhere in here."""
    global _in_step
    _in_step = False
    yield
    _in_step = True


def in_step() -> bool:
    """Whether what was done together went well here, so that this process may wait for the others."""
    return _in_step


def _group() -> Any:
    """What joins the processes, where there are several and they have met."""
    if count() == 1:
        return None
    import torch.distributed as distributed

    return distributed if distributed.is_initialized() else None
