"""FiftyOne: a dataset with the labels as classifications and the flags as fields, in memory or as a folder.

The folder is a `FiftyOneDataset` (`metadata.json` and `samples.json`), which FiftyOne imports and exports and which
can be made and read without it:

    image_id, patient        text
    given, proposed          Classifications; the confidence is the value of a label below 1
    unknown                  classes that are not labelled
    flag, expected, rank     as `bomd.exchange.judgement.Doubts` has them
    wrong                    Classifications, one for each label that was judged: the confidence is the probability that
                             the given label is wrong, and `given` whether the class was given
    predicted                Classifications of the classes proposed at 0.5 or more, with the logits of all, which is
                             what `fiftyone.brain.compute_mistakenness` asks for
    given_CLASS,             Classification for each class: "present" or "absent", with confidence and logits, which is
    predicted_CLASS          what `evaluate_classifications` asks for; names as in the dataset's info, "fields"

Flagged samples also have the tag `flagged`.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bomd import outside
from bomd.errors import InputError
from bomd.exchange.documents import checked, class_of, field, listed, read_json, write_items
from bomd.exchange.judgement import Judgement, columns_of, from_rows, number
from bomd.files import spare, write_json

FLAGGED = "flagged"
NOT_HERE = "FiftyOne is not installed: pip install fiftyone; or write a folder for it."
SAMPLES, LABELS = "samples.json", "labels.json"  # of the two kinds of export that are read
WRITTEN = r'{"samples": \[\n({"filepath": |\]})'  # how files begin here; those of FiftyOne have the samples in one line
ABOUT = r'{\n  "media_type": "image",\n  "info": {\n    "classes": '
OPINIONS = ("proposed", "predicted", "wrong")  # fields that hold no given labels
ABSENT, PRESENT = "absent", "present"
MOST_FIELDS = 100  # classes that get fields of their own
LEAST = 1e-3  # no logit is of a more certain probability


def write(judgement: Judgement, path: Path) -> None:
    """Write a folder that `fiftyone.Dataset.from_dir(..., dataset_type=fiftyone.types.FiftyOneDataset)` imports."""
    given = judgement.given
    if given.paths is None:
        raise InputError("FiftyOne shows files, and these images have none.")
    fields, about = field_names(given.classes), path / "metadata.json"
    spare(path / SAMPLES, WRITTEN)
    spare(about, ABOUT)
    places = [] if judgement.doubts is None else judgement.doubts.places.tolist()
    write_items(path / SAMPLES, (_sample(judgement, row, fields, places) for row in range(len(judgement))), "samples")
    info = {"classes": list(given.classes), "fields": fields}
    write_json(about, {"media_type": "image", "info": info})


def read(path: Path, labels: str | None = None, classes: Sequence[str] | None = None) -> Judgement:
    """Read a folder that FiftyOne exported (`FiftyOneDataset` or `FiftyOneImageClassificationDataset`), or `write`.

    Args:
        labels: The field with the labels, where samples have no field `given`; by default the first that holds some.
        classes: The classes; by default those that the folder names, or all that occur.
    """
    if not is_export(path):
        raise InputError(f"{path} is no export of FiftyOne: neither {SAMPLES} nor {LABELS} is in it.")
    return _read_samples(path, labels, classes) if (path / SAMPLES).exists() else _read_classifications(path, classes)


def is_export(path: Path) -> bool:
    """Whether FiftyOne, or `write`, may have made this folder."""
    return (path / SAMPLES).exists() or (path / LABELS).exists()


def to_dataset(judgement: Judgement, name: str | None = None) -> Any:
    """A dataset in FiftyOne's own database, which needs the package."""
    package = outside.package("fiftyone", NOT_HERE)
    with tempfile.TemporaryDirectory() as folder:
        write(judgement, Path(folder))
        return package.Dataset.from_dir(dataset_dir=folder, dataset_type=package.types.FiftyOneDataset, name=name)


def from_dataset(dataset: Any, labels: str | None = None) -> Judgement:
    """The labels of a dataset, or of a view of one, in FiftyOne."""
    package = outside.package("fiftyone", NOT_HERE)
    with tempfile.TemporaryDirectory() as folder:
        dataset.export(export_dir=folder, dataset_type=package.types.FiftyOneDataset, export_media=False)
        return read(Path(folder), labels)


def field_names(classes: Sequence[str]) -> dict[str, str]:
    """What stands behind `given_` and `predicted_` in the field of each class; nothing where there are very many."""
    fields: dict[str, str] = {}
    for name in classes if len(classes) <= MOST_FIELDS else ():
        plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "class"
        number = 1
        while (field := plain if number == 1 else f"{plain}_{number}") in fields.values():
            number += 1
        fields[name] = field
    return fields


def _sample(judgement: Judgement, row: int, fields: Mapping[str, str], places: Sequence[int]) -> dict[str, Any]:
    given, proposed, doubts = judgement.given, judgement.proposed, judgement.doubts
    assert given.paths is not None
    sample: dict[str, Any] = {
        "filepath": str(Path(str(given.paths[row])).absolute()),
        "tags": [FLAGGED] if doubts is not None and doubts.flagged[row] else [],
        "image_id": str(given.ids[row]),
    }
    if given.patients is not None:
        sample["patient"] = str(given.patients[row])
    own = dict(zip(given.classes, given.values[row], strict=True))
    better = {} if proposed is None else dict(zip(given.classes, proposed.values[row], strict=True))
    sample["given"] = _classifications(own)
    sample["unknown"] = [name for name, value in own.items() if np.isnan(value)]
    if proposed is not None:
        sample["proposed"] = _classifications(better)
        likely = [_one(name, confidence=number(value)) for name, value in better.items() if value >= 0.5]
        sample["predicted"] = _several(likely, logits=[_logit(value) for value in better.values()])
    for before, values in (("given", own), ("predicted", better)):
        sample |= {f"{before}_{fields[name]}": _decision(value) for name, value in values.items() if name in fields}
    if doubts is not None:
        sample |= {"flag": bool(doubts.flagged[row]), "expected": number(doubts.expected[row])}
        judged = [
            _one(name, confidence=number(doubt), given=bool(own[name] >= 0.5))
            for name, doubt in zip(given.classes, doubts.wrong[row], strict=True)
            if not np.isnan(doubt)
        ]
        sample |= {"wrong": _several(judged), "rank": places[row]}
    return sample


