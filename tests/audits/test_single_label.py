"""Images with one label each through the command line: digits from a CSV with a column of names to moved labels."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from starlette.exceptions import HTTPException

from bomd.cli import main
from bomd.errors import InputError
from bomd.exchange import cleanlab, label_studio
from bomd.exchange.judgement import read_run
from bomd.experiments.records import load_record
from bomd.models.model import load
from bomd.review.decisions import FILE, Event, Journal
from bomd.review.evidence import only_run, open_evidence
from bomd.review.export import write_reviewed
from bomd.review.learning import rates_file
from bomd.review.server import Pages

WORDS = ("zero", "one", "two", "three")


def bomd(*words: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return int(stop.value.code or 0)


def read_csv(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, np.ndarray]:
    """240 digits of four kinds as PNG files, of which every eighth is labelled as the next kind; and their pixels."""
    root = tmp_path_factory.mktemp("digits")
    pixels, kinds = load_digits(return_X_y=True)
    rows = np.flatnonzero(kinds < 4)[:240]
    pixels, truth = pixels[rows], kinds[rows]
    wrong = np.arange(240) % 8 == 3
    given = np.where(wrong, (truth + 1) % 4, truth)
    (root / "images").mkdir()
    lines = ["image,label"]
    for number, picture in enumerate(pixels):
        grey = np.round(picture.reshape(8, 8) * 15.9).astype(np.uint8)
        Image.fromarray(grey).resize((32, 32)).save(root / "images" / f"{number:03}.png")
        lines.append(f"{number:03}.png,{WORDS[given[number]]}")
    (root / "labels.csv").write_text("\n".join(lines) + "\n")
    np.save(root / "features.npy", pixels.astype(np.float32))
    return root, truth, wrong


@pytest.fixture(scope="module")
def audited(digits: tuple[Path, np.ndarray, np.ndarray]) -> Path:
    root = digits[0]
    words = ("audit", root / "labels.csv", "--images", root / "images", "--features", root / "features.npy")
    assert bomd(*words, "-o", root / "out") == 0
    return root / "out"


def test_labels_move_and_are_mostly_right_afterwards(
    audited: Path, digits: tuple[Path, np.ndarray, np.ndarray]
) -> None:
    _, truth, wrong = digits
    rows = read_csv(audited / "labels_clean.csv")
    after = np.asarray([WORDS.index(row["proposed label"]) for row in rows])
    assert (after != truth).sum() <= 6 < wrong.sum()
    ones = [[row[f"{name} proposed"] for name in WORDS] for row in rows]
    assert all(cells.count("1") == 1 and cells[place] == "1" for cells, place in zip(ones, after, strict=True))
    assert not any("No Finding" in name for name in rows[0])
    first = np.argsort([int(row["rank"]) for row in rows])[:20]
    assert wrong[first].sum() >= 18
    doubtful = read_csv(audited / "doubtful_labels.csv")
    assert len({row["image"] for row in doubtful}) == len(doubtful) >= 25
    assert {row["given"] for row in doubtful} == {"1"}
    best = doubtful[0]
    assert best["proposed label"] == next(row for row in rows if row["image"] == best["image"])["proposed label"]


def test_it_is_said_and_can_be_forbidden(
    digits: tuple[Path, np.ndarray, np.ndarray],
    audited: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = digits[0]
    words = ("audit", root / "labels.csv", "--images", root / "images", "--features", root / "features.npy", "--plan")
    assert bomd(*words, "-o", tmp_path / "one") == 0
    assert "Every image has one label" in capsys.readouterr().err
    assert bomd(*words, "-o", tmp_path / "two", "--multi-label") == 0
    told = capsys.readouterr().err
    assert "one label" not in told
    assert '"No Finding" was added' in told
    page = (audited / "report.html").read_text(encoding="utf-8")
    assert "labels are proposed to move" in page
    assert "Every image has one label; about 1" in page


@pytest.mark.parametrize(
    ("line", "words", "message"),
    [
        ("000.png,zero|one", ("--single-label",), r"image '000.png' has one, zero, and labels = \"single\" allows one"),
        ("000.png,zero", ("--rates", "rates.csv"), "--rates: Rates of misses and false alarms are for several labels"),
    ],
)
def test_what_does_not_fit_one_label_is_one_clear_line(
    digits: tuple[Path, np.ndarray, np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    given = (digits[0] / "labels.csv").read_text().splitlines()
    (tmp_path / "labels.csv").write_text("\n".join([given[0], line, *given[2:]]) + "\n")
    (tmp_path / "rates.csv").write_text("class,miss,false_alarm\nzero,0.1,0.1\n")
    assert bomd("audit", "labels.csv", "--images", digits[0] / "images", "--features", "f.npy", *words) == 2
    last = [text for text in capsys.readouterr().err.splitlines() if text.strip()][-1]
    assert message.replace('\\"', '"') in last


def test_exports_say_the_same(audited: Path, tmp_path: Path) -> None:
    """The run's record, cleanlab's table and a review that accepts everything have one and the same class."""
    judgement = read_run(audited)
    assert judgement.given.exclusive
    record = load_record(only_run(audited))
    order = np.argsort(record.opinion.rank)  # the order of every exchange
    given, proposed = record.given.values[order], record.opinion.proposed[order]
    np.testing.assert_array_equal(judgement.best.values, proposed)
    frame = cleanlab.to_frame(judgement)
    assert frame["given_label"].tolist() == given.argmax(axis=1).tolist()
    assert frame["predicted_label"].tolist() == proposed.argmax(axis=1).tolist()
    cleanlab.write(judgement, tmp_path / "issues.csv")
    again = cleanlab.read(tmp_path / "issues.csv")
    assert again.given.exclusive
    np.testing.assert_array_equal(again.given.values, given)
    assert again.proposed is not None
    np.testing.assert_array_equal(again.proposed.values, proposed)
    label_studio.write(judgement, tmp_path / "tasks.json")
    assert 'choice="single"' in (tmp_path / "tasks.xml").read_text(encoding="utf-8")


def test_a_decision_moves_the_class_in_the_table_as_it_came(
    audited: Path, digits: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    run = only_run(audited)
    record = load_record(run)
    row = int(np.argmin(record.opinion.rank))
    image, proposed = str(record.given.ids[row]), record.opinion.proposed[row]
    journal = Journal(run / FILE, record.given.classes)
    pages = Pages(open_evidence(run), journal)
    with pytest.raises(HTTPException, match="one label"):
        pages._labels([1, 1, 0, 0])
    assert pages._labels([0, 1, 0, 0]) == (0, 1, 0, 0)
    assert not pages.teacher.possible
    journal.submit(Event("Ada", image, "accept", tuple(int(value) for value in proposed))).result()
    journal.close()
    reviewed, file = write_reviewed(run, tmp_path / "reviewed.csv")
    before = {line["image"]: line["label"] for line in read_csv(digits[0] / "labels.csv")}
    after = {line["image"]: line["label"] for line in read_csv(file)}
    assert after == before | {image: record.given.classes[int(proposed.argmax())]}
    with pytest.raises(InputError, match="for several labels per image"):
        rates_file(run, reviewed, tmp_path / "rates.csv")


def test_a_trained_audit_gives_a_model_whose_probabilities_add_up(
    digits: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = digits[0]
    few = [text for place, text in enumerate((root / "labels.csv").read_text().splitlines()) if place <= 60]
    (tmp_path / "labels.csv").write_text("\n".join(few) + "\n")
    words = ("audit", tmp_path / "labels.csv", "--images", root / "images", "--size", 32, "--minutes", 0.0001)
    assert bomd(*words, "-o", tmp_path / "out") == 0
    record = load_record(only_run(tmp_path / "out"))
    assert record.given.exclusive
    np.testing.assert_array_equal(record.opinion.proposed.sum(axis=1), 1)
    np.testing.assert_allclose(record.targets.values.sum(axis=1), 1, rtol=1e-5)
    model = load(tmp_path / "out", "cpu")
    assert model.exclusive
    np.testing.assert_allclose(model.predict([root / "images" / "000.png"]).values.sum(axis=1), 1, rtol=1e-5)
    capsys.readouterr()
    assert bomd("predict", tmp_path / "out", root / "images" / "000.png", "--format", "json") == 0
    (image,) = json.loads(capsys.readouterr().out)["images"]
    called = [name for name, finding in image["findings"].items() if finding["positive"]]
    assert called == [max(image["findings"], key=lambda name: image["findings"][name]["probability"])]
    assert "the one with the highest probability is called" in next(
        (tmp_path / "out").glob("runs/**/model/README.md")
    ).read_text(encoding="utf-8")
