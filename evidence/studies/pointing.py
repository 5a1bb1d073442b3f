"""Do a model's heat maps point at findings? The pointing game on phantoms, or on NIH's boxes.

python -m evidence.studies.pointing MODEL
python -m evidence.studies.pointing MODEL --boxes BBox_List_2017.csv --images NIH/images --results pointing.csv

Phantoms are of patients that no model has learnt: where each finding was drawn is known to the pixel. NIH's boxes are
in images of its official test list; those that are not in the folder are left out and counted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bomd.data.datasets import phantom
from bomd.data.datasets.phantom import drawing
from bomd.data.images import read_image
from bomd.errors import InputError
from bomd.files import write_text
from bomd.models.heatmap import heat_maps
from bomd.models.model import Model, load
from bomd.pretrain.teach import THERE
from bomd.reports.sheet import rows_to_csv
from evidence.studies.nih_boxes import read_boxes
from evidence.studies.pointing_game import Point, point, summarise

SEED = 1  # phantoms of other patients than those of starts and of the demo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a run, or a model folder")
    parser.add_argument("--count", type=int, default=300, help="phantoms")
    parser.add_argument("--hospital", default="south", help="where they are taken")
    parser.add_argument("--boxes", type=Path, help="NIH's list of boxes, instead of phantoms")
    parser.add_argument("--images", type=Path, help="the folder of NIH's images")
    parser.add_argument("--results", type=Path, help="also write the table here as CSV")
    given = parser.parse_args()
    if (given.boxes is None) != (given.images is None):
        parser.error("--boxes and --images belong together.")
    try:
        model = load(given.model)
        found = on_boxes(model, given.boxes, given.images) if given.boxes else on_phantoms(model, given)
        rows = [row.to_dict() for row in summarise(found)]
        if not rows:
            raise InputError("There was nothing to point at.")
    except InputError as error:
        parser.error(str(error))
    print(f"{'finding':20} images  hits (95 % interval)  anywhere")
    for row in rows:
        interval = f"{row['hits']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
        print(f"{row['finding']:20} {row['images']:6}  {interval:20}  {row['chance']:.2f}")
    if given.results:
        write_text(given.results, rows_to_csv(rows))


def on_phantoms(model: Model, given: argparse.Namespace) -> Iterator[Point]:
    """Every finding of phantoms that the model knows."""
    table = phantom.read(split="test", hospital=given.hospital, count=given.count, seed=SEED)
    findings = table.classes[:-1]
    pictures = phantom.render(table.ids, model.size).numpy()
    changes = drawing.places(table.ids, model.size).numpy()
    for row in range(len(table)):
        columns = [place for place in np.flatnonzero(table.values[row, :-1]) if findings[place] in model.classes]
        if not columns:
            continue
        heats = heat_maps(model, pictures[row], [findings[column] for column in columns])
        for column, heat in zip(columns, heats, strict=True):
            strength = changes[row, column]
            if strength.any():
                yield point(findings[column], heat, strength >= THERE * strength.max())


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
