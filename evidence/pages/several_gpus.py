"""The part of docs/speed.md about several GPUs: what exchanges should cost, counted, and what they did, measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bomd.networks import dense
from evidence import RESULTS
from evidence.bench.several_gpus import ALONE, ASKED, NAME
from evidence.rows import read_rows

PARAMETERS = 6_968_206  # of DenseNet-121 with 14 outputs
NORMS = 1 + sum(1 + 2 * layers for layers in dense.LAYERS)  # statistics of the stem, of what enters a block, of layers
LATENCY = 20e-6  # seconds that an exchange of a few kilobytes takes, whatever it holds
GROUPS = (2, 8)


@dataclass(frozen=True)
class Link:
    """What connects GPUs: bytes a second that each can send while it receives as many."""

    name: str
    rate: float


LINKS = (
    Link("NVLink of an H200, 450 GB/s", 450e9),
    Link("PCIe 5 x16, 64 GB/s", 64e9),
    Link("network, 200 Gbit/s", 25e9),
    Link("network, 10 Gbit/s", 1.25e9),
)


def seconds_of_gradients(count: int, rate: float, parameters: int = PARAMETERS, width: int = 4) -> float:
    """In a ring every process sends all gradients but its own share once to be added up, and once as a result."""
    return 2 * (count - 1) / count * parameters * width / rate


def efficiency(step: float, exchanged: float, exchanges: int) -> float:
    """Share of the rate that as many GPUs would have that exchange nothing, if nothing happens meanwhile."""
    return step / (step + exchanged + exchanges * LATENCY)


def section(step: float, step_is: str) -> str:
    """Expected and measured.

    Args:
        step: Seconds of a step in one process.
        step_is: Where they come from.
    """
    norms = 2 * NORMS
    opening = f"""### What exchanges should cost

A step exchanges the features of the batch, the gradients of all {PARAMETERS:,} parameters as one tensor once the
backward pass is through, and, with `device.whole_batch_norm`, mean and variance of each of {NORMS} sets of maps on the
way forward and two sums of each on the way back: {norms} exchanges of a few kilobytes. With `n` GPUs, `S` bytes of
gradients, `r` bytes a second, `k` exchanges and {LATENCY * 1e6:.0f} microseconds for each, a step of `t` seconds has

    efficiency = t / (t + 2 (n - 1) / n * S / r + k * {LATENCY * 1e6:.0f}e-6)

Counted for t = {step * 1e3:.1f} ms ({step_is}),
the nominal rates of links and an assumed {LATENCY * 1e6:.0f} microseconds. Gradients travel as float32; bfloat16 would
halve them, and is shown for comparison only."""
    titles = ("link", "GPUs", "gradients, float32", "efficiency, norms apart", "norms of the whole batch")
    lines = [f"| {' | '.join(titles)} | norms apart, bfloat16 |", "|---|---|---|---|---|---|"]
    for link in LINKS:
        for count in GROUPS:
            full, half = (seconds_of_gradients(count, link.rate, width=width) for width in (4, 2))
            cells = [efficiency(step, full, 2), efficiency(step, full, 2 + norms), efficiency(step, half, 2)]
            shares = " | ".join(f"{cell:.0%}" for cell in cells)
            lines.append(f"| {link.name} | {count} | {full * 1e3:.2f} ms | {shares} |")
    tables = list(measurements(read_rows(RESULTS / f"{NAME}.csv")))
    return "\n\n".join([opening, "\n".join(lines), *(tables or ["Several GPUs have not been tried."])])


def measurements(rows: Sequence[dict[str, str]]) -> Iterator[str]:
    """What was measured on a GPU, a table for each device."""
    for device in sorted({row["device"] for row in rows if not row["device"].startswith("CPU")}):
        own = [row for row in rows if row["device"] == device]
        yield f"""### What they cost on one {device}

Measured {own[0]["date"]}, torch {own[0]["torch"]}, by `python -m evidence.bench.several_gpus FOLDER`
([results/several-gpus.csv](../results/several-gpus.csv)). A group of one
process exchanges with itself over NCCL all that a larger group exchanges: no wire, but every call, copy and dependency
of a recorded step. Asked for were {ASKED:.0%} of the rate alone."""
        lines = ["| network | GPUs | way | images/s | of the rate alone | |", "|---|---|---|---|---|---|"]
        for row in own:
            asked = row["share"] and row["way"] != ALONE and "not recorded" not in row["way"]
            verdict = ("reached" if float(row["share"]) >= ASKED else "**missed**") if asked else ""
            network = f"{row['backbone']}, {row['size']} px, batch {row['batch']}"
            share = f"{float(row['share']):.1%}" if row["share"] else ""
            rate = f"{float(row['images_per_second']):,.0f}"
            lines.append(f"| {network} | {row['processes']} | {row['way']} | {rate} | {share} | {verdict} |")
        yield "\n".join(lines)
        yield from _lost(own)


def _lost(rows: Sequence[dict[str, str]]) -> Iterator[str]:
    """By how much a group's step was too slow; as steps become shorter, the same exchanges are a larger share."""
    for row in rows:
        if row["way"] == "group" and row["share"] and float(row["share"]) < ASKED:
            step = 1e3 * int(row["processes"]) * int(row["batch"]) / float(row["images_per_second"])
            alone = step * float(row["share"])
            yield (
                f"A step of {row['backbone']} takes {alone:.2f} ms alone and {step - alone:.2f} ms more in a group: "
                f"too much by {step - alone / ASKED:.2f} ms."
            )


def step_alone(timings: Sequence[dict[str, str]]) -> tuple[float, str]:
    """Seconds of a step of DenseNet-121 in one process, and where they come from: its own record, or `speed.csv`."""
    for row in read_rows(RESULTS / f"{NAME}.csv"):
        if row["backbone"] == "densenet121" and row["way"] == ALONE and not row["device"].startswith("CPU"):
            seconds = int(row["batch"]) / float(row["images_per_second"])
            return seconds, f"{row['batch']} images at {row['size']} px on one {row['device']}, measured below"
    (row,) = [row for row in timings if row["item"] == "training at 224 px, batch 128"]
    return 128 / float(row["ours"]), f"128 images at 224 px on one {row['device']}, measured above"
