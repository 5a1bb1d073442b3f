"""`python -m evidence.bench cpu|gpu [--results FILE]`: print the table, and keep it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from bomd import progress
from bomd.errors import InputError
from evidence.bench import cpu, gpu, table

PLACES = {"cpu": cpu, "gpu": gpu}


def main(arguments: list[str] | None = None) -> int:
    """1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m evidence.bench", description=__doc__)
    parser.add_argument("where", choices=["cpu", "gpu"], nargs="?", default="cpu")
    parser.add_argument("--results", type=Path, help="a CSV of timings to write the rows into")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    parser.add_argument("--images", type=int, help="of the GPU's store to train on; drawing all of NIH's takes minutes")
    parser.add_argument(
        "--only",
        help="groups of rows, by comma: "
        + "; ".join(f"{where}: {', '.join(place.GROUPS)}" for where, place in PLACES.items()),
    )
    given = parser.parse_args(arguments)
    progress.enable()
    if given.where == "gpu" and not torch.cuda.is_available():
        raise InputError("PyTorch sees no GPU here; use: python -m evidence.bench cpu")
    device = torch.device("cuda" if given.where == "gpu" else "cpu")
    name, rows = table.device_name(device), []
    groups = PLACES[given.where].QUICK if given.quick else PLACES[given.where].GROUPS
    if given.images is not None:
        if given.where != "gpu":
            raise InputError("--images is for the GPU's store; the CPU's table has sizes of its own.")
        groups = {**groups, "training": lambda: gpu.training(given.images)}
    chosen = given.only.split(",") if given.only else list(groups)
    for group in chosen:
        if group not in groups:
            raise InputError(f"--only: no group {group!r}; there are {', '.join(groups)}.")
    for row in (row for group in chosen for row in groups[group]()):
        rows.append(row)
        progress.say(f"{row.item}: {row.ours:.4g} {row.unit}")
        if given.results is not None:
            table.keep([row], name, given.results)  # at once: what was measured survives whatever comes next
    table.show(rows, name)
    return 0 if all(row.reached is not False for row in rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        sys.exit(str(error))
