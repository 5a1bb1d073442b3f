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
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree.ElementTree import Element

import numpy as np

from bomd.audits.columns import chosen
from bomd.errors import InputError
from bomd.exchange.documents import checked, element, field, listed, read_json, refuse_stream, write_items, write_xml
from bomd.exchange.judgement import Judgement, from_rows, image_names, parts_of, soundness, to_rows
from bomd.files import spare
from bomd.tables import LabelTable

LOCAL = "/data/local-files/?d="  # how Label Studio addresses files below its document root
CONTROL, PICTURE = "labels", "image"  # names in the labelling set-up
GIVEN, PROPOSED = "given", "bomd"  # whose opinion a prediction is
TASKS = r'\[\n({"data": {"image": |\]\n)'  # how they begin here; of those that Label Studio exports the first is the id
SET_UP = rf'<View>\n  <Image name="{PICTURE}" value="\$image" />\n  <Choices name="{CONTROL}" toName="{PICTURE}" '


def write(judgement: Judgement, path: Path, root: Path | None = None, address: str = LOCAL) -> None:
    """Write tasks as JSON, and the labelling set-up beside it.

    Args:
        root: The folder that the addresses start from, Label Studio's LOCAL_FILES_DOCUMENT_ROOT. Without it the
            images' paths are taken as they are.
        address: What stands before the path of an image in its address.
    """
    given, beside = judgement.given, path.with_suffix(".xml")
    refuse_stream(path, beside)
    if beside == path:
        raise InputError(f"{path} cannot be both the tasks and their labelling set-up: name a .json file.")
    spare(path, TASKS)
    spare(beside, SET_UP)
    set_up = Element("View")
    element(set_up, "Image", name=PICTURE, value="$image")
    several = "single" if given.exclusive else "multiple"
    choices = element(set_up, "Choices", name=CONTROL, toName=PICTURE, choice=several)
    for name in given.classes:
        element(choices, "Choice", value=name)
    places = image_names(given, root, "from where images are served; pass another root")
    whole = zip(to_rows(judgement), places, strict=True)
    tasks = (_task(judgement, row, cells, address + quote(place)) for row, (cells, place) in enumerate(whole))
    write_items(path, tasks)
    write_xml(beside, set_up)


def read(path: Path, classes: Sequence[str] | None = None) -> Judgement:
    """Read tasks as Label Studio exports them (JSON, not JSON-MIN), or as they were written here.

    With several annotations of a task a label is the share of annotators who chose it; cancelled ones do not count. As
    soon as any task is annotated, a task that is not is unknown: predictions that nobody confirmed are no decisions.

    What people decided (or, without any annotation, what was proposed) stands beside the given labels; of tasks that
    were not made here, it is the given labels, of these classes or all that were ever chosen.
    """
    tasks = [checked(task, dict, f"{path}, task") for task in checked(read_json(path), list, str(path))]
    if not tasks:
        raise InputError(f"{path} holds no tasks.")
    rows, lists = [], []
    for number, task in enumerate(tasks, 1):
        where = f"{path}, task {number}"
        data = field(task, "data", dict, where)
        rows.append(data | parts_of(data, where) | {"id": _id_of(data, where)})
        lists.append(_choices(task, where))
    return from_rows(rows, classes or (), str(path), listed=lists, decided=lists if any(lists) else None)


def _task(judgement: Judgement, row: int, cells: dict[str, Any], place: str) -> dict[str, Any]:
    proposed, doubts = judgement.proposed, judgement.doubts
    predictions = [{"model_version": GIVEN, "result": _result(judgement.given, row)}]
    if proposed is not None:
        prediction: dict[str, Any] = {"model_version": PROPOSED, "result": _result(proposed, row)}
        if doubts is not None and doubts.rank is not None:
            prediction["score"] = doubts.rank[row] / (len(judgement) + 1)
        elif doubts is not None and not np.isnan(doubts.expected[row]):
            prediction["score"] = float(soundness(doubts.expected[row : row + 1])[0])
        predictions.append(prediction)
    return {"data": {"image": place, **cells}, "predictions": predictions}


def _result(labels: LabelTable, row: int) -> list[dict[str, Any]]:
    value = {"choices": chosen(labels, labels.values[row])}
    return [{"from_name": CONTROL, "to_name": PICTURE, "type": "choices", "value": value}] if value["choices"] else []


def _id_of(data: dict[str, Any], where: str) -> str:
    """The id that was sent, or the name of the file; Label Studio puts eight signs before that of an upload."""
    if "id" in data:
        return field(data, "id", str, where)
    address = field(data, "image", str, where)
    name = file_of(address)
    return checked(re.sub(r"^[0-9a-f]{8}-", "", Path(name).name) if "/data/upload/" in address else name, str, where)


def file_of(address: str) -> str:
    """The path or file name inside an address: of a web page, of Label Studio's local files, or a plain path."""
    if "://" not in address and not address.startswith("/data/"):
        return address
    parts = urlsplit(address)
    local = parse_qs(parts.query).get("d")
    return local[0] if local else unquote(parts.path).rpartition("/")[2]


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
