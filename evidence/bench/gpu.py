"""The GPU's table: training and inference on a packed store as large as NIH, the neighbour search, and its growth."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bomd.clean.graph import nearest_images
from bomd.config import DeviceSettings, FitSettings, parse
from bomd.data.batches import Images
from bomd.data.datasets import phantom
from bomd.data.store import pack
from bomd.experiments import experiment
from bomd.learn.engine import fit, predict
from bomd.methods import METHODS
from bomd.methods.bce import Bce
from bomd.networks import dense
from bomd.networks.backbone import build
from bomd.networks.device import make_fabric
from bomd.tables import LabelTable, Text
from evidence.bench import released
from evidence.bench.cpu import CLASSES, IMAGES, NEIGHBOURS, descriptors, growth, ranking_row, search_a_file
from evidence.bench.table import Row, median, peak_memory_mb, stopwatch

PLAIN = DeviceSettings(precision="32-true", kernels=False, graphs=False, fused=False)
EPOCHS = (20, 30)  # of descriptors and classifier in the paper
DEVICE = torch.device("cuda")


def ceilings() -> Iterator[Row]:
    """What memory and arithmetic can do at best."""
    yield bandwidth(DEVICE)
    yield matrix_rate(DEVICE)


def mathematics(images: int = IMAGES) -> Iterator[Row]:
    """Neighbours and the ranking loss."""
    yield time_search(images, DEVICE)
    yield ranking_row(64, 3, 1024, 15, DEVICE)


def training(images: int = IMAGES, steps: int = 100) -> Iterator[Row]:
    """Training and inference on a packed store of generated images."""
    speed = bandwidth(DEVICE).ours * 1e9
    with tempfile.TemporaryDirectory(dir=_memory_disk()) as folder:
        place = Path(folder)
        table, shown = generated(images, 512, place / "large", DEVICE)
        measure = Training(table, shown, speed, place)
        large = measure.row(64, steps, target=900, plain_steps=steps // 5)
        yield large
        yield measure.row(16, 2 * steps, target=650, plain_steps=steps // 2)
        inference = time_inference(shown, min(images, 10_000))
        yield inference
        yield time_one_image(shown.size)
        total = sum(EPOCHS) * IMAGES / large.ours + IMAGES / inference.ours + time_search(IMAGES, DEVICE).ours
        yield Row(
            "all of NIH at 512 px, batch 64, projected", "minutes", total / 60, 23 * 60, "the paper on an RTX 3090",
            target=80,
            remark=f"{EPOCHS[0]} + {EPOCHS[1]} epochs of {IMAGES:,} images at the rate measured above, "
            "then descriptors of all images and neighbours",
        )  # fmt: skip
        del shown, measure
        table, shown = generated(images, 224, place / "small", DEVICE)
        yield Training(table, shown, speed, place).row(128, steps, target=4_000)


def run(images: int = 20_000) -> Iterator[Row]:
    """The whole command."""
    with tempfile.TemporaryDirectory(dir=_memory_disk()) as folder:
        yield whole_run(images, Path(folder))


def doubling(sizes: Sequence[int] = (10_000, 20_000, 40_000, 80_000, 160_000)) -> Iterator[Row]:
    """How the search's cost grows."""
    yield from growth(sizes, 1024, DEVICE)


def disk(images: int = 250_000, memory: float = 4.0) -> Iterator[Row]:
    """The search among descriptors that the GPU may not hold."""
    yield search_a_file(images, 1024, memory, DEVICE)


GROUPS: dict[str, Callable[[], Iterator[Row]]] = {
    "ceilings": ceilings,
    "mathematics": mathematics,
    "training": training,
    "run": run,
    "growth": doubling,
    "disk": disk,
}
QUICK: dict[str, Callable[[], Iterator[Row]]] = {
    "ceilings": ceilings,
    "mathematics": lambda: mathematics(2_000),
    "training": lambda: training(2_000, 10),
    "run": lambda: run(500),
    "growth": lambda: doubling((1_000, 2_000)),
    "disk": lambda: disk(2_000, 0.02),
}


def bandwidth(device: torch.device) -> Row:
    """What copying reaches, reads and writes counted: the ceiling for everything bound by memory."""
    source = torch.randn(2**30, device=device)
    target = torch.empty_like(source)
    seconds = median(lambda: target.copy_(source), 5)
    return Row("memory bandwidth", "GB/s", 2 * source.nbytes / seconds / 1e9, remark="copy of 4 GiB")


