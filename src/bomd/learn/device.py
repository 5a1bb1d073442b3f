"""Where networks run: Lightning Fabric's device and precision, with the settings that say how to be fast there."""

from __future__ import annotations

import logging
import os

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.precision import DoublePrecision
from lightning_fabric.strategies.ddp import DDPStrategy

from bomd import processes
from bomd.config import DeviceSettings
from bomd.errors import InputError


class Device(Fabric):
    """A Fabric that remembers the settings it was made from."""

    settings = DeviceSettings()

    @property
    def double(self) -> bool:
        """Whether networks compute in float64."""
        return isinstance(self._precision, DoublePrecision)

    @property
    def key(self) -> str:
        """Changes with whatever here may change a digit of a result; part of what names a finished stage."""
        return f"{self.device} {self.settings}"

    def resident(self) -> bool | None:
        """Whether images are to lie in the device's memory; None leaves it to their size."""
        return {"auto": None, "always": True, "never": False}[self.settings.resident]


def make_fabric(settings: DeviceSettings) -> Device:
    """The chosen device in the chosen precision; under `torchrun`, one for each process, joined in a group."""
    gpu = torch.cuda.is_available()
    if settings.accelerator == "cuda" and not gpu:
        raise InputError("device.accelerator is 'cuda', but PyTorch sees no GPU here. Use 'auto' or 'cpu'.")
    gpu = gpu and settings.accelerator != "cpu"
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)  # its hints are about choices made here
    precision = settings.precision
    if precision == "auto":
        precision = "bf16-mixed" if gpu and torch.cuda.is_bf16_supported() else "32-true"
    accelerator = "cuda" if gpu else "cpu"
    if processes.count() == 1:
        fabric = Device(accelerator=accelerator, devices=1, precision=precision)
    else:
        here = int(os.environ.get("LOCAL_WORLD_SIZE", processes.count()))
        fabric = Device(
            accelerator=accelerator,
            strategy=DDPStrategy(process_group_backend="nccl" if gpu else "gloo"),
            devices=here,
            num_nodes=processes.count() // here,
            precision=precision,
        )
        fabric.launch()
    fabric.settings = settings
    return fabric
