"""Small runs to review: generated chest X-rays with planted wrong labels, written through the files' own classes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode

import numpy as np
import pytest

from bomd.clean import opinion
from bomd.clean.detect import detect
from bomd.clean.posterior import Posterior
from bomd.clean.relabel import relabel
from bomd.data.datasets import phantom
from bomd.data.noise import NOISES
from bomd.data.store import pack
from bomd.experiments.records import LabelRecord
from bomd.files import write_json
from bomd.review.decisions import FILE, Journal
from bomd.review.evidence import Evidence, open_evidence
from bomd.review.guard import COOKIE, HEADERS, Guard, room_and_ticket
from bomd.review.server import Pages, make_app
from bomd.tables import LabelTable

PORT, TOKEN = 5005, "right-token_0123456789abcdefghij"
HOME = f"http://127.0.0.1:{PORT}"
Client = Callable[..., AbstractContextManager["Browser"]]

HOSTILE = (
    "<script>document.title='broken'</script>",
    '"><img src=x onerror="document.title=\'broken\'">',
    "{{ 7 * 7 }}",
    "../../etc/passwd",
    "'; DROP TABLE events; --",
    "‮olleh",
)


def build_run(directory: Path, count: int = 60, size: int = 32, *, hostile: bool = False) -> Path:
    """Write a run whose neighbours are the images with the most similar true findings."""
    random = np.random.default_rng(3)
    clean = phantom.read(count=count)
    drawn = clean
    if hostile:
        names = [f"{HOSTILE[row % len(HOSTILE)]} {row}" for row in range(count)]
        classes = (*HOSTILE, *clean.classes[len(HOSTILE) :])
        clean = LabelTable(np.asarray(names), classes, clean.values, patients=np.asarray(names[::-1]))
    noisy = NOISES["symmetric"](table=clean, seed=1, rows=0.5, labels=0.15)
    blurred = clean.values + random.normal(0, 0.25, clean.values.shape)
    distance = ((blurred[:, None] - blurred[None]) ** 2).sum(axis=2)
    np.fill_diagonal(distance, np.inf)
    neighbours = np.argsort(distance, axis=1, kind="stable")[:, :10].astype(np.int64)
    scores = blurred.astype(np.float32)
    flags = detect(scores, noisy.noisy)
    classifier = (1 / (1 + np.exp(-6 * (blurred - 0.5)))).astype(np.float32)
    learnt = np.ones(len(clean.classes), dtype=np.bool_)
    wrong = np.abs(noisy.noisy.values - classifier)
    believed = Posterior(wrong, wrong, wrong[:, 0], wrong[:, 0])
    judged, any_wrong = np.ones_like(wrong, dtype=np.bool_), 1 - (1 - wrong).prod(axis=1)
    record = LabelRecord(
        given=noisy.noisy,
        targets=noisy.noisy.replace(relabel(noisy.noisy.values, neighbours, flags.noisy)),
        opinion=opinion.decide(believed, noisy.noisy, learnt, judged, 0.5, ("Made by hand.",), any_wrong),
        clean=clean,
        exposed=np.ones(count, dtype=np.bool_),
        flags=flags,
        neighbours=neighbours,
        scores=scores,
        classifier=classifier,
    )
    record.save(directory / "labels.npz")
    pictures = np.asarray(phantom.render(drawn.ids, size))
    rows = {name: row for row, name in enumerate(clean.ids.tolist())}
    pack(clean, directory / "images", size, render=lambda ids, _: pictures[[rows[str(name)] for name in ids]])
    write_json(directory / "images.json", {"store": "images", "size": size})
    return directory


@pytest.fixture(scope="session")
def build() -> Callable[..., Path]:
    return build_run


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_run(tmp_path_factory.mktemp("runs") / "plain")


@pytest.fixture(scope="session")
def hostile_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_run(tmp_path_factory.mktemp("runs") / "hostile", hostile=True)


@pytest.fixture
def run(template: Path, tmp_path: Path) -> Path:
    """A run of its own for each test."""
    return Path(shutil.copytree(template, tmp_path / "run"))


@pytest.fixture
def hostile_run(hostile_template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(hostile_template, tmp_path / "hostile"))


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


@dataclass(frozen=True)
class Answer:
    """What the server sent."""

    status_code: int
    headers: dict[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()

    def json(self) -> Any:
        return json.loads(self.content)


class Browser:
    """Speaks to the application itself, so that paths arrive as they are and a fault inside it is raised here."""

    def __init__(self, app: Any) -> None:
        self.app, self.room = app, app.room
        self.headers = {"host": f"127.0.0.1:{PORT}", "origin": HOME}
        self.loop = asyncio.new_event_loop()

    def get(self, path: str, **more: Any) -> Answer:
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> Answer:
        return self.request("POST", path, **more)

    def request(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, Any] | None = None,
        json: Any = None,
        content: bytes | Iterator[bytes] | None = None,
        headers: dict[str, str] | None = None,
        messages: list[dict[str, Any]] | None = None,
    ) -> Answer:
        address, _, query = path.partition("?")
        address = self.room + address.removeprefix("/")
        query = urlencode(params) if params else query
        sent = dict(self.headers)
        if json is not None:
            content, sent["content-type"] = as_json(json), "application/json"
        if isinstance(content, bytes):
            sent["content-length"] = str(len(content))
        sent |= headers or {}
        pieces = iter([content or b""]) if content is None or isinstance(content, bytes) else content
        arriving, answered = iter(messages or ()), []

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0)
            if (message := next(arriving, None)) is not None:
                return message
            try:
                piece = next(pieces, None)
            except ConnectionError:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

        async def send(message: dict[str, Any]) -> None:
            answered.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "method": method,
            "path": unquote(address),
            "raw_path": quote(address, safe="/%").encode(),
            "query_string": query.encode("utf-8", "surrogatepass"),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", PORT),
        }
        self.loop.run_until_complete(self.app(scope, receive, send))
        received = {name.decode(): value.decode() for name, value in answered[0]["headers"]}
        body = b"".join(message.get("body", b"") for message in answered[1:])
        return Answer(answered[0]["status"], received, body)


@pytest.fixture
def client() -> Client:
    """Opens a run's pages as the browser of somebody who has the token, or, without the cookie, has not."""

    @contextmanager
    def visit(run: Path, *, cookie: bool = True) -> Iterator[Browser]:
        evidence = open_evidence(run)
        journal = Journal(run / FILE, evidence.classes)
        guard = make_app(Pages(evidence, journal), TOKEN, PORT)
        assert isinstance(guard, Guard)
        browser = Browser(guard)
        if cookie:
            browser.headers["cookie"] = f"other=1; {COOKIE}={guard.ticket}"
        try:
            yield browser
        finally:
            browser.loop.close()
            journal.close()

    return visit


