"""Generated requests: whatever is sent, the answer is a page or one line with a 4xx, never a fault."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

PATHS = (
    *("/", "/api/queue", "/api/image/", "/api/decide", "/api/undo", "/api/run", "/api/agreement"),
    *("/picture/", "/heat/", "/static/", "/export.csv", "/agreement", "/../", "//"),
)
NAMES = (
    *("reviewer", "number", "id", "action", "labels", "reason"),
    *("class", "kind", "state", "text", "start", "count", "token", "small"),
)
WORDS = (
    *("Ada", "0", "1", "-1", "59", "60", "accept", "keep", "edit", "undo", "open", "decided", "both", "null", "1e9"),
    *("", " ", "é", "\x00", "%00", "%", "../", "..%2f", "<b>", "٣", "\ud7ff", "x" * 101, "9" * 30),
)


class Requests:
    """A stream of requests that a seed determines."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def pick(self, choices: tuple[str, ...]) -> str:
        return choices[self.random.integers(len(choices))]

    def value(self, depth: int = 0) -> Any:
        kind = self.random.integers(8 if depth < 2 else 5)
        if kind < 5:
            number = int(self.random.integers(-2, 70))
            return (self.pick(WORDS), number, None, bool(number % 2), float(self.random.normal()))[kind]
        if kind < 7:
            return [self.value(depth + 1) for _ in range(self.random.integers(16))]
        return {self.pick(NAMES): self.value(depth + 1) for _ in range(self.random.integers(4))}

    def body(self) -> bytes:
        """Mostly an object with the right names; sometimes cut short or noise."""
        content = json.dumps({self.pick(NAMES): self.value() for _ in range(self.random.integers(7))}).encode()
        if self.random.random() < 0.15:
            return content[: self.random.integers(len(content))]
        if self.random.random() < 0.15:
            return self.random.bytes(int(self.random.integers(300)))
        return content

    def draw(self) -> dict[str, Any]:
        """The arguments of one request."""
        path = self.pick(PATHS) + (self.pick(WORDS) if self.random.random() < 0.5 else "")
        query = {self.pick(NAMES): self.pick(WORDS) for _ in range(self.random.integers(5))}
        method = self.pick(("GET", "GET", "POST", "POST", "HEAD", "PUT"))
        kind = "application/json" if self.random.random() < 0.9 else self.pick(("", "a/b", "text/plain"))
        return {
            "method": method,
            "path": path.replace("?", "") if self.random.random() < 0.5 else quote(path),
            "params": query,
            "content": self.body() if method in ("POST", "PUT") else None,
            "headers": {"content-type": kind},
        }


def test_generated_requests_are_never_a_fault(run: Path, client: Any) -> None:
    """The client raises whatever the server did not expect; change the seed to try others."""
    requests, answers = Requests(seed=0), Counter[int]()
    with client(run) as page:
        for _ in range(600):
            sent = requests.draw()
            answer = page.request(**sent)
            answers[answer.status_code] += 1
            assert answer.status_code < 500, sent
            if answer.status_code >= 400 and sent["method"] != "HEAD":
                assert answer.text.count("\n") == 1, sent
    assert answers[200] > 50  # not only refusals
    assert answers[400] > 20


BROKEN = (
    b"\r\n\r\n",
    b"nonsense\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: {host}\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\n\r\n",
    b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"POST /api/decide HTTP/1.1\r\nHost: {host}\r\nContent-Length: -1\r\n\r\n",
    b"POST /api/decide HTTP/1.1\r\nHost: {host}\r\nContent-Length: 99999999999\r\n\r\n",
    b"POST /api/decide HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/1.1\r\nHost: {host}\r\nCookie: " + b"a" * 40_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 100_000,
    b"GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    bytes(range(256)) * 8,
)


@pytest.mark.slow
def test_broken_http_is_refused_by_a_server_that_lives_on(run: Path, serve: Callable[[Path], Any]) -> None:
    """Bytes as they come over the wire, below what the pages ever see."""
    served = serve(run)
    for message in BROKEN:
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
            connection.sendall(message.replace(b"{host}", f"127.0.0.1:{served.port}".encode()))
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65536)
            assert not answer or answer.startswith(b"HTTP/1.1 4"), (message[:80], answer[:80])
            assert b"Traceback" not in answer
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        head = f"GET {served.room}api/run HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n"
        connection.sendall(f"{head}Cookie: {served.cookie}\r\n\r\n".encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    served.process.terminate()
    said, _ = served.process.communicate(timeout=20)
    assert "Traceback" not in said


def test_a_tab_that_closes_in_the_middle_of_a_request_is_no_fault(
    run: Path, client: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    headers = {"content-type": "application/json", "content-length": "100"}
    with client(run) as browser:
        cut = [{"type": "http.request", "body": b'{"reviewer"', "more_body": True}, {"type": "http.disconnect"}]
        answer = browser.request("POST", "/api/decide", messages=cut, headers=headers)
    assert answer.status_code == 400
    assert "Traceback" not in capfd.readouterr().err
