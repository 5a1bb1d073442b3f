"""The part of docs/speed.md about the paper's schedule on phantoms, where results/schedule.csv has it."""

from __future__ import annotations

from collections.abc import Sequence

from evidence.rows import read_rows
from evidence.studies.schedule import NOISES, OURS, TABLE

Row = dict[str, str]


def read() -> list[Row]:
    """What was measured; nothing where no run is recorded."""
    return read_rows(TABLE)


def section(rows: Sequence[Row]) -> str:
    """Times of every stage, memory and AUC; a training that was shorter than the paper's is called so."""
    parts = []
    for device, images, size, length in dict.fromkeys(_kind(row) for row in rows):
        own = [row for row in rows if _kind(row) == (device, images, size, length)]
        share = "at its full length" if float(length) == 1 else f"with {float(length):.0%} of its epochs"
        opening = f"""### The paper's schedule {share}

{int(images):,} phantoms at {size} px on one {device}, by `python -m evidence.studies.schedule`, which says where it is
not the recipe of the paper ([results/schedule.csv](../results/schedule.csv)). AUC is on right labels of new patients,
of the same and of another hospital."""
        lines = ["| noise | method | seconds of training | memory | GPU memory | AUC, same | AUC, another |"]
        lines.append("|---|---|---|---|---|---|---|")
        for row in own:
            gpu = f"{float(row['peak_gpu_mb']):,.0f} MB" if row["peak_gpu_mb"] else ""
            cells = [row["noise"], row["method"], row["seconds_training"].replace("; ", ", ")]
            cells += [f"{float(row['peak_mb']):,.0f} MB", gpu, row["auc_north"], row["auc_south"]]
            lines.append(f"| {' | '.join(cells)} |")
        ran = {(row["noise"], row["method"]) for row in own}
        missing = [f"{method} under {noise}" for noise in NOISES for method in OURS if (noise, method) not in ran]
        parts += [opening, "\n".join(lines), f"Not run: {', '.join(missing)}." if missing else ""]
    return "\n\n".join(part for part in parts if part)


def _kind(row: Row) -> tuple[str, str, str, str]:
    return row["device"], row["images"], row["size"], row["length"]
