"""How time and memory grow with the number of images, from packing to an audit; each step is a process of its own.

    python -m evidence.studies.scale                            # 4,000 to 64,000 phantoms at 32 px on a CPU
    python -m evidence.studies.scale --gpu --work /tmp/scale    # 250,000 to 15,625 at 64 px, with a GPU and all cores
    python -m evidence.studies.scale --images 4000 1000000 --size 40 --borrow ...   # a million, but for train

    draw      phantoms into shards, by as many processes as there are cores, and joined: once, for the largest set
    files     the first of them as image files, with labels of which one in twenty is wrong, and features
    pack      the files into shards, likewise
    train     bomd with one pass each to describe and to classify, from the joined shards: describe, search, re-label
    predict   all files by the trained classifier, into a CSV
    audit     the labels by the features, from a file that stays on disk

What is done is kept in --work: the same command goes on after an interruption, `--steps` does some of them, and
`--seconds` says when no further one may begin. `results/scale.csv` is written after every step. Rows that are there
already stay, but for those of a CPU and the same size of images, whose times are ratios within one run, and those of a
GPU that are measured again. The search of *train* grows with the square of the images, which is too much for two cores
and a million: with `--borrow` only the fewest images are trained on, and all are predicted by that classifier.

Peaks are of memory that the system cannot drop, of all processes of a step together; pixels that are mapped from disk
are not among it. That of the GPU is what PyTorch had allocated at most. On a CPU, which is shared with others, time is
processor time as a ratio to that of the fewest images.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import multiprocessing
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bomd.audits.choose import SMALLEST
from bomd.data.datasets import phantom
from bomd.data.store import Store, open_store
from bomd.files import mapped_array, write_json, write_pieces, write_text
from bomd.threads import SHARE, cores
from evidence import RESULTS

TABLE = RESULTS / "scale.csv"
COUNTS = (4_000, 8_000, 16_000, 32_000, 64_000)
GPU_COUNTS = (250_000, 15_625, 62_500, 31_250, 125_000)  # what matters most comes first, should time run out
STEPS = ("draw", "files", "pack", "train", "predict", "audit")
SEED, WRONG = 0, 0.05
SIDE = 8  # of the picture in blocks that is an image's features
IN_FOLDER = 10_000  # files
DRAWN = "drawn-"  # and how many: the folder of drawn phantoms
AT_ONCE = 4096  # images whose features are computed
LASTED = re.compile(r"^(?:.*\r)?(.+): \d+ in ([\d.]+) s$", re.MULTILINE)  # what a progress bar leaves behind

IMPORTED = ("bomd.cli", "bomd.audits.audit", "bomd.audits.plan", "bomd.models.model", "bomd.experiments.experiment")

RECIPE = """name = "scale"
method = "bomd"
validation = 0.1
images.size = {size}
train = {{ dataset = "folder", root = "{root}" }}
fit = {{ backbone = "small", weights = "none", epochs = 1, batch = 256, rate = 0.002, augment = "light" }}
bomd = {{ epochs = 1, batch = 256, rate = 0.003 }}
"""

Line = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where the images of one count are, and everything that is made of them.

    Attributes:
        drawn: Where phantoms are, the first of which are these.
        largest: How many these are.
        trained: Where the run is whose classifier predicts.
    """

    root: Path
    images: int
    size: int
    drawn: Path
    largest: int
    trained: Path

    @property
    def set(self) -> Path:
        return self.root / "set"

    def steps(self) -> dict[str, list[list[list[str]]]]:
        """For each step, the commands of `bomd`, of which those in one list may run at once."""
        size = ["--size", str(self.size)]
        drawn = ["prepare", "phantom", *size, "--set", "split=train", "--set", f"count={self.largest}"]
        drawn += ["--set", f"seed={SEED}", "-o", str(self.drawn)]
        packed = ["prepare", "folder", "--root", str(self.set), *size, "-o", f"{self.root}/runs/stages"]
        given = [str(self.set / "labels.csv"), "--images", str(self.set / "images")]
        judged = ["--features", str(self.set / "features.npy"), "-o", str(self.root / "audit"), *size]
        predicted = [str(self.set / "images"), "-o", str(self.root / "predicted.csv")]
        return {
            "draw": [_shards(drawn), [[*drawn, "--join"]]],
            "files": [[]],
            "pack": [_shards(packed), [[*packed, "--join"]]],
            "train": [[["run", str(self.root / "scale.toml"), "--runs", str(self.root / "runs")]]],
            "predict": [[["predict", str(self.trained / "runs" / "scale"), *predicted]]],
            "audit": [[["audit", *given, *judged]]],
        }

    def write_files(self) -> None:
        """Image files of the drawn phantoms, labels with mistakes, features and the recipe."""
        store = open_store(next(self.drawn.glob("images-*")))
        table = phantom.read(count=self.images, seed=SEED)
        names = [f"{row // IN_FOLDER}/{name}.png" for row, name in enumerate(table.ids.tolist())]
        for folder in {Path(name).parent for name in names}:
            (self.set / "images" / folder).mkdir(parents=True, exist_ok=True)
        parts = np.array_split(np.arange(self.images), cores())
        with ProcessPoolExecutor(cores()) as pool:
            work = [pool.submit(_write_part, store.directory, part, self.set / "images", names) for part in parts]
            for done in work:
                done.result()
        flipped = np.random.default_rng(SEED).random(table.values.shape) < WRONG
        labels = np.where(flipped, 1 - table.values, table.values).astype(int)
        write_pieces(self.set / "labels.csv", _rows(names, table.groups.tolist(), table.classes, labels))
        with mapped_array(self.set / "features.npy", (self.images, SIDE * SIDE)) as features:
            for start in range(0, self.images, AT_ONCE):
                rows = slice(start, min(start + AT_ONCE, self.images))
                features[rows] = _blocks(store, rows)
        write_text(self.root / "scale.toml", RECIPE.format(size=self.size, root=self.set))


