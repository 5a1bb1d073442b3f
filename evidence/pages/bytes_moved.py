"""The part of docs/gpu.md about the bytes of a training step: counted, from the code, results/speed.csv and step.csv.

python -m evidence.pages.bytes_moved
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from bomd.files import write_text
from bomd.networks import dense
from evidence import DOCS
from evidence.bench import account, against
from evidence.bench.account import BATCH, FUSIONS, PASSES, SIZE
from evidence.bench.gpu import training_bytes
from evidence.pages import speed
from evidence.rows import read_rows

PAGE = DOCS / "gpu.md"
BEGIN, END = "<!-- bytes -->\n", "<!-- /bytes -->"
ASKED = 0.6  # of the floor


def main() -> None:
    write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), speed.read()))


def page(text: str, rows: Sequence[speed.Row]) -> str:
    """The page with its counted part made anew."""
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return f"{before}{BEGIN}{section(rows, read_rows(account.PROFILE))}\n{END}{after}"


def section(rows: Sequence[speed.Row], measured: Sequence[speed.Row]) -> str:
    """What the floor counts, what the code passes, where the time of a step went, and what fusions would save."""
    bandwidth, peak = (_measured(rows, item) for item in ("memory bandwidth", "bfloat16 matrix product"))
    rate = _measured(rows, f"training at {SIZE} px, batch {BATCH}", against.item(SIZE, BATCH))

    def milliseconds(of_one: float) -> float:
        return 1e3 * BATCH * of_one / (bandwidth * 1e9)

    step, floor = 1e3 * BATCH / rate, milliseconds(training_bytes(SIZE))
    passed = floor + milliseconds(account.bytes_beyond(SIZE) - account.bytes_of(account.DONE, SIZE))
    products = {what: 1e3 * BATCH * count / (peak * 1e12) for what, count in account.operations(SIZE).items()}
    saved = {fusion: milliseconds(account.bytes_of(fusion, SIZE)) for fusion in FUSIONS}
    by_products = sum(gain for fusion, gain in saved.items() if fusion.needs == account.OWN_PRODUCT)
    every = sum(saved.values())
    layers = []
    for one in PASSES:
        cells = " | ".join(str(getattr(one, kind) or "") for kind in account.KINDS)
        taken = milliseconds(account.bytes_of(one, SIZE))
        layers.append(f"| {'back: ' if one.backward else ''}{one.what} | {cells} | {taken:.2f} |")
    counts = " | ".join(str(account.passes_of(kind)) for kind in account.KINDS)
    whole = sum(milliseconds(account.bytes_of(one, SIZE)) for one in PASSES)
    gains = [
        f"| {fusion.what} | {fusion.needs} | {_passes(fusion)} | {gain:.2f} | {_after(step, gain, floor)} |"
        for fusion, gain in saved.items()
    ]
    opening = f"""A step of {BATCH} images at {SIZE} px takes {step:.1f} ms on an H200, and its floor is
        {floor / step:.0%} of that: {1e-9 * BATCH * training_bytes(SIZE):.0f} GB at {bandwidth:,.0f} GB/s take
        {floor:.1f} ms. A pass is one reading or writing of maps:"""
    columns, bottlenecks = account.passes_of("columns") + account.DONE.columns, account.passes_of("narrow")
    computing = ", ".join(f"{what} {taken:.1f}" for what, taken in products.items())
    explained = f"""The floor dates from when the last operation was two, with {account.DONE.columns} passes over
        columns between them. It is kept so that shares stay comparable. It has {columns} passes over columns,
        {bottlenecks} over bottlenecks and {account.STEM_PASSES} over the stem's maps; it leaves out those over grown
        maps, at the ends of blocks, and of the squares of pixels that the stem reads. All that the code passes would
        take {passed:.1f} ms at full bandwidth, {passed / step:.0%} of the step. In the other {step - passed:.1f} ms
        products and convolutions compute, or passes are slower than a copy. The operations alone would take
        {sum(products.values()):.1f} ms at the rate of a large product ({computing}), which is out of reach where the
        result has {dense.GROWTH} or {dense.BOTTLENECK} columns."""
    asked = floor / ASKED
    missing = f", {step - asked:.1f} ms less than now" if step > asked else ""
    judged = f"""{ASKED:.0%} of the floor would be {asked:.1f} ms{missing}. Each row would replace a library kernel by
        ours, and gains only if ours multiplies as fast. The one already replaced does, because its product adds up
        only {dense.BOTTLENECK} terms. A convolution has
        {9 * dense.GROWTH / dense.BOTTLENECK:.3g} times as many operations for each number that it reads. Recomputing
        what the first norm wrote would save memory, not time, as the columns are read again for it. Adding up the
        buffer's slopes for several layers at once would save some passes of the last operation, but a layer cannot go
        on before its grown maps have the sum of all later layers, and each of these has a mask of its own."""
    return "\n".join(
        [
            _filled(opening),
            "",
            "| a layer's operation | columns read | bottleneck | grown maps | ms |",
            "|---|---|---|---|---|",
            *layers,
            f"| **all layers** | {counts} | {whole:.2f} |",
            "",
            _filled(explained),
            "",
            *_profiled(account.kinds_of(measured), step, milliseconds),
            "What fewer passes would save at full bandwidth, and the rate if nothing else changed:",
            "",
            "| at once | needs | passes saved | ms | images/s | of the floor |",
            "|---|---|---|---|---|---|",
            *gains,
            f"| all of the products' | | | {by_products:.2f} | {_after(step, by_products, floor)} |",
            f"| all | | | {every:.2f} | {_after(step, every, floor)} |",
            "",
            _filled(judged),
        ]
    )


def _profiled(taken: dict[str, float], step: float, milliseconds: Callable[[float], float]) -> list[str]:
    """A table of what every kind of kernel took, beside what its bytes would at full bandwidth."""
    counted = {kind: milliseconds(count) for kind, count in account.bytes_by_kernel(SIZE).items()}
    lines = [
        f"| {kind.replace('_', ' ')} | {spent:.2f} | {f'{counted[kind]:.2f}' if kind in counted else ''} |"
        for kind, spent in taken.items()
    ]
    told = f"""Where a step's time goes, by `python -m evidence.bench.account --profile`
        ([results/step.csv](../results/step.csv)), beside what the bytes of these kernels would take at full bandwidth,
        ends of blocks and stem included. The slopes of weights are found beside the rest, so that kernels overlap and
        take longer than alone: {sum(taken.values()):.1f} ms in all, in a step of {step:.1f} ms. *other* is
        augmentation, the optimiser, losses and copies."""
    far = max((kind for kind in taken if kind in counted), key=lambda kind: taken[kind] - counted[kind], default="")
    known = (
        f"Farthest from their bytes are {far.replace('_', ' ')}, by {taken[far] - counted[far]:.1f} ms." if far else ""
    )
    table = ["| kernels | ms | bytes alone, ms |", "|---|---|---|", *lines]
    return [_filled(told), "", *table, "", _filled(known), ""] if taken else []


def _filled(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 118, break_on_hyphens=False, break_long_words=False)


def _passes(fusion: account.Fusion) -> str:
    return f"{fusion.columns} of columns" if fusion.columns else f"{fusion.narrow} of bottlenecks"


def _after(step: float, saved: float, floor: float) -> str:
    left = step - saved
    return f"{1e3 * BATCH / left:,.0f} | {floor / left:.0%}"


def _measured(rows: Sequence[speed.Row], *items: str) -> float:
    """What was measured of an item on a GPU; the newest where it has several names."""
    found = [row for row in rows if row["item"] in items and not row["device"].startswith("CPU")]
    return float(max(found, key=lambda row: row["date"])["ours"])


if __name__ == "__main__":
    main()
