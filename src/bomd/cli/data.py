"""Commands about a dataset before anything is trained on it: example, verify, prepare, labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from bomd.cli.options import ImageMode, Mode, flag, option, output, setting, typed
from bomd.errors import InputError

if TYPE_CHECKING:
    from bomd.data.chosen import Chosen

KNOWN = "nih, chexpert, openi, padchest, nih-google, phantom, or folder for data of your own."
Name = Annotated[str, typer.Argument(metavar="NAME", help=KNOWN)]
DataRoot = Annotated[Path | None, option("The folder of the dataset, as downloaded.", "DIR", "--root")]
ReaderOptions = Annotated[
    list[str] | None,
    setting("An argument of the dataset's reader, as in a recipe's [train], e.g. --set split=test (repeatable)."),
]


def example(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    count: Annotated[int, typer.Option("--images", min=2, help="How many images.")] = 600,
    size: Annotated[int, typer.Option(min=16, help="Side of the images in pixels.")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Another number gives other patients and other mistakes.")] = 0,
) -> None:
    """Write a small set to play with: generated chest X-rays and labels, some of which are wrong.

    `labels.csv` has wrong labels in one row of five; `truth.csv` has the right ones, to see what an audit finds.
    """
    from bomd.audits.example import write_example

    labels = write_example(folder, count, size, seed)
    print(f"{count:,} images in {folder / 'images'}, labels in {labels}, the right ones in {folder / 'truth.csv'}")
    print(f"Next: {typed('audit', labels, '--images', folder / 'images')}")


def verify(
    name: Name,
    root: DataRoot = None,
    options: ReaderOptions = None,
    deep: Annotated[bool, flag("--deep", "Decode every image and look for copies.")] = False,
) -> None:
    """Check a dataset before time is spent on it; the exit code is 1 if something is wrong.

    Missing, empty, unreadable or doubled images; ids and patients in two splits; "No Finding" beside a finding;
    and every count against that of the published label files. Quick, unless `--deep` decodes all images.

    `bomd verify nih --root data/nih` checks everything, `--set split=train` one split, and `--set images=false`
    labels alone. An argument that changes counts, such as `--set frontal=false`, switches the comparison off.
    """
    chosen = _choose(name, root, options)
    found = chosen.verify(deep=deep)
    Console(emoji=False).print(found.render())
    if chosen.incomparable is not None:
        print(f"Counts were not compared: the published ones are not with {chosen.incomparable}.")
    if not found.ok:
        raise typer.Exit(1)


def prepare(
    name: Name,
    size: Annotated[int, typer.Option(min=8, help="Side of the packed images in pixels.")],
    root: DataRoot = None,
    place: Annotated[Path, output("Where packed images are kept.", "DIR")] = Path("runs/stages"),
    options: ReaderOptions = None,
    skip_broken: Annotated[bool, flag("--skip-broken", "Leave out and list images that cannot be read.")] = False,
    mode: ImageMode = Mode.auto,
    shard: Annotated[
        str | None, option("Pack this share alone, such as 3/16; others may run meanwhile.", "NUMBER/COUNT")
    ] = None,
    join: Annotated[bool, flag("--join", "Make one store of all shards, after checking them.")] = False,
) -> None:
    """Decode the images of a dataset once and pack them at a size, all splits or the one that is set.

    Killed or interrupted, the same command goes on where it stopped. `bomd run` does this by itself; with the
    size, root and options of its recipe it finds what is already packed in `runs/stages`.

    A large set is packed by several processes or machines: each runs the same command with `--shard 1/16` to
    `--shard 16/16`, and at the end one with `--join`, which checks every image and names shards that are missing.

    `bomd prepare nih --root data/nih --size 512 --set split=train` prepares the training images of the recipe nih.
    """
    from functools import partial

    import torch

    from bomd.config import Config, ImageSettings
    from bomd.data.shards import Shard, pack_shard
    from bomd.data.shards import join as join_shards
    from bomd.experiments.packing import pack_images, skipped_images
    from bomd.runs import Stages

    if join and shard is not None:
        raise InputError("--shard and --join: pack all shards first, then join them with a command of its own.")
    way = join_shards if join else None if shard is None else partial(pack_shard, shard=Shard.read(shard))
    chosen = _choose(name, root, options)
    config = Config(images=ImageSettings(size=size, skip_broken=skip_broken, mode=mode.value))
    for split, table in chosen.tables().items():
        packed = pack_images(table, chosen.dataset, config, Stages(place), torch.device("cpu"), way=way)
        kept = " in colour" if packed.store.colour else ""
        which = f", shard {shard}" if shard is not None else ""
        print(f"{split}{which}: {len(packed.store):,} images at {size} x {size}{kept} in {packed.store.directory}")
        for note in skipped_images({split: packed}):
            print(note)


def labels(
    name: Name,
    root: DataRoot = None,
    class_name: Annotated[str | None, option("Show the raw terms behind this class.", "CLASS", "--class")] = None,
    options: ReaderOptions = None,
) -> None:
    """Count the labels of a dataset, or show which words of the label file became a class.

    Without `--class`: positives, negatives and unlabelled images of every class and split. With it: the raw terms
    that count as the class and the number of images each brings, and terms that sound like it and do not count,
    so that a radiologist can object. No image is needed.

    `bomd labels openi --root data/openi --class Effusion` shows that a pericardial effusion is not one.
    """
    from bomd.data.chosen import count_labels

    chosen = _choose(name, root, options)
    for split, table in zip(chosen.splits, chosen.tables(images=False).items(), strict=True):
        title = f"{name}, {table[0]}: {len(table[1]):,} images"
        counts = count_labels(table[1])
        if class_name is None:
            _print_counts(title, ["class", "positive", "negative", "not labelled"], counts)
        else:
            title += "".join(f", {row[1]:,} with {class_name}" for row in counts if row[0] == class_name)
            terms = chosen.terms_behind(class_name, split)
            rows = [(term, images, "yes" if counted else "no") for term, images, counted in terms]
            _print_counts(title, ["term", "images", "counts"], rows)


def _choose(name: str, root: Path | None, overrides: Sequence[str] | None) -> Chosen:
    from bomd.config import override
    from bomd.data.chosen import choose

    return choose(name, root, override({}, overrides or ()))


def _print_counts(title: str, headings: Sequence[str], rows: Iterable[tuple[str, *tuple[int | str, ...]]]) -> None:
    """A table of a name and numbers in each row."""
    numbers = (Column(heading, justify="right") for heading in headings[1:])
    table = Table(Column(headings[0], overflow="fold"), *numbers)
    for name, *cells in rows:
        table.add_row(escape(name), *(cell if isinstance(cell, str) else f"{cell:,}" for cell in cells))
    print(title)
    Console(emoji=False).print(table)
