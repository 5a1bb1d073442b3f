"""Issues tables against the real package: what Datalab gives becomes flags, and ours look like Datalab's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from bomd import exchange
from bomd.errors import InputError
from bomd.exchange import cleanlab as ours
from bomd.exchange.judgement import Judgement
from bomd.tables import LabelTable

CLASSES = ("Mass", "Edema", "Hernia")


@pytest.fixture(scope="module")
def given() -> LabelTable:
    """Sixty images; the labels of the first are all turned round."""
    draw = np.random.default_rng(0)
    values = (draw.random((60, 3)) < 0.4).astype(np.float32)
    values[0] = [1, 0, 0]
    return LabelTable(np.asarray([f"i{number}" for number in range(60)]), CLASSES, values)


@pytest.fixture(scope="module")
def probabilities(given: LabelTable) -> np.ndarray:
    draw = np.random.default_rng(1)
    right = given.values.copy()
    right[0] = 1 - right[0]
    return np.clip(np.where(right == 1, 0.8, 0.2) + draw.normal(0, 0.1, right.shape), 0.01, 0.99)


@pytest.fixture(scope="module")
def issues(given: LabelTable, probabilities: np.ndarray) -> pd.DataFrame:
    cleanlab = pytest.importorskip("cleanlab")
    pytest.importorskip("datasets", reason="Datalab needs it")
    lab = cleanlab.Datalab({"labels": ours.label_lists(given)}, label_name="labels", task="multilabel", verbosity=0)
    lab.find_issues(pred_probs=probabilities, issue_types={"label": {"n_jobs": 1}})
    found: pd.DataFrame = lab.get_issues("label")
    return found


@pytest.mark.slow  # importing Datalab takes seconds
def test_datalab_to_doubts(issues: pd.DataFrame, given: LabelTable) -> None:
    doubts = ours.doubts(issues, given)
    assert np.flatnonzero(doubts.flagged).tolist() == [0]
    assert doubts.expected.argmax() == 0
    assert np.allclose(np.exp(-doubts.expected), issues["label_score"])


@pytest.mark.slow  # importing Datalab takes seconds
def test_a_sorted_table_still_names_its_rows(issues: pd.DataFrame, given: LabelTable, tmp_path: Path) -> None:
    """Sorting moves rows but not their names; a table of some rows only is an error."""
    shuffled = issues.sort_values("label_score", ascending=False)
    assert ours.doubts(shuffled, given).flagged.tolist() == ours.doubts(issues, given).flagged.tolist()
    with pytest.raises(InputError, match="has 5 rows, and 60 images"):
        ours.doubts(shuffled.head(5), given)
    shuffled.to_csv(tmp_path / "issues.csv")
    exchange.write(Judgement(given), tmp_path / "labels.csv")
    read = exchange.read(tmp_path / "issues.csv", "cleanlab", labels=tmp_path / "labels.csv")
    assert read.doubts is not None
    assert np.flatnonzero(read.doubts.flagged).tolist() == [0]


def test_labels_may_be_a_table_that_is_understood_by_its_images(tmp_path: Path) -> None:
    """The table has words beside labels, which is no matter where the images say which rows and columns are meant."""
    for name in "ab":
        Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(tmp_path / f"{name}.png")
    (tmp_path / "labels.csv").write_text("image,note,Mass,Edema\na,fine,1,0\nb,dull,0,1\n")
    (tmp_path / "issues.csv").write_text("id,is_label_issue,label_score\na,True,0.1\nb,False,0.9\n")
    words: dict[str, Any] = {"labels": tmp_path / "labels.csv", "images": tmp_path}
    read = exchange.read(tmp_path / "issues.csv", "cleanlab", **words)
    assert read.given.classes == ("Mass", "Edema")
    assert read.doubts is not None
    assert read.doubts.flagged.tolist() == [True, False]
    exchange.convert(tmp_path / "issues.csv", tmp_path / "back.csv", read_as="cleanlab", options=words)
    assert "Mass" in (tmp_path / "back.csv").read_text()
    with pytest.raises(InputError, match="no labels are given"):
        exchange.read(tmp_path / "issues.csv", "cleanlab", images=tmp_path)


@pytest.mark.slow  # importing Datalab takes seconds
def test_datalabs_table_with_labels(issues: pd.DataFrame, given: LabelTable, tmp_path: Path) -> None:
    """In memory and as pandas writes it to a file, where numpy's numbers are spelled out."""
    read = ours.from_frame(issues, CLASSES, given.ids.tolist())
    assert read.given.ids.tolist() == given.ids.tolist()
    assert np.array_equal(read.given.values, given.values)
    assert read.proposed is not None
    assert read.proposed.values[0].tolist() == [0, 1, 1]
    issues.to_csv(tmp_path / "issues.csv")
    saved = exchange.read(tmp_path / "issues.csv", "cleanlab", classes=list(CLASSES))
    assert np.array_equal(saved.given.values, given.values)
    assert saved.proposed is not None
    assert np.array_equal(saved.proposed.values, read.proposed.values)


