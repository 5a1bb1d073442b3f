"""Work that nobody waits for yet, on a stream of its own beside the others' kernels.

The slopes of weights are needed when a step ends, the slopes of maps at once by the layer before. Where the maps are
small, neither fills a GPU alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import torch

BEHIND = 2  # pieces of work that may be under way; what they read is kept for so long

Found = TypeVar("Found")
_streams: dict[torch.device, torch.cuda.Stream] = {}


class Beside:
    """Does pieces of work in order; on a GPU they run beside what the caller goes on with."""

    def __init__(self, device: torch.device) -> None:
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            if device not in _streams:
                _streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._stream = _streams[device]
        self._waiting: deque[tuple[torch.cuda.Event, tuple[Any, ...]]] = deque()

    def do(self, work: Callable[..., Found], *reads: Any) -> Found:
        """Begin `work(*reads)` after all that was begun so far; nobody may use what it gives before `wait`."""
        if self._stream is None:
            return work(*reads)
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            found = work(*reads)
            self._waiting.append((self._stream.record_event(), reads))
        # Memory that the work reads is given away when nobody holds it, although this stream may not be done with it.
        if len(self._waiting) > BEHIND:
            event, _ = self._waiting.popleft()
            torch.cuda.current_stream().wait_event(event)
        return found

    def wait(self) -> None:
        """What follows may use what was found."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
            self._waiting.clear()
