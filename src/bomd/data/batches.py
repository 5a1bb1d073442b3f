"""Cut batches out of a packed store: from device memory if it fits there, else from the memory map."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.data.store import Store
from bomd.errors import InputError
from bomd.files import fingerprint
from bomd.tables import Text

# Mean and deviation of each channel, by their number; those of three are ImageNet's.
SCALES = {1: ((0.5, 0.25),), 3: ((0.485, 0.229), (0.456, 0.224), (0.406, 0.225))}

_SHARE_OF_FREE_MEMORY = 0.6  # the rest is for the network, its gradients and activations
_UPLOAD_BYTES = 64 << 20


class Images:
    """The images of a table, in its order, as uint8 batches on a device.

    A position is a row of that table, so it also finds the image's labels and anything remembered about it.

    Attributes:
        ids: (N) names.
        size: Side of the images.
        colour: Whether they are (size, size, 3) instead of (size, size).
        device: Where batches arrive.
        resident: Whether all images lie in the device's memory.
        fingerprint: Changes when any pixel, id or their order does.
    """

    def __init__(self, store: Store, ids: Sequence[str] | Text, device: torch.device, resident: bool | None = None):
        """Find the images in the store and, where they should be resident, copy them to the device.

        Args:
            store: The packed images.
            ids: (N) which of them, in this order.
            device: Where batches should arrive.
            resident: Keep all images in device memory; by default on a GPU with room for them.
        """
        self.ids: Text = np.asarray(ids, dtype=np.str_)
        self.size, self.colour = store.size, store.colour
        self.device = torch.device(device)
        self.fingerprint = fingerprint(store.fingerprint, self.ids)
        self._store = store
        self._rows = store.rows(self.ids)
        self.resident = self._fits() if resident is None else resident
        self._pixels = self._upload() if self.resident else None

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: slice | NDArray[np.bool_]) -> Images:
        """Some of the images; those that are resident are not read again."""
        part = Images(self._store, self.ids[rows], self.device, resident=False)
        if self._pixels is not None:
            place = rows if isinstance(rows, slice) else torch.from_numpy(rows).to(self.device)
            part.resident, part._pixels = True, self._pixels[place]
        return part

    def batch(self, positions: Tensor) -> Tensor:
        """(B, size, size) uint8 images at these (B) positions, on the device; in colour (B, size, size, 3)."""
        if self._pixels is not None:
            return self._pixels[positions.to(self.device, non_blocking=True)]
        return self._gather(positions.cpu()).to(self.device, non_blocking=True)

    def iterate(self, order: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of `size` images in the given order, the last one shorter where it does not come out even.

        Resident images are indexed on the device without waiting for it. Others are read by a thread one
        batch ahead, so that the disk works while the device computes.

        Args:
            order: (n) positions; on the CPU, unless all images are resident.
            size: Images in a batch.

        Yields:
            (B) positions on the device and their uint8 images on the device, as `batch` has them.
        """
        if size < 1:
            raise ValueError(f"A batch of {size} images is not possible.")
        if self._pixels is not None:
            for positions in _parts(order.to(self.device), size):
                yield positions, self._pixels[positions]
            return
        parts = _parts(order.cpu(), size)
        with ThreadPoolExecutor(1, thread_name_prefix="batches") as reader:
            ahead = [reader.submit(self._gather, part) for part in parts[:1]]
            for number, positions in enumerate(parts, 1):
                pixels = ahead.pop().result()
                ahead += [reader.submit(self._gather, part) for part in parts[number : number + 1]]
                yield positions.to(self.device, non_blocking=True), pixels.to(self.device, non_blocking=True)

    def _fits(self) -> bool:
        if self.device.type != "cuda":
            return False
        free, _ = torch.cuda.mem_get_info(self.device)
        return len(self) * math.prod(self._store.images.shape[1:]) <= _SHARE_OF_FREE_MEMORY * free

    def _gather(self, positions: Tensor) -> Tensor:
        """(B) images on the CPU, in page-locked memory where a GPU will copy from it."""
        on_gpu = self.device.type == "cuda"
        # Page-locked memory belongs to a GPU, and a thread starts out with the first one.
        with torch.cuda.device(self.device) if on_gpu else nullcontext():
            shape = (len(positions), *self._store.images.shape[1:])
            pixels = torch.empty(shape, dtype=torch.uint8, pin_memory=on_gpu)
        target, rows = pixels.numpy(), self._rows[positions.numpy()]
        for place in np.argsort(rows):  # ascending rows: the disk reads forwards
            target[place] = self._store.images[rows[place]]
        return pixels

    def _upload(self) -> Tensor:
        shape = self._store.images.shape[1:]
        pixels = torch.empty((len(self), *shape), dtype=torch.uint8, device=self.device)
        step = max(1, _UPLOAD_BYTES // math.prod(shape))
        for start in range(0, len(self), step):
            positions = torch.arange(start, min(start + step, len(self)))
            pixels[start : start + step].copy_(self._gather(positions), non_blocking=True)
        return pixels


def normalise(images: Tensor, channels: int) -> Tensor:
    """Scale (B, H, W) values in 0..255, or (B, H, W, 3) in colour, to the (B, channels, H, W) that a network expects.

    Three channels repeat a grey image.
    """
    if channels not in SCALES:
        raise ValueError(f"Images have 1 or 3 channels, not {channels}.")
    colour = images.ndim == 4
    if colour and channels != images.shape[-1]:
        way_out = 'set images.mode to "grey" (--mode grey)'
        raise InputError(f"A network of {channels} channel cannot see colour: {way_out}.")
    given = images.float().unbind(-1) if colour else [images.float()] * channels
    # Scalars instead of small tensors: a tensor made here would be copied to the device and make it wait.
    pairs = zip(given, SCALES[channels], strict=True)
    planes = [plane * (1 / (255 * deviation)) - mean / deviation for plane, (mean, deviation) in pairs]
    if colour:
        return torch.stack(planes, dim=-1).permute(0, 3, 1, 2)  # channels last, as convolutions like it
    return torch.stack(planes, dim=1)


def _parts(order: Tensor, size: int) -> list[Tensor]:
    return [order[start : start + size] for start in range(0, len(order), size)]
