"""What the server must refuse, and how: one line, strict headers, nothing of a file outside the run."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from bomd.review.decisions import FILE, Journal, read_events
from bomd.review.evidence import Evidence, open_evidence
from bomd.review.guard import COOKIE, HEADERS, LARGEST_BODY, room_and_ticket
from bomd.review.server import MOST_REVIEWERS, PAGES, Pages

PORT, TOKEN = 5005, "right-token_0123456789abcdefghij"  # those of the client
HOME = f"http://127.0.0.1:{PORT}"
HOSTS = ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", "", f"[::1]:{PORT}"]
LABELS = [None, [], [1] * 13, [1] * 15, [2] * 14, [0.5] * 14, [True] * 14, ["1"] * 14, "1" * 14]


def test_the_first_address_gives_a_strict_cookie(run: Path, client: Any, refused: Any) -> None:
    with client(run, cookie=False) as page:
        for path in ("/", "/api/run", "/picture/0", "/static/review.js", "/export.csv", "/nowhere"):
            refused(page.get(path), 403)
        refused(page.get(f"/api/run?token={TOKEN}"), 403)  # no other page takes it from the address
        room, page.room = page.room, "/"
        for path in ("/", "/api/run", "/static/review.js", f"{room[:-2]}0/", "//"):
            refused(page.get(path), 403)
        for wrong in ("", "x", TOKEN[:-1], TOKEN + "x", "%ff%00", "é"):
            refused(page.get("/", params={"token": wrong}), 403)
        answer = page.get(f"/?token={TOKEN}")
        page.room = room
        assert answer.status_code == 200
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "domain" not in cookie
        assert TOKEN not in answer.text
        assert TOKEN.lower() not in cookie  # what other servers on this machine may get to see does not open this one
        assert f"path={room}" in cookie  # and they do not: browsers send it to no other path, whatever the port
        assert len(room) == 34
        page.headers["cookie"] = answer.headers["set-cookie"].partition(";")[0]
        assert page.get("/").status_code == 200
        ticket = room_and_ticket(TOKEN, PORT)[1]
        for value in (ticket + "0", "", TOKEN, f'"{ticket}"', room_and_ticket(TOKEN, PORT + 1)[1]):
            page.headers["cookie"] = f"{COOKIE}={value}"
            refused(page.get("/"), 403)


@pytest.mark.parametrize("host", HOSTS)
def test_a_page_under_another_name_gets_nothing(page: Any, host: str, refused: Any) -> None:
    """A name that its owner lets point to 127.0.0.1 must not reach the server."""
    refused(page.get("/api/run", headers={"host": host}), 421)


def test_every_answer_has_strict_headers(page: Any) -> None:
    for path in ("/", "/agreement", "/api/run", "/static/style.css", "/picture/0", "/export.csv", "/nowhere"):
        answer = page.get(path)
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
    policy = HEADERS["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy


def test_decisions_are_taken_from_the_own_page_only(page: Any, evidence: Evidence, run: Path, refused: Any) -> None:
    body = {"reviewer": "Ada", "number": 0, "id": str(evidence.record.given.ids[0]), "action": "keep"}
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": f"https://127.0.0.1:{PORT}"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        refused(page.post("/api/decide", json=body, headers=headers), 403)
    del page.headers["origin"]
    refused(page.post("/api/decide", json=body), 403)
    page.headers["origin"] = HOME
    refused(page.post("/api/decide", content=json.dumps(body).encode(), headers={"content-type": "text/plain"}), 415)
    refused(
        page.post(
            "/api/decide", content=b"reviewer=Ada", headers={"content-type": "application/x-www-form-urlencoded"}
        ),
        415,
    )
    assert read_events(run / FILE, evidence.classes) == []


def test_get_changes_nothing(page: Any, run: Path, evidence: Evidence, decide: Any, refused: Any) -> None:
    decide(page, evidence, 0)
    for path in ("/api/decide", "/api/undo"):
        refused(page.get(path, params={"reviewer": "Ada", "number": 1, "action": "keep"}), 405)
    for path in ("/", "/api/queue?reviewer=Eve", "/api/image/1?reviewer=Eve", "/api/agreement", "/export.csv"):
        assert page.get(path).status_code == 200
    assert len(read_events(run / FILE, evidence.classes)) == 1
    assert page.get("/api/run").json()["reviewers"] == ["Ada"]
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        refused(page.request(method, "/api/decide"), 405)


PATHS = [
    "/static/../server.py",
    "/static/..%2fserver.py",
    "/static/%2e%2e/server.py",
    "/static/%2e%2e%2f%2e%2e%2fcli.py",
    "/static/..%5cserver.py",
    "/static//etc/passwd",
    "/static/%2fetc%2fpasswd",
    "/static/review.html",
    "/static/link",
    "/static/",
    "/static",
    "/picture/../labels.npz",
    "/picture/..%2flabels.npz",
    "/picture/labels.npz",
    "/picture/link",
    "/picture/-1",
    "/picture/1.5",
    "/picture/1e1",
    "/picture/0x1",
    "/picture/60",
    "/picture/99999999999999999999",
    "/picture/٣",
    "/picture/%00",
    "/picture/1%00",
    "/picture/north-s0-p000000-1",
    "/heat/0/99",
    "/heat/0/..%2f..",
    "/heat/../../etc/passwd",
    "/labels.npz",
    "/review.sqlite",
    "/images/images.u8",
    "/%2e%2e/%2e%2e/etc/passwd",
    "//etc/passwd",
    "/api/image/",
    "/api/../static/review.js/..",
]


@pytest.mark.parametrize("path", PATHS)
def test_no_file_is_reachable_by_its_path(run: Path, path: str, client: Any, refused: Any) -> None:
    (run / "link").symlink_to("/etc/passwd")
    with client(run) as page:
        answer = page.get(path)
        refused(answer, 404)
        assert "root:" not in answer.text


def test_a_run_that_is_a_link_shows_its_own_images_only(run: Path, tmp_path: Path) -> None:
    """A hostile run may point its store at another folder; what is no store of this run's images is not opened."""
    from bomd.errors import InputError
    from bomd.files import write_json

    other = tmp_path / "secret"
    other.mkdir()
    (other / "images.u8").write_bytes(b"secret" * 100)
    write_json(run / "images.json", {"store": str(other), "size": 32})
    with pytest.raises(InputError, match="No packed images"):
        open_evidence(run)
    shutil.copytree(run / "images", other, dirs_exist_ok=True)
    (other / "images.u8").write_bytes(b"\0" * (60 * 32 * 32))
    with pytest.raises(InputError, match="has changed on disk"):
        open_evidence(run)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"null", 400),
        (b"\xff\xfe", 400),
        (b"[" * 15_000, 400),
        (b'{"a":' * 3_000, 400),
        (b"9" * 5_000, 400),
        (b'{"reviewer": NaN}', 400),
        (b"{}", 400),
        (json.dumps({"reviewer": "x" * 61}).encode(), 400),
        (json.dumps({"reviewer": " "}).encode(), 400),
        (json.dumps({"reviewer": "a\x00b"}).encode(), 400),
        (json.dumps({"reviewer": "\ud800"}).encode(), 400),
        (json.dumps({"reviewer": ["Ada"]}).encode(), 400),
        (json.dumps({"reviewer": "Ada"}).encode(), 404),
        (json.dumps({"reviewer": "Ada", "number": True}).encode(), 404),
        (json.dumps({"reviewer": "Ada", "number": -1}).encode(), 404),
        (json.dumps({"reviewer": "Ada", "number": 10**30}).encode(), 404),
        (json.dumps({"reviewer": "Ada", "number": 0, "id": "other"}).encode(), 409),
        (b" " * (LARGEST_BODY + 1), 413),
    ],
)
def test_malformed_decisions_are_one_line(page: Any, run: Path, body: bytes, status: int, refused: Any) -> None:
    refused(page.post("/api/decide", content=body, headers={"content-type": "application/json"}), status)
    assert read_events(run / FILE, open_evidence(run).classes) == []


