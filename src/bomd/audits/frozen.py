"""An audit by a network that somebody trained: its features are computed once, and linear heads on them judge.

Nothing but the features needs a network, so that everything after them takes seconds. They are kept with the audit by
what they depend on, the network's weights and the images, and an interrupted computation continues.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

from bomd import runs
from bomd.audits.choose import duration, show_time
from bomd.config import DeviceSettings
from bomd.data.batches import Images, normalise
from bomd.describe.written import write_all
from bomd.errors import InputError
from bomd.experiments.packing import Source
from bomd.files import fingerprint, read_array
from bomd.networks.architectures import describe
from bomd.networks.backbone import BACKBONES, Network, build
from bomd.networks.borrowed import BorrowedTrunk, is_borrowed
from bomd.networks.device import Device, make_fabric
from bomd.tables import Floats

USUAL_SIDE = 224  # pixels, of the images that our own backbones learnt from
BATCH = 32  # images in one pass
TIMED = 4  # images


@dataclass(frozen=True, eq=False)
class Frozen:
    """A network that stays as it is, and looks at images of `side` pixels.

    The fingerprint changes with any of its weights, and with how it looks at images.
    """

    backbone: str
    side: int
    fingerprint: str
    network: Network
    fabric: Device

    def features(self, source: Source, stages: runs.Stages) -> Floats:
        """(N, F) of packed images, computed or continued or read."""
        images = Images(source.store, source.labels.ids, self.fabric.device, self.fabric.resident())
        with stages.enter("features", images.fingerprint, self.fingerprint, self.fabric.key, by=(__name__,)) as stage:
            path = stage.directory / "features.npy"
            if not stage.finished:
                width = (self.network.feature_size,)
                write_all(path, images, [self.network], self._look, width, what="features of all images", batch=BATCH)
                stage.finish(images=len(images))
            found: Floats = read_array(path, mapped=True)
        return found

    def explain(self, images: int) -> tuple[str, ...]:
        """How long it will take for so many images, and what is to be known about it."""
        where = "GPU" if self.fabric.device.type == "cuda" else "CPU"
        plan = (
            f"{images:,} images at {self.side} x {self.side} pixels through {self.backbone}, which stays as it is: "
            f"about {show_time(images * self._seconds())} on this {where}, once. Linear heads on its "
            f"{self.network.feature_size} features then judge the labels; no network is trained."
        )
        licence = "Its licence is its makers': see their model card before results are passed on."
        return (plan, licence) if is_borrowed(self.backbone) else (plan,)

    @torch.no_grad()
    def _seconds(self) -> float:
        """That one image takes, roughly: the faster of two passes."""
        pixels = torch.full((TIMED, self.side, self.side), 128, device=self.fabric.device)
        shown = normalise(pixels, self.network.channels)
        return min(duration(lambda: self.network.features(shown).cpu()) for _ in range(2)) / TIMED

    def _look(self, images: torch.Tensor) -> torch.Tensor:
        values = self.network.features(images)
        if not torch.isfinite(values).all():
            raise InputError(f"{self.backbone} gives features that are not finite: another one has to judge.")
        return values


def open_frozen(backbone: str, size: int | None = None) -> Frozen:
    """The network as it is, for images of `size` pixels, or of as many as it learnt from."""
    if backbone in BACKBONES and BACKBONES[backbone].load is None:
        raise InputError(f"--backbone {backbone}: nobody has trained it, so its features say nothing. Leave it out.")
    fabric = make_fabric(DeviceSettings())
    network = build(backbone, 1, weights="imagenet", seed=0, freeze=True).place(fabric).eval()
    trunk = network.trunk
    side = size or (max(trunk.sight.height, trunk.sight.width) if isinstance(trunk, BorrowedTrunk) else USUAL_SIDE)
    return Frozen(backbone, side, _fingerprint(network), network, fabric)


def _fingerprint(network: Network) -> str:
    digest = hashlib.sha256()
    for name, values in sorted(network.trunk.state_dict().items()):
        digest.update(name.encode())
        digest.update(values.detach().cpu().contiguous().numpy().tobytes())
    return fingerprint(network.name.partition(":")[0], describe(network), digest.hexdigest())
