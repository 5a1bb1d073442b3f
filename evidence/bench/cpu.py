"""The CPU's table: vectorised mathematics, packed images, the exact neighbour search, and how its cost grows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from bomd.clean.graph import nearest_images
from bomd.clean.relabel import relabel
from bomd.data.augment import draw
from bomd.data.batches import Images
from bomd.data.datasets import phantom
from bomd.data.images import fit_square, read_image
from bomd.data.store import pack
from bomd.describe.ranking import ranking_loss
from bomd.files import read_array
from bomd.filling import filling
from bomd.models.export import export_onnx, open_onnx
from bomd.models.model import Model
from bomd.networks.backbone import build
from bomd.tables import Text
from evidence.bench import released, waiting
from evidence.bench.table import Row, forget_peak, median, peak_memory_mb, slope, stopwatch

IMAGES, CLASSES, NEIGHBOURS = 83_672, 14, 10  # the size of NIH in the paper
CPU = torch.device("cpu")


def mathematics(quick: bool = False) -> Iterator[Row]:
    """The ranking loss and re-labelling."""
    yield time_ranking(repeats=2 if quick else 15)
    yield time_relabel(2_000 if quick else IMAGES, 200 if quick else 2_000)


def training(quick: bool = False) -> Iterator[Row]:
    """Images, training and inference."""
    yield time_decoding(8 if quick else 200, 64 if quick else 1024)
    yield time_augmentation(640 if quick else 64_000)
    yield time_onnx(32 if quick else 224)


def neighbours(quick: bool = False) -> Iterator[Row]:
    """The exact search, and how its cost grows."""
    yield time_search(200 if quick else 20_000, 16 if quick else 1024)
    yield search_a_file(200 if quick else 20_000, 16 if quick else 1024, 1e-4 if quick else 0.1, CPU)
    yield from growth([50, 100] if quick else [1_250, 2_500, 5_000, 10_000, 20_000], 16 if quick else 256, CPU)


GROUPS: dict[str, Callable[[], Iterator[Row]]] = {
    "mathematics": mathematics,
    "training": training,
    "neighbours": neighbours,
    "threads": waiting.rows,
}
QUICK: dict[str, Callable[[], Iterator[Row]]] = {name: partial(group, quick=True) for name, group in GROUPS.items()}  # type: ignore[call-arg]


def time_ranking(batch: int = 64, count: int = 3, width: int = 1024, repeats: int = 15) -> Row:
    """Forward and backward of the ranking loss on one batch."""
    return ranking_row(batch, count, width, repeats, CPU, target=30)


def ranking_row(
    batch: int, count: int, width: int, repeats: int, device: torch.device, target: float | None = None
) -> Row:
    """The same on any device; the target is a ratio, stated as a time."""
    generator = torch.Generator().manual_seed(0)
    bags = torch.randn(batch, count, width, generator=generator).to(device).requires_grad_(True)
    words = torch.nn.functional.normalize(torch.randn(CLASSES, width, generator=generator), dim=1).to(device)
    labels = (torch.rand(batch, CLASSES, generator=generator) < 0.15).float()
    labels[:, 0] = 1 - labels[:, 1:].amax(dim=1)  # every image has at least one label
    labels = labels.to(device)

    def step(loss: Callable[[], Tensor]) -> float:
        bags.grad = None
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        return float(value.detach())

    def library() -> float:
        return step(lambda: ranking_loss(bags, words, labels).loss)

    def loop() -> float:
        return step(lambda: released.ranking_loss(bags, words, labels, beta=0.3))

    difference = abs(library() - loop()) / abs(loop())
    fast, slow = median(library, repeats), median(loop, max(1, repeats // 5))
    return Row(
        f"ranking loss, {batch} images",
        "ms",
        fast * 1e3,
        slow * 1e3,
        "one pair of classes at a time",
        target=None if target is None else slow * 1e3 / target,
        memory_mb=peak_memory_mb(device),
        remark=f"forward and backward; M={count}, D={width}, {CLASSES} classes; results differ by {difference:.0e}",
    )


def time_relabel(images: int, looped: int, repeats: int = 5) -> Row:
    """Re-labelling of every image from 10 neighbours."""
    generator = np.random.default_rng(0)
    labels = (generator.random((images, CLASSES)) < 0.1).astype(np.float32)
    neighbours = generator.integers(0, images, (images, NEIGHBOURS))
    everything = np.ones(images, dtype=np.bool_)
    fast = median(lambda: relabel(labels, neighbours, everything), repeats)
    slow = median(lambda: released.relabel(labels, neighbours[:looped]), 3) * images / looped
    expected = released.relabel(labels, neighbours[:looped])
    difference = float(np.abs(relabel(labels, neighbours, everything)[:looped] - expected).max())
    return Row(
        f"re-labelling, {images:,} images",
        "ms",
        fast * 1e3,
        slow * 1e3,
        "one image at a time",
        target=1000,
        memory_mb=peak_memory_mb(CPU),
        remark=f"the loop did {looped:,} images and is scaled up; results differ by at most {difference:.0e}",
    )


def time_decoding(count: int, size: int) -> Row:
    """Images for an epoch: decoded from PNG each time, or copied from the packed store."""
    with tempfile.TemporaryDirectory() as folder:
        table = phantom.read(count=count)
        places = []
        for name, pixels in zip(
            table.ids, phantom.render(table.ids[:8], size).numpy().repeat(count // 8 + 1, 0), strict=False
        ):
            places.append(Path(folder) / f"{name}.png")
            Image.fromarray(pixels).save(places[-1])
        small = min(size, 224)
        store = pack(table, Path(folder) / "store", small, render=_render)
        images, order = Images(store, store.ids, CPU), torch.randperm(count)
        slow = median(lambda: [fit_square(read_image(place), small) for place in places], 1)
        fast = median(lambda: [pixels for _, pixels in images.iterate(order, 64)], 5)
    return Row(
        f"images at {small} px from {size} px files",
        "images/s",
        count / fast,
        count / slow,
        "decoding the PNG each time",
        memory_mb=peak_memory_mb(CPU),
        remark="batches of 64 in random order from the packed store; the alternative on one core, as a loader's worker",
    )


def time_augmentation(count: int, batch: int = 64) -> Row:
    """The motions of an epoch, drawn at once and batch by batch."""
    at_once = median(lambda: draw(count, "light", torch.Generator().manual_seed(0)), 5)

    def piecewise() -> None:
        generator = torch.Generator().manual_seed(0)
        for _ in range(0, count, batch):
            draw(batch, "light", generator)

    return Row(
        f"drawing the augmentation of {count:,} images",
        "ms",
        at_once * 1e3,
        median(piecewise, 3) * 1e3,
        f"{batch} at a time",
        memory_mb=peak_memory_mb(CPU),
    )


def time_onnx(size: int, batch: int = 16) -> Row:
    """An exported model under onnxruntime."""
    model = Model((build("densenet121", CLASSES, weights="none", seed=0).eval(),), tuple("abcdefghijklmn"), size)
    pixels = np.random.default_rng(0).integers(0, 256, (batch, size, size), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        difference = export_onnx(model, path)
        session = open_onnx(path, torch.get_num_threads())
        fast = median(lambda: session.run(None, {"pixels": pixels}), 5)
    slow = median(lambda: model.probabilities(pixels), 5)
    return Row(
        f"DenseNet-121 as ONNX at {size} px",
        "images/s",
        batch / fast,
        batch / slow,
        "eager PyTorch",
        target=batch / slow,
        memory_mb=peak_memory_mb(CPU),
        remark=f"batches of {batch}; probabilities differ by at most {difference:.0e}",
    )


def time_search(count: int, width: int) -> Row:
    """All nearest images, exactly, against scikit-learn's search among all descriptors."""
    bags = descriptors(count, width)
    with stopwatch() as ours:
        found = nearest_images(bags, NEIGHBOURS, device="cpu")
    with stopwatch() as flat:
        expected = by_scikit_learn(bags, NEIGHBOURS)
    same = float((found.indices == expected).mean())
    operations = 2 * (3 * count) ** 2 * width
    return Row(
        f"nearest images, {count:,} x 3 x {width}",
        "s",
        ours(),
        flat(),
        "scikit-learn, brute force",
        floor=operations / _matrix_rate(),
        floor_is="operations of all distances at the measured float32 matrix rate",
        target=60,
        memory_mb=peak_memory_mb(CPU),
        remark=f"{same:.4%} of the neighbours are the same",
    )


