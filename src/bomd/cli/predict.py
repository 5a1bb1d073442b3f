"""Commands that use a trained model: predict and export."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from bomd.cli.options import flag, option
from bomd.errors import InputError

if TYPE_CHECKING:
    from bomd.models.blocks import Block
    from bomd.models.model import Model

SHOWN = 3  # findings of an image that the table has at least, and a drawing at most
ABOVE = "above_threshold"  # the last column of a CSV
OURS = rf'file,.*?{ABOVE}\n|{{\n  "images": \[(\]|\n    {{\n      "file": )|┏'  # how CSV, JSON and table begin

ModelPlace = Annotated[
    Path, typer.Argument(help="A finished run, a folder with one such as that of an audit, or a model folder.")
]


class Format(StrEnum):
    """How predictions are written."""

    table = "table"
    csv = "csv"
    json = "json"


@dataclass(frozen=True)
class Predicted:
    """What a model says about one image."""

    file: str  # as given, or as found in a folder
    probabilities: Mapping[str, float]  # by finding, in the model's order
    positive: Mapping[str, bool | None]  # whether each is called; None where nobody can tell

    def ranked(self) -> list[str]:
        """Findings, the most probable first."""
        return sorted(self.probabilities, key=lambda name: -self.probabilities[name])


def predict(
    model: ModelPlace,
    files: Annotated[list[Path], typer.Argument(help="PNG, JPEG, BMP, TIFF, WebP or DICOM files, or folders of them.")],
    form: Annotated[
        Format | None,
        option("How to write them; by default a table, or what the name of the file says.", None, "--format"),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file instead.")] = None,
    heatmaps: Annotated[
        Path | None, option("Draw here, for every image, where its most probable findings are seen.", "DIR")
    ] = None,
    finding: Annotated[list[str] | None, option("Only this finding, also for heat maps (repeatable).", "NAME")] = None,
    grey: Annotated[bool, flag("--grey", "Convert images in colour for a model that learnt from grey ones.")] = False,
) -> None:
    """Probabilities of every finding for new images. For research; not a medical device.

    The table shows, for each image, the findings that reach their threshold and the most probable ones; CSV and JSON
    have all. Thresholds were chosen on held-out patients when the model was trained; a finding may have none.

    In a folder, DICOM files need no suffix, and what is no image is counted and named. A file that cannot be read is
    named and the others are predicted; the exit code is then 1. Images in colour are refused by a model that learnt
    from grey ones, unless `--grey` converts them; a model that learnt from colour takes grey ones, and says so.

    Interrupted or killed, the same command with `-o` goes on where it stopped, if model and images are the same; until
    it ends, what is predicted is in a file beside the other, whose name ends in .part.

    For example: bomd predict runs/demo/bomd-plus/seed0-1a2b3c scans/ --format json -o findings.json --heatmaps heat/
    """
    from bomd.data.image_files import find_images, told
    from bomd.files import is_stream, spare, write_pieces
    from bomd.models import model as models
    from bomd.models.blocks import predict_blocks
    from bomd.models.resumed import forget, part_of, predict_and_keep
    from bomd.review.evidence import only_run

    _check_places(output, heatmaps)
    if output is not None:
        spare(output, OURS)
    form = form or _format_of(output)
    opened = models.load(only_run(model))
    chosen = _choose(opened, finding)
    places = find_images(files)
    found, skipped, unreadable = places.images, places.others, dict(places.missing)
    if heatmaps is not None:
        _check_drawings(heatmaps, files, found)
    note = _note_on_colour(opened, found, grey)
    part = None if output is None or is_stream(output) else part_of(output)
    count = 0

    def predicted() -> Iterator[Predicted]:
        nonlocal count
        blocks = predict_blocks(opened, found) if part is None else predict_and_keep(opened, found, part)
        for block in blocks if found else ():
            unreadable.update(block.broken)
            count += len(block.files)
            yield from _rows(block, chosen, opened)

    drawn: dict[str, Path] = {}
    rows: Iterable[Predicted] = predicted()
    if heatmaps is not None:
        rows = list(rows)
        drawn = _draw_all(opened, rows, heatmaps, everything=bool(finding))
    thresholds = {name: opened.thresholds.get(name) for name in chosen}
    if form is Format.csv:
        text: Iterable[str] = _as_csv(rows, thresholds)  # line by line: there may be a million
    elif form is Format.json:
        text = [_as_json(list(rows), unreadable, skipped, thresholds, drawn)]
    else:
        console = Console(emoji=False) if output is None else Console(emoji=False, file=io.StringIO(), width=100)
        text = [_as_table(list(rows), thresholds, console)]
    if output is None:
        for line in text:
            print(line, end="")
    else:
        write_pieces(output, text)
        if part is not None:
            forget(part)
        print(f"{count} images: {output}")
    if heatmaps is not None:
        Console(emoji=False, stderr=True, soft_wrap=True).print(
            f"{len(drawn)} heat maps: {heatmaps}", highlight=False, markup=False
        )
    if note is not None:
        _complain(note, "yellow")
    if skipped:
        _complain(f"{told(skipped)}.", "yellow")
    for name, reason in unreadable.items():
        _complain(reason if name in reason else f"{name}: {reason}")
    if unreadable:
        raise typer.Exit(1)


def export(model: ModelPlace, output: Annotated[Path, typer.Argument(help="The .onnx file to write.")]) -> None:
    """Write a trained classifier as one ONNX file, for use without PyTorch.

    It takes square images of the model's size, in grey or colour as it has learnt, and gives probabilities; class
    names, size and mode are in its metadata.
    The file is run once with onnxruntime and kept only if it gives what PyTorch gives. Needs `bomd[onnx]`.
    """
    from bomd.models import model as models
    from bomd.models.export import export_onnx
    from bomd.review.evidence import only_run

    opened = models.load(only_run(model), "cpu")
    difference = export_onnx(opened, output)
    print(f"{output}: {len(opened.classes)} findings at {opened.size} px; differs from PyTorch by {difference:.1g}")


def _check_places(output: Path | None, folder: Path | None) -> None:
    """Find out before time is spent that nothing can be written there."""
    if output is not None and output.is_dir():
        raise InputError(f"Cannot write {output}: it is a folder.")
    folders = {output: output.parent} if output is not None else {}
    for place, wanted in (folders | ({folder: folder} if folder is not None else {})).items():
        existing = next((parent for parent in (wanted, *wanted.parents) if parent.exists()), wanted)
        if existing.exists() and not existing.is_dir():
            raise InputError(f"Cannot write {place}: {existing} is not a folder.")


def _check_drawings(folder: Path, places: Sequence[Path], files: Sequence[str]) -> None:
    """Refuse a folder where heat maps would take the place of pictures, or be taken for some by the next call."""
    from bomd.models.heatmap import is_drawing

    for place in places:
        if place.is_dir() and folder.resolve().is_relative_to(place.resolve()):
            raise InputError(
                f"Heat maps in {folder} would be among the images of {place}: name a folder elsewhere as --heatmaps."
            )
    taken: set[str] = set()
    for path in (folder / f"{_free_name(Path(file).stem, taken)}.png" for file in files):
        if path.exists() and not is_drawing(path):
            raise InputError(f"{path} is there and is no heat map: name another folder as --heatmaps.")


def _choose(model: Model, findings: Sequence[str] | None) -> list[str]:
    """The findings to show, in the order asked for; all where none is named."""
    from bomd.typed import nearest

    for name in findings or ():
        if name not in model.classes:
            raise InputError(f"The model has no finding {name!r}.{nearest(name, model.classes)}")
    return list(dict.fromkeys(findings or model.classes))


def _note_on_colour(model: Model, files: Sequence[str], grey: bool) -> str | None:
    """What to say about images of another kind than the model learnt from; most of them in colour are refused."""
    from bomd.data.colour import check_fits

    if grey and model.colour:
        raise InputError("--grey: this model learnt from images in colour, so there is nothing to convert.")
    return None if grey or model.converts else check_fits(files, colour=model.colour)


def _rows(block: Block, chosen: Sequence[str], model: Model) -> Iterator[Predicted]:
    """A finding is called from its threshold on; where an image has one class, the likeliest one is."""
    limits = {one: model.thresholds.get(one) for one in chosen}
    for name, values in zip(block.files, block.values.tolist(), strict=True):
        every = dict(zip(model.classes, values, strict=True))
        called = {one: None if limit is None else every[one] >= limit for one, limit in limits.items()}
        if model.exclusive:
            likeliest = max(every, key=lambda one: every[one])
            called = {one: one == likeliest for one in chosen}
        yield Predicted(name, {one: every[one] for one in chosen}, called)


def _draw_all(model: Model, rows: Sequence[Predicted], folder: Path, *, everything: bool) -> dict[str, Path]:
    """One PNG for each image: of all its findings if they were asked for by name, else of the most probable."""
    from bomd import progress
    from bomd.data.images import read_image
    from bomd.models.heatmap import draw
    from bomd.tables import NO_FINDING

    drawn: dict[str, Path] = {}
    taken: set[str] = set()
    for row in progress.track(rows, "draw heat maps"):
        ranked = row.ranked() if everything else [name for name in row.ranked() if name != NO_FINDING][:SHOWN]
        captions = {name: f"{row.probabilities[name]:.2f} {name}" for name in ranked}
        path = folder / f"{_free_name(Path(row.file).stem, taken)}.png"
        draw(path, model, read_image(Path(row.file), colour=model.colour), captions)
        drawn[row.file] = path
    return drawn


def _free_name(stem: str, taken: set[str]) -> str:
    """A name for a file that no other image of this call has, short enough for any file system."""
    names = (f"{stem[:60]}-{number}" if number > 1 else stem[:60] for number in itertools.count(1))
    name = next(name for name in names if name.casefold() not in taken)
    taken.add(name.casefold())
    return name


def _format_of(output: Path | None) -> Format:
    known = {".csv": Format.csv, ".json": Format.json, ".txt": Format.table}
    if output is not None and output.suffix.lower() not in known:
        raise InputError(f"The name {output.name!r} does not end in {', '.join(known)}: pass --format.")
    return Format.table if output is None else known[output.suffix.lower()]


def _as_json(
    rows: Sequence[Predicted],
    unreadable: Mapping[str, str],
    skipped: Sequence[str],
    thresholds: Mapping[str, float | None],
    drawn: Mapping[str, Path],
) -> str:
    def finding(name: str, row: Predicted) -> dict[str, Any]:
        value = round(row.probabilities[name], 6)
        return {"probability": value, "threshold": thresholds[name], "positive": row.positive[name]}

    images = [
        {
            "file": _encodable(row.file),
            "findings": {name: finding(name, row) for name in row.probabilities},
            **({"heat_map": _encodable(str(drawn[row.file]))} if row.file in drawn else {}),
        }
        for row in rows
    ]
    failed = [{"file": _encodable(name), "reason": _encodable(reason)} for name, reason in unreadable.items()]
    document = {"images": images, "unreadable": failed, "skipped": [_encodable(name) for name in skipped]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _as_csv(rows: Iterable[Predicted], thresholds: Mapping[str, float | None]) -> Iterator[str]:
    """One row for each image: file, a probability for each finding, and the findings that reach their threshold.

    Text that a spreadsheet would run as a formula has an apostrophe before it.
    """
    from bomd.data.cells import csv_text

    yield csv_text([("file", *thresholds, ABOVE)])
    for row in rows:
        above = [name for name in row.probabilities if row.positive[name]]
        numbers = [f"{value:.4f}" for value in row.probabilities.values()]
        yield csv_text([(_encodable(row.file), *numbers, "|".join(above))])


def _as_table(rows: Sequence[Predicted], thresholds: Mapping[str, float | None], console: Console) -> str:
    names = (Column(heading, overflow="fold") for heading in ("image", "finding"))
    numbers = (Column(heading, justify="right", no_wrap=True) for heading in ("probability", "threshold"))
    table = Table(*names, *numbers, Column("reached", justify="center", no_wrap=True))
    for row in rows:
        ranked = row.ranked()
        shown = [name for place, name in enumerate(ranked) if place < SHOWN or row.positive[name]]
        for place, name in enumerate(shown):
            reached = row.positive[name]
            table.add_row(
                escape(_printable(row.file)) if not place else "",
                escape(_printable(name)),
                f"{row.probabilities[name]:.3f}",
                "–" if thresholds[name] is None else f"{thresholds[name]:.3f}",
                "●" if reached else "",
                style="bold" if reached else None,
                end_section=place + 1 == len(shown),
            )
    with console.capture() as captured:
        if rows:
            console.print(table)
        without = [name for name, threshold in thresholds.items() if threshold is None]
        if rows and len(thresholds) > SHOWN:
            others = "all findings" if len(without) == len(thresholds) else "findings that do not reach a threshold"
            console.print(f"Of {others} the {SHOWN} most probable are shown; CSV and JSON have all.")
        if rows and len(without) == len(thresholds) and None in rows[0].positive.values():
            console.print("The model has no thresholds: its README.md says why.")
    return captured.get()


def _printable(text: str) -> str:
    """Text that cannot move a terminal's cursor."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _encodable(text: str) -> str:
    """Text that can be written as UTF-8: names of files need not be."""
    return text.encode("utf-8", "backslashreplace").decode()


def _complain(text: str, style: str = "red") -> None:
    Console(emoji=False, stderr=True, soft_wrap=True).print(
        _printable(text), style=style, markup=False, highlight=False
    )
