"""Hugging Face datasets, in memory or as Parquet.

    id, path, patient        text
    labels                   classes that are given, as a list of ClassLabel
    given, proposed          a value for every class, null where unknown
    flag, expected, wrong    see `bomd.exchange.judgement.Doubts`

Parquet is read and written by pyarrow alone, with the features described as `datasets` expects them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bomd import outside
from bomd.errors import InputError
from bomd.exchange.documents import checked, class_of, field, listed
from bomd.exchange.judgement import Judgement, from_rows, number
from bomd.exchange.table import arrow_package, load_parquet, save_parquet

VALUES = ("given", "proposed", "wrong")  # columns with one number per class
IDS = ("id", "image_id", "file_name", "path")


def to_dataset(judgement: Judgement) -> Any:
    """A `datasets.Dataset`, which needs the package; `cast_column("path", datasets.Image())` then shows the images."""
    package = outside.package("datasets", "Hugging Face datasets is not installed: pip install 'bomd[exchange]'.")
    columns = _columns(judgement)
    return package.Dataset.from_dict(columns, package.Features.from_dict(_features(columns, judgement.given.classes)))


def from_dataset(dataset: Any) -> Judgement:
    """The labels of a `datasets.Dataset` with a column `labels` of class labels."""
    features = dataset.features.to_dict()
    return _from_columns({name: dataset[name][:] for name in _wanted(features)}, features, "The dataset")


def write(judgement: Judgement, path: Path) -> None:
    """Write Parquet that `datasets` opens with the names of the classes."""
    arrow = arrow_package()
    columns = _columns(judgement)
    features = _features(columns, judgement.given.classes)
    plain = {"string": arrow.string(), "float32": arrow.float32(), "bool": arrow.bool_()}

    def kind(feature: Mapping[str, Any]) -> Any:
        if feature["_type"] == "Sequence":
            return arrow.list_(kind(feature["feature"]))
        return arrow.int64() if feature["_type"] == "ClassLabel" else plain[feature["dtype"]]

    arrays = {name: arrow.array(column, kind(features[name])) for name, column in columns.items()}
    described = json.dumps({"info": {"features": features}}).encode()
    save_parquet(arrow.table(arrays), path, {b"huggingface": described})


def read(path: Path) -> Judgement:
    """Read Parquet that `write` or `datasets` made, with a column `labels` of class labels."""
    found = load_parquet(path)
    where = f"{path}, the description of its features"
    try:
        described = json.loads((found.schema.metadata or {}).get(b"huggingface", b""))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} was not made by Hugging Face datasets; read it as parquet.") from error
    features = field(field(checked(described, dict, where), "info", dict, where), "features", dict, where)
    wanted = [name for name in _wanted(features) if name in found.column_names]
    return _from_columns({name: found[name].to_pylist() for name in wanted}, features, str(path))


def _columns(judgement: Judgement) -> dict[str, list[Any]]:
    given, proposed, doubts = judgement.given, judgement.proposed, judgement.doubts
    names = {"id": given.ids, "path": given.paths, "patient": given.patients}
    columns: dict[str, list[Any]] = {name: texts.tolist() for name, texts in names.items() if texts is not None}
    columns["labels"] = [np.flatnonzero(row).tolist() for row in given.values >= 0.5]
    columns["given"] = [[number(value) for value in row] for row in given.values]
    if proposed is not None:
        columns["proposed"] = [[number(value) for value in row] for row in proposed.values]
    if doubts is not None:
        columns["flag"] = doubts.flagged.tolist()
        columns["expected"] = [number(value) for value in doubts.expected]
        columns["wrong"] = [[number(value) for value in row] for row in doubts.wrong]
    return columns


def _features(columns: Mapping[str, Any], classes: Sequence[str]) -> dict[str, Any]:
    """The columns as `datasets` describes them; every version of it knows these words."""
    number_, text = {"dtype": "float32", "_type": "Value"}, {"dtype": "string", "_type": "Value"}
    known: dict[str, Any] = {name: {"feature": number_, "_type": "Sequence"} for name in VALUES}
    known |= {"expected": number_, "flag": {"dtype": "bool", "_type": "Value"}}
    known["labels"] = {"feature": {"names": list(classes), "_type": "ClassLabel"}, "_type": "Sequence"}
    return {name: known.get(name, text) for name in columns}


def _wanted(features: Mapping[str, Any]) -> list[str]:
    return [name for name in (*IDS, "patient", "labels", "flag", "expected", *VALUES) if name in features]


def _from_columns(columns: Mapping[str, list[Any]], features: Mapping[str, Any], where: str) -> Judgement:
    feature = checked(features.get("labels"), dict, f"{where}: column 'labels'").get("feature")
    names = tuple(listed(feature.get("names") if isinstance(feature, dict) else None, f"{where}: class labels"))
    column = next((name for name in IDS if name in columns), None)
    if column is None:
        raise InputError(f"{where} has no column that names the images: {', '.join(IDS)}.")

    def cell(name: str, value: Any) -> Any:
        if name in VALUES:
            value = checked(value, list, f"{where}, {name!r}")
            if len(value) != len(names):
                raise InputError(f"{where}: a row of {name!r} has not one value for each of {len(names)} classes.")
            return dict(zip(names, value, strict=True))
        kind = bool if name == "flag" else str
        return value if name == "expected" else checked(value, kind, f"{where}, {name!r}")

    known = {name: [cell(name, value) for value in columns[name]] for name in columns if name != "labels"}
    known["id"] = known[column]
    rows = [dict(zip(known, cells, strict=True)) for cells in zip(*known.values(), strict=True)]
    lists = None if "given" in known else [_chosen(cells, names, where) for cells in columns["labels"]]
    return from_rows(rows, names, where, listed=lists, paths=known.get("path"))


def _chosen(cells: Any, names: Sequence[str], where: str) -> list[list[str]]:
    """One person's list of classes, by number; a blank is nobody's."""
    if cells is None:
        return []
    where = f"{where}, 'labels'"
    return [[class_of(cell, names, where) for cell in checked(cells, list, where)]]
