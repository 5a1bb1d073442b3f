"""Where networks run: device, precision, and the group of processes under `torchrun`."""

from __future__ import annotations

import atexit
import importlib
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as distributed

from bomd import processes
from bomd.config import DeviceSettings
from bomd.errors import InputError

# How long processes wait for one: the first may pack a large set, or wait for another run that makes the same stage.
# The libraries' ten or thirty minutes would end the run then. Where one has died, the launcher ends the others.
PATIENCE = timedelta(days=7)


@dataclass(frozen=True)
class Device:
    """A device with the precision that networks compute in on it, and the settings it was made from."""

    device: torch.device
    precision: str  # "32-true", "64-true" or "bf16-mixed"
    settings: DeviceSettings

    @property
    def double(self) -> bool:
        """Whether networks compute in float64."""
        return self.precision == "64-true"

    @property
    def key(self) -> str:
        """Changes with whatever here may change a digit of a result; part of what names a finished stage.

        Processes that share a run have a GPU each and one name for each stage.
        """
        return f"{self.device.type} {self.settings}"

    def resident(self) -> bool | None:
        """Whether images are to lie in the device's memory; None leaves it to their size."""
        return {"auto": None, "always": True, "never": False}[self.settings.resident]

    def autocast(self) -> AbstractContextManager[Any]:
        """What a network computes in: bfloat16 where that is exact enough, or the type of its weights."""
        mixed = self.precision == "bf16-mixed"
        return torch.autocast(self.device.type, dtype=torch.bfloat16) if mixed else nullcontext()


def make_fabric(settings: DeviceSettings) -> Device:
    """The chosen device in the chosen precision; under `torchrun`, one for each process, joined in a group."""
    gpu = torch.cuda.is_available()
    if settings.accelerator == "cuda" and not gpu:
        raise InputError("device.accelerator is 'cuda', but PyTorch sees no GPU here. Use 'auto' or 'cpu'.")
    gpu = gpu and settings.accelerator != "cpu"
    precision: str = settings.precision
    if precision == "auto":
        precision = "bf16-mixed" if gpu and torch.cuda.is_bf16_supported() else "32-true"
    own = int(os.environ["LOCAL_RANK"]) if processes.joined() else 0
    device = torch.device("cuda", own) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    if processes.joined() and not distributed.is_initialized():
        # Its functions take the group of their import as a default, which is held for ever then: a group that was left
        # kept its threads, and one that comes back while Python ends aborts the process. Before there is a group, it
        # is none. Optimizers import it at their first step.
        importlib.import_module("torch.distributed.nn.functional")
        backend = "nccl" if gpu else "gloo"
        distributed.init_process_group(backend, timeout=PATIENCE, device_id=device if gpu else None)
        atexit.register(_leave)
    return Device(device, precision, settings)


def _leave() -> None:
    # With NCCL, whoever leaves waits until all others do. Where these wait for this one, which has failed, nobody would
    # ever end: the launcher ends the others when one has ended. PyTorch itself then drops the connections at the end.
    if distributed.is_initialized() and (processes.in_step() or distributed.get_backend() != "nccl"):
        distributed.destroy_process_group()
