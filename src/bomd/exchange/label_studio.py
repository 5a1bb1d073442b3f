"""Label Studio: tasks with pre-annotations out, annotations back.

Every task carries the given labels in its data, so that an export brings them back beside what people decided. The
first prediction is what was given, the second what is proposed; Label Studio orders tasks by the score of a prediction,
lowest first, which puts the most suspect images on top. The labelling set-up is written beside the tasks as `.xml`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element

import numpy as np

from bomd.data.datasets.folder import CLASSES
from bomd.errors import InputError
from bomd.exchange.documents import checked, element, field, listed, read_json, write_xml
from bomd.exchange.judgement import (
    Judgement,
    as_doubts,
    by_name,
    file_of,
    from_lists,
    from_names,
    number,
    ordered,
    positives,
    soundness,
)
from bomd.files import write_json
from bomd.tables import LabelTable

LOCAL = "/data/local-files/?d="  # how Label Studio addresses files below its document root
CONTROL, PICTURE = "labels", "image"  # names in the labelling set-up
GIVEN, PROPOSED = "given", "bomd"  # whose opinion a prediction is


def write(judgement: Judgement, path: Path, root: Path | None = None, address: str = LOCAL) -> None:
    """Write tasks as JSON, and the labelling set-up beside it.

    Args:
        judgement: What to send.
        path: The file.
        root: The folder that the addresses start from, Label Studio's LOCAL_FILES_DOCUMENT_ROOT. Without it the
            images' paths are taken as they are.
        address: What stands before the path of an image in its address.
    """
    given = judgement.given
    set_up = Element("View")
    element(set_up, "Image", name=PICTURE, value="$image")
    choices = element(set_up, "Choices", name=CONTROL, toName=PICTURE, choice="multiple")
    for name in given.classes:
        element(choices, "Choice", value=name)
    write_json(path, [_task(judgement, row, root, address) for row in range(len(judgement))])
    write_xml(path.with_suffix(".xml"), set_up)


def read(path: Path, classes: Sequence[str] | None = None) -> Judgement:
    """Read tasks as Label Studio exports them (JSON, not JSON-MIN), or as they were written here.

    With several annotations of a task a label is the share of annotators who chose it; cancelled ones do not count. As
    soon as any task is annotated, a task that is not is unknown: predictions that nobody confirmed are no decisions.

    Args:
        path: The file.
        classes: The classes, where tasks do not carry given labels; by default all that were ever chosen.

    Returns:
        Given labels with what people decided (or, without any annotation, what was proposed) beside them; of tasks
        that were not made here, what people decided as the given labels.
    """
    tasks = [checked(task, dict, f"{path}, task") for task in checked(read_json(path), list, str(path))]
    if not tasks:
        raise InputError(f"{path} holds no tasks.")
    data = [field(task, "data", dict, f"{path}, task {row + 1}") for row, task in enumerate(tasks)]
    ids = [_id_of(cells, f"{path}, task {row + 1}") for row, cells in enumerate(data)]
    chosen = [_choices(task, f"{path}, task {row + 1}") for row, task in enumerate(tasks)]
    given = [_names(cells.get("given"), f"{path}, task {row + 1}") for row, cells in enumerate(data)]
    own = any(cells for cells in given)
    known = list(dict.fromkeys([*(classes or ()), *(name for cells in given for name in cells)]))
    names = (*known, *ordered({name for lists in chosen for one in lists for name in one} - set(known)))
    if not names:
        raise InputError(f"{path} names no class: nothing is annotated; {CLASSES}.")
    patients = [cells.get("patient") for cells in data]
    table = LabelTable(
        np.asarray(ids, dtype=np.str_),
        names,
        np.full((len(ids), len(names)), np.nan),
        patients=np.asarray(patients, dtype=np.str_) if all(isinstance(name, str) for name in patients) else None,
    )
    if not own:
        return Judgement(table.replace(from_lists(chosen, names)))
    values = from_names(given, names, str(path))
    if any(chosen):
        proposed = from_lists(chosen, names, np.isnan(values))
    else:
        offered = [_names(cells.get("proposed"), f"{path}, task {row + 1}") for row, cells in enumerate(data)]
        proposed = from_names([{name: row[name] for name in row if name in names} for row in offered], names, str(path))
    if all(isinstance(cells.get("flag"), bool) for cells in data):
        wrong = [_names(cells.get("wrong"), f"{path}, task {row + 1}") for row, cells in enumerate(data)]
        expected, single = (
            [cells.get("expected") for cells in data],
            [[row.get(name) for name in names] for row in wrong],
        )
        doubts = as_doubts(ids, [cells["flag"] for cells in data], expected, single)
    else:
        doubts = None
    table = table.replace(values)
    return Judgement(table, table.replace(proposed) if not np.isnan(proposed).all() else None, doubts)


def _task(judgement: Judgement, row: int, root: Path | None, address: str) -> dict[str, Any]:
    given, proposed, doubts = judgement.given, judgement.proposed, judgement.doubts
    data: dict[str, Any] = {"image": address + quote(_place(given, row, root)), "id": str(given.ids[row])}
    if given.patients is not None:
        data["patient"] = str(given.patients[row])
    data["given"] = by_name(given.values[row], given.classes)
    predictions = [{"model_version": GIVEN, "result": _result(positives(given.values[row], given.classes))}]
    if proposed is not None:
        data["proposed"] = by_name(proposed.values[row], given.classes)
        prediction: dict[str, Any] = {
            "model_version": PROPOSED,
            "result": _result(positives(proposed.values[row], given.classes)),
        }
        if doubts is not None and doubts.rank is not None:
            prediction["score"] = doubts.rank[row] / (len(judgement) + 1)
        elif doubts is not None and not np.isnan(doubts.expected[row]):
            prediction["score"] = float(soundness(doubts.expected[row : row + 1])[0])
        predictions.append(prediction)
    if doubts is not None:
        data |= {"flag": bool(doubts.flagged[row]), "expected": number(doubts.expected[row])}
        data["wrong"] = by_name(doubts.wrong[row], given.classes)
    return {"data": data, "predictions": predictions}


def _result(names: list[str]) -> list[dict[str, Any]]:
    if not names:
        return []
    return [{"from_name": CONTROL, "to_name": PICTURE, "type": "choices", "value": {"choices": names}}]


def _place(given: LabelTable, row: int, root: Path | None) -> str:
    """The path of an image below the root, or its id where images are not files."""
    if given.paths is None:
        return str(given.ids[row])
    path = Path(str(given.paths[row]))
    if root is None:
        return path.as_posix()
    try:
        return path.absolute().relative_to(root.absolute()).as_posix()
    except ValueError:
        raise InputError(
            f"Image {path} is not below {root}, from where images are served; pass another root."
        ) from None


def _id_of(data: dict[str, Any], where: str) -> str:
    """The id that was sent, or the name of the file; Label Studio puts eight signs before that of an upload."""
    if "id" in data:
        return checked(data["id"], str, f"{where}, 'id'")
    address = field(data, "image", str, where)
    name = Path(file_of(address)).name if "/data/upload/" in address else file_of(address)
    return checked(re.sub(r"^[0-9a-f]{8}-", "", name) if "/data/upload/" in address else name, str, where)


def _choices(task: dict[str, Any], where: str) -> list[list[str]]:
    """What each annotator chose."""
    found = []
    for annotation in checked(task.get("annotations") or [], list, f"{where}, 'annotations'"):
        entry = checked(annotation, dict, f"{where}, annotation")
        if entry.get("was_cancelled"):
            continue
        names: list[str] = []
        for region in checked(entry.get("result", []), list, f"{where}, 'result'"):
            region = checked(region, dict, f"{where}, result")
            if region.get("type") == "choices":
                value = field(region, "value", dict, where)
                names += listed(value.get("choices"), f"{where}, choices")
        found.append(names)
    return found


def _names(cells: Any, where: str) -> dict[str, Any]:
    if cells is None:
        return {}
    return {checked(name, str, where): value for name, value in checked(cells, dict, where).items()}
