"""The metadata of a folder of images, as Hugging Face's `imagefolder` reads it: one line per image.

    file_name, id, patient   text; the file is named from the folder that the metadata is in
    labels                   names of the classes that are given
    given, ...               see `bomd.exchange.rows`

As `metadata.csv` the columns are those of `bomd.exchange.table`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bomd.errors import InputError
from bomd.exchange import table
from bomd.exchange.documents import checked, field, listed, read_json_lines
from bomd.exchange.judgement import Judgement, positives
from bomd.exchange.rows import columns_of, from_rows, names_below, to_rows
from bomd.files import write_text
from bomd.tables import LabelTable


def write(judgement: Judgement, path: Path) -> None:
    """Write `metadata.jsonl` or `metadata.csv` into the folder above the images."""
    names = _file_names(judgement.given, path)
    if path.suffix.lower() == ".csv":
        frame = table.to_frame(judgement)
        frame.insert(0, "file_name", names)
        return table.save(frame, path, for_spreadsheets=False)  # files are found by exactly these names
    labels = [positives(values, judgement.given.classes) for values in judgement.given.values]
    whole = zip(names, labels, to_rows(judgement), strict=True)
    lines = [{"file_name": name, "labels": listed, **row} for name, listed, row in whole]
    return write_text(path, "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines))


def read(path: Path, classes: Sequence[str] | None = None) -> Judgement:
    """Read `metadata.jsonl` or `metadata.csv`.

    Args:
        classes: The classes; by default those that occur.
    """
    if path.suffix.lower() == ".csv":
        return table.read(path, classes=classes)
    rows, lists = [], []
    for place, line in enumerate(read_json_lines(path), 1):
        where = f"{path}, line {place}"
        named = {name: checked(line.get(name) or {}, dict, where) for name in ("given", "proposed", "wrong")}
        rows.append(line | named | {"id": field(line, "id" if "id" in line else "file_name", str, where)})
        lists.append([] if line.get("labels") is None else [listed(line["labels"], where)])
    mentioned = [checked(name, str, str(path)) for part in ("given", "proposed") for row in rows for name in row[part]]
    columns = columns_of([*(classes or ()), *mentioned], {name for row in lists for one in row for name in one}, path)
    paths = [str(path.parent / str(row.get("file_name", ""))) for row in rows]
    return from_rows(rows, columns, str(path), listed=lists, paths=paths)


def _file_names(given: LabelTable, path: Path) -> list[str]:
    """Paths from the folder of the metadata, which is how an image folder names its files."""
    if given.paths is None:
        raise InputError("An image folder needs files, and these images have none; write Parquet.")
    files = [Path(str(image)).resolve() for image in given.paths]
    return names_below(path.parent.resolve(), files, f"so put {path.name} in the folder above them")