@pytest.fixture
def page(run: Path, client: Client) -> Iterator[Browser]:
    with client(run) as browser:
        yield browser


@pytest.fixture
def evidence(run: Path) -> Evidence:
    return open_evidence(run)


@pytest.fixture
def decide() -> Callable[..., Answer]:
    """Sends a decision of Ada's, or of somebody named."""

    def send(page: Browser, evidence: Evidence, row: int, action: str = "accept", **more: Any) -> Answer:
        body = {"reviewer": "Ada", "number": row, "id": str(evidence.record.given.ids[row]), "action": action, **more}
        return page.post("/api/decide", json=body)

    return send


@pytest.fixture
def refused() -> Callable[[Answer, int], None]:
    """A refusal is one line of plain text, with all strict headers."""

    def check(answer: Answer, status: int) -> None:
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"].startswith("text/plain")
        assert answer.text.count("\n") == 1
        assert "Traceback" not in answer.text
        for name, value in HEADERS.items():
            assert answer.headers[name] == value

    return check


@dataclass(frozen=True)
class Served:
    """A review server in a process of its own."""

    process: subprocess.Popen[str]
    address: str
    token: str

    @property
    def port(self) -> int:
        return int(self.address.rsplit(":", 1)[1].strip("/"))

    @property
    def room(self) -> str:
        return room_and_ticket(self.token, self.port)[0]

    @property
    def home(self) -> str:
        return self.address + self.room.removeprefix("/")

    @property
    def cookie(self) -> str:
        return f"{COOKIE}={room_and_ticket(self.token, self.port)[1]}"


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Starts servers as the command line does; they are gone after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(run: Path, *reviewer: str) -> Served:
        command = (
            "import sys; from pathlib import Path; from bomd.cli.review import review; "
            "review(Path(sys.argv[1]), 0, *sys.argv[2:])"
        )
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-c", command, str(run), *reviewer],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
            env=environment,
        )
        started.append(process)
        impatience = threading.Timer(60, process.kill)  # ends the loop below
        impatience.start()
        lines = []
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "?token=" in line:
                impatience.cancel()
                address, _, token = line.strip().partition("?token=")
                return Served(process, address, token)
        raise AssertionError("The server did not start: " + "".join(lines))

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
