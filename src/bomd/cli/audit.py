"""The command for data of one's own: audit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bomd.cli import options
from bomd.cli.options import ImageMode, Mode, flag, option, say, setting, typed
from bomd.errors import InputError

SHOWN = 10  # most suspect images in the closing summary


def audit(
    labels: Annotated[Path, typer.Argument(help="CSV or TSV, compressed or not, Parquet or Excel: one row per image.")],
    images: Annotated[Path | None, option("The folder of the images, at any depth.", "DIR", "--images")] = None,
    output: Annotated[Path | None, options.output("Where results go; by default LABELS-audit here.", "DIR")] = None,
    size: Annotated[int | None, option("Side of the images in pixels, instead of what fits.")] = None,
    mode: ImageMode = Mode.auto,
    single: Annotated[
        bool | None,
        typer.Option(
            "--single-label/--multi-label",
            help="Whether every image has one class or may have several; by default as the table looks.",
            show_default=False,
        ),
    ] = None,
    features: Annotated[
        Path | None,
        option(
            "Your own embeddings: .npy with one row per row of LABELS, or .npz with ids and features. "
            "No network is trained then; the images are needed all the same, to be looked at.",
            "FILE",
        ),
    ] = None,
    probabilities: Annotated[
        Path | None,
        option(
            "Probabilities of the labels by a model of yours that never saw the image: .npy with one row per row "
            "of LABELS and one column per class, or .npz with ids, probabilities and maybe classes. The images are "
            "needed all the same, to be looked at.",
            "FILE",
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        option(
            "A network that somebody trained, whose features judge the labels: hf:NAME_OR_FOLDER (Hugging Face), "
            "timm:NAME, efficientnet_lite0 or densenet121. No network is trained then.",
            "NAME",
        ),
    ] = None,
    rates: Annotated[
        Path | None,
        option("How often labels are wrong, where somebody measured it: columns class, miss, false_alarm.", "CSV"),
    ] = None,
    minutes: Annotated[
        float | None, option("How long training may take; by default 10 on a CPU and 30 on a GPU.")
    ] = None,
    weights: Annotated[
        str | None,
        option(
            "What networks start from: imagenet+phantom, or phantom for the small network, learns chests from "
            "generated X-rays first; self learns your images without their labels; a model folder."
        ),
    ] = None,
    plan_only: Annotated[bool, flag("--plan", "Say what would be done and how long, and stop.")] = False,
    skip_missing: Annotated[bool, flag("--skip-missing", "Leave out rows whose image is not there.")] = False,
    drop_duplicates: Annotated[bool, flag("--drop-duplicates", "Of rows with the same id, keep the first.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn at random.")] = 0,
    overrides: Annotated[
        list[str] | None, setting("What the columns are, e.g. --set id_column=file (repeatable).")
    ] = None,
) -> None:
    """Find what looks mislabelled in your own images, and propose better labels.

    Writes `labels_clean.csv` (your columns as they are, then flags and proposals), `doubtful_labels.csv` (the most
    doubtful labels one by one), `report.html` and a run directory for `bomd review`. Your file is never changed.
    Interrupted, the same command continues where it stopped. Images that cannot be read are left out and listed.

    For example: bomd audit labels.csv --images photos
    """
    from bomd.audits.audit import carry_out
    from bomd.audits.found import headline, lines
    from bomd.audits.plan import plan
    from bomd.config import override
    from bomd.data.datasets import folder
    from bomd.typed import arguments

    layout = override({}, overrides or ())
    for name in ("root", "labels", "images", "split", "seed"):
        if name in layout:
            raise InputError(f"--set {name}: an audit takes all rows; the table and --images say where they are.")
    layout = arguments(folder.Columns, layout, "--set")
    chosen = plan(
        labels,
        images,
        output=output,
        features=features,
        probabilities=probabilities,
        backbone=backbone,
        rates=rates,
        size=size,
        mode=mode.value,
        per_image="auto" if single is None else "single" if single else "multi",
        minutes=minutes,
        weights=weights,
        seed=seed,
        skip_missing=skip_missing,
        drop_duplicates=drop_duplicates,
        **layout,
    )
    if plan_only:
        return
    found = carry_out(chosen)
    place, left_out = found.directory, [f"left out: {name!r}: {reason}" for name, reason in found.left_out.items()]
    if len(left_out) > SHOWN:
        left_out[SHOWN:] = [f"and {len(left_out) - SHOWN} more; all are in {place / 'audit.json'}"]
    say("\n".join([headline(found), *found.opinion.reasons, *left_out]))
    say("\n".join(["The most suspect, given -> proposed:", *lines(found, SHOWN)]))
    say(f"Labels: {place / 'labels_clean.csv'}")
    say(f"Doubtful labels one by one: {place / 'doubtful_labels.csv'}")
    say(f"Report: {place / 'report.html'}")
    if found.record.flagged.any() or found.record.changes:
        say(f"Next, let a person decide: {typed('review', place, '--open')}")
