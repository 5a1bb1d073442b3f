"""The command that takes labels to other tools and back: convert."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bomd.cli import options as shared


def convert(
    source: Annotated[Path, typer.Argument(help="A finished run, a label file, or what another tool has exported.")],
    output: Annotated[Path, shared.output("The file to write; for fiftyone a folder.")],
    read_as: Annotated[
        str | None, shared.option("What SOURCE is, where its name does not say so.", "FORM", "--from")
    ] = None,
    write_as: Annotated[
        str | None,
        shared.option(
            "table, parquet, cleanlab, fiftyone, torchxrayvision, label-studio, cvat, hugging-face or "
            "image-folder; by default what the name of the output says.",
            "FORM",
            "--to",
        ),
    ] = None,
    options: Annotated[
        list[str] | None,
        shared.setting(
            "A setting of either form, e.g. --set images=DIR for a label file, --set root=DIR for label-studio "
            "(repeatable); see docs/ecosystem.md."
        ),
    ] = None,
) -> None:
    """Take labels, proposals and flags to another tool, or bring back what was decided there.

    `bomd convert runs/mine/bomd/seed0-... --to label-studio -o tasks.json --set root=/data` makes tasks with
    pre-annotations; `bomd convert export.json --from label-studio -o reviewed.csv` reads the annotated ones.

    Given labels stay as they are beside the proposed ones, and what is unknown stays unknown.
    """
    from bomd import exchange
    from bomd.config import override

    done = exchange.convert(source, output, read_as, write_as, override({}, options or ()))
    beside = ", proposals" if done.proposed is not None else ""
    beside += f", {int(done.doubts.flagged.sum()):,} flagged" if done.doubts is not None else ""
    print(f"{len(done):,} images, {len(done.given.classes)} classes{beside}: {output}")
