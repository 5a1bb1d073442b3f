"""Several processes that work on one run, as `torchrun` starts them: who is first, and how they wait and agree.

In a single process, which is the usual case, every function here does nothing and costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


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
        distributed.barrier()


def agreed(value: bool) -> bool:
    """What the first process says."""
    if (distributed := _group()) is None:
        return value
    import torch

    nccl = distributed.get_backend() == "nccl"
    said = torch.tensor([float(value)], device=torch.cuda.current_device() if nccl else "cpu")
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


def _group() -> Any:
    """What joins the processes, where there are several and they have met."""
    if count() == 1:
        return None
    import torch.distributed as distributed

    return distributed if distributed.is_initialized() else None
