"""Write docs/large-sets.md from results/scale.csv; every number that was measured comes from there.

python -m evidence.pages.scale
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence

from bomd.files import write_text
from bomd.methods.nearest import LOOKED_AT
from evidence import DOCS, RESULTS
from evidence.studies.scale import STEPS

PAGE, MEASURED = DOCS / "large-sets.md", RESULTS / "scale.csv"
MILLION = 1_000_000
SIDES = (64, 224, 512)
DESCRIBED = (3, 384)  # descriptors of an image and numbers in each, as `bomd` has them with the vectors that it ships

Row = dict[str, str]

OPENING = f"""# A million images

Nothing here needs another way of working: `bomd run`, `bomd predict` and `bomd audit` read a set of any size in the
same way. What changes is that packing is worth sharing among processes, and that some files are better not read whole.

## Pack it with many processes

Every process packs a share of the images into a shard of its own; shards are then joined by an index. No pixel is
copied, and what comes out is the same, to the fingerprint, as what one process would pack: all other commands find it.

```bash
#!/bin/bash
#SBATCH --array=1-64 --cpus-per-task=4 --time=04:00:00
bomd prepare folder --root /data/scans --size 224 -o /data/runs/stages --shard $SLURM_ARRAY_TASK_ID/64
```

And when all have ended:

```bash
bomd prepare folder --root /data/scans --size 224 -o /data/runs/stages --join
bomd run scans.toml --runs /data/runs
```

Without a cluster, `for n in 1 2 3 4; do bomd prepare … --shard $n/4 & done; wait` does the same; one process uses all
cores to decode files by itself, so that this helps where images are drawn, or lie on several disks.

- The root is to be spelled as in the recipe: `data/scans` and `/data/scans` are two packed sets, even of one folder.
- The order does not matter, and a shard that is done is not packed again. One that was killed goes on where it stopped.
- `--join` reads every packed image once and compares it with its checksum, compares every source file with what it was
  when it was packed, and names, in one line, the shards that are missing, unfinished, damaged or of changed files.
- An unreadable image stops its shard alone; `--skip-broken`, given to all shards and to `--join`, leaves it out and
  lists it.
- `bomd run` refuses to pack for days what lies there in shards that nobody joined, and says so.
- At most 512 shards; each is an open file of whoever reads the images.

Every run that opens a packed set compares all checksums once, which reads all its bytes.

## What stays on disk

| what | how it is read and written |
|---|---|
| packed images | mapped; a batch is gathered while the last one is learnt from. A GPU keeps them if they fit. |
| descriptors of `bomd` | written to disk batch by batch, so that an interruption costs ten seconds at most, then mapped; scores and the search read them in blocks. `bomd.stored = "float16"` halves the file. |
| `bomd audit --features FILE.npy` | mapped; the heads are fitted on 50,000 images at most and score the rest in blocks. A `.npz` is read whole. |
| `bomd audit --backbone` | features are written in the same way, and then mapped |
| nearest images | kept about every minute while they are found, so that an interrupted search goes on, and found again by later runs on the same descriptors; several processes share a search |
| those that an audit shows | of the first {LOOKED_AT:,} images in the order of review, among all: for every image it would be the square of their number, and nobody looks at so many |
| what judges say in `bomd-plus` | logits, and features where an audit shows neighbours; written in the same way, and then mapped |
| `bomd predict -o FILE.csv` | every line is written when its image is predicted; JSON and tables are put together in memory. Until all is written, 64 images at a time are kept in `FILE.csv.part`, so that an interruption costs no more than these. |
| `labels_clean.csv` | line by line |
| `bomd convert` | to Label Studio, CVAT, FiftyOne and image folders image by image; other tables, and whatever is read, are put together in memory |

In memory are the labels, what is thought of each of them, and the names of the images, whatever the size of these. Tests
let packing, reading and the heads run under a limit of memory that the data exceed; the search has a limit of its own."""

SLOPES = """## How time and memory grow

The exponent is the slope of a line through all sizes in a plot of logarithms: 1 is proportional to the number of images,
2 to its square. Start-up time makes the exponent look too small on small sets, so the last doubling is shown too. Where
the last two sizes are further apart, it is the average per doubling. Memory is what the system cannot drop, of all
processes of a step together: what is imported takes most of it here. On small sets, search blocks and decoding processes
are still filling up. Do not multiply memory per image by a million. The search for the nearest images grows with the
square, which the last doubling of *train* shows where it is far above 2."""

PLAN = """## The plan for a million

On paper; what was run is in the tables above. `N` images of side `s`, `C` classes:

| what | bytes | for {million:,} images |
|---|---|---|
{bytes}

| what | hours | with |
|---|---|---|
| pack | `N · t / (3600 · processes)` | `t` seconds to read and resize one image by one core: divide the time of the first shard by its images |
| join, and each start of a run | `N · s² / (3600 · rate)` | bytes a second that the disk reads |
| train | `N · passes / (3600 · rate)` | images a second, as [speed](speed.md) has them; a pass for every epoch of descriptors and classifier |
| describe, predict | `N / (3600 · rate)` | images a second in inference, likewise |
| search | `suspects · N · M² · D · 2 / (3600 · rate)` | operations a second; descriptors that do not fit on the GPU are streamed past it |