def _one(label: str, **known: Any) -> dict[str, Any]:
    return {"_cls": "Classification", "label": label, **known}


def _several(found: list[dict[str, Any]], **known: Any) -> dict[str, Any]:
    return {"_cls": "Classifications", "classifications": found, **known}


def _classifications(values: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: {"confidence": number(value)} if value < 1 else {} for name, value in values.items() if value > 0}
    return _several([_one(name, **confidence) for name, confidence in known.items()])


def _decision(value: Any) -> dict[str, Any] | None:
    """One class as a choice of two; None where it is not known."""
    if np.isnan(value):
        return None
    decided, likely = (PRESENT, value) if value >= 0.5 else (ABSENT, 1 - value)
    return _one(decided, confidence=number(np.float32(likely)), logits=[_logit(1 - value), _logit(value)])


def _logit(value: Any) -> float:
    """The logarithm of the odds; 0, even ones, where the value is not known."""
    inner = 0.5 if np.isnan(value) else float(np.clip(value, LEAST, 1 - LEAST))
    return float(np.round(np.log(inner / (1 - inner)), 4))


def _read_samples(path: Path, labels: str | None, classes: Sequence[str] | None) -> Judgement:
    file = path / SAMPLES
    document = checked(read_json(file), dict, str(file))
    samples = [checked(item, dict, f"{file}, sample") for item in field(document, "samples", list, str(file))]
    if not samples:
        raise InputError(f"{file} holds no samples.")
    fields = [labels] if labels is not None else ["given", *_label_fields(samples)]
    name = next((name for name in fields if any(sample.get(name) for sample in samples)), None)
    if name is None:
        known = ", ".join(list(samples[0])[:20])
        raise InputError(f"{file} has no field with labels: {known}; pass labels (--set labels=FIELD).")
    rows = []
    for place, sample in enumerate(samples, 1):
        where = f"{file}, sample {place}"
        row = sample | {"given": sample.get(name), "unknown": listed(sample.get("unknown") or [], where)}
        for part in ("given", "proposed", "wrong"):
            if row.get(part) is not None:
                held = checked(row[part], dict, where)
                items = [held] if held.get("_cls") == "Classification" else field(held, "classifications", list, where)
                row[part] = _confidences(items, (), where)
        identity = "image_id" if "image_id" in row else "filepath"
        rows.append(row | {"id": field(row, identity, str, where), "filepath": field(row, "filepath", str, where)})
    named = _classes_of(path / "metadata.json") if classes is None else classes
    return _judgement(rows, named, file, [row["filepath"] for row in rows])


def _read_classifications(path: Path, classes: Sequence[str] | None) -> Judgement:
    """The simple form: `labels.json` with a number, a name, or a list of either for each image."""
    file = path / LABELS
    document = checked(read_json(file), dict, str(file))
    names = listed(document.get("classes") or [], f"{file}, 'classes'")
    images = field(document, "labels", dict, str(file))
    if not images:
        raise InputError(f"{file} labels no image.")
    rows = []
    for image, target in images.items():
        where = f"{file}, image {image!r}"
        items = target if isinstance(target, list) else [target]
        given = None if target is None else _confidences(items, names, where)
        rows.append({"id": checked(image, str, str(file)), "given": given})
    return _judgement(rows, classes or names, file)


def _judgement(
    rows: Sequence[dict[str, Any]], classes: Sequence[str], file: Path, paths: Sequence[str] | None = None
) -> Judgement:
    """What samples say: a class that one does not list is absent, or unknown if the sample says so."""
    parts = ("given", "proposed")
    named = {label for row in rows for part in (*parts, "unknown") for label in row.get(part) or ()}
    columns = columns_of(classes, named, file)
    for row in rows:
        absent = {name: None if name in row.get("unknown", ()) else 0.0 for name in columns}
        row |= {part: absent | row[part] for part in parts if row.get(part) is not None}
    return from_rows(rows, columns, str(file), paths=paths)


def _label_fields(samples: Sequence[dict[str, Any]]) -> list[str]:
    kinds = ("Classifications", "Classification")
    held = [(name, value) for sample in samples for name, value in sample.items() if isinstance(value, dict)]
    return [name for name, value in held if value.get("_cls") in kinds and name not in OPINIONS]


def _confidences(items: Sequence[Any], names: Sequence[str], where: str) -> dict[str, Any]:
    """Classes, by their names or numbers, and their values: 1 where none is said."""
    found = {}
    for item in items:
        entry = item if isinstance(item, dict) else {"label": item}
        label = field(entry, "label", object, where)
        name = class_of(label, names, where) if isinstance(label, int) else checked(label, str, where)
        found[name] = 1.0 if entry.get("confidence") is None else entry["confidence"]
    return found


def _classes_of(file: Path) -> list[str]:
    metadata = checked(read_json(file), dict, str(file)) if file.exists() else {}
    info = metadata.get("info")
    found = metadata.get("default_classes") or (info.get("classes") if isinstance(info, dict) else None)
    return listed(found or [], f"{file}, classes")
