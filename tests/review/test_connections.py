"""Connections that say nothing are closed, and do not keep anybody out."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import uvicorn
from starlette.responses import PlainTextResponse

from bomd.review import connections
from bomd.review.connections import MOST_WAITING, HastyProtocol

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A small server with little patience."""
    monkeypatch.setattr(connections, "PATIENCE", 0.5)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(float(scope["query_string"] or 0))
        await PlainTextResponse("hello")(scope, receive, send)

    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=HastyProtocol, lifespan="off", log_level="critical", limit_concurrency=256)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join(10)


def connect(port: int, said: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(said)
    return connection


def answered(connection: socket.socket) -> bool:
    """Whether the whole answer comes, in however many pieces."""
    said = b""
    while b"hello" not in said and (piece := connection.recv(1000)):
        said += piece
    return said.startswith(b"HTTP/1.1 200") and said.endswith(b"hello")


def closed(connection: socket.socket) -> bool:
    """Whether the server hangs up; waits for it."""
    try:
        return connection.recv(1000) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_who_says_nothing_or_too_little_is_hung_up_on(port: int, said: bytes) -> None:
    started = time.monotonic()
    with connect(port, said) as connection:
        assert closed(connection)
    assert 0.3 < time.monotonic() - started < 8


def test_half_a_request_after_a_whole_one_is_not_waited_for_either(port: int) -> None:
    with connect(port, REQUEST) as connection:
        assert answered(connection)
        connection.sendall(b"GET / HT")
        assert closed(connection)


def test_hundreds_of_silent_connections_keep_nobody_out(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 60.0)
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(port, b"GET /")) for _ in range(300)]
        with connect(port, REQUEST) as own:
            assert answered(own)
        assert closed(silent[0])  # the oldest had to go
        assert len(HastyProtocol.waiting) <= MOST_WAITING


def test_an_answer_may_take_longer_than_a_request(port: int) -> None:
    with connect(port, REQUEST.replace(b"/ HTTP", b"/?1.2 HTTP")) as connection:
        assert answered(connection)
