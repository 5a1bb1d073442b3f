"""Tags as CVAT imports and exports them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import fromstring, indent, tostring

import numpy as np
import pytest
from PIL import Image

from bomd import exchange
from bomd.errors import InputError
from bomd.exchange import cvat
from bomd.exchange.documents import read_xml
from bomd.exchange.judgement import Judgement
from bomd.tables import LabelTable

EXPORT = """<?xml version="1.0" encoding="utf-8"?>
<annotations>
  <version>1.1</version>
  <meta><{place}><labels>
    <label><name>Mass</name><type>tag</type></label>
    <label><name>Edema</name><type>any</type></label>
  </labels></{place}></meta>
  <image id="0" name="x/a.png" width="9" height="9"><tag label="Edema" source="manual"></tag></image>
  <image id="1" name="b.png" width="9" height="9"><box label="Mass" xtl="1" ytl="1" xbr="2" ybr="2"></box></image>
</annotations>
"""


@pytest.mark.parametrize("place", ["task", "project"])
def test_somebody_elses_task_or_project(place: str, tmp_path: Path) -> None:
    (tmp_path / "annotations.xml").write_text(EXPORT.replace("{place}", place))
    read = exchange.read(tmp_path / "annotations.xml")
    assert read.given.ids.tolist() == ["x/a.png", "b.png"]
    assert read.given.classes == ("Mass", "Edema")
    assert read.given.values.tolist() == [[0, 1], [0, 0]], "a box is not a label of the image"


def test_a_reviewer_adds_and_removes_tags(judgement: Judgement, tmp_path: Path) -> None:
    cvat.write(judgement, tmp_path / "a.xml")
    text = (tmp_path / "a.xml").read_text()
    assert text.count('<tag label="Hernia"') == 0
    first = text.index('<image id="1"')
    text = text[:first] + text[first:].replace(
        '<tag label="bomd"', '<tag label="Hernia" source="manual" /><tag label="bomd"', 1
    )
    (tmp_path / "a.xml").write_text(text)
    read = cvat.read(tmp_path / "a.xml")
    assert read.proposed is not None
    assert read.proposed.values[1].tolist() == [0, 1, 1, 0], "what was unknown is now known"
    assert np.array_equal(read.given.values, judgement.given.values, equal_nan=True)


def test_names_from_the_uploaded_folder(judgement: Judgement, tmp_path: Path) -> None:
    cvat.write(judgement, tmp_path / "a.xml", root=tmp_path)
    assert read_xml(tmp_path / "a.xml").findall("image")[0].get("name") == "images/0 ü.png"
    same_names = replace(judgement.given, paths=np.asarray([f"{row}/x.png" for row in range(5)]))
    with pytest.raises(InputError, match="same file name"):
        cvat.write(Judgement(same_names), tmp_path / "b.xml")


def test_labels_for_the_task(judgement: Judgement, tmp_path: Path) -> None:
    cvat.write(judgement, tmp_path / "a.xml")
    labels = json.loads((tmp_path / "a.labels.json").read_text())
    assert [label["name"] for label in labels] == [*judgement.given.classes, "bomd"]
    assert {label["type"] for label in labels} == {"tag"}


def test_the_real_importer_reads_our_tags(tmp_path: Path) -> None:
    datumaro = pytest.importorskip("datumaro")
    table = LabelTable(np.asarray(["a", "b"]), ("Mass", "Edema"), np.asarray([[1, 0], [1, 1]]))
    (tmp_path / "images").mkdir()
    for name in table.ids:
        Image.new("L", (4, 4)).save(tmp_path / "images" / f"{name}.png")
    paths = np.asarray([str(tmp_path / "images" / f"{name}.png") for name in table.ids])
    cvat.write(Judgement(replace(table, paths=paths)), tmp_path / "annotations.xml")
    dataset = datumaro.Dataset.import_from(str(tmp_path), "cvat")
    names = dataset.categories()[datumaro.AnnotationType.label]
    found = {item.id: [names[tag.label].name for tag in item.annotations] for item in dataset}
    assert found == {"a": ["Mass", "bomd"], "b": ["Mass", "Edema", "bomd"]}


@pytest.mark.parametrize("name", ["bomd", "bell\x07"])
def test_names_that_cannot_be_tags(name: str, tmp_path: Path) -> None:
    table = LabelTable(np.asarray(["a"]), (name,), np.ones((1, 1)))
    with pytest.raises(InputError, match="rename it"):
        cvat.write(Judgement(table), tmp_path / "a.xml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<a/>", "first element is 'a'"),
        ("<annotations/>", "names no image"),
        ('<annotations><image id="1"/></annotations>', "has no 'name'"),
        ('<annotations><image name="a"/></annotations>', "names no class"),
        ('<annotations><image name="a"><tag label="x"/></image><image name="a"/></annotations>', "Duplicate id"),
        (
            '<annotations><image name="a"><tag label="bomd"><attribute name="given">{</attribute></tag></image>'
            "</annotations>",
            "is damaged",
        ),
        ("<annotations><image", "is not XML"),
    ],
)
def test_mistakes(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(text)
    with pytest.raises(InputError, match=message):
        exchange.read(tmp_path / "a.xml")


def test_the_file_is_what_one_tree_would_be_written_as(judgement: Judgement, tmp_path: Path) -> None:
    """Images are written one by one, and so as if they had all been there at once."""
    path = tmp_path / "annotations.xml"
    exchange.write(judgement, path)
    whole = fromstring(path.read_text(encoding="utf-8"))
    assert [image.get("id") for image in whole.iter("image")] == ["0", "1", "2", "3", "4"]
    indent(whole)
    assert tostring(whole, encoding="unicode") + "\n" == path.read_text(encoding="utf-8")