@pytest.mark.parametrize("labels", LABELS)
def test_malformed_labels_are_one_line(page: Any, evidence: Evidence, labels: Any, decide: Any, refused: Any) -> None:
    refused(decide(page, evidence, 0, "edit", labels=labels), 400)
    refused(decide(page, evidence, 0, "undo"), 400)
    refused(decide(page, evidence, 0, "reject"), 400)


def test_a_body_without_a_length_is_cut_off(page: Any, refused: Any) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(1000):
            yield b" " * 1024

    refused(page.post("/api/decide", content=pieces(), headers={"content-type": "application/json"}), 413)
    refused(page.get("/api/queue?text=" + "x" * 5000), 414)


def test_reviewers_cannot_be_made_up_without_end(page: Any, evidence: Evidence, decide: Any, refused: Any) -> None:
    for number in range(MOST_REVIEWERS):
        assert decide(page, evidence, 0, "skip", reviewer=f"r{number}").status_code == 200
    refused(decide(page, evidence, 0, "skip", reviewer="one more"), 409)
    assert decide(page, evidence, 1, "skip", reviewer="r0").status_code == 200


def test_hostile_text_is_data(hostile_run: Path, client: Any, decide: Any) -> None:
    """Names with markup come back as JSON text; the pages themselves hold none of them."""
    evidence = open_evidence(hostile_run)
    with client(hostile_run) as page:
        assert page.get("/api/run").json()["classes"] == list(evidence.classes)
        assert page.get("/api/run").headers["content-type"] == "application/json"
        for path in ("/", "/agreement"):
            assert "broken" not in page.get(path).text
        row = int(evidence.rows[0])
        assert decide(page, evidence, row, reviewer="'; DROP TABLE events; --").status_code == 200
        assert page.get("/api/image/0").json()["id"] == str(evidence.record.given.ids[0])
        lines = list(csv.reader(io.StringIO(page.get("/export.csv").text)))
        assert [line[0] for line in lines[1:]] == evidence.record.given.ids.tolist()
        assert lines[0][2:] == list(evidence.classes)
        found = page.get("/api/queue", params={"text": "<SCRIPT>"}).json()
        assert all("<script>" in item["id"] + item["patient"] for item in found["items"])