def _shards(command: Sequence[str]) -> list[list[str]]:
    return [[*command, "--shard", f"{number}/{cores()}"] for number in range(1, cores() + 1)]


def _write_part(store: Path, rows: np.ndarray, folder: Path, names: Sequence[str]) -> None:
    images = open_store(store).images
    for row in rows.tolist():
        Image.fromarray(np.asarray(images[row])).save(folder / names[row], compress_level=1)


def _rows(names: Sequence[str], people: Sequence[str], classes: Sequence[str], labels: np.ndarray) -> Iterator[str]:
    yield f"id,patient,{','.join(classes)}\n"
    for name, who, row in zip(names, people, labels, strict=True):
        yield f"{name},{who},{','.join(map(str, row.tolist()))}\n"


def _blocks(store: Store, rows: slice) -> np.ndarray:
    step = store.size // SIDE
    return np.asarray(np.reshape(store.images[rows], (-1, SIDE, step, SIDE, step)).mean(axis=(2, 4)) / 255).reshape(
        -1, SIDE * SIDE
    )


def measure(place: Place, step: str) -> Line:
    """Run the commands of a step and watch their memory.

    Each runs in a process of its own that has everything imported already, which would take longer than some steps.
    For this the present process must never ask about GPUs: one that has cannot pass them on.
    """
    log, context = place.root / "log.txt", multiprocessing.get_context("fork")
    logged = log.stat().st_size if log.exists() else 0
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    most, most_gpu = 0, context.Value("q", 0)
    for commands in place.steps()[step]:
        works: list[Callable[[], None]] = [partial(_call, words, len(commands) > 1) for words in commands]
        works = works or [place.write_files]
        running = [context.Process(target=_logged, args=(work, log, most_gpu)) for work in works]
        for process in running:
            process.start()
        while any(process.is_alive() for process in running):
            most = max(most, _held(os.getpid()))
            time.sleep(0.1)
        if any(process.exitcode for process in running):
            raise SystemExit(f"{step} failed; see {log}: {log.read_text(errors='replace')[-1000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found: Line = {"seconds": round(time.perf_counter() - began, 1), "processor_seconds": round(spent, 1)}
    parts = lasted(log.read_bytes()[logged:].decode(errors="replace")) if step in ("train", "predict", "audit") else {}
    return found | {"peak_mb": most >> 20, "peak_gpu_mb": most_gpu.value >> 20, "parts": parts}


def lasted(log: str) -> dict[str, float]:
    """Seconds of each part of a step that shows its progress."""
    return {what.strip(): float(seconds) for what, seconds in LASTED.findall(log)}


def _call(words: Sequence[str], one_of_many: bool) -> None:
    import torch

    from bomd.cli import main as bomd

    if one_of_many:  # each has a core of its own
        torch.set_num_threads(1)
        os.environ[SHARE] = "1"
    bomd(words)


def _logged(work: Callable[[], None], log: Path, most_gpu: Synchronized[int]) -> None:
    with log.open("ab", buffering=0) as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    try:
        work()
    finally:
        import torch

        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            with most_gpu.get_lock():
                most_gpu.value = max(most_gpu.value, torch.cuda.max_memory_allocated())


def _held(parent: int) -> int:
    """Bytes of a process and its descendants that are not mapped from files; what several share counts once."""
    above = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may have ended meanwhile
            above[int(place.name)] = _number(place / "status", "PPid")

    def descends(process: int) -> bool:
        while process in above and process != parent:
            process = above[process]
        return process == parent

    return (
        sum(_number(Path(f"/proc/{process}/smaps_rollup"), "Pss_Anon") for process in above if descends(process)) << 10
    )


def _number(file: Path, name: str) -> int:
    with suppress(OSError):
        found = re.search(rf"^{name}:\s+(\d+)", file.read_text(), re.MULTILINE)
        return int(found[1]) if found else 0
    return 0


def _gpu_name() -> str:
    """Asked in another process, see `measure`."""
    words = [sys.executable, "-c", "import torch; print(torch.cuda.get_device_name())"]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def measure_all(
    work: Path, counts: Sequence[int], size: int, steps: Sequence[str], *, until: float = math.inf, borrow: bool = False
) -> Iterator[Line]:
    """What all steps of all counts took, or take now if they are not done yet.

    Args:
        until: When no further step begins, by `time.perf_counter`.
        borrow: Train on the fewest images alone, and predict all others by that classifier.
    """
    counts = sorted(counts) if borrow else counts
    there = [int(folder.name.removeprefix(DRAWN)) for folder in work.glob(f"{DRAWN}*")]
    largest = max([*counts, *there])
    drawn = work / f"{DRAWN}{largest}"
    for count in counts:
        root = work / str(count)
        place = Place(root, count, size, drawn, largest, work / str(counts[0]) if borrow else root)
        place.root.mkdir(parents=True, exist_ok=True)
        for step in STEPS:
            if step == "train" and place.trained != place.root:
                continue
            kept = (drawn if step == "draw" else place.root) / f"{step}.json"
            if not kept.exists():
                if step not in steps:
                    continue
                if time.perf_counter() >= until:
                    return
                begun = kept.with_suffix(".begun")
                resumed = begun.exists()
                drawn.mkdir(parents=True, exist_ok=True)
                begun.touch()
                found = measure(place, step) | {"resumed": resumed}
                images = largest if step == "draw" else count
                write_json(kept, {"images": images, "size": size, "step": step, **found})
            elif step == "draw" and count != counts[0]:
                continue
            yield json.loads(kept.read_text())


def to_rows(lines: Sequence[Line], device: str) -> list[Line]:
    """What is recorded: of a CPU no times but ratios, and of both what they were measured with."""
    first = {line["step"]: line for line in sorted(lines, key=lambda line: -line["images"])}  # the fewest come last
    rows = []
    for line in lines:
        least = first[line["step"]]
        ratio = line["processor_seconds"] / least["processor_seconds"]
        rows.append(
            {
                "device": device,
                "cores": cores(),
                "size": line["size"],
                "seed": SEED,
                "step": line["step"],
                "images": line["images"],
                "time_ratio": f"{ratio:.2f}" if device == "cpu" else "",
                "seconds": "" if device == "cpu" else line["seconds"],
                "peak_mb": line["peak_mb"],
                "peak_gpu_mb": "" if device == "cpu" else line["peak_gpu_mb"],
                "parts": "" if device == "cpu" else "; ".join(f"{what} {s}" for what, s in line["parts"].items()),
                "resumed": "yes" if line["resumed"] else "",
            }
        )
    return rows


def record(rows: Sequence[Line], table: Path) -> None:
    """Put rows down in place of all of a CPU with images of that size, or of the same ones of the same GPU."""
    kept: list[Line] = []
    if table.exists():
        measured = {_same(row) for row in rows}
        with table.open(newline="", encoding="utf-8") as before:
            kept = [row for row in csv.DictReader(before) if _same(row) not in measured]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n", restval="")
    writer.writeheader()
    every = [*kept, *rows]
    writer.writerows(
        sorted(
            every,
            key=lambda row: (row["device"] != "cpu", -int(row["size"]), int(row["images"]), STEPS.index(row["step"])),
        )
    )
    write_text(table, stream.getvalue())


def _same(row: Line) -> tuple[str, ...]:
    """What rows have in common that cannot stand side by side: ratios on a CPU hold for one run alone."""
    named = ("device", "size") if row["device"] == "cpu" else ("device", "size", "images", "step")
    return tuple(str(row[name]) for name in named)


def main(given: Sequence[str] | None = None, say: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="with the first GPU")
    parser.add_argument("--images", type=int, nargs="+", help="how many, instead of those above")
    parser.add_argument("--size", type=int, help="side in pixels, a multiple of 8")
    parser.add_argument("--steps", default=",".join(STEPS), help="do these, separated by commas")
    parser.add_argument("--borrow", action="store_true", help="train on the fewest images alone")
    parser.add_argument("--work", type=Path, help="keep everything here; by default in a folder that is removed")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no step after so many")
    parser.add_argument("--out", type=Path, default=TABLE)
    chosen = parser.parse_args(given)
    until = time.perf_counter() + chosen.seconds
    size = chosen.size or (64 if chosen.gpu else 32)
    counts = chosen.images or (GPU_COUNTS if chosen.gpu else COUNTS)
    if size % SIDE or ("audit" in chosen.steps.split(",") and size < SMALLEST):
        parser.error(f"--size {size}: not a multiple of {SIDE}, or below {SMALLEST}, which an audit needs")
    device = _gpu_name() if chosen.gpu else "cpu"
    for module in IMPORTED:  # once, and not by every process
        import_module(module)
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="bomd-scale-") as folder:
        work, steps = chosen.work or Path(folder), chosen.steps.split(",")
        for line in measure_all(work, counts, size, steps, until=until, borrow=chosen.borrow):
            lines.append(line)
            say(", ".join(f"{name} {value}" for name, value in line.items()))
            record(to_rows(lines, device), chosen.out)
    say(f"Written: {chosen.out}" if lines else "Nothing was measured.")


if __name__ == "__main__":
    main()
