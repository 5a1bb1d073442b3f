"""Connections that send nothing or too slowly are closed, so that nobody can lock the reviewer out."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

PATIENCE = 10.0  # seconds until the head of a request must be there
MOST_WAITING = 64  # connections without a whole request; the oldest of more is closed


class HastyProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, with a limit on how long and how many connections may wait for a first word.

    A browser sends its request at once, so that it is never among the oldest that wait.
    """

    waiting: ClassVar[OrderedDict[HastyProtocol, asyncio.TimerHandle]] = OrderedDict()  # a process has one server

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()
        while len(self.waiting) > MOST_WAITING:
            next(iter(self.waiting))._give_up()

    def data_received(self, data: bytes) -> None:
        asked = self.cycle
        super().data_received(data)
        if self.cycle is not asked:  # the head of a request is there
            self._stop_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and self.timeout_keep_alive_task is not None:
            self._wait()  # for the head of the next one, of which a first byte ends uvicorn's own patience

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._stop_waiting()
        self.waiting[self] = self.loop.call_later(PATIENCE, self._give_up)

    def _stop_waiting(self) -> None:
        timer = self.waiting.pop(self, None)
        if timer is not None:
            timer.cancel()

    def _give_up(self) -> None:
        self._stop_waiting()
        self.transport.abort()