def search_a_file(count: int, width: int, memory: float, device: torch.device) -> Row:
    """A file of descriptors as `bomd.stored` = "float16" keeps them, read within so many gigabytes."""
    bags = descriptors(count, width, device)
    with stopwatch() as resident:
        expected = nearest_images(bags, NEIGHBOURS, device=device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "descriptors.npy"
        with filling(path, tuple(bags.shape), "bench", "float16") as file:
            for part in torch.split(bags, 4096):
                file.add(part.cpu().numpy())
        del bags
        mapped = read_array(path, mapped=True)
        before = forget_peak(device)
        with stopwatch() as streamed:
            found = nearest_images(mapped, NEIGHBOURS, device=device, memory=memory)
        peak = peak_memory_mb(device) - before
    same = float(np.mean([np.isin(*pair).mean() for pair in zip(found.indices, expected.indices, strict=True)]))
    return Row(
        f"nearest images from a file, {count:,} x 3 x {width}", "s", streamed(), resident(), "float32 in memory",
        memory_mb=peak,
        remark=f"{1e-6 * mapped.nbytes:,.0f} MB as float16, {1e3 * memory:,.0f} MB granted to the search; "
        f"{same:.2%} of the neighbours are those of float32; the memory counts pages of the file",
    )  # fmt: skip


def by_scikit_learn(bags: Tensor, k: int) -> NDArray[np.int64]:
    """(N, k) nearest images from the nearest descriptors of each descriptor: k + 1 images' worth hold k others."""
    count, bag, width = bags.shape
    nodes = bags.reshape(-1, width).numpy()
    search = NearestNeighbors(n_neighbors=(k + 1) * bag, algorithm="brute").fit(nodes)
    distances, found = search.kneighbors(nodes)
    order = np.argsort(distances.reshape(count, -1), axis=1, kind="stable")
    images = np.take_along_axis(found.reshape(count, -1), order, axis=1) // bag
    return np.array([list(dict.fromkeys([row, *near]))[1 : k + 1] for row, near in enumerate(images.tolist())])


def growth(sizes: Sequence[int], width: int, device: torch.device) -> list[Row]:
    """Time and memory of the exact search for all images as their number doubles."""
    seconds, memory = [], []
    for count in sizes:
        bags = descriptors(count, width, device)
        nearest_images(bags[:64], NEIGHBOURS, device=device)
        before = forget_peak(device)
        with stopwatch() as elapsed:
            nearest_images(bags, NEIGHBOURS, device=device)
        seconds.append(elapsed())
        memory.append(peak_memory_mb(device) - before + bags.nbytes / 2**20)
    table = ", ".join(f"{n:,}: {s:.3g} s, {m:,.0f} MB" for n, s, m in zip(sizes, seconds, memory, strict=True))
    steps = f"{sizes[0]:,} to {sizes[-1]:,}"
    return [
        Row(f"growth of the search's time, {steps}", "slope", slope(sizes, seconds), remark=f"log-log; {table}"),
        Row(
            f"growth of the search's memory, {steps}",
            "slope",
            slope(sizes, memory),
            remark="log-log, same runs; descriptors and what the search adds to them",
        ),
    ]


def descriptors(count: int, width: int, device: torch.device = CPU) -> Tensor:
    """(count, 3, width) in clusters, as descriptors of images with labels are."""
    generator = torch.Generator(device).manual_seed(0)
    centres = torch.randn((64, width), generator=generator, device=device)
    places = torch.randint(0, 64, (count,), generator=generator, device=device)
    return torch.randn((count, 3, width), generator=generator, device=device) + centres[places][:, None]


def _render(ids: Text, size: int) -> NDArray[np.uint8]:
    return phantom.render(ids, size).numpy()


def _matrix_rate(size: int = 1024) -> float:
    """Operations a second of a large float32 product."""
    left, right = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 / median(lambda: left @ right, 5)
