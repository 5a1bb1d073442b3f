"""Decisions change what is expected of labels that are still open, and never the order that the run gave."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bomd.clean.opinion import form_opinion
from bomd.experiments.records import LabelRecord
from bomd.review import outputs
from bomd.review.decisions import Event
from bomd.review.evidence import Evidence, open_evidence
from bomd.review.export import read_reviewed
from bomd.review.learning import EVERY, FIRST, Teacher, rates_file
from bomd.review.queue import plain_labels
from bomd.tables import NO_FINDING

ADA = {"reviewer": "Ada"}


@pytest.fixture
def judged_run(run: Path) -> Path:
    """A run whose opinion comes from its own scores, as those of `bomd audit` do, with many proposals."""
    record = LabelRecord.load(run / "labels.npz")
    assert record.scores is not None
    opinion, _, _ = form_opinion(record.scores, record.given, at_least=0.3)
    replace(record, opinion=opinion).save(run / "labels.npz")
    return run


def decisions(evidence: Evidence, rows: Any, values: Any) -> dict[int, Event]:
    ids = evidence.record.given.ids
    return {int(row): Event("Ada", str(ids[row]), "edit", plain_labels(values[row])) for row in rows}


def test_the_rates_that_were_estimated_leave_every_probability_as_it_is(evidence: Evidence) -> None:
    teacher = Teacher(evidence)
    own = evidence.record.opinion.wrong[evidence.rows]
    np.testing.assert_allclose(teacher.wrong(evidence.rows, teacher.rates), own, atol=2e-6)


def test_it_is_the_posterior_where_the_run_judged_by_the_same_scores(judged_run: Path) -> None:
    """Against `form_opinion` with the rates as if somebody had measured them."""
    evidence = open_evidence(judged_run)
    record, teacher = evidence.record, Teacher(evidence)
    assert record.scores is not None
    known = (teacher.rates.false_alarm * 2, teacher.rates.miss / 2)
    wanted, _, rates = form_opinion(record.scores, record.given, known=known)
    moved = teacher.wrong(evidence.rows, rates)
    assert np.nanmax(np.abs(moved - record.opinion.wrong[evidence.rows])) > 0.1
    np.testing.assert_allclose(moved, wanted.wrong[evidence.rows], atol=1e-4)


def test_kept_labels_lower_and_changed_ones_raise_what_is_left_of_a_class(judged_run: Path) -> None:
    evidence = open_evidence(judged_run)
    asked = evidence.record.removed.copy()
    asked[:, [name == NO_FINDING for name in evidence.classes]] = False
    column = int(asked.sum(axis=0).argmax())
    rows = np.flatnonzero(evidence.given[:, column] == 1)
    doubted = rows[np.argsort(-evidence.record.opinion.wrong[rows, column])]
    decided, left = doubted[:FIRST], doubted[FIRST:]
    assert len(left) >= 3
    found = {}
    for name, value in (("kept", 1), ("changed", 0)):
        labels = evidence.given.copy()
        labels[:, column] = value
        learnt = Teacher(evidence).learn(decisions(evidence, decided, labels), FIRST)
        found[name] = np.stack([learnt.wrong(int(row)) for row in left])[:, column]
    before = evidence.record.opinion.wrong[left, column]
    assert (found["kept"] < before).all()
    assert (found["changed"] > before).all()


def accept_or_keep(page: Any, evidence: Evidence, decide: Callable[..., Any], action: str, count: int) -> list[int]:
    """Decide on the first images of the queue, one after the other."""
    rows = []
    for _ in range(count):
        row = page.get("/api/queue", params=ADA).json()["next"]
        assert decide(page, evidence, row, action).status_code == 200
        rows.append(row)
    return rows


def test_the_page_learns_after_enough_decisions_and_says_so(
    judged_run: Path, client: Any, decide: Callable[..., Any]
) -> None:
    evidence = open_evidence(judged_run)
    with client(judged_run) as page:
        start = page.get("/api/queue", params=ADA | {"count": 200}).json()
        accept_or_keep(page, evidence, decide, "keep", FIRST - 1)
        said = page.get("/api/learnt", params=ADA).json()
        assert said["updated"] is None
        assert (said["judged"], said["first"], said["accepted"]) == (FIRST - 1, FIRST, 0)
        accept_or_keep(page, evidence, decide, "keep", 1)
        said = page.get("/api/learnt", params=ADA).json()
        assert said["updated"]["judged"] == FIRST
        now = page.get("/api/queue", params=ADA | {"count": 200}).json()
        expected = {item["number"]: item["expected"] for item in start["items"]}
        assert np.mean([item["expected"] for item in now["items"]]) < np.mean(
            [expected[item["number"]] for item in now["items"]]
        )
        # Learnt again only after some more decisions, and what the run said can still be had.
        accept_or_keep(page, evidence, decide, "keep", EVERY - 1)
        assert page.get("/api/learnt", params=ADA).json()["updated"]["judged"] == FIRST
        accept_or_keep(page, evidence, decide, "accept", 1)
        said = page.get("/api/learnt", params=ADA).json()
        assert said["updated"]["judged"] == FIRST + EVERY
        image = page.get(f"/api/image/{now['items'][-1]['number']}", params=ADA).json()
        assert any(label["wrong"] != label["before"] for label in image["labels"])
        plain = page.get(f"/api/image/{image['number']}", params=ADA | {"basis": "run"}).json()
        assert [label["wrong"] for label in plain["labels"]] == [label["before"] for label in image["labels"]]
        given = page.get("/api/queue", params=ADA | {"basis": "run", "state": "all", "count": 200}).json()["items"]
        assert [(item["number"], item["expected"]) for item in given] == [
            (item["number"], item["expected"]) for item in start["items"]
        ]


def test_accepted_proposals_are_counted_class_by_class(
    judged_run: Path, client: Any, decide: Callable[..., Any]
) -> None:
    evidence = open_evidence(judged_run)
    with client(judged_run) as page:
        kept = accept_or_keep(page, evidence, decide, "keep", 4)
        taken = accept_or_keep(page, evidence, decide, "accept", 5)
        page.post("/api/undo", json=ADA)
        said = page.get("/api/learnt", params=ADA).json()
    proposed = evidence.record.added | evidence.record.removed
    for line in said["classes"]:
        column = evidence.classes.index(line["name"])
        assert line["asked"] == proposed[[*kept, *taken[:-1]], column].sum()
        assert line["accepted"] == proposed[taken[:-1], column].sum()
    assert NO_FINDING not in [line["name"] for line in said["classes"]]
    assert said["accepted"] == sum(line["accepted"] for line in said["classes"]) > 0


def test_too_few_decisions_after_an_undo_bring_the_order_of_the_run_back(
    judged_run: Path, client: Any, decide: Callable[..., Any]
) -> None:
    evidence = open_evidence(judged_run)
    with client(judged_run) as page:
        accept_or_keep(page, evidence, decide, "keep", FIRST)
        assert page.get("/api/learnt", params=ADA).json()["updated"]
        page.post("/api/undo", json=ADA)
        assert page.get("/api/learnt", params=ADA).json()["updated"] is None
    with client(judged_run) as page:  # a new server knows what the old one knew
        accept_or_keep(page, evidence, decide, "keep", 1)
        assert page.get("/api/learnt", params=ADA).json()["updated"]["judged"] == FIRST


def test_the_rates_on_the_page_are_those_of_the_command(
    judged_run: Path, client: Any, decide: Callable[..., Any], tmp_path: Path
) -> None:
    evidence = open_evidence(judged_run)
    with client(judged_run) as page:
        accept_or_keep(page, evidence, decide, "keep", FIRST // 2)
        accept_or_keep(page, evidence, decide, "accept", FIRST // 2)
        said = page.get("/api/learnt", params=ADA).json()
    outputs.write([rates_file(judged_run, read_reviewed(judged_run), tmp_path / "rates.csv")], None)
    lines = {line["class"]: line for line in csv.DictReader((tmp_path / "rates.csv").open())}
    for line in said["classes"]:
        for name in ("false_alarm", "miss"):
            assert line[name][1] == pytest.approx(float(lines[line["name"]][name]), abs=1e-5)


def test_one_persons_decisions_teach_nobody_else(judged_run: Path, client: Any, decide: Callable[..., Any]) -> None:
    evidence = open_evidence(judged_run)
    with client(judged_run) as page:
        before = page.get("/api/queue", params={"reviewer": "Grace"}).json()["items"]
        accept_or_keep(page, evidence, decide, "keep", FIRST)
        assert page.get("/api/queue", params={"reviewer": "Grace"}).json()["items"] == before
        assert page.get("/api/learnt", params={"reviewer": "Grace"}).json()["updated"] is None


def test_a_run_without_scores_counts_but_learns_nothing(run: Path, client: Any, decide: Callable[..., Any]) -> None:
    record = LabelRecord.load(run / "labels.npz")
    replace(record, scores=None, classifier=None).save(run / "labels.npz")
    evidence = open_evidence(run)
    with client(run) as page:
        accept_or_keep(page, evidence, decide, "accept", FIRST)
        said = page.get("/api/learnt", params=ADA).json()
        assert (said["first"], said["updated"]) == (None, None)
        assert said["accepted"] == said["asked"] > 0
        assert page.get("/api/queue", params=ADA | {"basis": "nonsense"}).status_code == 400


def test_an_image_is_found_by_its_id(run: Path, client: Any) -> None:
    ids = open_evidence(run).record.given.ids
    with client(run) as page:
        assert page.get("/api/find", params={"id": str(ids[7])}).json() == {"number": 7}
        assert page.get("/api/find", params={"id": "nobody"}).status_code == 404


@pytest.mark.slow
def test_learning_needs_no_network_library(judged_run: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from bomd.review import server;"
        "from bomd.review.evidence import open_evidence; from bomd.review.learning import Teacher;"
        "from bomd.review.decisions import Event; from bomd.review.queue import plain_labels;"
        "evidence = open_evidence(Path(sys.argv[1])); ids = evidence.record.given.ids;"
        "events = {int(r): Event('A', str(ids[r]), 'keep', plain_labels(evidence.given[r])) for r in evidence.rows};"
        "Teacher(evidence).learn(events, 1); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(judged_run)], check=False).returncode == 0