@pytest.mark.slow  # importing Datalab takes seconds
def test_our_table_has_datalabs_columns_and_kinds(issues: pd.DataFrame, judgement: Judgement) -> None:
    frame = ours.to_frame(judgement)
    assert list(frame.columns[:4]) == list(issues.columns)
    assert frame["is_label_issue"].dtype == issues["is_label_issue"].dtype
    assert frame["label_score"].dtype == issues["label_score"].dtype
    assert frame["given_label"].tolist() == [[0], [1], [], [3], [0, 1]]
    assert frame["predicted_label"].tolist() == [[1], [1], [], [3], [0]]
    assert frame["unknown_label"].tolist() == [[], [2], [0, 1, 2, 3], [], []]


def test_masks_and_scores_of_single_labels(given: LabelTable, probabilities: np.ndarray) -> None:
    multilabel = pytest.importorskip("cleanlab.multilabel_classification")
    lists = ours.label_lists(given)
    whole = multilabel.filter.find_label_issues(lists, probabilities)
    single = multilabel.filter.find_multilabel_issues_per_class(lists, probabilities)
    scores = multilabel.rank.get_label_quality_scores_per_class(lists, probabilities)
    assert ours.doubts(whole, given).flagged.tolist() == whole.tolist()
    doubts = ours.doubts(single, given, scores)
    assert doubts.flagged.tolist() == single.any(axis=1).tolist()
    assert np.allclose(doubts.wrong, 1 - scores)
    with pytest.raises(InputError, match="A mask of 60 images"):
        ours.doubts(whole[:5], given)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,is_label_issue,given_label\na,True,[0]\n", "numbers the classes"),
        ('id,is_label_issue,given_label,classes\na,True,[7],"[""x""]"\n', "names class 7, and 1 have names"),
        ('id,is_label_issue,given_label,classes\na,True,__import__(1),"[""x""]"\n', "no list of class numbers"),
        ('id,is_label_issue,given_label,classes\na,perhaps,[0],"[""x""]"\n', "neither true nor false"),
        ("id,is_label_issue,classes\na,True,[\n", "does not list the classes"),
        ("id,is_label_issue\na,True\n", "holds no given labels"),
        (
            'id,is_label_issue,given_label,classes,wrong_label\na,True,[0],"[""x""]","[0.1, 0.2]"\n',
            "not one probability for each of 1",
        ),
        ('id,is_label_issue,given_label,classes,wrong_label\na,True,[0],"[""x""]",[7]\n', "7 does not say"),
        ('id,is_label_issue,given_label,classes,wrong_label\na,True,[0],"[""x""]",oh\n', "no list of probabilities"),
        ("id,x\na,True\n", "no issues table"),
    ],
)
def test_mistakes(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "issues.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        exchange.read(tmp_path / "issues.csv", "cleanlab")
