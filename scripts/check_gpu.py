"""Check on a GPU what tests cannot: that recorded steps, kernels and bfloat16 train as the plain loop in float32 does.

    python scripts/check_gpu.py [--methods bce,bomd] [--jobs 8]

Every method trains a small network on the same phantoms three times: step by step in float32, recorded in float32, and
recorded in bfloat16. BCE and BoMD also train DenseNet-121, with PyTorch's layers and with our kernels. Printed are the
losses of the first and last epoch and how far the other ways are from the plain one; more than the stated tolerance is
an error. Methods that choose images by their loss may branch on a rounding error, hence the wider tolerance at the end.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

FIRST = {"recorded": 0.01, "bfloat16": 0.05}  # largest relative difference of the first epoch's loss
LAST = {"recorded": 0.10, "bfloat16": 0.15}  # and of the last one's
BRANCHES = {
    "decoupling"
}  # its loss is a mean over the entries on which two networks disagree: only the start is compared

PLAIN = {"precision": "32-true", "graphs": False, "kernels": False, "fused": False}
WAYS = {"plain": PLAIN, "recorded": {"precision": "32-true"}, "bfloat16": {}}


def train(method: str, backbone: str, way: str, folder: str) -> list[float] | str:
    """The classifier's loss in each epoch, or what went wrong."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    from bomd.config import parse
    from bomd.experiments import experiment
    from bomd.methods import METHODS

    dense = backbone == "densenet121"
    config = parse(
        {
            "name": f"check-{backbone}-{way}", "method": method, "validation": 0.1, "images": {"size": 64},
            "train": {"dataset": "phantom", "count": 640},
            "noise": {"kind": "symmetric", "rows": 0.4, "labels": 0.4},
            "fit": {"backbone": backbone, "weights": "none", "epochs": 6, "batch": 64, "rate": 1e-4 if dense else 1e-3,
                    "betas": [0.9, 0.999], "eps": 1e-8, "augment": "light"},
            "bomd": {"epochs": 3, "batch": 64, "rate": 1e-3},
            "device": WAYS[way],
        },
        METHODS,
    )  # fmt: skip
    try:
        done = experiment.run(config, Path(folder))
        lines = [json.loads(line) for line in (done.directory / "metrics.jsonl").read_text().splitlines()]
        return [line["loss"] for line in lines if line["stage"] == "train classifier"]
    except Exception:
        return traceback.format_exc()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--methods", default="all")
    parser.add_argument("--jobs", type=int, default=8)
    given = parser.parse_args()
    from bomd.methods import METHODS

    names = list(METHODS) if given.methods == "all" else given.methods.split(",")
    plan = [(name, "small") for name in names] + [(name, "densenet121") for name in ("bce", "bomd") if name in names]
    wrong = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(given.jobs, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        waiting = {
            (name, backbone, way): pool.submit(train, name, backbone, way, folder)
            for name, backbone in plan
            for way in WAYS
        }
        for name, backbone in plan:
            losses = {way: waiting[name, backbone, way].result() for way in WAYS}
            for way, found in losses.items():
                if isinstance(found, str):
                    print(f"{name}, {backbone}, {way}: FAILED\n{found}")
                    wrong += 1
            if any(isinstance(found, str) for found in losses.values()):
                continue
            plain = losses["plain"]
            cells = []
            for way in ("recorded", "bfloat16"):
                gaps = [abs(losses[way][place] - plain[place]) / max(abs(plain[place]), 1e-3) for place in (0, -1)]
                good = gaps[0] <= FIRST[way] and (gaps[1] <= LAST[way] or name in BRANCHES)
                wrong += not good
                cells.append(f"{way} {gaps[0]:.4f} {gaps[1]:.4f}{'' if good else ' TOO FAR'}")
            print(f"{name:14} {backbone:12} plain {plain[0]:.4f} .. {plain[-1]:.4f}   " + "   ".join(cells), flush=True)
    print("all within tolerance" if not wrong else f"{wrong} problems")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
