"""The metadata of a folder of images, as Hugging Face's `imagefolder` reads it: one line per image.

    file_name, id, patient   text; the file is named from the folder that the metadata is in
    labels                   names of the classes that are given
    given, proposed          the value of every class by its name, null where unknown
    flag, expected, wrong    whether the image is worth a look, how many of its labels are expected to be wrong, and
                             the probability of each

As `metadata.csv` the columns are those of `bomd.exchange.table`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bomd.data.datasets.folder import CLASSES
from bomd.errors import InputError
from bomd.exchange import table
from bomd.exchange.documents import checked, field, listed, read_json_lines
from bomd.exchange.judgement import Judgement, as_doubts, by_name, from_lists, from_names, number, ordered, positives
from bomd.files import write_text
from bomd.tables import LabelTable


def write(judgement: Judgement, path: Path) -> None:
    """Write `metadata.jsonl` or `metadata.csv` into the folder above the images."""
    given, proposed, doubts = judgement.given, judgement.proposed, judgement.doubts
    names = _file_names(given, path)
    if path.suffix.lower() == ".csv":
        frame = table.to_frame(judgement)
        frame.insert(0, "file_name", names)
        return table.save(frame, path, for_spreadsheets=False)  # files are found by exactly these names
    lines = []
    for row, name in enumerate(names):
        line: dict[str, Any] = {"file_name": name, "id": str(given.ids[row])}
        if given.patients is not None:
            line["patient"] = str(given.patients[row])
        line |= {"labels": positives(given.values[row], given.classes)}
        line["given"] = by_name(given.values[row], given.classes)
        if proposed is not None:
            line["proposed"] = by_name(proposed.values[row], given.classes)
        if doubts is not None:
            line |= {"flag": bool(doubts.flagged[row]), "expected": number(doubts.expected[row])}
            line["wrong"] = by_name(doubts.wrong[row], given.classes)
        lines.append(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
    return write_text(path, "".join(lines))


def read(path: Path, classes: Sequence[str] | None = None) -> Judgement:
    """Read `metadata.jsonl` or `metadata.csv`.

    Args:
        path: The file.
        classes: The classes; by default those that occur.
    """
    if path.suffix.lower() == ".csv":
        return table.read(path, classes=classes)
    lines = read_json_lines(path)
    where = [f"{path}, line {number}" for number in range(1, len(lines) + 1)]
    ids = [
        field(line, "id" if "id" in line else "file_name", str, place) for line, place in zip(lines, where, strict=True)
    ]
    given = [checked(line.get("given") or {}, dict, place) for line, place in zip(lines, where, strict=True)]
    proposed = [checked(line.get("proposed") or {}, dict, place) for line, place in zip(lines, where, strict=True)]
    named = [
        None if line.get("labels") is None else listed(line["labels"], place)
        for line, place in zip(lines, where, strict=True)
    ]
    mentioned = [checked(name, str, str(path)) for row in (*given, *proposed) for name in row]
    known = list(dict.fromkeys([*(classes or ()), *mentioned]))
    columns = (*known, *ordered({name for row in named if row for name in row} - set(known)))
    if not columns:
        raise InputError(f"{path} names no class; {CLASSES}.")
    own = any(given)
    lists = [[] if row is None else [row] for row in named]
    values = from_names(given, columns, str(path)) if own else from_lists(lists, columns)
    patients = [line.get("patient") for line in lines]
    labels = LabelTable(
        np.asarray(ids, dtype=np.str_),
        columns,
        values,
        paths=np.asarray([str(path.parent / str(line.get("file_name", ""))) for line in lines], dtype=np.str_),
        patients=np.asarray(patients, dtype=np.str_) if all(isinstance(name, str) for name in patients) else None,
    )
    doubts = None
    if all(isinstance(line.get("flag"), bool) for line in lines):
        wrong = [checked(line.get("wrong") or {}, dict, place) for line, place in zip(lines, where, strict=True)]
        single = [[row.get(name) for name in columns] for row in wrong]
        doubts = as_doubts(ids, [line["flag"] for line in lines], [line.get("expected") for line in lines], single)
    better = labels.replace(from_names(proposed, columns, str(path))) if any(proposed) else None
    return Judgement(labels, better, doubts)


def _file_names(given: LabelTable, path: Path) -> list[str]:
    """Paths from the folder of the metadata, which is how an image folder names its files."""
    if given.paths is None:
        raise InputError("An image folder needs files, and these images have none; write Parquet.")
    place = path.parent.resolve()
    try:
        return [Path(str(image)).resolve().relative_to(place).as_posix() for image in given.paths]
    except ValueError:
        raise InputError(f"Images are not below {path.parent}: put {path.name} in the folder above them.") from None
