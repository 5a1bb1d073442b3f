"""Which bytes a training step of DenseNet-121 moves, pass by pass, and what fewer passes would bring.

    python -m evidence.bench.account                # counted
    python -m evidence.bench.account --profile      # on a GPU: where the time of a step goes, into results/step.csv

A pass is one reading or writing of maps, which are bfloat16. A layer of a dense block has three kinds of maps: the
`columns` of the block's buffer that it reads, its `narrow` bottleneck of 128, and the 32 that it has `grown`.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bomd.files import write_text
from bomd.networks import dense
from bomd.reports.sheet import rows_to_csv
from evidence import RESULTS

PROFILE = RESULTS / "step.csv"
WIDTH = 2  # bytes of a number
SIZE, BATCH = 512, 64
KINDS = ("columns", "narrow", "grown")
STEM_PASSES = 11  # of its maps; those of a quarter of the pixels are counted as parts
SQUARES = 48 / 64  # of a pass over the stem's maps: squares of pixels that its convolution reads


@dataclass(frozen=True)
class Pass:
    """What one operation of a layer reads and writes, in passes over each kind of map.

    Attributes:
        by: The function of `bomd.kernels.columns` that does it, or "product" or "convolution".
    """

    backward: bool
    what: str
    by: str
    columns: int = 0
    narrow: int = 0
    grown: int = 0


PASSES = (
    Pass(
        False, "newest maps normalised into the buffer; first norm and ReLU of all columns, written out",
        "normalise_and_scale", columns=2, grown=1,
    ),
    Pass(False, "1 x 1 product", "product", columns=1, narrow=1),
    Pass(False, "statistics of the bottleneck", "statistics", narrow=1),
    Pass(False, "second norm and ReLU, written out", "scale", narrow=2),
    Pass(False, "3 x 3 convolution", "convolution", narrow=1, grown=1),
    Pass(False, "statistics of the grown maps", "statistics", grown=1),
    Pass(True, "through the norm of the grown maps", "back_through_normalised", grown=3),
    Pass(True, "3 x 3 convolution: slopes of its input, and of its weights", "convolution", narrow=2, grown=2),
    Pass(True, "through the second norm and ReLU: sums, then slopes", "back_through_norm", narrow=5),
    Pass(True, "1 x 1 product: slopes of its weights", "product", columns=1, narrow=1),
    Pass(
        True, "1 x 1 product: slopes of its input, through the first norm and ReLU, added to the buffer's slopes",
        "back_through_product", columns=3, narrow=1,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Fusion:
    """Operations that could be one, and the passes that this saves."""

    what: str
    needs: str
    columns: int = 0
    narrow: int = 0


# What the floor counts apart, as it was when the floor was drawn up: the product wrote the slopes of its input, which
# were read again on the way through the norm before it.
DONE = Fusion("through the first norm where the 1 x 1 product has its input's slopes", "", 2)
OWN_PRODUCT, OWN_CONVOLUTION = "1 x 1 products of our own", "3 x 3 convolutions of our own"
FUSIONS = (
    Fusion("first norm and ReLU where the 1 x 1 product loads its input, forward and for its weights", OWN_PRODUCT, 2),
    Fusion("both backward products in one, which then reads the buffer once", OWN_PRODUCT, 1),
    Fusion("statistics of the bottleneck where the 1 x 1 product writes it", OWN_PRODUCT, narrow=1),
    Fusion("second norm and ReLU where the convolution loads its input", OWN_CONVOLUTION, narrow=2),
    Fusion("sums of the second norm where the convolution has its input's slopes", OWN_CONVOLUTION, narrow=2),
)


def elements(size: int) -> dict[str, int]:
    """Numbers of one pass over the maps of each kind, of all layers, for an image."""
    found = dict.fromkeys(KINDS, 0)
    for pixels, first, layers in blocks(size):
        for place in range(layers):
            found["columns"] += (first + dense.GROWTH * place) * pixels
        found["narrow"] += dense.BOTTLENECK * layers * pixels
        found["grown"] += dense.GROWTH * layers * pixels
    return found


def blocks(size: int) -> list[tuple[int, int, int]]:
    """Pixels, columns at the start and layers of each dense block."""
    pixels, first, found = (size // 4) ** 2, dense.STEM, []
    for layers in dense.LAYERS:
        found.append((pixels, first, layers))
        pixels, first = pixels // 4, (first + dense.GROWTH * layers) // 2
    return found


def ends(size: int) -> float:
    """Numbers that go in and out of blocks, for an image: the input's norm, the output's, and the product between.

    Inputs are passed five times: statistics, normalised, and back through that (3). The last layer's grown maps have no
    layer behind them that would normalise them on its way, and are read once more. Outputs are read and, averaged,
    written as a quarter; the way back reads a quarter and the output, and writes its slopes. The product between blocks
    passes its quarters and its own output three times each.
    """
    total, every = 0.0, blocks(size)
    for number, (pixels, first, layers) in enumerate(every):
        last = first + dense.GROWTH * layers
        final = number == len(every) - 1
        total += (5 * first + dense.GROWTH) * pixels + (5 if final else 3.5) * last * pixels
        total += 0 if final else 3 * (last + last // 2) * pixels / 4
    return total


def passes_of(kind: str, among: Sequence[Pass | Fusion] = PASSES) -> int:
    """How often maps of a kind are passed."""
    return sum(getattr(one, kind, 0) for one in among)


def bytes_of(passes: Pass | Fusion, size: int = SIZE) -> float:
    """Of an image."""
    one = elements(size)
    return WIDTH * sum(getattr(passes, kind, 0) * one[kind] for kind in KINDS)


def bytes_beyond(size: int = SIZE) -> float:
    """Of an image: what the floor of `evidence.bench.gpu.training_bytes` leaves out.

    Grown maps, ends of blocks, and squares of pixels, which are written once and read twice.
    """
    squares = 3 * SQUARES * dense.STEM * (size // 2) ** 2
    return WIDTH * (passes_of("grown") * elements(size)["grown"] + ends(size) + squares)


def bytes_by_kernel(size: int = SIZE) -> dict[str, float]:
    """Of an image: what the kernels of each kind read and write, ends of blocks and the stem included."""
    found: defaultdict[str, float] = defaultdict(float)
    one = elements(size)
    for each in PASSES:
        found[each.by] += sum(getattr(each, kind) * one[kind] for kind in KINDS)
    every = blocks(size)
    for number, (pixels, first, layers) in enumerate(every):
        given, last, final = first * pixels, (first + dense.GROWTH * layers) * pixels, number == len(every) - 1
        found["statistics"] += given
        # Grown maps of the last layer are passed twice where those of the others are, in turn, by a layer behind them.
        found["normalise_and_scale"] += given - dense.GROWTH * pixels
        found["scale"] += 2 * dense.GROWTH * pixels + (2 * last if final else 0)
        found["back_through_normalised"] += 3 * given
        found["back_through_scale"] += last * (3 if final else 2.25)
        found["scale_and_average"] += 0 if final else last * 1.25
        found["product"] += 0 if final else 3 * (last + last // 2) / 4
    stem = dense.STEM * (size // 2) ** 2
    found["gather_squares"] = SQUARES * stem  # the images that it reads are small beside them
    found["convolution"] += (2 + 2 * SQUARES) * stem  # written, and its slopes read; its squares for either
    found["statistics"] += stem
    found["take_largest"] = found["back_to_largest"] = 1.375 * stem  # a quarter of the pixels, and bytes that say which
    found["back_through_norm"] += 5 * stem
    found["norm_sums"] = found["back_through_norm"] * 2 / 5
    # The same kernel, once the sums are known.
    found["back_through_norm"] = found["back_through_norm"] * 3 / 5 + found.pop("back_through_normalised")
    named = {"convolution": "convolutions", "product": "products", "statistics": "moments"}
    return {named.get(what, what): WIDTH * count for what, count in found.items()}


def operations(size: int = SIZE) -> dict[str, float]:
    """Of an image, forward and both backward products; a multiplication and an addition are two."""
    one, between = elements(size), 0.0
    for pixels, first, layers in blocks(size)[:-1]:
        last = first + dense.GROWTH * layers
        between += last * last / 2 * pixels / 4
    return {
        "1 x 1 products": 6 * one["columns"] * dense.BOTTLENECK + 6 * between,
        "3 x 3 convolutions": 6 * 9 * one["narrow"] * dense.GROWTH,
        "stem": 4 * 49 * 3 * dense.STEM * (size // 2) ** 2,
    }


def profile(steps: int = 30) -> list[dict[str, str]]:
    """Milliseconds of a training step in each kernel, on a GPU, the longest first; an earlier fit chose algorithms."""
    import tempfile

    import torch
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    from bomd.config import DeviceSettings, FitSettings
    from bomd.learn.engine import fit
    from bomd.methods.bce import Bce
    from bomd.networks.device import make_fabric
    from evidence.bench.cpu import CLASSES
    from evidence.bench.gpu import DEVICE, generated

    settings = FitSettings(weights="none", epochs=1, batch=BATCH, augment="paper", rate=1e-4, eps=1e-8)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        labels, shown = generated(BATCH * steps, SIZE, place / "images", DEVICE)

        def train(name: str) -> None:
            fit(
                Bce(), shown, labels.values, settings, outputs=CLASSES, fabric=make_fabric(DeviceSettings()), seed=0,
                directory=place / name, what=name,
            )  # fmt: skip
            torch.cuda.synchronize()

        train("first")
        with profiled(activities=[ProfilerActivity.CUDA]) as seen:
            train("profiled")
    device = {"device": torch.cuda.get_device_name(), "torch": torch.__version__.split("+")[0]}
    rows = [
        {
            **device, "kind": kernel_kind(event.key), "kernel": event.key[:120], "calls": f"{event.count / steps:.1f}",
            "milliseconds": f"{event.self_device_time_total / 1e3 / steps:.3f}",
        }
        for event in seen.key_averages()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -float(row["milliseconds"]))


def kinds_of(rows: Sequence[dict[str, str]]) -> dict[str, float]:
    """Milliseconds of each kind of kernel."""
    found: dict[str, float] = {}
    for row in rows:
        found[row["kind"]] = found.get(row["kind"], 0.0) + float(row["milliseconds"])
    return dict(sorted(found.items(), key=lambda item: -item[1]))


OURS = {
    "scale", "normalise_and_scale", "scale_and_average", "moments", "join_moments", "norm_sums", "back_through_norm",
    "back_through_scale", "back_through_product", "take_largest", "back_to_largest", "gather_squares",
}  # fmt: skip


def kernel_kind(name: str) -> str:
    """What a kernel does, by its name: ours by theirs, products and convolutions by what libraries call them."""
    if name in OURS:
        return name
    if any(word in name for word in ("wgrad", "dgrad", "fprop", "conv", "implicit")):
        return "convolutions"
    return "products" if any(word in name for word in ("gemm", "nvjet", "cutlass")) else "other"


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m evidence.bench.account", description=__doc__)
    parser.add_argument("--profile", action="store_true", help="where the time goes, on a GPU")
    parser.add_argument("--results", type=Path, default=PROFILE, help="where the profile goes")
    chosen = parser.parse_args(given)
    if chosen.profile:
        rows = profile()
        write_text(chosen.results, rows_to_csv([row for row in rows if float(row["milliseconds"]) > 0]))
        for kind, milliseconds in kinds_of(rows).items():
            print(f"{milliseconds:8.3f} ms  {kind}")
        return
    for one in PASSES:
        print(f"{bytes_of(one) / 1e6:8.1f} MB  {'backward' if one.backward else 'forward '}  {one.what}")
    print(f"{bytes_beyond() / 1e6:8.1f} MB  beyond the floor, of which grown maps are above")
    for what, count in operations().items():
        print(f"{count / 1e9:8.1f} GFLOP  {what}")


if __name__ == "__main__":
    main()