{known} [Speed](speed.md) has what a search in a file of float16 takes, and how many neighbours the rounding changes."""


def main() -> None:
    write_text(PAGE, page(read()))


def read() -> list[Row]:
    with MEASURED.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def page(rows: Sequence[Row]) -> str:
    """The whole page."""
    parts = [OPENING, SLOPES]
    for device, size in dict.fromkeys((row["device"], row["size"]) for row in rows):
        own = [row for row in rows if (row["device"], row["size"]) == (device, size)]
        counts = sorted({int(row["images"]) for row in own})
        name = "a CPU" if device == "cpu" else f"{device} and a CPU"
        span = f"{counts[0]:,} {'and' if len(counts) == 2 else 'to'} {counts[-1]:,}" if counts[1:] else f"{counts[0]:,}"
        about = f"{span} phantoms at {size} px, {own[0]['cores']} cores, seed {own[0]['seed']}."
        parts.append(f"### {counts[-1]:,} on {name}\n\n{about}")
        if device != "cpu":
            parts.append(times([row for row in own if int(row["images"]) == counts[-1]]))
        if len(counts) > 1:
            parts.append(slopes(own))
    return "\n\n".join([*parts, PLAN.format(million=MILLION, bytes=_bytes(), known=known(rows))]) + "\n"


def known(rows: Sequence[Row]) -> str:
    """Which steps have been run with a million images, and which have not."""
    done = {row["step"] for row in rows if int(row["images"]) >= MILLION}
    if not done:
        return "What is not known: no run of a million has been made."
    listed, missing = (", ".join(step for step in STEPS if (step in done) == there) for there in (True, False))
    return f"Run with a million images: {listed}." + (f" Not run with so many: {missing}." if missing else "")


def slopes(rows: Sequence[Row]) -> str:
    """How time and memory grow with the images: Markdown, without times, which say nothing about another CPU."""
    lines = [
        "| step | exponent of time | last doubling | least memory | most memory | more for each image |",
        "|---|---|---|---|---|---|",
    ]
    notes = []
    for step in STEPS:
        own = [row for row in rows if row["step"] == step and not row.get("resumed")]
        if len(own) < 2:
            continue
        own.sort(key=lambda row: int(row["images"]))
        times = [float(row["seconds"] or row["time_ratio"]) for row in own]
        peaks = [float(row["peak_mb"]) for row in own]
        images = [int(row["images"]) for row in own]
        doubling = 2 ** (math.log(times[-1] / times[-2]) / math.log(images[-1] / images[-2]))  # of any last step
        cells = [f"{exponent(images, times):.2f}", f"{doubling:.2f} x"]
        each = (peaks[-1] - peaks[0]) * 1024 / (images[-1] - images[0])
        cells += [f"{peaks[0]:,.0f} MB", f"{peaks[-1]:,.0f} MB", f"{each:.1f} kB"]
        lines.append(f"| {step} | {' | '.join(cells)} |")
        notes += [
            f"- The row of {step} leaves out {int(row['images']):,} images: that run was interrupted and went on, so that "
            f"its whole time and its peak are not known. It held {float(row['peak_mb']):,.0f} MB at least."
            for row in rows
            if row["step"] == step and row.get("resumed")
        ]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def times(rows: Sequence[Row]) -> str:
    """What each step took, of one number of images."""
    lines = ["| step | seconds | images a second | memory | GPU memory |", "|---|---|---|---|---|"]
    notes = []
    for row in sorted(rows, key=lambda row: STEPS.index(row["step"])):
        rate = int(row["images"]) / float(row["seconds"])
        gpu = f"{float(row['peak_gpu_mb']):,.0f} MB" if float(row["peak_gpu_mb"]) else ""
        cells = [f"{float(row['seconds']):,.0f}", f"{rate:,.0f}", f"{float(row['peak_mb']):,.0f} MB", gpu]
        lines.append(f"| {row['step']} | {' | '.join(cells)} |")
        if row["parts"]:
            notes.append(f"- {row['step']}, seconds of its parts: {row['parts'].replace('; ', ', ')}.")
        if row["resumed"]:
            notes.append(f"- {row['step']} went on after an interruption: what it did before is not counted.")
    return "\n".join([*lines, *([""] if notes else []), *notes])


def exponent(images: Sequence[int], taken: Sequence[float]) -> float:
    """Slope of the line of least squares through the logarithms."""
    across, up = [math.log(count) for count in images], [math.log(time) for time in taken]
    middle, mean = sum(across) / len(across), sum(up) / len(up)
    above = sum((x - middle) * (y - mean) for x, y in zip(across, up, strict=True))
    return above / sum((x - middle) ** 2 for x in across)


def _bytes() -> str:
    bag, width = DESCRIBED
    lines = [
        f"| packed images at {side} px | `N · s²`, three times that in colour | {_size(side**2)} |" for side in SIDES
    ]
    lines.append(f"| descriptors, {bag} of {width} numbers | `N · M · D · 4` | {_size(bag * width * 4)} |")
    lines.append(f"| the same, stored as float16 | `N · M · D · 2` | {_size(bag * width * 2)} |")
    lines.append(f"| features of 768 numbers, and their copy of length one | `N · D · 4 · 2` | {_size(768 * 8)} |")
    return "\n".join(lines)


def _size(of_one: int) -> str:
    return f"{of_one * MILLION / 1e9:,.1f} GB"


if __name__ == "__main__":
    main()
