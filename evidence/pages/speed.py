"""Write docs/speed.md from results/speed.csv and, where it is there, results/several-gpus.csv; every number on the page
comes from there.

python -m evidence.pages.speed
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence

from bomd.files import write_text
from evidence import DOCS, RESULTS
from evidence.pages import schedule, several_gpus

PAGE, TIMINGS = DOCS / "speed.md", RESULTS / "speed.csv"

Row = dict[str, str]

OPENING = """# Speed

How fast it is, against what, and how near to what the machine can do at all. The numbers are in
[results/speed.csv](../results/speed.csv), which these commands write:

```
make bench                                                # the CPU's table
python -m evidence.bench gpu --results results/speed.csv  # the GPU's
python -m evidence.bench.against CHECKOUT                 # training there against an earlier version of it
python scripts/check_gpu.py                               # that the fast ways train as the plain one does
```

Every alternative ran in the same run on the same work, except what a paper printed: that is of another card, while ours
beside it is projected, and there is no ratio of the two. Training here computes in bfloat16 wherever the alternative is
said to be float32. The floor is what bytes and operations alone would take at rates measured in that run; the share says
how much of it is reached. Absolute times are given for GPUs only."""

PRINTED = "the paper"  # opens what an alternative is that was not run here
SECONDS = re.compile(r"([\d.]+) s\b")

WAYS = """[GPU and cluster](gpu.md) says what makes it fast, and which setting turns each part off."""


def main() -> None:
    write_text(PAGE, page(read()))


def read() -> list[Row]:
    with TIMINGS.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def page(rows: Sequence[Row]) -> str:
    """The whole page."""
    parts = [OPENING]
    for device in sorted({row["device"] for row in rows}, reverse=True):
        own = [row for row in rows if row["device"] == device]
        on_gpu = not device.startswith("CPU")
        dates = ", ".join(sorted({f"{row['date']}, torch {row['torch']}" for row in own}))
        parts.append(f"## {device}\n\nMeasured {dates}.\n\n" + table(own, absolute=on_gpu))
        remarks = {row["item"]: row["remark"] if on_gpu else relative(row["remark"]) for row in own}
        parts.append("\n".join(f"- {item}: {remark}." for item, remark in remarks.items() if remark))
        floors = sorted({row["floor_is"] for row in own if row["floor_is"]})
        parts.append("\n".join(f"- Floor: {floor}." for floor in floors))
    counted = several_gpus.section(*several_gpus.step_alone(rows))
    parts += [WAYS, schedule.section(schedule.read(), rows), counted]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(rows: Iterable[Row], *, absolute: bool) -> str:
    """Markdown; times on a CPU say nothing about another CPU and are left out."""
    lines = [
        "| item | " + ("ours | alternative | " if absolute else "alternative | ") + "ratio | share of the floor | peak memory |",
        "|---|" + "---|" * (5 if absolute else 4),
    ]  # fmt: skip
    for row in rows:
        slope = row["unit"] == "slope"
        numbers = [f"{number(row['ours'])} {row['unit']}"] if absolute else []
        if row["alternative"]:
            value = f"{number(row['alternative'])} {row['unit']}: " if absolute else ""
            numbers.append(f"{value}{row['alternative_is']}")
        else:
            numbers.append(f"slope {float(row['ours']):.2f}" if slope and not absolute else "")
        ratio = f"{number(row['ratio'])} x" if row["ratio"] and not row["alternative_is"].startswith(PRINTED) else ""
        share = f"{float(row['share_of_floor']):.0%}" if row["share_of_floor"] else ""
        memory = f"{float(row['memory_mb']):,.0f} MB" if row["memory_mb"] else ""
        lines.append("| " + " | ".join([row["item"], *numbers, ratio, share, memory]) + " |")
    return "\n".join(lines)


def relative(remark: str) -> str:
    """A remark with its times as ratios to the first of them."""
    times = [float(found) for found in SECONDS.findall(remark)]
    return SECONDS.sub(lambda found: f"{number(str(float(found[1]) / times[0]))} x", remark)


def number(text: str) -> str:
    value = float(text)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
