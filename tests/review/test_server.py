"""The server through its front door: the queue, evidence, decisions, agreement and export."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bomd.review import guard
from bomd.review.decisions import FILE, current, read_events
from bomd.review.evidence import Evidence, open_evidence


def test_the_queue_and_its_evidence(page: Any, evidence: Evidence) -> None:
    found = page.get("/api/queue?reviewer=Ada&count=5").json()
    best = evidence.rows[np.argsort(evidence.record.opinion.rank[evidence.rows])]
    assert [item["number"] for item in found["items"]] == best[:5].tolist()
    assert found["total"] == len(evidence.rows)
    assert found["next"] == best[0]
    assert found["progress"] == {"images": len(evidence.rows), "decided": 0, "skipped": 0}
    assert page.get("/api/queue?start=5&count=2").json()["items"][0]["number"] == best[5]
    facts = page.get(f"/api/image/{best[0]}?reviewer=Ada").json()
    assert facts["decision"] is None
    assert [label["given"] for label in facts["labels"]] == evidence.given[best[0]].tolist()
    assert all(0 <= label["classifier"] <= 1 for label in facts["labels"])
    assert len(facts["neighbours"]) == 10
    doubts = np.nanmax(evidence.record.opinion.wrong[:, evidence.record.given.findings], axis=1)
    single = evidence.rows[np.argsort(-doubts[evidence.rows], kind="stable")]
    found = page.get("/api/queue?reviewer=Ada&count=5&order=label").json()
    assert [item["number"] for item in found["items"]] == single[:5].tolist()
    assert page.get("/api/queue?order=size").status_code == 400
    facts = page.get("/api/run").json()
    assert facts["classes"] == list(evidence.classes)
    assert facts["has"] == {
        "patients": True,
        "files": False,
        "classifier": True,
        "votes": True,
        "heat": False,
    }
    assert facts["reasons"] == list(evidence.record.opinion.reasons)


def test_pictures_are_the_packed_images(page: Any, evidence: Evidence) -> None:
    for address in ("/picture/3", "/picture/3?small"):
        answer = page.get(address)
        assert answer.headers["content-type"] == "image/png"
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(answer.content))), evidence.packed(3))


def test_a_decision_is_saved_before_the_answer(page: Any, evidence: Evidence, run: Path, decide: Any) -> None:
    first, second = page.get("/api/queue").json()["items"][:2]
    answer = decide(page, evidence, first["number"])
    assert answer.json()["progress"]["decided"] == 1
    (saved,) = read_events(run / FILE, evidence.classes)
    assert (saved.number, saved.image, saved.action) == (answer.json()["event"], first["id"], "accept")
    assert saved.labels == tuple(evidence.proposed[first["number"]].tolist())
    edited = [1, 0] * 7
    assert decide(page, evidence, second["number"], "edit", labels=edited).status_code == 200
    assert read_events(run / FILE, evidence.classes)[-1].labels == tuple(edited)
    own = page.get(f"/api/image/{second['number']}?reviewer=Ada").json()["decision"]
    assert own == {"action": "edit", "labels": edited, "reason": ""}
    assert page.get(f"/api/image/{second['number']}?reviewer=Grace").json()["decision"] is None  # hers alone
    assert page.get("/api/queue?reviewer=Ada").json()["total"] == len(evidence.rows) - 2
    assert page.get("/api/queue?reviewer=Grace").json()["total"] == len(evidence.rows)


def test_undo_takes_back_one_after_the_other(
    page: Any, evidence: Evidence, run: Path, decide: Any, refused: Any
) -> None:
    decide(page, evidence, 4, "keep")
    decide(page, evidence, 4, "skip")
    decide(page, evidence, 7, "skip")
    assert [page.post("/api/undo", json={"reviewer": "Ada"}).json()["number"] for _ in range(2)] == [7, 4]
    assert page.get("/api/image/4?reviewer=Ada").json()["decision"]["action"] == "keep"
    assert page.post("/api/undo", json={"reviewer": "Ada"}).status_code == 200
    refused(page.post("/api/undo", json={"reviewer": "Ada"}), 409)
    refused(page.post("/api/undo", json={"reviewer": "Grace"}), 409)
    assert current(read_events(run / FILE, evidence.classes)) == {}


def test_a_restarted_server_knows_everything(run: Path, evidence: Evidence, client: Any, decide: Any) -> None:
    with client(run) as page:
        decide(page, evidence, 4, "keep")
        decide(page, evidence, 5, "skip")
        before = page.get("/api/queue?reviewer=Ada").json()
    with client(run) as page:
        assert page.get("/api/queue?reviewer=Ada").json() == before
        assert page.post("/api/undo", json={"reviewer": "Ada"}).json()["number"] == 5


def test_agreement_and_export(page: Any, evidence: Evidence, decide: Any) -> None:
    row = int(evidence.rows[0])
    decide(page, evidence, row, "accept")
    decide(page, evidence, row, "keep", reviewer="Grace")
    found = page.get("/api/agreement").json()
    assert found["shared"] == 1
    same = np.mean(evidence.proposed[row] == evidence.given[row])
    assert found["overall"]["same"] == pytest.approx(same, abs=1e-4)
    answer = page.get("/export.csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="reviewed.csv"'
    line = list(csv.DictReader(io.StringIO(answer.text)))[row]
    assert [int(line[name]) for name in evidence.classes] == evidence.given[row].tolist()  # they disagree
    answer = page.get("/details.csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="reviewed-details.csv"'
    lines = list(csv.DictReader(io.StringIO(answer.text)))
    assert {line["reviewers"] for line in lines} == {"Ada|Grace"}
    split = [line["class"] for line in lines if line["unresolved"] == "1"]
    assert split == [evidence.classes[c] for c in np.flatnonzero(evidence.proposed[row] != evidence.given[row])]


def test_a_heat_map_needs_a_model(page: Any, run: Path, refused: Any) -> None:
    refused(page.get("/heat/0/0"), 404)


@pytest.mark.slow
def test_heat_maps_of_a_run_with_a_model(run: Path, client: Any, refused: Any) -> None:
    from bomd.models import model
    from bomd.networks.backbone import build

    evidence = open_evidence(run)
    model.save(run / "model", [build("small", 13, seed=0)], evidence.classes[:13], 32)
    with client(run) as page:
        assert page.get("/api/run").json()["has"]["heat"]
        layer = np.asarray(Image.open(io.BytesIO(page.get("/heat/2/0").content)))
        assert layer.shape == (32, 32, 4)
        assert page.get("/heat/2/0").content == page.get("/heat/2/0").content
        refused(page.get("/heat/2/13"), 404)  # a class that the model does not know
        (run / "model" / "network0.safetensors").write_bytes(b"damaged")
    with client(run) as page:
        refused(page.get("/heat/2/0"), 404)


def test_an_image_outside_the_queue_can_be_decided_but_is_no_progress(
    page: Any, evidence: Evidence, decide: Callable[..., Any]
) -> None:
    row = int(np.setdiff1d(np.arange(len(evidence)), evidence.rows)[0])
    assert decide(page, evidence, row, "keep").json()["progress"]["decided"] == 0
    assert page.post("/api/undo", json={"reviewer": "Ada"}).json()["progress"]["decided"] == 0


def test_a_tab_that_is_closed_during_a_request_is_no_fault(
    page: Any, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The browser is gone before its decision has come in whole: nothing is saved, and nothing is complained about."""

    def pieces() -> Iterator[bytes]:
        yield b'{"reviewer": "Ada", '
        raise ConnectionError

    page.post("/api/decide", content=pieces(), headers={"content-type": "application/json"})
    assert read_events(run / FILE, open_evidence(run).classes) == []
    assert capsys.readouterr() == ("", "")


def test_a_body_that_never_ends_is_not_waited_for(page: Any, refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "PATIENCE", 0.05)

    def pieces() -> Iterator[bytes]:
        while True:
            time.sleep(0.02)
            yield b" "

    refused(page.post("/api/decide", content=pieces(), headers={"content-type": "application/json"}), 408)


def test_a_removed_file_of_decisions_is_an_error_and_no_decision(
    page: Any, evidence: Evidence, run: Path, decide: Any, refused: Any
) -> None:
    row = int(evidence.rows[0])
    (run / FILE).unlink()
    refused(decide(page, evidence, row), 507)
    assert page.get(f"/api/image/{row}?reviewer=Ada").json()["decision"] is None
