"""Do models' heat maps point at findings? The pointing game on phantoms, or on NIH's boxes.

python -m evidence.studies.pointing MODEL...
python -m evidence.studies.pointing MODEL --boxes BBox_List_2017.csv --images NIH/images --results pointing.csv
python -m evidence.studies.pointing RUNS --starts imagenet,imagenet+phantom --summary pointing.csv

Phantoms are of patients that no model has learnt: where each finding was drawn is known to the pixel. NIH's boxes are
in images of its official test list; those that are not in the folder are left out and counted. With `--summary` every
model has one line, called by the start it was learnt from, and lines of other models that the file has stay.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from bomd.data.datasets import phantom
from bomd.data.datasets.phantom import drawing
from bomd.data.images import read_image
from bomd.errors import InputError
from bomd.experiments.noise_names import noise_name
from bomd.experiments.recorded import Record
from bomd.files import write_text
from bomd.learn.learner import prepare
from bomd.models.heatmap import evidence, heat_maps
from bomd.models.model import DESCRIPTION, Model, load
from bomd.pretrain.teach import THERE
from bomd.reports.sheet import rows_to_csv
from bomd.runs import find
from bomd.tables import LabelTable
from evidence.studies.nih_boxes import read_boxes
from evidence.studies.pointing_game import Point, point, summarise

SEED = 1  # phantoms of other patients than those of starts and of the demo
AT_ONCE = 64  # images whose heat is computed together
UNTOUCHED = "as it was made"  # a start that learnt nothing but phantoms
NAMED = ("start", "labels", "seed", "test")  # which model a line of the summary is about, and what it was shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+", help="runs, model folders, or folders of runs")
    parser.add_argument("--starts", help="of the runs only those learnt from these starts, separated by commas")
    parser.add_argument("--size", type=int, help="of the runs only those that learnt images of this size in pixels")
    parser.add_argument("--count", type=int, default=300, help="phantoms")
    parser.add_argument("--hospital", default="south", help="where they are taken")
    parser.add_argument("--boxes", type=Path, help="NIH's list of boxes, instead of phantoms")
    parser.add_argument("--images", type=Path, help="the folder of NIH's images")
    parser.add_argument("--results", type=Path, help="also write the table of one model here as CSV")
    parser.add_argument("--summary", type=Path, help="also write a line for each model here as CSV")
    given = parser.parse_args()
    if (given.boxes is None) != (given.images is None):
        parser.error("--boxes and --images belong together.")
    try:
        places = [place for folder in given.models for place in models_in(folder, given.starts, given.size)]
        if given.results and len(places) > 1:
            raise InputError(f"--results is for one model, not for {len(places)}: use --summary.")
        for place in places:
            play(place, given)
    except InputError as error:
        parser.error(str(error))


def play(place: Path, given: argparse.Namespace) -> None:
    """Judge one model, print its table, and keep what is to be kept."""
    model = load(place)
    found = (
        on_boxes(model, given.boxes, given.images) if given.boxes else on_phantoms(model, given.hospital, given.count)
    )
    rows = [row.to_dict() for row in summarise(found)]
    if not rows:
        raise InputError("There was nothing to point at.")
    print(f"{place}\n{'finding':20} images  hits (95 % interval)  anywhere")
    for row in rows:
        interval = f"{row['hits']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
        print(f"{row['finding']:20} {row['images']:6}  {interval:20}  {row['chance']:.2f}")
    if given.results:
        write_text(given.results, rows_to_csv(rows))
    if given.summary:
        test = "NIH boxes" if given.boxes else f"phantoms, {given.hospital}"
        line = named(place) | {"test": test} | {key: rows[-1][key] for key in ("images", "hits", "chance")}
        keep(given.summary, {key: f"{value:.4f}" if isinstance(value, float) else value for key, value in line.items()})


def models_in(folder: Path, starts: str | None = None, size: int | None = None) -> list[Path]:
    """The folder itself if it is a model or a run, else the runs in it with one of these starts and this size."""
    if (folder / DESCRIPTION).exists() or (folder / "config.json").exists():
        return [folder]
    return [
        run.directory
        for run in find([folder])
        if (starts is None or named(run.directory)["start"] in starts.split(","))
        and (size is None or Record.of(run).config.images["size"] == size)
    ]


def named(place: Path) -> dict[str, Any]:
    """What a model is called by: its start, the labels that it learnt, and the seed."""
    if not (place / "config.json").exists():
        return {"start": place.name, "labels": UNTOUCHED, "seed": 0}
    (run,) = find([place])
    config = Record.of(run).config
    return {"start": Path(str(config.fit["weights"])).name, "labels": noise_name(config.noise), "seed": config.seed}


def keep(path: Path, line: dict[str, Any]) -> None:
    """Put a line into a table, in place of an older one about the same."""
    before: list[dict[str, Any]] = []
    if path.exists():
        with path.open(encoding="utf-8") as stream:
            before = list(csv.DictReader(stream))
    lines = {tuple(str(row[name]) for name in NAMED): row for row in [*before, line]}
    write_text(path, rows_to_csv([lines[key] for key in sorted(lines)]))


@cache
def drawn(
    hospital: str, count: int, size: int, device: torch.device
) -> tuple[LabelTable, torch.Tensor, NDArray[np.uint8]]:
    """Phantoms, their pixels, and how much each finding changes each of these; drawn once for all models."""
    table = phantom.read(split="test", hospital=hospital, count=count, seed=SEED)
    return table, phantom.render(table.ids, size, device), drawing.places(table.ids, size, device).cpu().numpy()


def on_phantoms(model: Model, hospital: str, count: int) -> Iterator[Point]:
    """Every finding of phantoms that the model knows."""
    table, pixels, changes = drawn(hospital, count, model.size, model.device)
    known = [column for column, name in enumerate(table.classes[:-1]) if name in model.classes]
    heat = heat_of(model, pixels, [model.classes.index(table.classes[column]) for column in known])
    for place, column in enumerate(known):
        for row in np.flatnonzero(table.values[:, column]):
            strength = changes[row, column]
            if strength.any():
                yield point(table.classes[column], heat[place, row], strength >= THERE * strength.max())


def heat_of(model: Model, pixels: torch.Tensor, columns: Sequence[int]) -> NDArray[np.float32]:
    """(n, B, size, size) the heat of n outputs in grey images of the model's size, before `heat_maps` scales it."""
    parts = []
    for some in torch.split(pixels, AT_ONCE):
        total = torch.zeros(())
        for network in model.networks:
            raised = evidence(network, prepare(some.float(), network.channels), columns).float().cpu()
            total = total + F.interpolate(raised, (model.size, model.size), mode="bilinear", align_corners=False)
        parts.append(total.clamp(min=0))
    found: NDArray[np.float32] = torch.cat(parts, dim=1).numpy()
    return found


def on_boxes(model: Model, boxes: Path, folder: Path) -> Iterator[Point]:
    """Every box of an image that is there and of a finding that the model knows."""
    missing = 0
    for box in read_boxes(boxes):
        if box.finding not in model.classes:
            continue
        if not (folder / box.image).is_file():
            missing += 1
            continue
        pixels = read_image(folder / box.image)
        (heat,) = heat_maps(model, pixels, [box.finding])
        yield point(box.finding, heat, box.region(*heat.shape))
    if missing:
        print(f"{missing} boxes are in images that are not in {folder}.")


if __name__ == "__main__":
    main()
