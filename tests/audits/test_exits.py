"""One run, every way out: tables, pages, exports and Python say the same of every label, in the same order."""

from __future__ import annotations

import csv
import functools
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bomd import exchange
from bomd.audits.audit import audit
from bomd.audits.found import Audit
from bomd.exchange import EXCHANGES
from bomd.experiments.records import LabelRecord
from bomd.files import read_json
from bomd.reports.gallery import read_pages
from bomd.review.evidence import UNKNOWN, open_evidence
from bomd.review.queue import Desk, Queue
from bomd.tables import NO_FINDING, Opinion

CLASSES = ("Mass", "Edema", "Hernia", NO_FINDING)
FILES = {
    "table": "x.csv",
    "parquet": "x.parquet",
    "cleanlab": "issues.csv",
    "fiftyone": "dataset",
    "label-studio": "tasks.json",
    "cvat": "x.xml",
    "hugging-face": "hf.parquet",
    "image-folder": "metadata.jsonl",
    "torchxrayvision": "xray.csv",
}

same = functools.partial(np.array_equal, equal_nan=True)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    """120 images with up to two of three findings, a tenth of them swapped, one label unknown; Hernia is too rare."""
    root = tmp_path_factory.mktemp("exits")
    rng = np.random.default_rng(3)
    truth = np.zeros((120, 3))
    truth[:, 0], truth[:, 1] = np.arange(120) % 3 == 0, np.arange(120) % 4 == 0
    truth[:4, 2] = 1
    given = truth.copy()
    swapped = np.arange(0, 120, 10) + 1
    given[swapped, :2] = 1 - given[swapped, :2]
    features = truth + 0.05 * rng.standard_normal((120, 3))
    ids = [f"i{row:03}" for row in rng.permutation(120)]  # their order is not that of the rows
    (root / "images").mkdir()
    with (root / "labels.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "patient", *CLASSES])
        for row, name in enumerate(ids):
            Image.fromarray(rng.integers(0, 256, (32, 32), dtype=np.uint8)).save(root / "images" / f"{name}.png")
            cells = [int(value) for value in given[row]]
            hidden = ["", *cells[1:]] if row == 7 else cells
            writer.writerow([name, f"p{row // 2}", *hidden, int(not any(cells))])
    np.save(root / "features.npy", features)
    (root / "rates.csv").write_text("class,miss,false_alarm\nMass,0.1,0.1\nEdema,0.1,0.1\n")
    return audit(
        root / "labels.csv",
        root / "images",
        output=root / "images" / "out",  # below the images, where an image folder keeps its metadata
        features=root / "features.npy",
        rates=root / "rates.csv",
        patient_column="patient",
    )


@pytest.fixture(scope="module")
def opinion(found: Audit) -> Opinion:
    """As it lies in the run directory: what every exit must say."""
    kept = LabelRecord.load(found.run.directory / "labels.npz").opinion
    given = found.record.given.values
    assert ((kept.proposed != given) & ~np.isnan(given)).sum() > 15  # or the tests below could not fail
    assert np.isnan(kept.wrong).sum() == 1
    assert kept.learnt.tolist() == [True, True, False, True]
    assert kept.rank.tolist() != list(range(1, 121))
    return kept


def test_labels_clean_csv(found: Audit, opinion: Opinion) -> None:
    with (found.directory / "labels_clean.csv").open(newline="", encoding="utf-8") as stream:
        lines = {line["id"]: line for line in csv.DictReader(stream)}
    rows = [lines[name] for name in found.record.given.ids.tolist()]
    proposed = [[float(line[f"{name} proposed"] or "nan") for name in CLASSES] for line in rows]
    wrong = [[float(line[f"{name} wrong"] or "nan") for name in CLASSES] for line in rows]
    assert same(proposed, opinion.proposed)
    np.testing.assert_allclose(wrong, opinion.wrong, atol=5.1e-5)
    assert [int(line["rank"]) for line in rows] == opinion.rank.tolist()
    np.testing.assert_allclose([float(line["expected wrong"]) for line in rows], opinion.expected, atol=5.1e-5)


def test_python(found: Audit, opinion: Opinion) -> None:
    assert same(found.labels.values, opinion.proposed)
    assert same(found.opinion.wrong, opinion.wrong)
    table = found.table()
    assert table["id"].tolist() == found.record.given.ids[np.argsort(opinion.rank)].tolist()
    lines = repr(found.show(5)).splitlines()[1:]
    assert [line.split()[1].rstrip(":") for line in lines] == table["id"].tolist()[:5]


def test_doubtful_labels_csv(found: Audit, opinion: Opinion) -> None:
    with (found.directory / "doubtful_labels.csv").open(newline="", encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    rows = {name: row for row, name in enumerate(found.record.given.ids.tolist())}
    assert lines
    for line in lines:
        row, column = rows[line["image"]], CLASSES.index(line["class"])
        assert int(line["proposed"]) == opinion.proposed[row, column]
        assert float(line["wrong"]) == pytest.approx(opinion.wrong[row, column], abs=5.1e-5)
        assert int(line["image rank"]) == opinion.rank[row]
        assert line["patient"] == found.record.given.groups[row]


def test_report(found: Audit, opinion: Opinion) -> None:
    record = LabelRecord.load(found.run.directory / "labels.npz")
    text = (found.directory / "report.html").read_text(encoding="utf-8")
    shown = re.findall(r'<div class="id">(\w+)</div>', text)
    order = np.argsort(opinion.rank)
    flagged = [str(record.given.ids[row]) for row in order if opinion.expected[row] >= 0.5]
    assert shown[: min(24, len(flagged))] == flagged[:24]
    rows = {name: row for row, name in enumerate(record.given.ids.tolist())}
    cards = [card for page in read_pages(found.run.directory, record, 24) for card in page["cards"]]
    assert len(cards) > 5
    for card in cards:
        row = rows[card["id"]]
        assert card["expected"] == opinion.expected[row]
        for line in card["lines"]:
            column = CLASSES.index(line["name"])
            if not np.isnan(opinion.wrong[row, column]):
                assert line["wrong"] == opinion.wrong[row, column]
                assert line["proposed"] == (opinion.proposed[row, column] == 1)
        changes = {word.split(" (")[0] for word in (*card["removed"], *card["added"])}
        given = record.given.values[row]
        differs = ~np.isnan(given) & (given != opinion.proposed[row])
        assert changes == {CLASSES[column] for column in np.flatnonzero(differs)}
    for reason in opinion.reasons:
        assert reason in text
    assert "Nothing is proposed for Hernia" in " ".join(opinion.reasons)


def test_review_page(found: Audit, opinion: Opinion) -> None:
    evidence = open_evidence(found.run.directory)
    assert same(np.where(evidence.proposed == UNKNOWN, np.nan, evidence.proposed), opinion.proposed)
    desk = Desk(Queue(evidence))
    assert desk.order().tolist() == [row for row in np.argsort(opinion.rank) if row in set(evidence.rows)]
    for row in evidence.rows:
        facts = evidence.facts(int(row))
        wrong = [np.nan if label["wrong"] is None else label["wrong"] for label in facts["labels"]]
        np.testing.assert_allclose(wrong, opinion.wrong[row], atol=5.1e-5)
        assert facts["place"] == opinion.rank[row]
        assert desk.item(int(row))["expected"] == pytest.approx(opinion.expected[row], abs=5.1e-5)


@pytest.mark.parametrize("form", [name for name, form in EXCHANGES.items() if form.write is not None])
def test_every_form_for_another_tool(found: Audit, opinion: Opinion, form: str, tmp_path: Path) -> None:
    folder = found.directory.parent if form == "image-folder" else tmp_path
    exchange.convert(found.directory, folder / FILES[form], write_as=form)
    back = exchange.read(folder / FILES[form], form)
    columns = [back.given.classes.index(name) for name in CLASSES if name in back.given.classes]
    own = [place for place, name in enumerate(CLASSES) if name in back.given.classes]
    assert len(own) >= 3  # torchxrayvision has no class for nothing
    order = np.argsort(opinion.rank)
    assert back.given.ids.tolist() == found.record.given.ids[order].tolist()  # rows are in the order of review
    assert back.proposed is not None
    assert back.doubts is not None
    expected = np.nan_to_num(opinion.proposed) if form == "cleanlab" else opinion.proposed  # which cannot say unknown
    assert same(back.proposed.values[:, columns], expected[order][:, own])
    assert same(back.doubts.wrong[:, columns], opinion.wrong[order][:, own])
    assert same(back.doubts.expected, opinion.expected[order])
    assert back.doubts.flagged.tolist() == (opinion.expected[order] >= 0.5).tolist()
    if form == "label-studio":  # which sorts by the score of a prediction, lowest first
        scores = [task["predictions"][1]["score"] for task in read_json(folder / FILES[form])]
        assert scores == sorted(scores)
        assert len(set(scores)) == len(scores)
    if form == "fiftyone":
        ranks = [sample["rank"] for sample in read_json(folder / FILES[form] / "samples.json")["samples"]]
        assert ranks == list(range(1, 121))