def test_the_reviewer_and_run_in_the_page_are_escaped(template: Path, tmp_path: Path) -> None:
    run = tmp_path / '"><script>alert(1)<'
    shutil.copytree(template, run)
    evidence = open_evidence(run)
    journal = Journal(run / FILE, evidence.classes)
    pages = Pages(evidence, journal, '"><img src=x onerror=alert(1)>')
    journal.close()
    for text in pages._html.values():
        assert "<script>alert" not in text
        assert "<img" not in text


def test_pages_ask_nothing_of_anybody_else_and_put_text_in_as_text() -> None:
    for file in PAGES.iterdir():
        text = file.read_text(encoding="utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"https?:|//[a-z]+\.", text), file
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(", text), file
        assert not re.search(r"\bon[a-z]+=", text), file
        assert "style=" not in text  # the policy would not allow it
    for file in PAGES.glob("*.html"):
        assert not re.search(r"<script(?![^>]*src=)|\|\s*safe", file.read_text(encoding="utf-8"))


def test_the_first_address_leads_on_to_an_image_whatever_its_id_holds(run: Path, client: Any) -> None:
    with client(run, cookie=False) as page:
        page.headers.pop("origin")
        page.room = "/"
        for image in ("plain-1", '"><script>alert(1)</script>', "a&b=c#d", "é/..\\x"):
            answer = page.get("/", params={"token": TOKEN, "image": image})
            assert answer.status_code == 200
            way = re.findall(r'(?:url=|href=")([^"]*#image=[^"]*)"', answer.text)
            assert len(way) == 2
            assert {unquote(one.partition("#image=")[2]) for one in way} == {image}
            assert "<script" not in answer.text
        assert "#image" not in page.get("/", params={"token": TOKEN}).text
