"""The metadata of a folder of images, as Hugging Face's `imagefolder` reads it: one line per image.

    file_name, id, patient   text; the file is named from the folder that the metadata is in
    labels                   names of the classes that are given
    given, ...               see `bomd.exchange.judgement.to_rows`

As `metadata.csv` the columns are those of `bomd.exchange.table`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bomd.audits.columns import chosen
from bomd.errors import InputError
from bomd.exchange import table
from bomd.exchange.documents import field, listed, read_json_lines
from bomd.exchange.judgement import Judgement, from_rows, names_below, parts_of, to_rows
from bomd.files import spare, unpacked, write_pieces


def write(judgement: Judgement, path: Path) -> None:
    """Write `metadata.jsonl` or `metadata.csv` into the folder above the images."""
    given = judgement.given
    if given.paths is None:
        raise InputError("An image folder needs files, and these images have none; write Parquet.")
    names = names_below(path.parent, given.paths, f"so put {path.name} in the folder above them")
    if unpacked(path).suffix.lower() == ".csv":
        frame = table.to_frame(judgement)
        frame.insert(0, "file_name", names)
        return table.save(frame, path, for_spreadsheets=False)  # files are found by exactly these names
    spare(path, r'{"file_name": "[^\n]*", "labels": \[[^\n]*\], "id": "')
    whole = zip(names, given.values, to_rows(judgement), strict=True)
    lines = ({"file_name": name, "labels": chosen(given, values), **row} for name, values, row in whole)
    return write_pieces(path, (json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines))


def read(path: Path, classes: Sequence[str] | None = None) -> Judgement:
    """Read `metadata.jsonl` or `metadata.csv`; the classes are by default those that occur."""
    if unpacked(path).suffix.lower() == ".csv":
        return table.read(path, classes=classes)
    rows, lists = [], []
    for place, line in enumerate(read_json_lines(path), 1):
        where = f"{path}, line {place}"
        name = field(line, "id" if "id" in line else "file_name", str, where)
        rows.append(line | parts_of(line, where) | {"id": name})
        lists.append([] if line.get("labels") is None else [listed(line["labels"], where)])
    paths = [str(path.parent / str(row.get("file_name", ""))) for row in rows]
    return from_rows(rows, classes or (), str(path), listed=lists, paths=paths)
