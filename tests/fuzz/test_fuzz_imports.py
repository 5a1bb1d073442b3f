"""Files of other tools and run directories that are damaged or made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bomd import exchange
from bomd.clean.opinion import form_opinion
from bomd.exchange.judgement import Doubts, Judgement
from bomd.experiments.records import LabelRecord
from bomd.files import write_json
from bomd.tables import LabelTable

FORMS = {
    "label-studio": "tasks.json",
    "fiftyone": "set/samples.json",
    "cvat": "annotations.xml",
    "image-folder": "metadata.jsonl",
    "parquet": "labels.parquet",
    "hugging-face": "dataset.parquet",
    "run": "run/labels.npz",
}
SCORES = np.asarray([[0.5, 1], [2, 0], [1, 1]], dtype=np.float32)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 0.5, 1e300, 10**400, float("inf"), float("nan"), "", "x", "1", "Mass", "bomd"),
    *([], {}, [[]], [None], {"": None}, ["Mass"], {"Mass": 1}, "\ud800", "\x00", "../../x", "y" * 10_000),
)


@pytest.fixture(scope="module")
def judgement() -> Judgement:
    ids = np.asarray(["a", "b", "c"])
    values = np.asarray([[1, 0], [np.nan, 1], [0, 0]])
    given = LabelTable(ids, ("Mass", "No Finding"), values, paths=np.asarray(["a.png", "b.png", "c.png"]))
    expected = np.asarray([1, 0.5, np.nan], dtype=np.float32)
    doubts = Doubts(ids, np.asarray([True, False, False]), expected, np.zeros((3, 2), dtype=np.float32))
    return Judgement(given, given.replace(np.asarray([[0.2, 0.8], [np.nan, 1], [0, 0]])), doubts)


def sound(form: str, judgement: Judgement, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write one good file, and say which of them is to be damaged."""
    file = folder / FORMS[form]
    file.parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(folder)  # the paths of the images are seen from here
    if form == "run":
        write_json(file.parent / "config.json", {"format": 1, "config": {}})
        assert judgement.proposed is not None
        LabelRecord(judgement.given, judgement.proposed, form_opinion(SCORES, judgement.given)[0]).save(file)
    else:
        exchange.write(judgement, file.parent if form == "fiftyone" else file, form)
    return file


def replaced(value: Any, draw: np.random.Generator) -> Any:
    """The same document with something else at one place in it."""
    if isinstance(value, dict | list) and value and draw.integers(5):
        copy = dict(value) if isinstance(value, dict) else list(value)
        keys = list(copy) if isinstance(copy, dict) else list(range(len(copy)))
        key = keys[draw.integers(len(keys))]
        if draw.integers(6) == 0:
            del copy[key]
        elif isinstance(copy, dict) and draw.integers(8) == 0:
            copy[str(draw.choice(["id", "given", "labels", "x"]))] = copy.pop(key)
        else:
            copy[key] = replaced(copy[key], draw)
        return copy
    return VALUES[draw.integers(len(VALUES))]


def damaged(content: bytes, draw: np.random.Generator) -> bytes:
    kind = draw.integers(6)
    start = int(draw.integers(len(content)))
    if kind == 0:
        return content[:start]
    if kind == 1:
        return content[:start] + draw.bytes(20) + content[start:]
    if kind == 2:
        return content[:start] + content[int(draw.integers(len(content))) :]
    if kind == 3:
        return draw.bytes(200)
    if kind == 4:
        other = [
            b"",
            b"[" * 60_000,
            b'{"a":' * 60_000,
            b"<a>" * 60_000,
            b"\xff\xfe<\x00",
            b"null",
            b"[]",
            b"{}",
            b'"x"',
        ]
        return other[draw.integers(len(other))]
    array = np.frombuffer(content, np.uint8).copy()
    amount = int(draw.integers(1, 8))
    array[draw.integers(0, len(array), amount)] = draw.integers(0, 256, amount)
    return array.tobytes()


@pytest.mark.parametrize("form", FORMS)
def test_damaged_bytes(
    form: str, judgement: Judgement, tmp_path: Path, outcomes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 of every form: cut, spliced, overwritten, or something else altogether."""
    file = sound(form, judgement, tmp_path, monkeypatch)
    content = file.read_bytes()
    for number in range(60):
        file.write_bytes(damaged(content, np.random.default_rng([5, number])))
        place = file.parent if form in ("fiftyone", "run") else file
        outcomes.call(f"{form} seed [5, {number}]", lambda place=place: exchange.read(place, form))
    outcomes.check(60)


@pytest.mark.parametrize("form", ["label-studio", "fiftyone", "image-folder"])
def test_wrong_values(
    form: str, judgement: Judgement, tmp_path: Path, outcomes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 of every JSON form with another value, or none, at one place; what is read can be written."""
    file = sound(form, judgement, tmp_path, monkeypatch)
    text = file.read_text()
    document = [json.loads(line) for line in text.splitlines()] if form == "image-folder" else json.loads(text)
    for number in range(60):
        changed = replaced(document, np.random.default_rng([6, number]))
        lines = changed if form == "image-folder" and isinstance(changed, list) else [changed]
        file.write_text("\n".join(json.dumps(line) for line in lines))
        place = file.parent if form == "fiftyone" else file

        def there_and_on(place: Path = place) -> None:
            exchange.write(exchange.read(place, form), tmp_path / "out.csv")

        outcomes.call(f"{form} seed [6, {number}]", there_and_on)
    assert not outcomes.failed, "\n".join(outcomes.failed)
    assert outcomes.worked + outcomes.refused == 60
    assert outcomes.refused > 10