def matrix_rate(device: torch.device) -> Row:
    """What a large bfloat16 product reaches: the ceiling for everything bound by arithmetic."""
    left, right = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))
    seconds = median(lambda: left @ right, 10)
    return Row("bfloat16 matrix product", "TFLOP/s", 2 * 8192**3 / seconds / 1e12, remark="8192 x 8192 x 8192")


def generated(count: int, size: int, folder: Path, device: torch.device) -> tuple[LabelTable, Images]:
    """A packed store of generated images: phantoms drawn at 128 px and enlarged, since nobody looks at them."""
    table = phantom.read(count=count)
    return table, Images(pack(table, folder, size, render=_enlarged), table.ids, device)


def _enlarged(ids: Text, side: int) -> NDArray[np.uint8]:
    small = phantom.render(ids, min(side, 128), device="cuda")
    large = torch.nn.functional.interpolate(small[:, None].float(), side, mode="bilinear")[:, 0]
    return large.clamp(0, 255).byte().cpu().numpy()


@dataclass(frozen=True)
class Training:
    """`fit` as every run calls it: order, augmentation, forward, backward, optimiser, checkpoint."""

    table: LabelTable
    images: Images
    bytes_per_second: float
    folder: Path

    def row(self, batch: int, steps: int, target: float, plain_steps: int = 0) -> Row:
        """Images a second; against PyTorch's own layers, step by step in float32, where `plain_steps` are given."""
        torch.cuda.reset_peak_memory_stats()
        steps = min(steps, len(self.table) // batch)
        ours = self._rate(batch, steps, DeviceSettings())
        memory = peak_memory_mb(DEVICE) - self.images.resident * len(self.images) * self.images.size**2 / 2**20
        return Row(
            f"training at {self.images.size} px, batch {batch}", "images/s", ours,
            self._rate(batch, plain_steps, PLAIN) if plain_steps else None,
            "eager, float32, PyTorch's layers and defaults" if plain_steps else "",
            floor=self.bytes_per_second / training_bytes(self.images.size),
            floor_is="bytes of all maps that have to be read and written, at the measured bandwidth",
            target=target, memory_mb=memory,
            remark=f"DenseNet-121 with augmentation; second epoch of {steps} steps on a resident store of "
            f"{len(self.table):,} images, which the memory does not count",
        )  # fmt: skip

    def _rate(self, batch: int, steps: int, device: DeviceSettings) -> float:
        """In the second epoch; the first pays for algorithms being chosen and steps recorded."""
        settings = FitSettings(weights="none", epochs=2, batch=batch, augment="paper", rate=1e-4, eps=1e-8)
        count = steps * batch
        _, history = fit(
            Bce(), self.images, self.table.values[:count], settings, outputs=CLASSES, fabric=make_fabric(device),
            seed=0, directory=self.folder / f"{batch}-{device.graphs}-{self.images.size}", what="bench",
        )  # fmt: skip
        return count / float(history[-1]["seconds"])


def whole_run(count: int, folder: Path, size: int = 224) -> Row:
    """`bomd run` itself, from drawing the images to metrics."""
    config = parse(
        {
            "name": "bench", "method": "bomd", "validation": 0.0, "images": {"size": size},
            "train": {"dataset": "phantom", "count": count},
            "test": {"south": {"dataset": "phantom", "hospital": "south", "split": "test", "count": 1000}},
            "noise": {"kind": "symmetric", "rows": 0.4, "labels": 0.4},
            "fit": {"weights": "none", "epochs": 1, "batch": 128, "rate": 1e-4, "eps": 1e-8},
            "bomd": {"epochs": 1, "batch": 128},
        },
        METHODS,
    )  # fmt: skip
    with stopwatch() as elapsed:
        done = experiment.run(config, folder / "runs")
    trained = done.result()["seconds"]
    return Row(
        f"bomd run at {size} px, 1 + 1 epochs of {count:,} images", "s", elapsed(),
        remark=f"{trained:.0f} s of it in the two trainings, which begin with choosing algorithms and recording; the "
        "rest is drawing and packing images, descriptors of all images, neighbours, re-labelling, testing and writing",
    )  # fmt: skip


def training_bytes(size: int) -> float:
    """Bytes that a training step of DenseNet-121 has to move for an image, in bfloat16, each map as often as it must.

    Per layer, with its input's C columns and the bottleneck's 128: the input is read to be scaled, written, read by
    the product, and in the backward pass read for the weights' gradient, written as its own gradient, and read twice
    and written once where gradients are added up; the bottleneck's maps are passed fourteen times. The stem's maps are
    passed eleven times.
    """
    pixels, width, columns, narrow = (size // 4) ** 2, dense.STEM, 0.0, 0.0
    stem = 11 * dense.STEM * (size // 2) ** 2
    for layers in dense.LAYERS:
        for place in range(layers):
            columns += 9 * (width + dense.GROWTH * place) * pixels
            narrow += 14 * dense.BOTTLENECK * pixels
        width = (width + dense.GROWTH * layers) // 2
        pixels //= 4
    return 2 * (stem + columns + narrow)


def time_inference(images: Images, count: int) -> Row:
    """`predict` over a store, as `bomd predict` on a folder does after packing it."""
    fabric = make_fabric(DeviceSettings())
    network = build("densenet121", CLASSES, weights="none", seed=0).place(fabric).eval()
    size, images = images.size, images.take(slice(count))
    torch.cuda.reset_peak_memory_stats()
    seconds = median(lambda: predict(Bce(), [network], images), 2)
    return Row(
        f"inference at {size} px", "images/s", count / seconds, target=1_800,
        memory_mb=peak_memory_mb(DEVICE),
        remark=f"{count:,} images of a resident store, which the memory counts, in batches of 256",
    )  # fmt: skip


def time_one_image(size: int) -> Row:
    """One image through a recorded forward pass."""
    fabric = make_fabric(DeviceSettings())
    network = build("densenet121", CLASSES, weights="none", seed=0).place(fabric).eval()
    image = torch.randn(1, 3, size, size, device=fabric.device).contiguous(memory_format=torch.channels_last)

    def forward() -> Tensor:
        with torch.no_grad():
            logits: Tensor = network(image)
            return logits

    slow = median(forward, 10)
    with _recorded(forward) as graph:
        fast = median(graph.replay, 50)
    return Row(f"one image at {size} px", "ms", fast * 1e3, slow * 1e3, "without a recorded pass", target=3.0)


@contextmanager
def _recorded(action: object) -> Iterator[torch.cuda.CUDAGraph]:
    assert callable(action)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        action()
    yield graph


def time_search(count: int, device: torch.device, width: int = 1024, looped: int = 100) -> Row:
    """Nearest images of all images; the released shape on some rows, scaled up."""
    bags = descriptors(count, width, device)
    nearest_images(bags[:3000], NEIGHBOURS)
    torch.cuda.reset_peak_memory_stats()
    with stopwatch() as elapsed:
        found = nearest_images(bags, NEIGHBOURS)
    memory = peak_memory_mb(device)
    some = np.arange(0, count, max(1, count // 1000))
    same = float((found.indices[some] == by_difference(bags, some)).mean())
    loop = median(lambda: released.neighbours_by_rank_sum(bags, range(looped)), 1) * count / looped
    rate = matrix_rate(device).ours * 1e12
    return Row(
        f"nearest images, {count:,} x 3 x {width}", "s", elapsed(), loop, "rank sums of one image at a time",
        floor=2 * (3 * count) ** 2 * width / rate, floor_is="operations of all distances at the measured bfloat16 rate",
        target=1.0, memory_mb=memory,
        remark=f"{same:.4%} of {len(some)} rows' neighbours are those by difference in float64; "
        f"the loop did {looped} images and is scaled up",
    )  # fmt: skip


def by_difference(bags: Tensor, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The neighbours of a few rows from all distances in float64; equal ones in any order."""
    flat, found = bags.flatten(0, 1).double(), []
    for row in rows:
        apart = torch.cdist(bags[row].double(), flat, compute_mode="donot_use_mm_for_euclid_dist")
        closest = apart.view(bags.shape[1], -1, bags.shape[1]).amin(dim=(0, 2)).float()
        closest[row] = torch.inf
        found.append(closest.topk(NEIGHBOURS, largest=False).indices)
    return torch.stack(found).cpu().numpy()


def _memory_disk() -> str | None:
    """Where files do not wait for a disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
