"""The table that a run's labels came from, kept beside the run, so that reviewed labels go back as they came."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bomd.audits.given import Given
from bomd.audits.rewrite import Form
from bomd.data.datasets import folder
from bomd.data.datasets.corrected import details_beside
from bomd.data.label_files import kind_of, read_verbatim
from bomd.data.records import Records
from bomd.errors import InputError
from bomd.files import read_json, write_json, write_pieces
from bomd.runs import Run
from bomd.typed import convert, table

TABLE, FORM = "table.csv", "table.json"


@dataclass(frozen=True, eq=False)
class Kept:
    """A user's own table."""

    records: Records
    form: Form
    suffix: str
    details: Path  # who decided what about its labels in earlier reviews; the file need not exist


def keep(given: Given, directory: Path) -> None:
    """Put the given table and its form down in a run directory, with the details of earlier reviews."""
    suffix = Path(given.name).suffix.lower()
    form = asdict(form_of(given.layout))
    write_json(directory / FORM, {"suffix": suffix if suffix in (".csv", ".tsv") else ".csv", **form})
    write_pieces(directory / TABLE, given.records.lines())
    if given.details is not None:
        shutil.copyfile(given.details, details_beside(directory / TABLE))


def find(directory: Path) -> Kept | None:
    """The table of a run: the one that was kept, or that of the folder which its recipe names; else None."""
    if (directory / FORM).is_file():
        where = f"{directory / FORM} is damaged, audit again"
        facts = table(read_json(directory / FORM), where)
        suffix = str(facts.pop("suffix", ".csv"))
        form = convert(facts, Form, where)
        return Kept(read_verbatim(directory / TABLE)[1], form, suffix, details_beside(directory / TABLE))
    if not (directory / "config.json").is_file():
        return None
    train = Run(directory).config().get("train", {})
    return _of_folder(train) if isinstance(train, dict) and train.get("dataset") == "folder" else None


def _of_folder(train: dict[str, Any]) -> Kept | None:
    """The table that a recipe reads, as it is now."""
    root = Path(str(train["root"]))
    try:
        file = folder.label_file(root, train.get("labels"))
        if kind_of(file) in ("Parquet file", "Excel workbook"):  # no text to change cells of
            return None
        frame, records = read_verbatim(file)
        index, said = folder.index_of(root, train.get("images")), folder.Columns.among(train)
        layout = folder.understand(frame, file, index, said)
    except InputError:  # moved or changed since: the labels of the run itself then have to do
        return None
    earlier = Path(str(train.get("labels_from", layout.file)))
    details = earlier if earlier.stem.endswith("-details") else details_beside(earlier)
    return Kept(records, form_of(layout), layout.file.suffix, details)


def form_of(layout: folder.Layout) -> Form:
    return Form(layout.id_column, layout.label_column, layout.delimiter, layout.class_columns, layout.classes)
