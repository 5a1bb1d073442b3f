"""CVAT for images 1.1: labels of whole images as tags, out and back.

A tag says that a class is present. One more tag per image, called `bomd`, carries the given labels, the flag and
what is doubted as attributes, which a reviewer sees and which come back with the export. The labels that the task
needs are written beside it as `.labels.json`, to be pasted into the task's raw label editor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from bomd.audits.columns import chosen
from bomd.errors import InputError
from bomd.exchange.documents import checked, element, read_xml, refuse_stream, short, write_xml
from bomd.exchange.judgement import Judgement, from_rows, image_names, to_rows
from bomd.files import spare, write_json

NOTE = "bomd"  # the tag that carries what CVAT has no place for
ATTRIBUTES = ("given", "flag", "expected", "wrong", "id")
WRITTEN = r"<annotations>\n  <version>"  # how annotations begin here; CVAT's have a declaration before
TASK = r'\[\n  {\n    "name": "[^\n]*",\n    "type": "tag",\n    "attributes": '


def write(judgement: Judgement, path: Path, root: Path | None = None) -> None:
    """Write annotations as XML, and the labels of the task beside it.

    Args:
        root: The folder that was uploaded, from which CVAT names images; by default images go by their file names, or
            by id where they are not files.
    """
    given = judgement.given
    if NOTE in given.classes:
        raise InputError(f"A class is called {NOTE!r}, as the tag for remarks is; rename it.")
    beside = path.with_suffix(".labels.json")
    refuse_stream(path, beside)
    spare(path, WRITTEN)
    spare(beside, TASK)
    document = Element("annotations")
    element(document, "version", "1.1")
    task = element(element(document, "meta"), "task")
    element(task, "size", str(len(judgement)))
    element(task, "mode", "annotation")
    labels = element(task, "labels")
    specified = _task_labels(given.classes)
    for specification in specified:
        label = element(labels, "label")
        element(label, "name", specification["name"])
        element(label, "type", specification["type"])
        attributes = element(label, "attributes")
        for attribute in specification["attributes"]:
            item = element(attributes, "attribute")
            for key, value in attribute.items():
                element(item, key, "\n".join(value) if isinstance(value, list) else str(value))
    names = image_names(given, root, "the folder that was uploaded")
    if root is None and given.paths is not None:
        names = [Path(name).name for name in names]
        if len(set(names)) < len(names):
            raise InputError("Several images have the same file name: pass root, the folder that was uploaded to CVAT.")
    write_xml(path, document, _images(judgement, names))
    write_json(beside, specified)


def _images(judgement: Judgement, names: Sequence[str]) -> Iterator[Element]:
    best = judgement.best
    for row, (name, cells) in enumerate(zip(names, to_rows(judgement), strict=True)):
        image = element(Element("annotations"), "image", id=str(row), name=name)
        for present in chosen(best, best.values[row]):
            element(image, "tag", label=present, source="auto")
        note = element(image, "tag", label=NOTE, source="auto")
        for key in (key for key in ATTRIBUTES if key in cells):
            text = cells[key] if isinstance(cells[key], str) else json.dumps(cells[key])
            element(note, "attribute", "" if cells[key] is None else text, name=key)
        yield image


def read(path: Path, classes: Sequence[str] | None = None) -> Judgement:
    """Read annotations as CVAT exports them, or as they were written here; the classes are by default the task's.

    Tags are proposals beside the given labels, or, where images carry no remark of ours, the given labels.
    """
    document = read_xml(path)
    if document.tag != "annotations":
        raise InputError(f"{path} is no export of CVAT for images: its first element is {short(document.tag)}.")
    images = document.findall("image")
    if not images:
        raise InputError(f"{path} names no image; export it as 'CVAT for images 1.1'.")
    names = [_attribute(image, "name", path) for image in images]
    tags = [[_attribute(tag, "label", path) for tag in image.findall("tag")] for image in images]
    notes = [_note(image, path) for image in images]
    own = all("given" in note for note in notes)
    declared = [found.text or "" for found in document.findall("meta//labels/label/name")]
    known = [name for name in classes or declared if name != NOTE]
    known += [name for note in notes for name in note.get("given", {})]
    lists = [[[name for name in row if name != NOTE]] for row in tags]
    rows = [{"id": name, **(note if own else {})} for name, note in zip(names, notes, strict=True)]
    return from_rows(rows, known, str(path), listed=lists, decided=lists)


def _task_labels(classes: Sequence[str]) -> list[dict[str, Any]]:
    """How CVAT is told about the classes and our attributes."""
    own: list[dict[str, Any]] = []
    for name in ATTRIBUTES:
        kind, values = ("checkbox", ["false"]) if name == "flag" else ("text", [""])
        own.append({"name": name, "mutable": False, "input_type": kind, "default_value": values[0], "values": values})
    return [{"name": name, "type": "tag", "attributes": own if name == NOTE else []} for name in (*classes, NOTE)]


def _attribute(found: Element, name: str, path: Path) -> str:
    value = found.get(name)
    if not value:
        raise InputError(f"{path}: an element {found.tag!r} has no {name!r}.")
    return value


def _note(image: Element, path: Path) -> dict[str, Any]:
    """Attributes of our own tag; labels and what is doubted of them as objects."""
    tags = [tag for tag in image.findall("tag") if tag.get("label") == NOTE]
    if not tags:
        return {}
    note: dict[str, Any] = {str(item.get("name")): item.text or "" for item in tags[0].findall("attribute")}
    where = f"{path}, image {image.get('name')!r}"
    for name in {"given", "wrong"} & set(note):
        try:
            note[name] = checked(json.loads(note[name]), dict, where)
        except (RecursionError, json.JSONDecodeError) as error:
            raise InputError(f"{where}: the attribute {name!r} of the tag {NOTE!r} is damaged.") from error
    text = note.pop("expected", "").strip()
    try:
        note["expected"] = float(text) if text else None
    except ValueError:
        raise InputError(f"{where}: {short(text)} is no number of labels.") from None
    return note | {"flag": {"true": True, "false": False}.get(note.get("flag", ""))}
