"""Audit a table of labels: judge them, propose others, and write it all down beside the given ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from bomd import progress
from bomd.audits.columns import MOVED, cells, names, number
from bomd.audits.found import FACTS, LONG, PAGE, RUNS, TABLE, Audit
from bomd.audits.given import Given
from bomd.audits.kept import keep
from bomd.audits.plan import Plan, plan
from bomd.audits.untrained import run_untrained
from bomd.data.cells import harmless
from bomd.data.colour import Mode
from bomd.data.datasets import DATASETS, folder
from bomd.data.one_label import Labels
from bomd.experiments.experiment import run_on
from bomd.experiments.records import load_record
from bomd.files import write_json, write_pieces, write_text
from bomd.reports.report import write_report
from bomd.tables import LabelTable
from bomd.typed import check_keywords

FORMAT = 1


@progress.shown()
def audit(
    table: LabelTable | pd.DataFrame | str | Path,
    images: str | Path | None = None,
    *,
    output: str | Path | None = None,
    features: str | Path | None = None,
    probabilities: str | Path | None = None,
    backbone: str | None = None,
    rates: str | Path | None = None,
    size: int | None = None,
    mode: Mode = "auto",
    per_image: Labels = "auto",
    minutes: float | None = None,
    weights: str | None = None,
    seed: int = 0,
    skip_missing: bool = False,
    drop_duplicates: bool = False,
    **layout: Any,
) -> Audit:
    """Find what looks mislabelled and propose better labels; the given ones are never changed.

    The same call continues where an earlier one stopped, and returns at once where it is done.

    Args:
        table: A CSV, TSV (`.gz`, too), Parquet or Excel file, a data frame with the same columns, or labels.
        images: The folder of the images.
        output: Where results are written; by default a folder named after the table, in the working directory.
        features: Embeddings of the images, `.npy` with one row per row of the table or `.npz` with "ids" and
            "features"; no network is trained then.
        probabilities: Of the labels by a model of your own that never saw the image, likewise, with one column per
            class; `.npz` may name its columns in "classes". No network is trained then.
        backbone: A network that somebody trained, such as "hf:microsoft/rad-dino" or "hf:" and a folder: its features
            are computed once and judge the labels. No network is trained then.
        rates: A CSV with the columns class, miss and false_alarm, where somebody measured how often labels are wrong.
        size: Side of the images in pixels; by default what fits the time.
        mode: Keep images in "grey" or "colour"; "auto" keeps colour if a sample of the files has any.
        per_image: Whether an image has a "single" label or may have several ("multi"); "auto" looks at the table.
        minutes: How long training may take; by default 10 on a CPU and 30 on a GPU.
        weights: What networks start from, as `fit.weights` has them, such as "imagenet+phantom" for chest X-rays; by
            default ImageNet where there are such weights.
        seed: Of everything that is drawn at random.
        skip_missing: Leave out rows whose image is not there, instead of refusing them.
        drop_duplicates: Keep the first row of an id that occurs again, instead of refusing the table.
        layout: What the columns are, as for the dataset `folder`, such as `id_column="file"`.
    """
    check_keywords("bomd.audit", layout, audit, folder.Columns)
    planned = plan(
        table,
        images,
        output=output,
        features=features,
        probabilities=probabilities,
        backbone=backbone,
        rates=rates,
        size=size,
        mode=mode,
        per_image=per_image,
        minutes=minutes,
        weights=weights,
        seed=seed,
        skip_missing=skip_missing,
        drop_duplicates=drop_duplicates,
        **layout,
    )
    return carry_out(planned)


def carry_out(plan: Plan) -> Audit:
    """Train, or take what is given, and write labels, report and run directory."""
    root = plan.output / RUNS
    choice = None if plan.choice is None else asdict(plan.choice)
    facts: dict[str, Any] = {"format": FORMAT, "given": plan.given.name, "request": plan.request}
    facts |= {"choice": choice, "rates": plan.rates}
    write_json(plan.output / FACTS, facts)
    if plan.choice is not None:
        with plan.choice.at_work():
            run = run_on(plan.config(), {"train": (plan.labels, DATASETS["folder"])}, root=root)
    else:
        assert plan.stand_in is not None
        run = run_untrained(plan.config(), plan.labels, plan.stand_in.values, root)
    keep(plan.given, run.directory)
    record = load_record(run.directory)
    left_out = dict.fromkeys(plan.given.missing, "There is no image of that name.")
    found = Audit(plan.output, run, record, left_out, plan.notes)
    left_out |= {broken["id"]: broken["reason"] for broken in found.store().broken}
    facts |= {"run": str(run.directory.relative_to(plan.output)), "left_out": left_out, "notes": list(plan.notes)}
    write_pieces(plan.output / TABLE, _clean_table(plan.given, found))
    write_text(plan.output / LONG, _long_table(found))
    write_report([run], plan.output / PAGE)
    write_json(plan.output / FACTS, facts)
    return found


def _clean_table(given: Given, found: Audit) -> Iterator[str]:
    """The given table with the columns of the audit; rows that were left out have blanks there."""
    record, headings = found.record, names(found.record.given.classes, found.record.given.exclusive)
    judged = {name: row for row, name in enumerate(record.given.ids.tolist())}
    row_of = {place: judged.get(name) for place, name in zip(given.rows, given.labels.ids.tolist(), strict=True)}
    places = (row_of.get(place) for place in range(len(given.records.rows)))
    return given.records.beside(headings, cells(record, places))


def _long_table(found: Audit) -> str:
    """The most doubtful labels as CSV; names that a spreadsheet would run as a formula are made harmless."""
    table = found.doubtful()
    for name in table.columns.intersection(["image", "patient", "class", MOVED]):
        table[name] = [harmless(str(cell)) for cell in table[name]]
    table["given"], table["wrong"] = ([number(value) for value in table[name]] for name in ("given", "wrong"))
    return str(table.to_csv(index=False, lineterminator="\n"))
